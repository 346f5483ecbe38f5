"""From options to entries: every list read, counted, and known by a version that only its content decides."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gateway.sdk import Listing
from plugins.sensitive_words.options import Direction, ListOptions, SensitiveWordsOptions, WordOptions
from plugins.sensitive_words.wordfile import examine, told, version_of
from plugins.sensitive_words.wordlist import Entry, Scope, Source


class WordList(NamedTuple):
    """One list: what could be read of it, the faults in the way, and the directions in which its entries count."""

    source: Source
    entries: list[Entry]
    faults: list[str]
    directions: frozenset[Direction]

    @property
    def listing(self) -> Listing:
        """Its name, length and version."""
        return Listing(self.source.name, len(self.entries), self.source.version)


def load(options: SensitiveWordsOptions) -> list[WordList]:
    """Read all that the options name; warns in the log. Raises ValueError: a line for each fault, with its place."""
    lists = list(read(options))
    if faults := [line for one in lists for line in told(one.source, one.faults)]:
        raise ValueError("\n".join(faults))
    for one in lists:
        one.source.warn()
    return lists


def read(options: SensitiveWordsOptions) -> Iterator[WordList]:
    """Read every list that the options name, and the inline entries, where there are any."""
    names = [one.path.name for one in options.lists]
    for one in options.lists:
        name = one.path.name if names.count(one.path.name) == 1 else "/".join(one.path.parts[-2:])
        source = Source(name, one.action, one.tag, _scope(one), one.replacement)
        entries, faults = examine(one.path, source, one.encoding)
        yield WordList(source, entries, faults, options.directions if one.directions is None else one.directions)
    words = [WordOptions(word=word) if isinstance(word, str) else word for word in options.words]
    allow = [WordOptions(word=word) for word in options.allow]
    for source, given in (Source("words", place="entry"), words), (Source("allow", "allow", place="entry"), allow):
        if given:
            yield WordList(source, *_inline(source, given), options.directions)


def _inline(source: Source, given: Sequence[WordOptions]) -> tuple[list[Entry], list[str]]:
    entries, faults = [], []
    source.version = version_of(repr(given).encode("utf-8", "backslashreplace"))
    for number, one in enumerate(given, 1):
        try:
            entry = source.entry(one.word, number, one.action, one.tag, one.replacement)
        except ValueError as fault:
            faults.append(str(fault))
            continue
        if entry is not None:
            entries.append(entry)
    return entries, faults


def _scope(one: ListOptions) -> Scope | None:
    return None if one.keys is one.models is None else Scope(one.keys, one.models)
