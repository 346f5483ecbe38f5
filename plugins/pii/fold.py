"""The copy of a text in which personal data is looked for: ASCII digits and letters, nothing invisible."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

#: What no reader sees (Default_Ignorable_Code_Point), controls but tab and line ends, and interlinear marks.
INVISIBLE = (
    "\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff"
)
_LETTERS = (*range(0x2100, 0x2150), *range(0x24B6, 0x24EA), *range(0x1D400, 0x1D6A4))


def _table() -> dict[int, str]:
    """Every script's decimal digits, the letters that are a Latin one by another form, and the signs of an address.

    Circled and raised digits are left alone: they number what stands next to them.
    """
    folded = {code: str(unicodedata.decimal(chr(code))) for code in range(0x80, 0x20000) if chr(code).isdecimal()}
    for code in _LETTERS:
        plain = unicodedata.normalize("NFKC", chr(code))
        if len(plain) == 1 and plain.isascii() and plain.isalpha():
            folded[code] = plain
    wide = [*range(ord("A"), ord("Z") + 1), *range(ord("a"), ord("z") + 1), *map(ord, "@._%+-")]
    return folded | {code + 0xFEE0: chr(code) for code in wide} | {0xFE6B: "@", 0xFE52: ".", 0xFE63: "-"}


def ranges(codes: Sequence[int]) -> str:
    """Write rising code points as the inside of a character class."""
    runs: list[list[int]] = []
    for code in codes:
        if runs and runs[-1][1] == code - 1:
            runs[-1][1] = code
        else:
            runs.append([code, code])
    return "".join(f"{chr(first)}-{chr(last)}" if first != last else chr(first) for first, last in runs)


_TABLE = _table()
FOLDED = ranges(sorted(_TABLE))
#: Nothing to fold and nothing invisible: most texts are made of this alone.
_usual = re.compile(
    "[\t\n\r -~\u4e00-\u9fff\u3001-\u3011\u3014-\u301b\u2013\u2014\u2018\u2019\u201c\u201d\u2022\u2026"
    "！（），：；？\xb7\xd7\u2190-\u2193\u2500-\u257f\u3400-\u4dbf]*"
).fullmatch
_folded = re.compile(f"[{FOLDED}]").search
_invisible = re.compile(f"[{INVISIBLE}]").search
_visible = re.compile(f"[^{INVISIBLE}]").finditer


def fold(text: str) -> str:
    """Return the text with plain digits and letters, code point for code point."""
    return text if _folded(text) is None else text.translate(_TABLE)


def visible(text: str) -> tuple[str, Sequence[int]]:
    """Return what a reader sees of the text, folded, and where each of its characters stands in the text."""
    if _usual(text) is not None:
        return text, range(len(text))
    if _invisible(text) is None:
        return fold(text), range(len(text))
    places = [match.start() for match in _visible(text)]
    return fold("".join([text[place] for place in places])), places
