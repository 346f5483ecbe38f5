"""Of which script a text is: the letters that tell, because they look like none of Latin's or are Latin themselves."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache

from plugins.sensitive_words.tables import LOOKALIKES

AHEAD = 96  # code points that are looked through for a letter that tells; a stream is held for them

_NUMBERS = "\xb2\xb3\xb9\xbc-\xbe\u2070\u2074-\u2089\u2150-\u215f\u2460-\u249b\u24ea-\u24ff\u2776-\u2793\u3200-\u33ff"
_tells = re.compile(rf"[^\W\d_{_NUMBERS}{''.join(LOOKALIKES)}]")
_tell = _tells.match


@lru_cache(4096)
def script(letter: str) -> str:
    """Return a letter's script."""
    return "LATIN" if letter.isascii() else unicodedata.name(letter, "?").split(" ", 1)[0]


ALIKE = frozenset(map(script, LOOKALIKES))
"""Scripts that have look-alikes of Latin letters."""


def telling(text: str) -> Sequence[int]:
    """Return where the letters are that tell of a script."""
    return [match.start() for match in _tells.finditer(text)]


def tells(text: str) -> bool:
    """Is there one?"""
    return _tells.search(text) is not None


def letter_before(text: str, end: int) -> str:
    """Return the last letter before ``end`` that tells, or nothing."""
    while end:
        end -= 1
        if _tell(text[end]):
            return text[end]
    return ""


def script_after(text: str, start: int, *, final: bool) -> str | None:
    """Return the script that the next letter tells, nothing where none is near; None: that has not come yet."""
    match = _tells.search(text, start, start + AHEAD)
    if match is not None:
        return script(match[0])
    return "" if final or len(text) >= start + AHEAD else None
