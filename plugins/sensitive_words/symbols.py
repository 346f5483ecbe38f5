"""Entries that begin or end with a symbol (an emoji, a badge): looked for as they are, only width and case undone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from plugins.sensitive_words.fold import WORD, fold
from plugins.sensitive_words.forms import Form
from plugins.sensitive_words.lanes import Automaton
from plugins.sensitive_words.skeleton import TABLE, is_mark
from plugins.sensitive_words.tail import Beginnings


def is_symbol(form: Form) -> bool:
    """Is it an entry that the other lanes would take for one with separators at its edges?"""
    if form.word.isascii() and form.word.isalnum():
        return False
    spelled = form.word.translate(TABLE)
    return spelled[0] in " -" or spelled[-1] in " -"


class Symbols:
    """All such entries, compiled."""

    __slots__ = ("_automaton", "_beginnings", "_longest")

    def __init__(self, forms: Iterable[Form]) -> None:
        its = list(forms)
        words = [form.word for form in its]
        self._automaton = Automaton((form.word.encode(), form) for form in its)
        self._beginnings = Beginnings(words)
        self._longest = max(map(len, words), default=0)

    def __bool__(self) -> bool:
        return bool(self._automaton)

    def any(self, text: str) -> bool:
        """Is there any?"""
        return self._automaton.any(fold(text).encode())

    def found(self, text: str, *, final: bool) -> Iterator[tuple[int, int, Form | None]]:
        """Yield start and end of each in the text; where one begins that more text may complete, with None."""
        folded = fold(text)
        matches = list(self._automaton.all(folded.encode()))
        size = len(folded)
        alive = (
            []
            if final
            else [at for at in range(max(0, size - self._longest + 1), size) if folded[at:] in self._beginnings]
        )
        if not matches and not alive:
            return
        places = [index for index, character in enumerate(text) for _ in fold(character)]
        for at in alive:
            yield places[at], len(text), None
        offsets = [index for index, letter in enumerate(folded) for _ in letter.encode()]
        for first, last, forms in matches:
            start, end = offsets[first], offsets[last - 1] + 1
            for form in forms:
                if form.left and _joined(folded, start):
                    continue
                if form.right and end < size and TABLE[ord(folded[end])][:1] in WORD:
                    continue
                waits = form.right and end == size and not final
                yield places[start], places[end - 1] + 1, None if waits else form


def _joined(folded: str, start: int) -> bool:
    """Does a word go on into ``start``? Marks say nothing of that, only the letter before them."""
    while start and is_mark(folded[start - 1]):
        start -= 1
    return start > 0 and TABLE[ord(folded[start - 1])][-1:] in WORD
