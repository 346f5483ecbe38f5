"""Finds entries in a text: what looks like one, what the policy says of it, and what allow entries say."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from gateway.sdk import Reading
from plugins.sensitive_words.alone import aside, readings
from plugins.sensitive_words.fold import fold
from plugins.sensitive_words.folding import Folding
from plugins.sensitive_words.forms import Form, forms
from plugins.sensitive_words.gaps import LONGEST, Barriers
from plugins.sensitive_words.lanes import Lanes
from plugins.sensitive_words.scripts import tells
from plugins.sensitive_words.skeleton import Copy, quick, read
from plugins.sensitive_words.symbols import Symbols, is_symbol
from plugins.sensitive_words.tail import Tail, context
from plugins.sensitive_words.verdict import verdict
from plugins.sensitive_words.wordlist import ANYONE, Asker, Entry, Rule
from plugins.sensitive_words.writing import Place, span

_SLICE = 4_096  # code points scanned at once of a long text
_ENOUGH = 2 * LONGEST  # letters: more of what stands before never matters
_DEFAULT = Folding()

_Match = tuple[int, int, int, int, int, Form]
"""Start and end in the text, end and start in the copy, the entry's order, its form."""


class Found(NamedTuple):
    """An entry was found; ``start`` and ``end`` are code points of the original text."""

    start: int
    end: int
    rule: Rule


class Scan(NamedTuple):
    """What is known of a text.

    ``found`` is what starts before ``hold``, by start and end; from ``hold`` on an entry may have begun, and more text
    must be seen. ``before`` is what matters of the text before ``hold``, ``allowed`` how far an allow entry that began
    before it reaches. ``quiet``: nothing was found, whoever asks.
    """

    found: Sequence[Found]
    hold: int
    before: str
    allowed: int
    quiet: bool


class Matcher:
    """All entries, compiled. Immutable; may be used by several threads."""

    def __init__(self, entries: Iterable[Entry], folding: Folding = _DEFAULT) -> None:
        self._entries, self.folding = list(entries), folding
        spelled: list[Form] = []
        symbols: list[Form] = []
        for order, entry in enumerate(self._entries):
            for form in forms(order, entry, folding):
                (symbols if is_symbol(form) else spelled).append(form)
        self.lanes, self.symbols = Lanes(spelled), Symbols(symbols)
        self.tail = Tail(
            (form.key for form in spelled if not form.left),
            (form.key for form in spelled if form.left),
            folding.max_skip,
            [
                *(run for form in spelled for run in form.gaps or () if run),
                *(" " for form in spelled if form.pinyin),  # stands between syllables
            ],
        )
        letters = max(
            (len(form.word) if form.gaps is None else len(form.word + form.key) for form in spelled), default=0
        )
        self.longest = max(letters * (1 + LONGEST), max((len(form.word) for form in symbols), default=0))
        self.blocks = any(entry.rule.action == "block" for entry in self._entries)

    def __len__(self) -> int:
        return len({entry.word for entry in self._entries})

    def word_of(self, rule: Rule) -> str:
        """Return the folded entry of a rule; looks through all of them, for people who ask about one text."""
        return next(word for word, its in self._entries if its == rule)

    def is_clean(self, reading: Reading) -> bool:
        """Return True if no entry is in the text, whatever stands around it. The quickest question."""
        text = reading.text
        if self.symbols and self.symbols.any(text):
            return False
        if not self.folding.repeats and (letters := quick(text)) is not None:
            return not self.lanes.any(letters)
        repeats = self.folding.repeats
        return not any(self.lanes.any(read(one, repeats=repeats).letters.encode()) for one in readings(text))

    def unfinished(self, held: str, before: str) -> tuple[list[str], str] | None:
        """Return what entries may have begun with at the end of a held text, and what stands before what follows it.

        None where an entry is in the text already, or repeats count once: then only a scan knows.
        """
        copy = read(before + held, repeats=self.folding.repeats)
        known = not (self.symbols or self.folding.repeats) and (copy.same or aside(copy.text) is None)
        if not known or self.lanes.any(copy.letters.encode()):
            return None
        return self.tail.tails(copy), context(copy, len(copy.letters))

    def begins(self, letters: str) -> bool:
        """Return True if some entry begins with letters as a copy has them, or is them."""
        return self.tail.begins(letters)

    def scan(
        self, text: str, before: str | None = None, allowed: int = 0, *, final: bool = True, asker: Asker = ANYONE
    ) -> Scan:
        """Look for every entry. With ``final`` the text ends here, else more will follow what is held."""
        if final and before is None and len(text) > _SLICE:
            every = list(self.scan_long(text, asker))
            return Scan(every, len(text), "", 0, quiet=not every)
        before = before or ""
        whole = before + text
        copy = read(whole, repeats=self.folding.repeats)
        search = _Search(self, asker, len(before), len(whole), final=final)
        search.through(copy)
        if not copy.same and (other := aside(whole)) is not None:
            search.through(read(other, repeats=self.folding.repeats))
        if self.symbols:
            search.for_symbols(whole)
        hold, at = search.hold, len(copy.letters)
        if hold < len(whole):
            at = bisect_left(copy.places, hold)
            while at and copy.lasts[at - 1] >= hold:  # a run of one letter is not torn apart
                at -= 1
                hold = copy.places[at]
        following = "" if final else context(*_end_of(copy, at))
        hold -= len(before)
        if not search.found:
            return Scan((), hold, following, allowed, search.quiet)
        ordered = sorted(search.found.values(), key=lambda match: match[:5])
        matches = [Found(start - len(before), end - len(before), form.rule) for start, end, *_, form in ordered]
        kept, allowed = _without_allowed(matches, hold, allowed)
        return Scan(kept, hold, following, allowed, quiet=False)

    def scan_long(self, text: str, asker: Asker = ANYONE) -> Iterator[Found]:
        """Scan a long text slice by slice, so that other threads get their turn in between."""
        start = end = allowed = 0
        before = ""
        while end < len(text):
            # what is held is scanned again: a slice never shorter than it keeps the whole linear
            end = min(len(text), end + max(_SLICE, end - start))
            scan = self.scan(text[start:end], before, allowed, final=end == len(text), asker=asker)
            for found in scan.found:
                yield Found(found.start + start, found.end + start, found.rule)
            start, before, allowed = start + scan.hold, scan.before, max(0, scan.allowed - scan.hold)


