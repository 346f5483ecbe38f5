"""What is unwanted in a text, as regular expressions: whole, and cut off by the end of a piece.

None looks back, and each is bounded, so that a text can be read piece by piece with little held back.
"""

from __future__ import annotations

import re
import unicodedata

# A string sequence (title, link) that does not end within so much is only robbed of its beginning.
_STRING = 256
_SHORT = 64  # up to here one expression is quicker than three looks

#: C0 but tab, newline, return; DEL and C1; bidi embeddings, overrides and isolates.
CONTROLS = "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]"
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
_FLAG = "\U0001f3f4[\U000e0020-\U000e007e]"


#: Tibetan consonants written under another: marks to Unicode, letters to who writes.
STACKED = "".join(map(chr, range(0x0F8D, 0x0FBD)))


def _marks() -> str:
    """Write the class of marks that stand on a base character, but for variation selectors and consonants."""
    selectors = {*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0), *map(ord, STACKED)}
    runs: list[list[int]] = []
    for code in range(0x300, 0x1F000):
        if unicodedata.category(chr(code)) in {"Mn", "Me"} and code not in selectors:
            if runs and runs[-1][-1] == code - 1:
                runs[-1][-1] = code
            else:
                runs.append([code, code])
    return "".join(f"{chr(first)}-{chr(last)}" for first, last in runs)


MARKS = _marks()


def compile_pattern(*, final: bool) -> re.Pattern[str]:
    """Compile what has to be looked at; the group's name says what it is.

    Where the text goes on (not ``final``), "open" is what only more text can decide; it comes first, so that nothing
    is taken for less than it may become.
    """
    alternatives = [
        *([] if final else [rf"(?P<open>(?:{OPEN_ESCAPES}|{_FLAG}{{0,32}})\Z)"]),
        f"(?P<control>{ESCAPES}|{CONTROLS})",
        f"(?P<flag>{_FLAG}{{1,32}}\U000e007f)",
        "(?P<tag>[\U000e0000-\U000e007f]+)",
        f"(?P<selector>[{SELECTORS}]+)",
        f"(?P<joiner>[{JOINERS}]+)",
        f"(?P<mark>[{MARKS}]+)",
        f"(?P<stacked>[{STACKED}]+)",
    ]
    return re.compile("|".join(alternatives))


# Where there is nothing of this, nothing is to be done. Of the astral planes only emoji are known to be harmless.
SPECIAL = (
    f"<\\[＜［{CONTROLS[1:-1]}{JOINERS}"
    + "".join(re.findall("[\u0300-\uffff]-[\u0300-\uffff]", MARKS))
    + STACKED
    + "\ufe00-\ufe0f\U00010000-\U0001f2ff\U0001f3f4\U000e0000-\U000effff"
)
special = re.compile(f"[{SPECIAL}]").search
#: What most texts are made of, none of it special: quicker to confirm than the special is to miss.
_usual = re.compile(
    "[\t\n\r -;=-Z\\\\-~\u4e00-\u9fff\u3001-\u3029\uff01-\uff1b\uff1d-\uff3a\uff3c-\uff5e\u2010-\u2027\xa0-\xac"
    "\u2190-\u27bf]+"
).fullmatch
_DELETED = dict.fromkeys([*range(9), 11, 12, *range(14, 32), 127])


def is_plain(text: str) -> bool:
    """Return True for a text (of one code point or more) in which nothing is to be done."""
    if len(text) > _SHORT and text.isascii():
        return "<" not in text and "[" not in text and len(text.translate(_DELETED)) == len(text)
    return _usual(text) is not None or (special(text) is None and text != "")
