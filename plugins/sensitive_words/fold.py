"""The folded copy of a text in which words are looked for, and the way back from it to the original.

The fold of a text is the fold of each of its code points, one after the other: compatibility forms, width and case are
undone, what cannot be seen is left out. Because no code point looks at its neighbours, a text folds alike however it is
cut into pieces, and every folded character knows the one it came from.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence

from gateway.sdk import WIDE_MARKS

_SHORT = 24  # up to here the table is cheaper than the checks that avoid it
_TABLE_LIMIT = 30_000  # code points remembered; a text of all of Unicode shall not fill the memory

#: What no reader sees (Default_Ignorable_Code_Point), controls but tab and line ends, and interlinear marks.
INVISIBLE = (
    "\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff"
)
_invisible = re.compile(f"[{INVISIBLE}]").match

#: Characters of ordinary Chinese that alone would send a text to the slow path; each folds to one other.
MARKS = [(wide, unicodedata.normalize("NFKD", wide)) for wide in f"{WIDE_MARKS}\xa0"] + [("…", ".")]

#: What folds to itself but for ASCII capitals. Most texts are made of this alone.
_plain = re.compile(
    "[\t\n\r -~\u4e00-\u9fff\u3001-\u3011\u3014-\u301b\u2013\u2014\u2018\u2019\u201c\u201d\u2022\u00b7\u00d7\u20ac"
    "\u2190-\u2193\u2500-\u257f\u3400-\u4dbf\U0001f300-\U0001f64f\U0001f680-\U0001f6ff\U0001f900-\U0001f9ff]*"
).fullmatch


def fold_character(character: str) -> str:
    """Fold one code point: NFKD and full case folding, nothing for what is invisible."""
    if _invisible(character):
        return ""
    if character == "…":  # NFKD makes three of it; one keeps ordinary Chinese at one to one
        return "."
    if "\uac00" <= character <= "\ud7a3":  # a syllable is the letter of Korean readers; its parts are none
        return character
    if "\ud800" <= character <= "\udfff":  # no lone half of a character reaches the automaton
        return "\ufffd"
    folded = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", character).casefold())
    return "".join(part for part in folded if not _invisible(part))


class _Table(dict[int, str]):
    """Code point to its fold, filled as characters come."""

    def __missing__(self, code: int) -> str:
        folded = fold_character(chr(code))
        if len(self) < _TABLE_LIMIT:
            self[code] = folded
        return folded


TABLE = _Table()
_ASCII = {code: fold_character(chr(code)) for code in range(128)}


def fold(text: str) -> tuple[str, bool]:
    """Return the folded text, and True if it is known to have one character for each of the original."""
    if text.isascii():
        folded = text.translate(_ASCII)
        return folded, len(folded) == len(text)
    if len(text) > _SHORT:
        for wide, half in MARKS:
            if wide in text:
                text = text.replace(wide, half)
        if _plain(text):
            return text.lower(), True
    return text.translate(TABLE), False


def origins(text: str) -> Sequence[int]:
    """Return, for each character of the folded text, the index of the code point it came from."""
    return [index for index, character in enumerate(text) for _ in TABLE[ord(character)]]


def _word_characters() -> Iterator[str]:
    """Yield folded letters, digits and marks of the scripts that put spaces between words."""
    blocks = ((0x30, 0xE00), (0x10A0, 0x1100), (0x1E00, 0x2000), (0x2C00, 0x2E00), (0xA640, 0xA6A0), (0xA720, 0xA800))
    for first, last in blocks:
        for character in map(chr, range(first, last)):
            if character.isalnum() or unicodedata.category(character).startswith("M"):
                yield character


WORD = frozenset(_word_characters())
"""Characters that go on a word of Latin (Greek, Cyrillic, …) letters or digits; Chinese has no such thing."""