class _Search:
    """One scan of a text with what stands before it: what was found so far, and from where on to wait."""

    __slots__ = ("_asker", "_final", "_matcher", "_offset", "found", "hold", "quiet")

    def __init__(self, matcher: Matcher, asker: Asker, offset: int, size: int, *, final: bool) -> None:
        self._matcher, self._asker, self._offset, self._final = matcher, asker, offset, final
        self.found: dict[tuple[int, int, int], _Match] = {}
        self.hold = size
        self.quiet = True

    def through(self, copy: Copy) -> None:
        """Look at everything that looks like an entry in a copy, and at its end."""
        matcher, final = self._matcher, self._final
        if not final:
            alive = matcher.tail.alive(copy)
            if alive < len(copy.letters):
                self.hold = min(self.hold, max(copy.places[alive], self._offset))
        barriers = Barriers(copy, matcher.folding.max_skip)
        for start, end, form in matcher.lanes.candidates(copy):
            place = Place(copy, start, end, final, barriers)
            counts = self._counts(form) and copy.places[start] >= self._offset and verdict(form, place, matcher.folding)
            if counts is None:
                self.hold = min(self.hold, copy.places[start])
            elif counts:
                self._keep((*span(place), end, start, form.order, form))

    def for_symbols(self, text: str) -> None:
        """Look for entries that begin or end with symbols."""
        for start, end, form in self._matcher.symbols.found(text, final=self._final):
            if start < self._offset:
                continue
            if form is None:
                self.hold = min(self.hold, start)
            elif self._counts(form) and (form.rule.action != "allow" or all(map(fold, text[start:end]))):
                self._keep((start, end, end, start, form.order, form))

    def _keep(self, match: _Match) -> None:
        self.quiet = False
        self.found.setdefault((match[0], match[1], match[4]), match)

    def _counts(self, form: Form) -> bool:
        if form.rule.scope is None:
            return True
        self.quiet = False
        return form.rule.applies(self._asker)


def _end_of(copy: Copy, end: int) -> tuple[Copy, int]:
    """Return enough of a copy to know what stands before its end, where that is quicker."""
    if end == len(copy.letters) > 2 * _ENOUGH and not copy.same and not copy.runs:
        last = read(copy.text[-2 * _ENOUGH :])
        if len(last.letters) > _ENOUGH and tells(last.text):
            return last, len(last.letters)
    return copy, end


def _without_allowed(found: Sequence[Found], hold: int, allowed: int) -> tuple[list[Found], int]:
    """Drop what lies inside an allow entry or starts at ``hold`` or later; say how far the allow entries reach."""
    allows = [match for match in found if match.rule.action == "allow"]
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
