"""What a text is when width, case and what cannot be seen make no difference.

The fold of a text is the fold of each of its code points, one after the other. Because no code point looks at its
neighbours, a text folds alike however it is cut into pieces.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

_TABLE_LIMIT = 30_000  # code points remembered; a text of all of Unicode shall not fill the memory

#: What no reader sees (Default_Ignorable_Code_Point), controls but tab and line ends, interlinear marks, the blank
#: Braille pattern, and the stroke that only makes Arabic words longer.
INVISIBLE = (
    "\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\xad\u034f\u061c\u0640\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff"
)
_invisible = re.compile(f"[{INVISIBLE}]").match


def fold_character(character: str) -> str:
    """Fold one code point: NFKD and full case folding, nothing for what is invisible."""
    if _invisible(character):
        return ""
    if character == "…":  # NFKD makes three points of it, which would be another sign
        return character
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


_TABLE = _Table()


def fold(text: str) -> str:
    """Return the folded text."""
    return text.translate(_TABLE)


#: Letters by their category that look like apostrophes, or like other signs: they part words as these do.
LIKE_APOSTROPHES = "ʹʺʻʼʽʾʿˈˊˋˮʹꞋꞌߴߵ"
LIKE_SIGNS = "ˀˁˆˇˉˌˍˎˏːˑˬǁǃꞏꓸꓹꓺꓻꓼꓽᐧᆞ〳〴〵ߺ"

#: Blocks of the scripts that put spaces between words: Latin to Sinhala, Georgian, Ethiopic to the Philippine ones,
#: Mongolian, Sundanese to Greek, Coptic to Cyrillic, Lisu, Bamum to Rejang, Ethiopic and Cherokee again, those of
#: the second plane that somebody writes today. Korean joins its particles to words.
_SPACED = (
    *((0x30, 0xE00), (0x10A0, 0x1100), (0x1200, 0x1780), (0x1800, 0x1950), (0x1B80, 0x2000), (0x2C00, 0x2E00)),
    *((0xA4D0, 0xA500), (0xA640, 0xA960), (0xAB00, 0xAC00), (0x10400, 0x10600), (0x10C80, 0x10D40), (0x118A0, 0x11900)),
    (0x1E900, 0x1E960),
)


def _word_characters() -> Iterator[str]:
    """Yield folded letters, digits and marks of the scripts that put spaces between words."""
    for first, last in _SPACED:
        for character in map(chr, range(first, last)):
            if character.isalnum() or unicodedata.category(character).startswith("M"):
                yield character


WORD = frozenset(_word_characters()).difference(LIKE_APOSTROPHES, LIKE_SIGNS)
"""Characters that go on a word of Latin (Greek, Cyrillic, …) letters or digits; Chinese has no such thing."""
