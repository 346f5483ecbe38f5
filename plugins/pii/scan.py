"""Looks for personal data in a text that comes in pieces, and tells how much of it only more text can decide."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from plugins.pii.fold import FOLDED, INVISIBLE, visible
from plugins.pii.kinds import BEHIND, PROVINCES, WORD, Form, KindName, Match, forms, hidden, hidden_email, sign
from plugins.pii.own import OwnForm, compiled

Action = Literal["mask", "block", "tag"]
Mask = tuple[int, int]
_Search = Callable[..., Any]  # RE2's, which has no types

_SLICE = 16_384  # of a long text at a time: another thread gets its turn in between


@dataclass(frozen=True, slots=True)
class Rule:
    """What a kind means: ``id`` is what the operator sees; ``head`` and ``tail`` stay visible where it is masked."""

    id: str
    action: Action
    head: int
    tail: int


class Found(NamedTuple):
    """A value from ``start`` to ``end`` of a text, and the spans of it that a mask covers."""

    start: int
    end: int
    rule: Rule
    masks: Sequence[Mask]


class Scanner:
    """The forms of a configuration, compiled: shared by all texts. ``longest`` bounds what one of them waits for."""

    def __init__(self, kinds: dict[KindName, Rule], own: Sequence[tuple[OwnForm, Rule]]) -> None:
        known = [(form, rule, name) for name, rule in kinds.items() for form in forms(name)]
        self.forms: list[tuple[Form, Rule, str]] = [*known, *((form, rule, "") for form, rule in own)]
        self.longest = max((form.longest for form, *_ in self.forms), default=0)
        self.only_tags = all(rule.action == "tag" for _, rule, _ in self.forms)
        self.blocks = any(rule.action == "block" for _, rule, _ in self.forms)
        begun = "|".join(form.beginnings for form, *_ in known)
        self._begun = re.compile(f"(?:{begun})\\Z").search
        self._own_begun: _Search | None = None
        self._own_near: _Search | None = None
        if own:
            self._own_begun, self._own_near = _own([form for form, _ in own])
        self._own = tuple(range(len(known), len(self.forms)))
        self._signs = [
            (re.compile(one).search, tuple(number for number, (*_, name) in enumerate(known) if sign(name) == one))
            for one in dict.fromkeys(map(sign, kinds))
        ]
        first = "".join(_FIRST.get(name, "0-9") for name in kinds)
        self._special = re.compile(f"[{first}{FOLDED}{INVISIBLE}]").search

    def is_plain(self, text: str) -> bool:
        """Say that no value can begin in the text."""
        if self._special(text) is not None:
            return False
        return self._own_near is None or self._own_near(text).start() == len(text)

    def is_clean(self, text: str) -> bool:
        """Say, where that is quick, that no value is in a text that is whole."""
        return not self.looked_for(visible(text)[0])

    def begun(self, text: str, at: int) -> int:
        """Return where the earliest value that may be under way at the end of the text begins, ``at`` or later."""
        at = max(at, len(text) - self.longest)
        found = self._begun(text, at)
        hold = found.start() if found else len(text)
        if self._own_begun is not None:
            hold = min(hold, self._own_begun(text, at).start())
        return hold

    def looked_for(self, text: str) -> Sequence[int]:
        """Return the numbers of the forms that a (folded) text is to be searched for."""
        numbers = self._own
        for search, signed in self._signs:
            if search(text) is not None:
                numbers += signed
        return numbers


#: What a value begins with, as the inside of a class; of every other kind it is a digit.
_FIRST: dict[KindName, str] = {
    "phone_fixed_cn": "0-9+",
    "email": WORD,
    "passport_cn": "A-Za-z",
    "plate_cn": PROVINCES,
    "ipv6": "0-9A-Fa-f:：",
    "api_key": "A-Za-z",
}


def _own(forms: Sequence[OwnForm]) -> tuple[_Search, _Search]:
    """Return the search for what of one's own patterns is under way at an end, and that for anything of them.

    Both find nothing at the very end where there is nothing.
    """
    begun = f"(?:{'|'.join(form.beginnings for form in forms)})\\z"
    return compiled(begun).search, compiled("|".join([begun, *(form.inside for form in forms)])).search


class Reader:
    """Reads one text, piece by piece. It knows what stands before the next piece, and how far each form has read."""

    __slots__ = ("_before", "_read", "_scanner")

    def __init__(self, scanner: Scanner) -> None:
        self._scanner = scanner
        self._before = ""
        self._read: dict[int, int] = {}  # form: so many characters after the hold belong to its last match

    def passed(self, text: str) -> None:
        """Take note of plain text that needed no look."""
        self._before = text if len(text) >= BEHIND else (self._before + text)[-BEHIND:]

    def step(self, text: str, *, final: bool) -> tuple[list[Found], int]:
        """Look at what was held and the next piece, as one text.

        Return what was found, by its place, and from where on the text has to wait for more (its length: nothing).
        """
        before = self._before[-BEHIND:]
        seen, places = visible(text)
        whole, base = before + seen, len(before)
        hold = len(whole) if final else self._scanner.begun(whole, base)
        numbers = self._scanner.looked_for(seen)
        found = self._found(whole, base, hold, places, {*numbers, *self._read}) if numbers or self._read else []
        self._before = whole[max(0, hold - BEHIND) : hold]
        held = hold - base
        return found, places[held] if held < len(places) else len(text)

    def _found(self, text: str, base: int, hold: int, places: Sequence[int], numbers: Iterable[int]) -> list[Found]:
        """Return what begins before the hold: only that can no longer become anything else."""
        matches: list[tuple[Match, int]] = []
        read, self._read = self._read, {}
        for number in numbers:
            at = base + read.get(number, 0)
            for match in self._scanner.forms[number][0].find(text, at):
                if match.start >= hold:
                    break
                matches.append((match, number))
                at = match.end
            if at > hold:
                self._read[number] = at - hold
        return [self._told(text, base, places, *one) for one in sorted(matches)]

    def _told(self, text: str, base: int, places: Sequence[int], match: Match, number: int) -> Found:
        _, rule, kind = self._scanner.forms[number]
        masks: list[Mask] = []
        if rule.action == "mask":
            covered = hidden_email(text, match) if kind == "email" else hidden(text, match, rule.head, rule.tail)
            for first, last in _runs(covered):
                masks.append((places[first - base], places[last - base] + 1))
        return Found(places[match.start - base], places[match.end - 1 - base] + 1, rule, masks)


def _runs(places: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield first and last of each run of neighbouring places."""
    for index, place in enumerate(places):
        if index == 0 or places[index - 1] != place - 1:
            first = place
        if index + 1 == len(places) or places[index + 1] != place + 1:
            yield first, place


def scan(scanner: Scanner, text: str) -> Iterator[Found]:
    """Yield everything in a whole text, by its place; a long one is read slice by slice."""
    reader, held, at = Reader(scanner), 0, 0
    while at < len(text):
        at = min(len(text), at + _SLICE)
        found, hold = reader.step(text[held:at], final=at == len(text))
        for one in found:
            moved = [(start + held, end + held) for start, end in one.masks]
            yield one._replace(start=one.start + held, end=one.end + held, masks=moved)
        held += hold
