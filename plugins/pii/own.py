"""The operator's own patterns, found by RE2: in linear time, whatever the pattern and whatever the text."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator

import re2  # type: ignore[import-untyped]  # it ships no types

from plugins.pii.kinds import Match
from plugins.pii.shape import Shape, parse

#: Where ``+`` and ``*`` end: the first of these with which no match is longer than _LONGEST.
_REPEATS = (256, 128, 64, 32, 16, 8)
_LONGEST = 1000  # RE2 counts no further, repetitions of repetitions included
_looks = re.compile(r"\(\?<?[=!]|\(\?P=|\\[1-9]")


class OwnForm:
    """A pattern of the configuration. Its first group, where it has one, is the value; else all of it is.

    ``limit`` is what ``+`` and ``*`` reach at most; None where the pattern has an end by itself.
    Raises ValueError with one line that says what is wrong, and where in the pattern.
    """

    __slots__ = ("_regex", "beginnings", "inside", "limit", "longest")

    def __init__(self, source: str) -> None:
        shape = _parsed(source)
        self.limit = None if shape.longest is not None else _limit(shape)
        most = self.limit or _LONGEST
        try:
            written, self.beginnings = shape.written(most), shape.beginnings(most)
            self.inside = shape.written(most, anchors=False)
        except ValueError:
            raise ValueError(_at(_UNUSABLE, source)) from None
        self._regex = compiled(written)
        compiled(f"(?:{self.beginnings})\\z")
        self.longest = parse(written.replace(r"\z", r"\Z")).longest or 0
        if self.longest > _LONGEST:
            raise ValueError(f"matches up to {self.longest} characters; a stream can wait for {_LONGEST}")

    def find(self, text: str, at: int) -> Iterator[Match]:
        """Yield the matches."""
        group = min(self._regex.groups, 1)
        for found in self._regex.finditer(text, at):
            start, end = found.span()
            value, last = found.span(group)
            yield Match(start, end, value, last) if value < last else Match(start, end, start, end)


_UNUSABLE = "looks around itself or back at a group, which cannot be done in linear time"


def compiled(source: str) -> re2._Regexp:
    """Compile an expression with RE2. Raises ValueError."""
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(source, options)
    except re2.error as error:
        said = error.args[0]
        raise ValueError(f"RE2 does not take it: {said.decode() if isinstance(said, bytes) else said}") from None


def _parsed(source: str) -> Shape:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # what Python reads in one way today, and RE2 in another
            shape = parse(source)
    except re.error as error:
        raise ValueError(f"{error.msg} at position {error.pos or 0}") from None
    except RecursionError:
        raise ValueError("nests too many groups") from None
    except (Warning, OverflowError) as error:
        raise ValueError(str(error).partition("\n")[0].lower()) from None
    if shape.shortest == 0:
        raise ValueError("matches the empty text; let it ask for a character at least")
    return shape


def _limit(shape: Shape) -> int:
    for most in _REPEATS:
        try:
            written = shape.written(most).replace(r"\z", r"\Z")
        except ValueError:
            return most  # is refused for its own reason
        longest = parse(written).longest
        if longest is not None and longest <= _LONGEST:
            return most
    raise ValueError("nests repetitions without an end; give them one, as in {1,64}")


def _at(what: str, source: str) -> str:
    found = _looks.search(source)
    return f"{what} (at position {found.start()})" if found else what
