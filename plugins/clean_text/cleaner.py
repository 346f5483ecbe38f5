"""Cleans one text, at once or piece by piece, with the same result."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from plugins.clean_text.patterns import compile_pattern, special

_EMOJI_LETTER = "\u2139"  # a letter by its category, and an emoji with a selector


class Cut(NamedTuple):
    """``new`` takes the place of ``start`` to ``end``. ``token``: it was a token of a chat template."""

    start: int
    end: int
    new: str
    token: bool = False


class Patterns:
    """The compiled patterns for one choice of options, and what becomes of a template's token."""

    def __init__(self, max_marks: int, token: Callable[[str], str] | None) -> None:
        self.max_marks, self.token = max_marks, token
        self.open = compile_pattern(tokens=token is not None, final=False).match
        self.final = compile_pattern(tokens=token is not None, final=True).match


class Cleaner:
    """Reads a text from left to right and remembers of it what the next piece needs: the last base and its marks."""

    __slots__ = ("_last", "_marks", "_patterns")

    def __init__(self, patterns: Patterns) -> None:
        self._patterns = patterns
        self._last, self._marks = "", 0

    def passed(self, text: str) -> None:
        """Take note of plain text that needed no look."""
        self._last, self._marks = text, 0

    def cuts(self, text: str, *, final: bool = True) -> tuple[list[Cut], int]:
        """Return what is to be cut from a text, and from where on it must wait for more (its length: nothing)."""
        found: list[Cut] = []
        look = self._patterns.final if final else self._patterns.open
        done = at = 0
        while (next_special := special(text, at)) is not None:
            at = next_special.start()
            match = look(text, at)
            if match is None:
                at += 1
                continue
            if at > done:
                self.passed(text[at - 1])
            if match.lastgroup == "open":
                return found, at
            cut = self._cut(match.lastgroup, match[0], at, match.end())
            if cut is not None:
                found.append(cut)
            done = at = match.end()
        if len(text) > done:
            self.passed(text[-1])
        return found, len(text)

    def _cut(self, kind: str | None, text: str, start: int, end: int) -> Cut | None:
        if kind in {"control", "tag"}:
            return Cut(start, end, "")
        if kind == "joiner":
            return None
        if kind == "mark":
            kept = max(0, self._patterns.max_marks - self._marks)
            self._marks += end - start
            return Cut(start + kept, end, "") if end - start > kept else None
        if kind == "selector":
            kept = int(self._takes_selector())
            self._last = text[-1]
            return Cut(start + kept, end, "") if end - start > kept else None
        if kind == "token" and self._patterns.token is not None:
            new = self._patterns.token(text)
            if new:
                self.passed(new)
            return Cut(start, end, new, token=True)
        self.passed(text)  # a flag
        return None

    def _takes_selector(self) -> bool:
        """Return True if a variation selector may stand here: on an emoji or a sign, not on a letter or another."""
        last = self._last[-1:]
        return bool(last) and (last == _EMOJI_LETTER or not (last.isalpha() or last.isspace() or _selector(last)))


_selector = re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef]").match
