"""Symbols that have letters or digits in them and stand alone: ™ ² ① ½ № ㎏ and flags.

A text that has some is read twice: with their letters, for words may be spelled in them, and as if they were signs like
® and 💩, for they are no part of the word beside them and may stand between letters. One emoji is one sign, of however
many people and tones it is made.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

_RAISED = "\xb2\xb3\xb9\u2070\u2074-\u2079"
_FRACTIONS = "\xbc-\xbe\u2150-\u215f\u2189"
#: Squared, circled and telephone signs; enclosed letters are only among them where no word can go on beside them.
_SIGNS = (
    "\u2100\u2101\u2103\u2105\u2106\u2109\u2116\u2120-\u2122\u213b\u2460-\u24b5\u24ea-\u24ff\u2776-\u2793\u3200-\u33ff"
    "\U0001f100-\U0001f12f\U0001f14a-\U0001f14f\U0001f16a-\U0001f16c\U0001f18a-\U0001f1ad\U0001f200-\U0001f265"
)
_LETTERS = "\u24b6-\u24e9\U0001f130-\U0001f149\U0001f150-\U0001f169\U0001f170-\U0001f189"
_FLAGS, _TONES, _JOINER = "\U0001f1e6-\U0001f1ff", "\U0001f3fb-\U0001f3ff", "\u200d"
#: Most texts have none of all this, which one set tells much quicker.
_search = re.compile(f"[{_RAISED}{_FRACTIONS}{_SIGNS}{_LETTERS}{_FLAGS}{_TONES}{_JOINER}]").search
_alone = re.compile(
    f"([{_RAISED}{_FRACTIONS}])|([{_TONES}]|(?<={_JOINER})[\u2190-\u2bff\U0001f000-\U0001faff])|[{_SIGNS}]|[{_FLAGS}]{{1,2}}"
    f"|(?<![a-zA-Z0-9{_LETTERS}])[{_LETTERS}](?![a-zA-Z0-9{_LETTERS}])"
)
_power = re.compile(f"[^{_RAISED}\u2080-\u2089]+[{_RAISED}\u2080-\u2089]+").fullmatch
#: What stands for them: a sign that no entry has, and one that is written in numbers; what nobody sees stands for the
#: rest of an emoji.
_SIGN, _NUMBERS, _REST = "\ufffd", "=", "\u200b"


def has_alone(text: str) -> bool:
    """Has it such symbols, or may it have?"""
    return _search(text) is not None


def aside(text: str) -> str | None:
    """Return a text, code point for code point, with such symbols as mere signs; None if it has none."""
    if not _search(text):
        return None
    other = _alone.sub(_sign, text)
    return None if other == text else other


def readings(text: str) -> Iterator[str]:
    """Yield what is to be read: the text, and if there are such symbols, it without their letters."""
    yield text
    if (other := aside(text)) is not None:
        yield other


def is_power(written: Sequence[str]) -> bool:
    """Are digits as they are written a number with a power or an index? 6⁴ is no 64."""
    return _power("".join(written)) is not None


def _sign(match: re.Match[str]) -> str:
    if match.lastindex == 1:
        return _NUMBERS
    return _REST if match.lastindex == 2 else _SIGN + _REST * (len(match[0]) - 1)
