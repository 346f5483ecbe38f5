"""Why a rule fires on a text: its entry, the span, and what each character of the span was read as."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

from gateway.sdk import Listing
from plugins.sensitive_words.alone import readings
from plugins.sensitive_words.fold import fold_character
from plugins.sensitive_words.matcher import Found, Matcher
from plugins.sensitive_words.skeleton import Letter, spelling
from plugins.sensitive_words.wordlist import Asker, Scope

_PARTS = (" ", "-")  # what separators are read as
MOST = 100  # places told of one text: each costs a look through all entries


class Question(NamedTuple):
    """A text, and whose it is; None: whoever's."""

    text: str
    key: str | None = None
    model: str | None = None


class Read(NamedTuple):
    """A character of the span that was not read as itself: nothing in its place where it was skipped."""

    at: int
    character: str
    read_as: str
    why: str


def explained(
    question: Question, matchers: Mapping[str, Matcher], lists: Sequence[Listing], scopes: Iterable[Scope]
) -> list[dict[str, Any]]:
    """Answer a question as JSON objects, one for each of the first places where a rule fires, ``said`` in one line."""
    directions: dict[Found, list[str]] = {}
    askers = _askers(question, scopes)
    for direction, matcher in matchers.items():
        for found in {found for asker in askers for found in islice(matcher.scan_long(question.text, asker), MOST)}:
            directions.setdefault(found, []).append(direction)
    versions = {listing.name: listing.version for listing in lists}
    return [
        _told(question.text, found, matchers[directions[found][0]].word_of(found.rule), directions[found], versions)
        for found in sorted(directions, key=lambda found: (*found[:2], found.rule.id))[:MOST]
    ]


def _askers(question: Question, scopes: Iterable[Scope]) -> set[Asker]:
    """Return somebody for each list, for whom it counts, as far as the question leaves that open."""
    asking = set()
    for keys, models in (Scope(), *scopes):
        key = min(keys) if question.key is None and keys else question.key
        model = min(models) if question.model is None and models else question.model
        asking.add(Asker(key, model or ""))
    return asking


def _told(text: str, found: Found, word: str, directions: Sequence[str], versions: Mapping[str, str]) -> dict[str, Any]:
    start, end, rule = found
    reading = list(read(text[start:end], word, start))
    told: dict[str, Any] = {
        "rule": rule.id,
        "version": versions.get(rule.id.rpartition(":")[0]),
        "entry": word,
        "action": rule.action,
        "tag": rule.tag,
        "replacement": rule.replacement,
        "start": start,
        "end": end,
        "text": text[start:end],
        "folds": [each._asdict() for each in reading if each.read_as],
        "skipped": [
            {"at": each.at, "character": each.character, "why": each.why} for each in reading if not each.read_as
        ],
        "directions": list(directions),
        "keys": sorted(rule.scope.keys) if rule.scope and rule.scope.keys is not None else None,
        "models": sorted(rule.scope.models) if rule.scope and rule.scope.models is not None else None,
    }
    return {"said": _line(told, reading), **told}


def _line(told: Mapping[str, Any], reading: Sequence[Read]) -> str:
    does = f"{told['action']} ({told['tag']})" if told["tag"] else told["action"]
    parts = [
        f"{told['rule']}: {does}: {told['text']!r} at {told['start']} to {told['end']} is the entry {told['entry']!r}"
    ]
    folds = dict.fromkeys(f"{each.character!r} as {each.read_as!r} ({each.why})" for each in reading if each.read_as)
    skipped = dict.fromkeys(f"{each.character!r} ({each.why})" for each in reading if not each.read_as)
    if folds:
        parts.append(f"read {', '.join(folds)}")
    if skipped:
        parts.append(f"skipped {', '.join(skipped)}")
    if len(told["directions"]) == 1:
        parts.append(f"in the {told['directions'][0]} only")
    parts += [
        f"for the {whose} {', '.join(told[whose])} only" for whose in ("keys", "models") if told[whose] is not None
    ]
    return "; ".join(parts)


def read(piece: str, word: str, start: int = 0) -> Iterator[Read]:
    """Lay a span beside its entry's folded word: yield each character that was read as another, or skipped."""
    own = [letter for letter in spelling(word) if letter.read_as not in _PARTS]
    if own and piece.isascii() and not own[0].read_as.isascii():
        yield Read(start, piece, word, "pinyin")
        return
    at = 0
    for index, (character, seen) in enumerate(zip(piece, _as_read(piece, own), strict=True), start):
        letters = spelling(seen)
        wanted = own[at : at + len(letters)]
        if not letters:
            yield Read(index, character, "", "mark" if unicodedata.category(character)[0] == "M" else "invisible")
        elif all(letter.read_as in _PARTS for letter in letters):
            if character not in word:
                yield Read(index, character, "", "separator")
        elif [letter.read_as for letter in letters] == [letter.read_as for letter in wanted]:
            at += len(letters)
            read_as = "".join(letter.letter for letter in wanted)
            if read_as != character:
                yield Read(
                    index, character, read_as, _why(character, "".join(letter.letter for letter in letters), read_as)
                )
        else:
            yield Read(index, character, "", "repeated")


def _as_read(piece: str, own: Sequence[Letter]) -> str:
    """Return a span in that of its readings in which it is the entry."""
    wanted = [letter.read_as for letter in own]
    for reading in readings(piece):
        if [letter.read_as for letter in spelling(reading) if letter.read_as not in _PARTS] == wanted:
            return reading
    return piece


def _why(character: str, letters: str, read_as: str) -> str:
    """Name the kind of a fold, for people."""
    if letters != read_as:
        return "look-alike"
    if character.casefold() == letters:
        return "case"
    return (
        "form" if fold_character(character) == letters else "variant"
    )  # of a traditional character the simplified one
