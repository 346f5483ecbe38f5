"""What is unwanted in a text, as regular expressions: whole, and cut off by the end of a piece.

None looks back, and each is bounded, so that a text can be read piece by piece with little held back.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Collection, Iterable

# A string sequence (title, link) that does not end within so much is only robbed of its beginning.
_STRING = 256
_SHORT = 64  # up to here one expression is quicker than three looks

#: C0 but tab, newline, return; DEL and C1; bidi embeddings, overrides and isolates.
CONTROLS = "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]"
_RUN = "[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9a\x9c-\x9f\u202a-\u202e\u2066-\u2069]+"  # no escape begins
_CSI = r"(?:\x1b\[|\x9b)[0-?]{0,64}[ -/]{0,8}"
_STRINGS = rf"\x1b[PX\]^_][^\x07\x1b\x9c]{{0,{_STRING}}}"
ESCAPES = rf"{_CSI}[@-~]?|{_STRINGS}(?:\x07|\x1b\\|\x9c)|\x1b[ -/]{{0,8}}[0-~]?"
OPEN_ESCAPES = rf"{_CSI}|{_STRINGS}\x1b?|\x1b[ -/]{{0,8}}"

SELECTORS = "\ufe00-\ufe0f\U000e0100-\U000e01ef"
JOINERS = "\u200b-\u200f\u2060\ufeff"
#: Removed wherever it stands in a token: what is no more than hidden there. Without what escapes begin with.
REMOVED = (
    f"\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9a\x9c-\x9f\u202a-\u202e\u2066-\u2069\U000e0000-\U000e007f{SELECTORS}"
)
#: Parts of countries whose flags are written with tags. Any other sequence of tags is text that nobody sees.
_PARTS = {
    "gb": "eng nir sct wls",
    "us": "ak al ar az ca co ct dc de fl ga hi ia id il in ks ky la ma md me mi mn mo ms mt nc nd ne nh nj nm nv ny oh "
    "ok or pa ri sc sd tn tx ut va vt wa wi wv wy",
    "ca": "ab bc mb nb nl ns nt nu on pe qc sk yt",
}
FLAGS = tuple(
    "\U0001f3f4" + "".join(chr(0xE0000 + ord(letter)) for letter in f"{country}{part}\x7f")
    for country, parts in _PARTS.items()
    for part in parts.split()
)
_BEGUN = "|".join(sorted({flag[1:end] for flag in FLAGS for end in range(1, len(flag))}))
_FLAG_BEGUN = f"\U0001f3f4(?=[\U000e0061-\U000e007a]{{0,5}}\\Z)(?:{_BEGUN})"

_SELECTORS = {*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)}
_STACKED = range(0x0F8D, 0x0FBD)  # Tibetan consonants written under another: marks to Unicode, letters to who writes
_CATEGORIES = {"Mn": "mark", "Me": "mark", "Mc": "spacing"}

#: What stands on a base character, and of which kind it is. Spacing are vowels and medials of Burmese and others, which
#: write several beside one consonant.
KINDS = {
    chr(code): "stacked" if code in _STACKED else kind
    for code in range(0x300, 0x1F000)
    if (kind := _CATEGORIES.get(unicodedata.category(chr(code)))) is not None and code not in _SELECTORS
}


def _class(characters: Iterable[str]) -> str:
    """Write the class of these characters, which are in order."""
    runs: list[list[str]] = []
    for one in characters:
        if runs and ord(runs[-1][-1]) == ord(one) - 1:
            runs[-1][-1] = one
        else:
            runs.append([one, one])
    return "".join(f"{first}-{last}" for first, last in runs)


_EVERY_MARK = _class(KINDS)
_MARK = _class(one for one in KINDS if one < "\U00010000")  # a class with astral characters is a slow one
_FEW = 4  # marks on a base that need no look


def compile_pattern(*, final: bool) -> re.Pattern[str]:
    """Compile what has to be looked at; the group's name says what it is.

    Where the text goes on (not ``final``), "open" is what only more text can decide; it comes first, so that nothing
    is taken for less than it may become.
    """
    not_open = rf"(?!(?:{OPEN_ESCAPES})\Z)"
    alternatives = [
        *([] if final else [rf"(?P<open>(?:{OPEN_ESCAPES}|{_FLAG_BEGUN})\Z)"]),
        f"(?P<control>(?:{_RUN}|{'' if final else not_open}(?:{ESCAPES}))++)",
        f"(?P<flag>{'|'.join(FLAGS)})",
        "(?P<tag>[\U000e0000-\U000e007f]+)",
        f"(?P<selector>[{SELECTORS}]+)",
        f"(?P<joiner>[{JOINERS}]+)",
        f"(?P<mark>[{_EVERY_MARK}]+)",
    ]
    return re.compile("|".join(alternatives))


marked = re.compile(f"[{_EVERY_MARK}]+").match


# Where there is nothing of this, and no token, nothing is to be done. Of the astral planes only emoji are known to be
# harmless.
SPECIAL = f"{CONTROLS[1:-1]}{JOINERS}{_MARK}\ufe00-\ufe0f\U00010000-\U0001f2ff\U0001f3f4\U000e0000-\U000effff"
BRACKETS = "<[＜［"
_is_special = re.compile(f"[{SPECIAL}]").match
#: What most texts are made of, none of it special: quicker to confirm than the special is to miss.
_usual = re.compile(
    "[\t\n\r -;=-Z\\\\-~\u4e00-\u9fff\u3001-\u3029\uff01-\uff1b\uff1d-\uff3a\uff3c-\uff5e\u2010-\u2027\xa0-\xac"
    "\u2190-\u27bf]+"
).fullmatch
_DELETED = dict.fromkeys([*range(9), 11, 12, *range(14, 32), 127])

Search = Callable[[str, int], re.Match[str] | None]


def compile_looks(starts: Collection[str], begins: str, max_marks: int) -> tuple[Search, Callable[[str], bool]]:
    """Compile the search for the next place that needs a look, and the test of a text (of one code point or more) in
    which there is none. ``starts``: what tokens begin with; ``begins``: at one of these, whether one may begin there.

    A few marks between two ordinary characters need none.
    """
    own = "".join(sorted(start for start in starts if _is_special(start) is None))
    every, few = f"{SPECIAL}{re.escape(own)}", min(_FEW, max_marks)
    between = "|".join(
        f"(?<=[^{every}][{_MARK}]{{{before}}})[{_MARK}]{{0,{few - before}}}+[^{every}]" for before in range(1, few + 1)
    )
    looks = [f"(?<![{_MARK}{re.escape(own)}])", f"(?<=[{_MARK}])(?!{between})", *([begins] if own else [])]
    special = re.compile(f"[{every}](?:{'|'.join(looks)})").search
    rare = "".join(sorted(set(own).difference(BRACKETS)))
    is_rare = re.compile(f"[{re.escape(rare)}]").search if rare else None

    def is_plain(text: str) -> bool:
        if len(text) > _SHORT and text.isascii():
            usual = "<" not in text and "[" not in text and len(text.translate(_DELETED)) == len(text)
        else:
            usual = _usual(text) is not None
        return (usual and (is_rare is None or is_rare(text) is None)) or (special(text, 0) is None and text != "")

    return special, is_plain
