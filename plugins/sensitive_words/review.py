"""What is wrong or odd in word files, for a check before they go into service."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from plugins.sensitive_words.fold import WORD
from plugins.sensitive_words.folding import Folding
from plugins.sensitive_words.forms import forms
from plugins.sensitive_words.lists import WordList, read
from plugins.sensitive_words.matcher import Matcher
from plugins.sensitive_words.options import SensitiveWordsOptions
from plugins.sensitive_words.wordlist import Entry, Rule, is_common

_SHOWN = 5  # places of one kind in a file; all of them are in the findings
#: Common English words that are the pinyin of two characters and more.
_ENGLISH = """
acute age alike anger angle are area aware balance bare base bike bite cage cake came career case chance change
cheese cure damage dance danger data date dating dealing debate decide deer desire die disease dude due eating
ending entire face fade fate future game gate gene generate guide hate hence here house huge human lake lane
language late leading lie like line machine made magazine make male manage marine mature mean measure media medicine
meeting menu mere mice mile mine mobile mode mole more mouse name nice nine nude one open orange pace page pale
paying pie piece pine police pose range reading reduce refuge release remote rice rise rude rule running sake sale
same saying sea seen sending sense sequence shade shame share side suicide sure take taken tale tea tense tile time
tire wage wake women yoga
"""


class Finding(NamedTuple):
    """Something to look at. ``severity``: a fault keeps the list from loading, a warning does not."""

    severity: str
    kind: str
    file: str
    line: int | None
    said: str


def review(options: SensitiveWordsOptions) -> dict[str, Any]:
    """Look at all lists that the options name, together.

    ``findings`` has everything, ``files`` counts, and ``said`` is both for people, a line each.
    """
    lists = list(read(options))
    files = {one.source.name: _file(one) for one in lists}
    entries = [entry for one in lists for entry in one.entries]
    findings = [*_faults(lists), *_odd(lists)]
    directions: dict[str, frozenset[str]] = {one.source.name: frozenset(one.directions) for one in lists}
    reach = _Reach({entry.rule.id: entry.rule for entry in entries}, directions)
    for kind, entry, said in (
        *_duplicates(entries, reach),
        *_hidden(entries, reach, options.folding),
        *_short(entries),
        *_english(entries, options.folding),
    ):
        name, _, line = entry.rule.id.rpartition(":")
        findings.append(Finding("warning", kind, files[name], int(line), said))
    order = {file: number for number, file in enumerate(files.values())}
    findings.sort(key=lambda each: (each.severity != "fault", order[each.file], each.line or 0, each.kind))
    counts = [_counted(one) for one in lists]
    return {
        "said": [*_lines(findings), *(each["said"] for each in counts)],
        "files": [{key: value for key, value in each.items() if key != "said"} for each in counts],
        "findings": [finding._asdict() for finding in findings],
    }


class _Reach(NamedTuple):
    """Which entries there are, by their rules' ids, and where those of each list count."""

    rules: Mapping[str, Rule]
    directions: Mapping[str, frozenset[str]]

    def covers(self, other: str, rule: Rule) -> bool:
        """Does another rule count wherever this one does?"""
        theirs, mine = (self.directions[name.rpartition(":")[0]] for name in (other, rule.id))
        return self.rules[other].scope in {None, rule.scope} and theirs >= mine


def _file(one: WordList) -> str:
    return one.source.path or one.source.name


def _faults(lists: Iterable[WordList]) -> Iterator[Finding]:
    for one in lists:
        for fault in one.faults:
            place = fault.removeprefix(f"{_file(one)}: {one.source.place} ").partition(":")[0]
            yield Finding("fault", "fault", _file(one), int(place) if place.isdecimal() else None, fault)


def _odd(lists: Iterable[WordList]) -> Iterator[Finding]:
    """Yield what reading them has warned of: stripped edges, blank lines, very common characters."""
    for one in lists:
        for what, numbers in one.source.odd().items():
            for number in numbers:
                yield Finding("warning", what.partition(":")[0], _file(one), number, what)


def _duplicates(entries: Iterable[Entry], reach: _Reach) -> Iterator[tuple[str, Entry, str]]:
    alike: defaultdict[tuple[str, bool, bool, bool], list[Rule]] = defaultdict(list)
    for entry in entries:
        rule = entry.rule
        earlier = alike[entry.word, rule.left, rule.right, rule.action == "allow"]
        before = next((other for other in earlier if reach.covers(other.id, rule)), None)
        earlier.append(rule)
        if before is None:
            continue
        other = "" if (before.action, before.tag) == (rule.action, rule.tag) else ", which has another action or tag"
        yield "duplicate", entry, f"the same as {before.id}{other}"


