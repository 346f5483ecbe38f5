"""Cleans one text, at once or piece by piece, with the same result."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

from plugins.clean_text.patterns import SPECIAL, compile_pattern, is_plain, special
from plugins.clean_text.tokens import OPEN, Tokens

_STACK = 2  # times max_marks: consonants that may stand under one
_EMOJI_LETTER = "\u2139"  # a letter by its category, and an emoji with a selector


class Cut(NamedTuple):
    """``new`` takes the place of ``start`` to ``end``. ``token``: it was a token of a chat template."""

    start: int
    end: int
    new: str
    token: bool = False


class Patterns:
    """What to look for with one choice of options, and what becomes of a template's token.

    ``token`` rewrites one, None leaves all alone; ``own`` are the model's own beside the families'. ``wide``:
    full-width forms count too.
    """

    def __init__(
        self, max_marks: int, token: Callable[[str], str] | None, own: Iterable[str] = (), *, wide: bool = False
    ) -> None:
        self.max_marks, self.token = max_marks, token
        self.tokens = Tokens(own if token is not None else (), wide=wide)
        self.starts = self.tokens.starts if token is not None else frozenset()
        self.open = compile_pattern(final=False).match
        self.final = compile_pattern(final=True).match
        more = "".join(sorted(start for start in self.starts if special(start) is None))
        self.special = re.compile(f"[{SPECIAL}{re.escape(more)}]").search if more else special
        found = re.compile(f"[{re.escape(more)}]").search if more else None
        #: Says True for a text (of one code point or more) in which nothing is to be done.
        self.is_plain = is_plain if found is None else lambda text: is_plain(text) and found(text) is None


class Cleaner:
    """Reads a text from left to right and remembers of it what the next piece needs: its end, and that one's marks."""

    __slots__ = ("_last", "_marks", "_patterns", "_stacked", "_tail")

    def __init__(self, patterns: Patterns) -> None:
        self._patterns = patterns
        self._last = ""  # ends with the last base
        self._tail = ""  # the end of what is left, as far as a token reaches
        self._marks = self._stacked = 0  # on its last base

    def passed(self, text: str) -> None:
        """Take note of plain text that needed no look."""
        self._last = self._tail = text
        self._marks = self._stacked = 0

    def _left(self, text: str) -> None:
        if text:
            self._left_on_base(text)
            self.passed(self._tail)

    def _left_on_base(self, text: str) -> None:
        self._tail = (self._tail + text)[-self._patterns.tokens.longest :]

    def cuts(self, text: str, *, final: bool = True) -> tuple[list[Cut], int]:
        """Return what is to be cut from a text, and from where on it must wait for more (its length: nothing)."""
        found: list[Cut] = []
        patterns, far = self._patterns, self._patterns.tokens.longest
        look = patterns.final if final else patterns.open
        done = at = 0
        while (next_special := patterns.special(text, at)) is not None:
            at = next_special.start()
            if text[at] in patterns.starts:
                end, token = patterns.tokens.look(text, at, final=final)
                kind: str | None = "open" if end == OPEN else "token" if end else None
            else:
                match = look(text, at)
                end, token, kind = (match.end(), match[0], match.lastgroup) if match is not None else (0, "", None)
            if kind is None:
                at += 1
                continue
            self._left(text[max(done, at - far) : at])
            if kind == "open":
                return found, at
            cut = self._cut(kind, token, at, end)
            if cut is not None:
                found.append(cut)
            done = at = end
        self._left(text[max(done, len(text) - far) :])
        return found, len(text)

    def _cut(self, kind: str, text: str, start: int, end: int) -> Cut | None:
        if kind in {"control", "tag"}:
            return Cut(start, end, "")
        if kind == "joiner":
            self._left_on_base(text)
            return None
        if kind in {"mark", "stacked"}:
            return self._too_many(kind, text, start, end)
        if kind == "selector":
            kept = int(self._takes_selector())
            self._last = text[-1]
            self._left_on_base(text[:kept])
            return Cut(start + kept, end, "") if end - start > kept else None
        if kind == "token" and self._patterns.token is not None:
            new = self._patterns.token(text)
            if not new and self._patterns.tokens.is_open_after(self._tail):
                new = " "  # or what stands around it would be a token
            self._left(new)
            return Cut(start, end, new, token=True)
        self._left(text)  # a flag
        return None

    def _too_many(self, kind: str, text: str, start: int, end: int) -> Cut | None:
        """Cut what is more than one base bears."""
        if kind == "mark":
            room = self._patterns.max_marks - self._marks
            self._marks += end - start
        else:
            room = _STACK * self._patterns.max_marks - self._stacked
            self._stacked += end - start
        kept = max(0, room)
        self._left_on_base(text[:kept])
        return Cut(start + kept, end, "") if end - start > kept else None

    def _takes_selector(self) -> bool:
        """Return True if a variation selector may stand here: on an emoji or a sign, not on a letter or another."""
        last = self._last[-1:]
        return bool(last) and (last == _EMOJI_LETTER or not (last.isalpha() or last.isspace() or _selector(last)))


_selector = re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef]").match
