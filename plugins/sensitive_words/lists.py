"""From options to entries: every list read, counted, and known by a version that only its content decides."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from gateway.sdk import Listing
from plugins.sensitive_words.options import Direction, SensitiveWordsOptions, WordOptions
from plugins.sensitive_words.wordfile import read, version_of, warn
from plugins.sensitive_words.wordlist import Entry, Scope, Source


class WordList(NamedTuple):
    """One list that was read, and the directions in which its entries count."""

    listing: Listing
    entries: list[Entry]
    directions: frozenset[Direction]
    scope: Scope | None = None


def load(options: SensitiveWordsOptions) -> list[WordList]:
    """Read all that the options name; warns in the log. Raises ValueError: a line for each fault, with its place."""
    faults: list[str] = []
    loaded = list(_parts(options, faults))
    if faults:
        raise ValueError("\n".join(faults))
    return loaded


def _parts(options: SensitiveWordsOptions, faults: list[str]) -> Iterator[WordList]:
    names = [one.path.name for one in options.lists]
    for one in options.lists:
        name = one.path.name if names.count(one.path.name) == 1 else "/".join(one.path.parts[-2:])
        scope = None if one.keys is one.models is None else Scope(one.keys, one.models)
        source = Source(name, one.action, one.tag, scope, one.replacement)
        try:
            entries = read(one.path, source, one.encoding)
        except ValueError as fault:
            faults += str(fault).splitlines()
            continue
        listing = Listing(name, len(entries), source.version)
        yield WordList(listing, entries, one.directions or options.directions, scope)
    words = [WordOptions(word=word) if isinstance(word, str) else word for word in options.words]
    for source, given in (
        (Source("words", place="entry"), words),
        (Source("allow", "allow", place="entry"), [WordOptions(word=word) for word in options.allow]),
    ):
        try:
            entries = _inline(source, given)
        except ValueError as fault:
            faults.append(str(fault))
            continue
        if given:
            version = version_of(repr(given).encode("utf-8", "backslashreplace"))
            yield WordList(Listing(source.name, len(entries), version), entries, options.directions)


def _inline(source: Source, given: list[WordOptions]) -> list[Entry]:
    entries = [
        entry
        for number, one in enumerate(given, 1)
        if (entry := source.entry(one.word, number, one.action, one.tag, one.replacement))
    ]
    warn(source)
    return entries
