"""Finds in an answer what is recited from a text: long verbatim runs of it, piece by piece as in the whole.

Compared are letters and digits alone, without case: a recital in other line breaks, quotes or bullets is one still. A
character of the answer is masked if it lies in a run that the text has too and that is long enough. A run's length is
counted in characters, where one of Chinese, Japanese or Korean counts as three: it says as much.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence

from gateway.sdk import Edit

#: A run does not go on over more than this many characters in a row that are neither letter nor digit.
GAP = 32
_DENSE = 3  # what a character counts that is about a word
_dense = re.compile("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]").match
_without_others = re.compile(r"[\W_]+").sub

NO_EDITS: tuple[Edit, ...] = ()


def folded(character: str) -> str:
    """Write a letter without case, as one character."""
    plain = character.casefold()
    return plain if len(plain) == 1 else character


def weight(character: str) -> int:
    """Return how much a character counts."""
    return _DENSE if _dense(character) else 1


class Guarded:
    """A text that is not to be recited. ``run``: from which length on."""

    def __init__(self, text: str, run: int) -> None:
        self.run = run
        self.letters = _fold(text)
        # A run that is long enough holds a whole block, wherever the blocks of an answer begin.
        self._block = max(1, (run + _DENSE - 1) // _DENSE // 2)
        self._blocks = {
            self.letters[at : at + self._block] for at in range(max(0, len(self.letters) - self._block + 1))
        }
        self.empty = sum(map(weight, self.letters)) < run

    def is_clean(self, text: str) -> bool:
        """Is it plain at a glance that nothing is recited in a text?"""
        letters, block = _fold(text), self._block
        return not any(letters[at : at + block] in self._blocks for at in range(0, len(letters), block))


def _fold(text: str) -> str:
    letters = _without_others("", text)
    plain = letters.casefold()  # which may grow a text, but never shortens one
    return plain if len(plain) == len(letters) else "".join(map(folded, letters))


class RecitalFilter:
    """Masks in one channel what is recited; holds back only what may become a run, at most a run's length and its gaps.

    ``report`` is told start and end of the first mask, in code points of the channel.
    """

    __slots__ = (
        "_at",
        "_fed",
        "_gap",
        "_guarded",
        "_held",
        "_mask",
        "_masked",
        "_report",
        "_reported",
        "_run",
        "_weight",
    )

    def __init__(self, guarded: Guarded, mask: str, report: Callable[[int, int], None]) -> None:
        self._guarded, self._mask, self._report = guarded, mask, report
        self._fed = 0  # code points of the channel read so far
        self._held: list[str] = []  # the last of them, not yet shown
        self._masked: set[int] = set()  # of those held: positions in the channel
        self._run: deque[tuple[int, str]] = deque()  # the end of what was read that the guarded text has too
        self._at = 0  # where it has it
        self._weight = self._gap = 0
        self._reported = False

    def is_clean(self, text: str) -> bool:
        """Say that nothing is to be done in a text that is whole."""
        return self._guarded.is_clean(text)

    def feed(self, text: str) -> tuple[str, Sequence[Edit]]:
        """Return what may be shown now, masked."""
        for character in text:
            if character.isalnum():
                self._gap = 0
                self._read(folded(character))
            else:
                self._gap += 1
                if self._gap > GAP:
                    self._run.clear()
                    self._weight = 0
            self._held.append(character)
            self._fed += 1
        return self._show(self._open())

    def finish(self) -> tuple[str, Sequence[Edit]]:
        """Return what was held."""
        return self._show(self._fed)

    def _read(self, letter: str) -> None:
        """Take one more letter into the run, and leave out of its beginning what then has to go."""
        run, letters = self._run, self._guarded.letters
        run.append((self._fed, letter))
        self._weight += weight(letter)
        if letters[self._at + len(run) - 1 : self._at + len(run)] != letter:
            sought = "".join([each for _, each in run])
            first = bisect_left(range(len(sought)), 1, key=lambda start: sought[start:] in letters)
            for _ in range(first):
                self._weight -= weight(run.popleft()[1])
            self._at = letters.find(sought[first:])
        if self._weight >= self._guarded.run:
            self._masked.add(self._fed)
            for position, _ in reversed(run):
                if position < self._fed - len(self._held) or (position in self._masked and position != self._fed):
                    break  # what is before was masked when the run grew long enough
                self._masked.add(position)

    def _open(self) -> int:
        """Return the position from which on nothing can be shown yet."""
        return self._run[0][0] if 0 < self._weight < self._guarded.run else self._fed

    def _show(self, end: int) -> tuple[str, Sequence[Edit]]:
        """Show what is held up to a position."""
        begin = self._fed - len(self._held)
        ready = self._held[: max(0, end - begin)]
        del self._held[: len(ready)]
        if not self._masked:
            return "".join(ready), NO_EDITS
        edits: list[Edit] = []
        for position in range(begin, begin + len(ready)):
            if position not in self._masked:
                continue
            self._masked.discard(position)
            ready[position - begin] = self._mask
            if edits and edits[-1].end == position:
                edits[-1] = Edit(edits[-1].start, position + 1, edits[-1].text + self._mask)
            else:
                edits.append(Edit(position, position + 1, self._mask))
        if edits and not self._reported:
            self._reported = True
            self._report(edits[0].start, edits[-1].end)
        return "".join(ready), edits
