"""Finds entries in a folded text: one pass of an automaton, then what boundaries and allow entries have to say."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from daachorse import DoubleArrayAhoCorasick

from gateway.sdk import Reading
from plugins.sensitive_words.fold import MARKS, TABLE, WORD, fold, origins
from plugins.sensitive_words.wordlist import ANYONE, Asker, Entry, Rule

#: What stands before a text: nothing of a word, a letter, a digit, a digit and a point.
NOTHING, LETTER, DIGIT, POINT = range(4)

_SLICE = 16_384  # code points scanned at once of a long text
_VOICED = frozenset("\u3099\u309a")  # make another letter of the kana before them


class Found(NamedTuple):
    """An entry was found; ``start`` and ``end`` are code points of the original text."""

    start: int
    end: int
    rule: Rule


class Scan(NamedTuple):
    """What is known of a text.

    ``found`` is what starts before ``hold``, by start and end; from ``hold`` on an entry may have begun, and more text
    must be seen. ``before`` is what stands before ``hold``, ``allowed`` how far an allow entry that began before it
    reaches. ``quiet``: nothing was found, whoever asks.
    """

    found: Sequence[Found]
    hold: int
    before: int
    allowed: int
    quiet: bool


class _Beginnings:
    """Answers whether a text is the beginning of an entry that goes on."""

    __slots__ = ("firsts", "pairs", "words")

    def __init__(self, words: Iterable[str]) -> None:
        self.words = sorted(words)
        self.firsts = {word[0] for word in self.words if len(word) > 1}
        self.pairs = {word[:2] for word in self.words if len(word) > 2}

    def __contains__(self, text: str) -> bool:
        after = bisect_right(self.words, text)
        return after < len(self.words) and self.words[after].startswith(text)


class Matcher:
    """All entries, compiled. Immutable; may be used by several threads."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        rules: dict[str, list[Rule]] = {}
        for word, rule in entries:
            rules.setdefault(word, []).append(rule)
        self._words, self._rules = list(rules), list(rules.values())
        self._lengths = max(map(len, rules), default=0)
        self._anywhere = _Beginnings(word for word, its in rules.items() if not all(rule.left for rule in its))
        self._at_words = _Beginnings(word for word, its in rules.items() if any(rule.left for rule in its))
        self._heads = {word[:2] for word in rules}
        self._sorted = sorted(rules)
        #: Over UTF-8: half the time of one over characters, and no table of where each character stands is made.
        self._automaton = DoubleArrayAhoCorasick([word.encode() for word in rules]) if rules else None
        used = set().union(*rules)
        self._marks = [(wide, half) for wide, half in MARKS if half in used]
        self.blocks = any(rule.action == "block" for its in self._rules for rule in its)

    def __len__(self) -> int:
        return len(self._rules)

    @property
    def longest(self) -> int:
        """The length of the longest folded entry."""
        return self._lengths

    def word_of(self, rule: Rule) -> str:
        """Return the folded entry of a rule; looks through all of them, for people who ask about one text."""
        return next(word for word, its in zip(self._words, self._rules, strict=True) if rule in its)

    def is_clean(self, reading: Reading) -> bool:
        """Return True if no entry is in the text, whatever stands around it. The quickest question."""
        text = reading.text
        if reading.ordinary:  # then its fold is the small letters, but for marks, which few entries have
            for wide, half in self._marks:
                if wide in text:
                    text = text.replace(wide, half)
            data = text.encode().lower()
        else:
            data = fold(text)[0].encode()
        return self._automaton is None or not self._automaton.find(data)

    def _find(self, folded: str) -> list[tuple[int, int, int]]:
        """Return start, end and number of every entry in a folded text, by their ends."""
        if self._automaton is None:
            return []
        data = folded.encode()
        matches = self._automaton.find_overlapping(data)
        if not matches or len(data) == len(folded):
            return matches
        at = [index for index, character in enumerate(folded) for _ in range(len(character.encode()))]
        at.append(len(folded))
        return [(at[start], at[end], number) for start, end, number in matches]

    def unfinished(self, held: str, before: int) -> tuple[list[str], int] | None:
        """Return the folded beginnings of entries with which a held text ends, and what stands before what follows it.

        None where an entry is in the text already: then only a scan knows.
        """
        folded, _ = fold(held)
        if self._find(folded):
            return None
        tails = [folded[index:] for index in range(len(folded)) if self.begins(folded[index:])]
        return tails, _context(before, folded, len(folded))

    def begins(self, folded: str) -> bool:
        """Return True if some entry begins with a folded text of one character or more."""
        if len(folded) == 2:
            return folded in self._heads
        after = bisect_left(self._sorted, folded)
        return after < len(self._sorted) and self._sorted[after].startswith(folded)

    def scan(
        self, text: str, before: int = NOTHING, allowed: int = 0, *, final: bool = True, asker: Asker = ANYONE
    ) -> Scan:
        """Look for every entry. With ``final`` the text ends here, else more will follow what is held."""
        folded, same = fold(text)
        matches = self._find(folded)
        size = len(folded)
        hold = size if final else self._alive(folded, before)
        if not matches and hold == size:
            return Scan((), len(text), _context(before, folded, size), allowed, quiet=True)
        places = range(size) if same else origins(text)
        found: list[Found] = []
        quiet = True
        for start, end, number in matches:
            for rule in self._rules[number]:
                if rule.scope is not None:
                    quiet = False
                    if not rule.applies(asker):
                        continue
                if rule.left and _joined_left(folded, start, before):
                    continue
                going_on = _goes_on(folded, end, rule, final=final)
                if going_on is None:
                    hold = min(hold, start)
                elif not going_on:
                    found.append(Found(places[start], places[end - 1] + 1, rule))
        if hold < size:
            at = places[hold]
            before = _context(before, folded, bisect_left(places, at))
        else:
            at, before = len(text), _context(before, folded, size)
        if found:
            quiet = False
            found, allowed = _without_allowed(text, found, at, allowed)
        return Scan(found, at, before, allowed, quiet)

    def scan_long(self, text: str, asker: Asker = ANYONE) -> Iterator[Found]:
        """Scan a long text slice by slice, so that other threads get their turn in between."""
        start = end = before = allowed = 0
        while end < len(text):
            # what is held is scanned again: a slice never shorter than it keeps the whole linear
            end = min(len(text), end + max(_SLICE, end - start))
            scan = self.scan(text[start:end], before, allowed, final=end == len(text), asker=asker)
            for found in scan.found:
                yield Found(found.start + start, found.end + start, found.rule)
            start, before, allowed = start + scan.hold, scan.before, max(0, scan.allowed - scan.hold)

    def _alive(self, folded: str, before: int) -> int:
        """Return where the first entry may have begun that the text's end cuts off, or the text's length."""
        anywhere, at_words = self._anywhere, self._at_words
        size = len(folded)
        for index in range(max(0, size - self._lengths + 1), size):
            head = folded[index : index + 2]
            rest = size - index
            boundary = (folded[index - 1] not in WORD) if index else before in {NOTHING, POINT}
            for beginnings in (anywhere, at_words) if boundary else (anywhere,):
                if rest == 1:
                    if head in beginnings.firsts:
                        return index
                elif head in beginnings.pairs and (rest == 2 or folded[index:] in beginnings):
                    return index
        return size


