"""What can be told of a regular expression before any text is seen: how long a match may be, and how one begins.

A stream has to know whether a match may be under way at the end of what has come: whether a match's beginning stands
there. The expression of all beginnings is made from the parsed one: of ``ab{2}`` it is ``(?:a(?:b{2}|b{0,1}))?``.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

_parser: Any = importlib.import_module("re._parser")  # the standard library's own; it has no public name

_ENDLESS = 1_000_000  # wider than this is the parser's way to say without end
_CATEGORIES = {
    "CATEGORY_DIGIT": r"\d",
    "CATEGORY_NOT_DIGIT": r"\D",
    "CATEGORY_SPACE": r"\s",
    "CATEGORY_NOT_SPACE": r"\S",
    "CATEGORY_WORD": r"\w",
    "CATEGORY_NOT_WORD": r"\W",
}
_ANCHORS = {
    "AT_BEGINNING": "^",
    "AT_BEGINNING_STRING": r"\A",
    "AT_BOUNDARY": r"\b",
    "AT_NON_BOUNDARY": r"\B",
    "AT_END": "$",
    "AT_END_STRING": r"\z",
}
_SINGLE = {"LITERAL", "NOT_LITERAL", "ANY", "IN"}
_REPEATS = {"MAX_REPEAT", "MIN_REPEAT"}
_LOOKS = {"ASSERT", "ASSERT_NOT"}
_FLAGS = {"i": re.IGNORECASE, "s": re.DOTALL, "m": re.MULTILINE}

Items = Sequence[tuple[Any, Any]]


@dataclass(frozen=True, slots=True)
class Shape:
    """A parsed expression. Lengths are in characters; ``longest`` is None where there is no longest match."""

    items: Any
    flags: str

    @property
    def shortest(self) -> int:
        """Return the length of the shortest match."""
        return int(self.items.getwidth()[0])

    @property
    def longest(self) -> int | None:
        """Return the length of the longest match."""
        width = int(self.items.getwidth()[1])
        return width if width < _ENDLESS else None

    def written(self, most: int, *, anchors: bool = True) -> str:
        """Write the expression out again, with repetitions that have no end ended at ``most``.

        Raises ValueError where it looks around itself or back, or takes what it will not give back.
        """
        return f"({self.flags}{_all(self.items, _Way(most, anchors))})"

    def beginnings(self, most: int = _ENDLESS, *, looks: bool = False) -> str:
        """Write the expression of everything that a match may begin with, nothing at all and all of it included.

        What stands behind a match is not asked for, so it matches more rather than less.
        """
        return f"({self.flags}{_begun(list(self.items), _Way(most, anchors=False, looks=looks))})"


def parse(source: str) -> Shape:
    """Parse an expression. Raises re.error, which names the position, and FutureWarning."""
    items = _parser.parse(source)
    flags = "".join(letter for letter, flag in _FLAGS.items() if items.state.flags & flag)
    return Shape(items, f"?{flags}:" if flags else "?:")


@dataclass(frozen=True, slots=True)
class _Way:
    """How to write: where endless repetitions end, and whether anchors and groups are written at all."""

    most: int
    anchors: bool
    looks: bool = False  # Python's engine may look behind itself


def _all(items: Items, way: _Way) -> str:
    return "".join([_one(str(name), value, way) for name, value in items])


def _one(name: str, value: Any, way: _Way) -> str:
    """Write one element."""
    written = ""
    if name in _SINGLE:
        written = _single(name, value)
    elif name == "AT":
        written = _ANCHORS[str(value)] if way.anchors else ""
    elif name == "BRANCH":
        written = f"(?:{'|'.join(_all(one, way) for one in value[1])})"
    elif name == "SUBPATTERN":
        group, add, remove, inner = value
        written = f"{'(' if group and way.anchors else '(?' + _scoped(add, remove) + ':'}{_all(inner, way)})"
    elif name in _REPEATS:
        low, high, inner = value
        written = f"(?:{_all(inner, way)}){_times(low, high, way)}{'?' if name == 'MIN_REPEAT' else ''}"
    elif name in _LOOKS and way.looks:
        direction, inner = value
        written = f"(?<{'=' if name == 'ASSERT' else '!'}{_all(inner, way)})" if direction < 0 else ""
    else:
        raise ValueError(name)
    return written


def _single(name: str, value: Any) -> str:
    if name == "LITERAL":
        return re.escape(chr(value))
    if name == "NOT_LITERAL":
        return f"[^{re.escape(chr(value))}]"
    return "." if name == "ANY" else f"[{''.join(_member(str(kind), inner) for kind, inner in value)}]"


def _member(kind: str, value: Any) -> str:
    if kind == "NEGATE":
        return "^"
    if kind == "RANGE":
        return "-".join(re.escape(chr(code)) for code in value)
    return _CATEGORIES[str(value)] if kind == "CATEGORY" else re.escape(chr(value))


def _scoped(add: int, remove: int) -> str:
    on = "".join(letter for letter, flag in _FLAGS.items() if add & flag)
    off = "".join(letter for letter, flag in _FLAGS.items() if remove & flag)
    return on + (f"-{off}" if off else "")


def _times(low: int, high: Any, way: _Way) -> str:
    return f"{{{low},{max(low, way.most) if int(high) >= _ENDLESS else int(high)}}}"


def _begun(items: list[tuple[Any, Any]], way: _Way) -> str:
    """Write what a sequence may begin with: its first element and a beginning of the rest, or one of the first."""
    if not items:
        return ""
    (opcode, value), rest = items[0], _begun(items[1:], way)
    name = str(opcode)
    whole = _one(name, value, way)
    if name == "AT" or name in _LOOKS:  # takes no character: it is no beginning by itself
        return whole + rest
    if name in _REPEATS and len(value[2]) == 1 and str(value[2][0][0]) in _SINGLE:
        low, one = value[0], _all(value[2], way)
        return f"(?:{whole}{rest}|{one}{{0,{low - 1}}})" if low > 1 else f"(?:{whole}{rest})?"
    part = _part(name, value, way)
    return f"(?:{whole}{rest}|{part})" if part else f"(?:{whole}{rest})?"


def _part(name: str, value: Any, way: _Way) -> str:
    """Write what one element may begin with, where it is more than one character."""
    if name == "BRANCH":
        return "|".join(_begun(list(one), way) for one in value[1])
    if name == "SUBPATTERN":
        return f"(?{_scoped(value[1], value[2])}:{_begun(list(value[3]), way)})"
    if name in _REPEATS:
        low, high, inner = value
        most = (max(low, way.most) if int(high) >= _ENDLESS else int(high)) - 1
        return f"(?:{_all(inner, way)}){{0,{max(0, most)}}}{_begun(list(inner), way)}"
    return ""
