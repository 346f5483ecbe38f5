"""Entries and their rules: what a list's entry means, for whom, and what is odd or wrong about it."""

from __future__ import annotations

import unicodedata
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from sys import intern
from typing import Literal, NamedTuple, get_args

import structlog

from plugins.sensitive_words.fold import WORD, fold

_log = structlog.get_logger()

Action = Literal["block", "mask", "replace", "tag", "allow"]
ACTIONS: tuple[str, ...] = get_args(Action)
LONGEST = 1000  # characters of an entry; a stream may have to be held back for as long

#: Single characters that stand in nearly every text.
_COMMON = frozenset("的一是不了在人有我他这个们中来上大为和国地到以说时要就出会可也你对生能而子那得于着下自之年过发后")
#: Categories of what is stripped from an entry's edges; other symbols (So) may be an entry of their own: emoji.
_EDGES = frozenset(
    ["Zs", "Zl", "Zp", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Sm", "Sc", "Sk", "Cc", "Cf", "Cn", "Co"]
)


class Asker(NamedTuple):
    """Whose text is looked at: not every entry is for everyone."""

    key: str | None = None
    model: str = ""


ANYONE = Asker()


class Scope(NamedTuple):
    """For whom entries are: exchanges of these keys and these models; None is all of them."""

    keys: frozenset[str] | None = None
    models: frozenset[str] | None = None


class Rule(NamedTuple):
    """What is to happen where a word is found. ``id`` is "list:line"; the word itself is not in it."""

    id: str
    action: str
    tag: str | None
    scope: Scope | None  # None: for everyone
    left: bool  # not in the middle of a word on its left
    right: bool  # nor on its right
    replacement: str | None = None  # of the action replace

    def applies(self, asker: Asker) -> bool:
        """Does this rule look at what is this asker's?"""
        if self.scope is None:
            return True
        keys, models = self.scope
        return (keys is None or asker.key in keys) and (models is None or asker.model in models)


class Entry(NamedTuple):
    """A folded word with its rule."""

    word: str
    rule: Rule


@dataclass(slots=True)
class Source:
    """Where entries come from, and what they mean unless they say otherwise."""

    name: str  # in rule ids
    action: str = "block"
    tag: str | None = None
    scope: Scope | None = None
    replacement: str | None = None
    place: str = "line"
    path: str = ""  # in messages; without one, the name
    version: str = ""  # a hash of the file's content, once it is read
    _odd: defaultdict[str, list[int]] = field(default_factory=lambda: defaultdict(list))

    def entry(
        self,
        text: str,
        number: int,
        action: str | None = None,
        tag: str | None = None,
        replacement: str | None = None,
    ) -> Entry | None:
        """Make an entry of what a list says; None (and a warning, later) where nothing is left of it.

        Raises ValueError, naming the place, where it cannot be used.
        """
        if action and action not in ACTIONS:
            raise ValueError(f"{self.at(number)}: the action must be one of {', '.join(ACTIONS)}, not {action[:20]!r}")
        action, replacement = self._replaced(action, replacement, number)
        core = text.strip()
        inside_left, inside_right = core.startswith("*"), core.endswith("*")
        bare = _without_edges(core.strip("*"))
        word = fold(bare)
        if not word or all(unicodedata.category(character) in _EDGES for character in word):
            self._odd["blank or without a letter: skipped"].append(number)
            return None
        if len(word) > LONGEST:
            raise ValueError(f"{self.at(number)}: an entry may have {LONGEST} characters, this one has {len(word)}")
        if bare != core.strip("*").strip():
            self._odd["punctuation at an edge: stripped"].append(number)
        if is_common(word):
            self._odd["one very common character: will match nearly everything"].append(number)
        left = not inside_left and word[0] in WORD  # each edge by its own character: A片 is not in DNA片段
        right = not inside_right and word[-1] in WORD
        tag = intern(tag) if tag else self.tag  # a hundred thousand entries have a handful of tags
        rule = Rule(f"{self.name}:{number}", intern(action), tag, self.scope, left, right, replacement)
        return Entry(word, rule)

    def _replaced(self, action: str | None, own: str | None, number: int) -> tuple[str, str | None]:
        """Return an entry's action and what takes its place: who says a replacement alone means the action replace."""
        action = action or (self.action if own is None else "replace")
        text = self.replacement if own is None else own
        if action != "replace":
            if own is not None:
                raise ValueError(f"{self.at(number)}: a replacement belongs to the action replace, not to {action}")
            return action, None
        if text is None:
            raise ValueError(f"{self.at(number)}: the action replace needs a replacement, the entry's or the list's")
        return action, text

    def at(self, number: int) -> str:
        """Name a place for an error message."""
        return f"{self.path or self.name}: {self.place} {number}"

    def odd(self) -> Mapping[str, Sequence[int]]:
        """Return each kind of odd entry, with its places."""
        return self._odd

    def warn(self) -> None:
        """Write the warnings to the log."""
        for line in self.warnings():
            _log.warning("word_list", said=line)

    def warnings(self) -> list[str]:
        """Return one line for each kind of odd entry, with the first few places."""
        found = []
        for what, numbers in self._odd.items():
            shown = ", ".join(map(str, numbers[:5])) + (f" and {len(numbers) - 5} more" if len(numbers) > 5 else "")
            found.append(f"{self.path or self.name}: {self.place} {shown}: {what}")
        return found


def is_common(word: str) -> bool:
    """Is this one character that stands in nearly every text?"""
    return len(word) == 1 and (word in _COMMON or word.isascii())


def _without_edges(text: str) -> str:
    start, end = 0, len(text)
    while start < end and unicodedata.category(text[start]) in _EDGES:
        start += 1
    while end > start and unicodedata.category(text[end - 1]) in _EDGES:
        end -= 1
    return text[start:end]