def _context(before: int, folded: str, end: int) -> int:
    """Say what stands before ``end``, given what stood before the text."""
    if not end:
        return before
    last = folded[end - 1]
    if last.isdecimal():
        return DIGIT
    if last in WORD:
        return LETTER
    if last == "." and (folded[end - 2].isdecimal() if end > 1 else before == DIGIT):
        return POINT
    return NOTHING


def _joined_left(folded: str, start: int, before: int) -> bool:
    """Return True if a word or a number goes on into ``start``: the 69 of 4.69 is none."""
    context = _context(before, folded, start)
    return context in {LETTER, DIGIT} or (context == POINT and folded[start].isdecimal())


def _goes_on(folded: str, end: int, rule: Rule, *, final: bool) -> bool | None:
    """Return True if the word found is only the beginning of a longer one, None if more text must be seen."""
    last = folded[end - 1]
    kana = "\u3041" <= last <= "\u30ff"
    if not rule.right and not kana:
        return False
    if end == len(folded):
        return False if final else None
    if not rule.right:
        return folded[end] in _VOICED
    if folded[end] == "." and last.isdecimal():
        if end + 1 == len(folded):
            return False if final else None
        return folded[end + 1].isdecimal()
    return folded[end] in WORD


def _without_allowed(text: str, found: list[Found], hold: int, allowed: int) -> tuple[list[Found], int]:
    """Drop what lies inside an allow entry or starts at ``hold`` or later; say how far the allow entries reach."""
    found.sort(key=lambda match: match[:2])
    allows = [match for match in found if match.rule.action == "allow" and _literal(text, match)]
    kept: list[Found] = []
    upcoming = 0
    for match in found:
        if match.start >= hold:
            break
        while upcoming < len(allows) and allows[upcoming].start <= match.start:
            allowed = max(allowed, allows[upcoming].end)
            upcoming += 1
        if match.end > allowed and match.rule.action != "allow":
            kept.append(match)
    return kept, allowed


def _literal(text: str, match: Found) -> bool:
    """Return True if nothing invisible stands inside: allow entries hold for the word as it is written."""
    return all(TABLE[ord(character)] for character in text[match.start : match.end])
