"""What is read in two ways, and the other one of them.

Symbols that have letters or digits in them and stand alone (™ ² ① ½ № ㎏, flags) may spell a word, but they are also no
part of the word beside them and may stand between letters, like ® and 💩. One emoji is one such sign, of however many
people and tones it is made. A mark of another script is a letter to that script's readers, and decoration on a Latin or
Chinese one. A Greek capital may look like another Latin letter than its small one does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from plugins.sensitive_words.fold import LIKE_APOSTROPHES, LIKE_SIGNS
from plugins.sensitive_words.tables import MARKS, NUMBERS

#: Single strokes, which are Chinese characters too.
SINGLE = "丶丿丨"

_RAISED = "\xb2\xb3\xb9\u2070\u2074-\u2079"
_FRACTIONS = "\xbc-\xbe\u2150-\u215f\u2189"
#: Squared, circled and telephone signs; enclosed letters are only among them between Chinese ones.
_SIGNS = (
    f"{SINGLE}\u20a8\u2f01-\u2f03\u309b\u309c\u3192-\u3195\ufdfc"
    "\u2100\u2101\u2103\u2105\u2106\u2109\u2116\u2120-\u2122\u213b\u2460-\u24b5\u24ea-\u24ff\u2776-\u2793\u3200-\u33ff"
    "\U0001f100-\U0001f12f\U0001f14a-\U0001f14f\U0001f16a-\U0001f16c\U0001f18a-\U0001f1ad\U0001f200-\U0001f265"
)
_LETTERS = "\u24b6-\u24e9\U0001f130-\U0001f149\U0001f150-\U0001f169\U0001f170-\U0001f189"
_FLAGS, _TONES, _JOINER = "\U0001f1e6-\U0001f1ff", "\U0001f3fb-\U0001f3ff", "\u200d"
#: Each has a letter of its script that is read as it looks.
_CAPITALS = {"Ν": "ͷ", "Υ": "γ", "ϒ": "γ", "Ϲ": "ϛ", "ϲ": "ϛ"}
#: Letters that marks of other scripts only decorate; those that have such marks of their own, and their marks.
_BARE = "0-9A-Za-z\xc0-\u024f\u1e00-\u1eff\uff10-\uff5a"
_CHINESE = "\u3400-\u9fff\uac00-\ud7a3"
_OTHER_BASES, _THEIR_MARKS = "\u0370-\u0481\u048a-\u052f", "\u2de0-\u2dff\ua66f-\ua67d\ua69e\ua69f"
#: Marks of Cyrillic, Arabic and Korean that are decoration too; an iota below is a letter where letters are.
_FOREIGN, _IOTA = "\u0483-\u0487\u0653-\u0655\u302a-\u302f", "\u0345"
_PARTING = LIKE_APOSTROPHES + LIKE_SIGNS
_EMOJI = "[\u2190-\u23ff\u2600-\u2775\u2794-\u2bff\U0001f300-\U0001faff]"
_MARKS_BELOW, _NUMBERS_BELOW = (re.sub("[\U00010000-\U0010ffff].*", "", ranges) for ranges in (MARKS, NUMBERS))
#: What all that begins with; beyond the first plane a rough set, for a fine one is slow.
_ANY = (
    f"[{_RAISED}{_FRACTIONS}{_SIGNS}{_LETTERS}{_FLAGS}{_TONES}{_JOINER}{''.join(_CAPITALS)}{_FOREIGN}{_IOTA}"
    f"{_MARKS_BELOW}{_NUMBERS_BELOW}\U00010101-\U00011fff\U00016000-\U0001efff]"
)
_search = re.compile(_ANY).search
_alone = re.compile(
    f"{_ANY}(?:(?<=([{_RAISED}{_FRACTIONS}]))|(?<=([{''.join(_CAPITALS)}]))|("
    f"(?<=[{_FOREIGN}{MARKS}])(?<![{MARKS}].)(?<![^\\W{_BARE}{_CHINESE}{_PARTING}].)[{_FOREIGN}{MARKS}]*"
    f"|(?<=[{_OTHER_BASES}][{MARKS}])(?<![{_THEIR_MARKS}])(?:(?![{_THEIR_MARKS}])[{MARKS}])*"
    f"|(?<={_IOTA})(?<![{MARKS}{_IOTA}].)(?<![^\\W{_CHINESE}{_PARTING}].)"
    f"|(?<=[{_TONES}])|(?<={_JOINER}){_EMOJI}"
    f")|(?<=[{_SIGNS}{NUMBERS}])|(?<=[{_FLAGS}])[{_FLAGS}]?"
    f"|(?<=[{_LETTERS}])(?<=[{_CHINESE}].)(?=\ufe0f?(?:[{_CHINESE}]|\\Z)))"
)
_power = re.compile(f"[^{_RAISED}\u2080-\u2089]+[{_RAISED}\u2080-\u2089]+").fullmatch
#: What stands for them: a sign that no entry has, and one that is written in numbers; what nobody sees stands for the
#: rest of an emoji.
_SIGN, _NUMBERS, _REST = "\ufffd", "=", "\u200b"


def aside(text: str) -> str | None:
    """Return a text as it is read the other way, code point for code point; None where that is the same."""
    if not _search(text):
        return None
    other = _alone.sub(_sign, text)
    return None if other == text else other


def has_alone(text: str) -> bool:
    """Is it read in two ways?"""
    return aside(text) is not None


def begins_alone(text: str) -> bool:
    """Does it begin with what may be read in two ways?"""
    return _search(text[:1]) is not None


def readings(text: str) -> Iterator[str]:
    """Yield what is to be read: the text, and it read the other way if there is one."""
    yield text
    if (other := aside(text)) is not None:
        yield other


def is_power(written: Sequence[str]) -> bool:
    """Are digits as they are written a number with a power or an index? 6⁴ is no 64."""
    return _power("".join(written)) is not None


def _sign(match: re.Match[str]) -> str:
    symbol = match[0]
    if match.lastindex is None:
        return _SIGN + _REST * (len(symbol) - 1)
    return (_NUMBERS, _CAPITALS.get(symbol, ""), _REST * len(symbol))[match.lastindex - 1]
