"""Cleans one text, at once or piece by piece, with the same result."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from plugins.clean_text.patterns import KINDS, compile_looks, compile_pattern, marked
from plugins.clean_text.tokens import OPEN, Tokens

_STACK = 2  # times max_marks: consonants that may stand under one
_SPACING = 4  # of spacing marks so many stand on one base, whatever max_marks says: Burmese writes them
_GONE = frozenset({"control", "tag"})
_NONE: Mapping[str, int] = {}
_EMOJI_LETTER = "\u2139"  # a letter by its category, and an emoji with a selector


#: From where to where, what takes its place, and whether it was a token of a chat template. Half a million of these may
#: come of a megabyte: a plain tuple, which the collector of garbage soon forgets, takes half the time.
Cut = tuple[int, int, str, bool]


class Patterns:
    """What to look for with one choice of options, and what becomes of a template's token.

    ``token`` rewrites one, None leaves all alone; ``own`` are the model's own beside the families'. ``wide``:
    full-width forms count too.
    """

    def __init__(
        self, max_marks: int, token: Callable[[str], str] | None, own: Iterable[str] = (), *, wide: bool = False
    ) -> None:
        self.token = token
        #: How many marks of each kind one base bears.
        self.bears = {"mark": max_marks, "spacing": max(_SPACING, max_marks), "stacked": _STACK * max_marks}
        self.tokens = Tokens(own if token is not None else (), wide=wide)
        self.starts = self.tokens.starts if token is not None else frozenset()
        self.open = compile_pattern(final=False).match
        self.final = compile_pattern(final=True).match
        self.special, self.is_plain = compile_looks(self.starts, self.tokens.begins, max_marks)


class Cleaner:
    """Reads a text from left to right and remembers of it what the next piece needs: its end, and that one's marks."""

    __slots__ = ("_borne", "_last", "_patterns", "_tail")

    def __init__(self, patterns: Patterns) -> None:
        self._patterns = patterns
        self._last = ""  # ends with the last base
        self._tail = ""  # the end of what is left, as far as a token reaches
        self._borne: Mapping[str, int] = _NONE  # of each kind of mark, by that one

    def passed(self, text: str) -> None:
        """Take note of plain text that needed no look."""
        self._last = self._tail = text
        self._borne = _NONE

    def _left(self, text: str) -> None:
        self._last = self._tail = (self._tail + text)[-self._patterns.tokens.longest :]
        self._borne = _NONE

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
                end, token, kind = (0, "", None) if match is None else (match.end(), "", match.lastgroup)
            if kind is None:
                at += 1
                continue
            if done < at:
                self._left(text[done if at - done < far else at - far : at])
            if kind == "open":
                return found, at
            if kind in _GONE:
                found.append((at, end, "", False))
            else:
                found += self._cut(kind, token or text[at:end], at, end)
            # Marks behind what was cut would seem to stand on its end.
            if text[end - 1].isprintable() and (more := marked(text, end)) is not None:
                found += self._too_many(more[0], end)
                end = more.end()
            done = at = end
        if done < len(text):
            self._left(text[max(done, len(text) - far) :])
        return found, len(text)

    def _cut(self, kind: str, text: str, start: int, end: int) -> Sequence[Cut]:
        if kind == "mark":
            return self._too_many(text, start)
        if kind == "joiner":
            self._left_on_base(text)
        elif kind == "selector":
            kept = int(self._takes_selector())
            self._last = text[-1]
            self._left_on_base(text[:kept])
            return [(start + kept, end, "", False)] if end - start > kept else ()
        elif kind == "token" and self._patterns.token is not None:
            new = self._patterns.token(text)
            if not new and self._patterns.tokens.is_open_after(self._tail):
                new = " "  # or what stands around it would be a token
            if new:
                self._left(new)
            return [(start, end, new, True)]
        else:  # a flag
            self._left(text)
        return ()

    def _too_many(self, text: str, start: int) -> Sequence[Cut]:
        """Cut what is more than one base bears."""
        bears, borne = self._patterns.bears, dict(self._borne)
        kept, cuts, gone = [], list[Cut](), -1  # from where on nothing stays
        for at, mark in enumerate(text):
            kind = KINDS[mark]
            if borne.get(kind, 0) >= bears[kind]:
                gone = at if gone < 0 else gone
                continue
            borne[kind] = borne.get(kind, 0) + 1
            kept.append(mark)
            if gone >= 0:
                cuts.append((start + gone, start + at, "", False))
                gone = -1
        if gone >= 0:
            cuts.append((start + gone, start + len(text), "", False))
        self._borne = borne
        self._left_on_base("".join(kept))
        return cuts

    def _takes_selector(self) -> bool:
        """Return True if a variation selector may stand here: on an emoji or a sign, not on a letter or another."""
        last = self._last[-1:]
        return bool(last) and (last == _EMOJI_LETTER or not (last.isalpha() or last.isspace() or _selector(last)))


_selector = re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef]").match
