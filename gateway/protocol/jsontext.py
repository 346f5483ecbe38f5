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


def pieces(raw: str) -> list[str]:
    """Cut JSON text at its values: every second piece is a string (with its quotes) or number that is not a key."""
    cut = []
    at = 0
    for token in _TOKEN.finditer(raw):
        if token[1] is None:
            cut += (raw[at : token.start()], token[0])
            at = token.end()
    cut.append(raw[at:])
    return cut


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
    bounds = [unit.start() for unit in _UNIT.finditer(raw)]
    bounds.append(len(raw))
    return spliced(raw, [(bounds[start], bounds[end], escape(new)) for start, end, new in edits])


def spliced(text: str, edits: Sequence[tuple[int, int, str]]) -> str:
    """Put each edit's text in the place of code points start to end; edits rise and do not overlap."""
    pieces = []
    at = 0
    for start, end, new in edits:
        pieces += (text[at:start], new)
        at = end
    pieces.append(text[at:])
    return "".join(pieces)


def _character(found: re.Match[str]) -> str:
    escaped = found[0]
    if escaped[1] != "u" or len(escaped) < 6:
        return _ESCAPES.get(escaped[1], escaped[1])
    code = int(escaped[2:6], 16)
    if len(escaped) == 12:
        return chr(0x10000 + ((code - 0xD800) << 10) + (int(escaped[8:], 16) - 0xDC00))
    return REPLACEMENT if 0xD800 <= code <= 0xDFFF else chr(code)