def _hidden(entries: Sequence[Entry], reach: _Reach, folding: Folding) -> Iterator[tuple[str, Entry, str]]:
    """Yield what never counts: an allow entry covers it, it allows nothing, or a shorter entry blocks before."""
    acting = _everyones((entry for entry in entries if entry.rule.action != "allow"), folding)
    blocking = _everyones((entry for entry in entries if entry.rule.action == "block"), folding)
    allowing = _everyones((entry for entry in entries if entry.rule.action == "allow"), folding)
    for entry in entries:
        word, rule = entry
        if rule.action == "allow":
            if not acting.scan(word).found:
                yield "allows nothing", entry, "allows nothing: no other entry is in it"
            continue
        same = (found.rule for found in allowing.scan(word).found if (found.start, found.end) == (0, len(word)))
        if allowed := next((other for other in same if reach.covers(other.id, rule)), None):
            yield "hidden", entry, f"never counts: the allow entry {allowed.id} is the same"
            continue
        instead = (other for other in _instead(entry, blocking) if reach.covers(other.id, rule))
        if rule.action == "block" and (other := next(instead, None)):
            yield "redundant", entry, f"never needed: {other.id} is in it and blocks already"


def _everyones(entries: Iterable[Entry], folding: Folding) -> Matcher:
    """Compile entries so that every one is found, whosever it is and whatever it does."""
    seen = (entry._replace(rule=entry.rule._replace(action="tag", scope=None)) for entry in entries)
    return Matcher(seen, folding)


def _instead(entry: Entry, blocking: Matcher) -> Iterator[Rule]:
    """Yield the rules that block wherever this entry would: shorter ones in it, and the same with fewer conditions."""
    word, rule = entry
    for start, end, other in blocking.scan(word).found:
        looser = (other.left, other.right) < (rule.left, rule.right) and other.left <= rule.left
        if end - start < len(word) or (looser and other.right <= rule.right):
            yield other


def _short(entries: Iterable[Entry]) -> Iterator[tuple[str, Entry, str]]:
    for entry in entries:
        word, rule = entry
        if rule.action == "allow":
            continue
        spaced = all(character in WORD for character in word)
        inside = spaced and not (rule.left and rule.right)
        if is_common(word):
            continue  # reading has told it
        if len(word) == 1:
            yield "short", entry, "one character: matches a great deal of ordinary text"
        elif spaced and len(word) <= (3 if inside else 2):
            yield (
                "short",
                entry,
                f"{len(word)} letters or digits{' inside any word' if inside else ''}: matches a great deal",
            )


def _english(entries: Iterable[Entry], folding: Folding) -> Iterator[tuple[str, Entry, str]]:
    english = set(_ENGLISH.split())
    for entry in entries if folding.pinyin else ():
        if words := english & {form.key for form in forms(0, entry, folding) if form.pinyin}:
            yield "pinyin", entry, f"its pinyin is English too ({', '.join(sorted(words))}): matches ordinary text"


def _counted(one: WordList) -> dict[str, Any]:
    actions = Counter(entry.rule.action for entry in one.entries)
    tags = Counter(entry.rule.tag for entry in one.entries if entry.rule.tag)
    shown = ", ".join(f"{count} {action}" for action, count in sorted(actions.items()))
    sums = f"{len(one.entries)} entries" + (f" ({shown})" if shown else "")
    said = f"{_file(one)}: {sums}, version {one.source.version or 'none'}"
    return {
        "said": said,
        "file": str(_file(one)),
        "version": one.source.version,
        "entries": len(one.entries),
        "actions": dict(actions),
        "tags": dict(tags),
    }


def _lines(findings: Iterable[Finding]) -> Iterator[str]:
    """Yield each fault, and of each kind of warning in a file the first few."""
    warnings: defaultdict[tuple[str, str], list[Finding]] = defaultdict(list)
    for finding in findings:
        if finding.severity == "fault":
            yield finding.said
        else:
            warnings[finding.file, finding.kind].append(finding)
    for (file, kind), found in warnings.items():
        yield from (f"{file}: line {finding.line}: {finding.said}" for finding in found[:_SHOWN])
        if len(found) > _SHOWN:
            yield f"{file}: and {len(found) - _SHOWN} more of this kind ({kind})"
