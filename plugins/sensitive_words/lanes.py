"""Finds what looks like an entry: automata over a copy, quick, and seeing more than there is.

Latin words are looked for between spaces, so that text made of other words costs nothing; where words are joined by
symbols or spelled letter by letter, once more in those places without what joins them. All other entries are looked for
in the copy without any separators.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence

from daachorse import DoubleArrayAhoCorasick

from plugins.sensitive_words.forms import Form
from plugins.sensitive_words.skeleton import Copy

Candidate = tuple[int, int, Form]
"""Where in a copy's letters a form may be."""
Pieces = tuple[list[int], list[bytes]]
"""Where words begin, and their letters without what joins them."""

_separators = b" -"
#: Latin letters and symbols of the copy, all else a space; each is one byte.
_JOINED = bytes(32 if chr(code) == "?" else code for code in range(256))
_APART = bytes(32 if chr(code) in "?-" else code for code in range(256))
#: The same for letters in UTF-8: a space for each byte of another script's.
_LATIN = bytes(32 if code > 127 else code for code in range(256))
_KINDS = bytes(code if chr(code) in " -" else 97 for code in range(256))
_joined = re.compile(rb"-(?=[a-z0-9])[^ ]*").finditer
_three = re.compile(rb" [a-z0-9] +[a-z0-9] +[a-z0-9] ").search
_spelled = re.compile(rb" [a-z0-9](?: {1,64}[a-z0-9](?= )){2,}").finditer


class Automaton:
    """Patterns, and the forms that each stands for."""

    __slots__ = ("_automaton", "_forms")

    def __init__(self, forms: Iterable[tuple[bytes, Form]]) -> None:
        patterns: dict[bytes, tuple[Form, ...]] = {}
        for pattern, form in forms:
            others = patterns.get(pattern)
            patterns[pattern] = (form,) if others is None else (*others, form)
        self._forms = list(patterns.values())
        texts = list(patterns)
        del patterns  # the build below takes most memory of all
        self._automaton = DoubleArrayAhoCorasick(texts) if texts else None

    def __bool__(self) -> bool:
        return self._automaton is not None

    def any(self, data: bytes) -> bool:
        """Is there any of the patterns?"""
        return self._automaton is not None and bool(self._automaton.find(data))

    def all(self, data: bytes) -> Iterator[tuple[int, int, Sequence[Form]]]:
        """Yield every one, overlapping or not."""
        if self._automaton is not None:
            for start, end, number in self._automaton.find_overlapping(data):
                yield start, end, self._forms[number]


class Lanes:
    """All forms, compiled. Immutable; may be used by several threads."""

    __slots__ = ("_compact", "_compact_ascii", "_letters", "_words")

    def __init__(self, forms: Iterable[Form]) -> None:
        its = list(forms)
        latin = [form for form in its if form.gaps is None and form.key.isascii()]
        others = [form for form in its if form.gaps is not None or not form.key.isascii()]
        self._compact = Automaton((form.key.encode(), form) for form in others)  # first: building it takes most memory
        self._words = Automaton((b" " * form.left + form.key.encode() + b" " * form.right, form) for form in latin)
        self._letters = Automaton((form.key.encode(), form) for form in latin)
        self._compact_ascii = any(form.key.isascii() for form in others)

    def any(self, letters: bytes) -> bool:
        """Does anything in a copy's letters, as UTF-8, look like an entry?"""
        compact = self._compact and (self._compact_ascii or not letters.isascii())
        if compact and self._compact.any(letters.translate(None, _separators)):
            return True
        if not self._words:
            return False
        latin = b" %b " % letters.translate(_LATIN)
        apart = latin.translate(_APART)
        if self._words.any(apart):
            return True
        # Most texts have neither, and what finds them costs more than all the rest.
        kinds = latin.translate(_KINDS)
        if (b"a-a" in kinds or b"a--" in kinds) and self._letters.any(_run(self._joined(latin))):
            return True
        if b" a " not in kinds and b"-a " not in kinds and b" a-" not in kinds and b"-a-" not in kinds:
            return False
        # Chinese is long runs of spaces here, and a pattern tries at each.
        closer = apart if letters.isascii() else b" %b " % b" ".join(apart.split())
        return _three(closer) is not None and self._letters.any(_run(self._spelled(apart)))

    def candidates(self, copy: Copy) -> Iterator[Candidate]:
        """Yield everything that looks like an entry."""
        letters = copy.letters
        if self._compact and (self._compact_ascii or not letters.isascii()):
            yield from self._in_compact(letters)
        if not self._words:
            return
        latin = _latin(letters)
        for start, end, forms in self._words.all(latin.translate(_APART)):
            for form in forms:  # the copy begins a space later
                yield start - 1 + form.left, end - 1 - form.right, form
        seen: set[tuple[int, int, int]] = set()  # single letters that symbols join are found both ways
        for starts, found in self._pieces(latin):
            for start, end, form in self._in_pieces(latin, starts, found):
                if (place := (start, end, id(form))) not in seen:
                    seen.add(place)
                    yield start, end, form

    def _in_compact(self, letters: str) -> Iterator[Candidate]:
        matches = list(self._compact.all(letters.encode().translate(None, _separators)))
        if matches:
            at = [index for index, letter in enumerate(letters) if letter not in " -" for _ in range(_width(letter))]
            for start, end, forms in matches:
                for form in forms:
                    yield at[start], at[end - 1] + 1, form

    def _pieces(self, latin: bytes) -> Iterator[Pieces]:
        """Yield where words joined by symbols begin and their letters; then the same of words spelled out."""
        yield self._joined(latin)
        yield self._spelled(latin.translate(_APART))

    @staticmethod
    def _joined(latin: bytes) -> Pieces:
        starts, found = [], []
        if b"-" in latin:
            bare = latin.replace(b" -", b"  ")
            for match in _joined(bare):
                start = bare.rfind(b" ", 0, match.start()) + 1
                starts.append(start)
                found.append(bare[start : match.end()].translate(None, _separators))
        return starts, found

    @staticmethod
    def _spelled(apart: bytes) -> Pieces:
        starts, found = [], []
        for match in _spelled(apart):
            starts.append(match.start() + 1)
            found.append(match[0].translate(None, _separators))
        return starts, found

    def _in_pieces(self, latin: bytes, starts: Sequence[int], found: Sequence[bytes]) -> Iterator[Candidate]:
        if not found:
            return
        edges = [0]
        for word in found:
            edges.append(edges[-1] + len(word) + 1)
        known, places = -1, [0]
        for start, end, forms in self._letters.all(b" ".join(found)):
            piece = bisect_right(edges, start) - 1
            if piece != known:
                known, places = piece, _places(latin, starts[piece], len(found[piece]))
            first, last = places[start - edges[piece]], places[end - 1 - edges[piece]]
            if last - first >= end - start:  # what is in one piece is found between spaces
                for form in forms:
                    yield first - 1, last, form


def _run(pieces: Pieces) -> bytes:
    return b" ".join(pieces[1])


def _latin(letters: str) -> bytes:
    """Return a byte for each letter, with a space before and behind."""
    return b" " + letters.encode("ascii", "replace").translate(_JOINED) + b" "


def _width(letter: str) -> int:
    return 1 if letter < "\x80" else 2 if letter < "\u0800" else 3 if letter < "\U00010000" else 4


def _places(latin: bytes, start: int, count: int) -> list[int]:
    """Return where the next letters stand."""
    places: list[int] = []
    while len(places) < count:
        if latin[start] not in _separators:
            places.append(start)
        start += 1
    return places
