"""JSON text that is edited without being parsed anew: tool-call arguments, whose untouched parts keep their bytes."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

import msgspec

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"

_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_PAIR = r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_ESCAPE = re.compile(_PAIR + r"|\\u[0-9a-fA-F]{4}|\\.", re.DOTALL)
_UNIT = re.compile(_PAIR + r"|\\u[0-9a-fA-F]{4}|\\.|.", re.DOTALL)  # what stands for one code point
_TOKEN = re.compile(r'"(?:[^"\\]++|\\.)*+"([ \t\n\r]*:)?|-?[0-9][0-9.eE+-]*', re.DOTALL)


def is_json(raw: str) -> bool:
    """Tell whether an engine would read this as JSON: as Python's own parser, which takes NaN and lone surrogates."""
    try:
        json.loads(raw)
    except (ValueError, RecursionError):
        return False
    return True


def pieces(raw: str) -> tuple[list[str], frozenset[int]]:
    """Cut JSON text at its strings (with their quotes) and numbers: they are every second piece.

    Returned with the pieces are the ordinals of the strings that are members' names.
    """
    cut: list[str] = []
    names: list[int] = []
    at = 0
    for ordinal, token in enumerate(_TOKEN.finditer(raw)):
        end = token.end()
        if token[1] is not None:
            end = token.start(1)
            names.append(ordinal)
        cut += (raw[at : token.start()], raw[token.start() : end])
        at = end
    cut.append(raw[at:])
    return cut, frozenset(names)


def unescape(raw: str) -> str:
    """Decode the inside of a JSON string, code point for code point; half a surrogate pair is a U+FFFD."""
    return _ESCAPE.sub(_character, raw) if "\\" in raw else raw


def escape(text: str) -> str:
    """Encode text as the inside of a JSON string."""
    return msgspec.json.encode(text).decode()[1:-1]


def splice(raw: str, edits: Sequence[tuple[int, int, str]]) -> str:
    """Edit the inside of a JSON string at decoded positions; what is not edited keeps its spelling."""
    if "\\" not in raw:
        return spliced(raw, [(start, end, escape(new)) for start, end, new in edits])
    bounds = [*units(raw), len(raw)]
    last = len(bounds) - 1
    return spliced(raw, [(bounds[min(start, last)], bounds[min(end, last)], escape(new)) for start, end, new in edits])


def units(raw: str) -> list[int]:
    """Return where in the inside of a JSON string each decoded code point begins."""
    return [unit.start() for unit in _UNIT.finditer(raw)]


def spliced(text: str, edits: Sequence[tuple[int, int, str]]) -> str:
    """Put each edit's text in the place of code points start to end; edits rise and do not overlap."""
    parts: list[str] = []
    at = 0
    for start, end, new in edits:
        parts += (text[at:start], new)
        at = end
    parts.append(text[at:])
    return "".join(parts)


def _character(found: re.Match[str]) -> str:
    escaped = found[0]
    if escaped[1] != "u" or len(escaped) < 6:
        return _ESCAPES.get(escaped[1], escaped[1])
    code = int(escaped[2:6], 16)
    if len(escaped) == 12:
        return chr(0x10000 + ((code - 0xD800) << 10) + (int(escaped[8:], 16) - 0xDC00))
    return REPLACEMENT if 0xD800 <= code <= 0xDFFF else chr(code)
