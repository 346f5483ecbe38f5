"""What is wrong or odd in word files, for a check before they go into service."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from plugins.sensitive_words.fold import WORD
from plugins.sensitive_words.matcher import Matcher
from plugins.sensitive_words.wordfile import examine
from plugins.sensitive_words.wordlist import Entry, Rule, Source, is_common

_SHOWN = 5  # places of one kind in a file; all of them are in the findings


class Finding(NamedTuple):
    """Something to look at. ``severity``: a fault keeps the list from loading, a warning does not."""

    severity: str
    kind: str
    file: str
    line: int | None
    said: str


class Reviewed(NamedTuple):
    """One file: where it came from, what could be read, and the faults in the way."""

    path: Path
    source: Source
    entries: list[Entry]
    faults: list[str]


def review(files: Sequence[Path], encoding: str = "utf-8") -> dict[str, Any]:
    """Look at word files together, as one chain would use them, an entry's action being block where it says none.

    ``findings`` has everything, ``files`` counts, and ``said`` is both for people, a line each.
    """
    read = [_read(path, encoding) for path in dict.fromkeys(files)]
    paths = {each.source.name: each.path for each in read}
    entries = [entry for each in read for entry in each.entries]
    findings = [*_faults(read), *_odd(read)]
    for finds in (_duplicates, _hidden, _short):
        for kind, entry, said in finds(entries):
            name, _, line = entry.rule.id.rpartition(":")
            findings.append(Finding("warning", kind, str(paths[name]), int(line), said))
    order = {str(path): number for number, path in enumerate(paths.values())}
    findings.sort(key=lambda each: (each.severity != "fault", order[each.file], each.line or 0, each.kind))
    counts = [_counted(each) for each in read]
    return {
        "said": [*_lines(findings), *(each["said"] for each in counts)],
        "files": [{key: value for key, value in each.items() if key != "said"} for each in counts],
        "findings": [finding._asdict() for finding in findings],
    }


def _read(path: Path, encoding: str) -> Reviewed:
    source = Source(str(path), replacement="")  # the configuration may bring the replacement
    entries, faults = examine(path, source, encoding)
    return Reviewed(path, source, entries, faults)


def _faults(read: Iterable[Reviewed]) -> Iterator[Finding]:
    for each in read:
        for fault in each.faults:
            place = fault.removeprefix(f"{each.path}: line ").partition(":")[0]
            yield Finding("fault", "fault", str(each.path), int(place) if place.isdecimal() else None, fault)


def _odd(read: Iterable[Reviewed]) -> Iterator[Finding]:
    """Yield what reading them has warned of: stripped edges, blank lines, very common characters."""
    for each in read:
        for what, numbers in each.source.odd().items():
            for number in numbers:
                yield Finding("warning", what.partition(":")[0], str(each.path), number, what)


def _duplicates(entries: Iterable[Entry]) -> Iterator[tuple[str, Entry, str]]:
    first: dict[tuple[str, bool, bool, bool], Entry] = {}
    for entry in entries:
        rule = entry.rule
        before = first.setdefault((entry.word, rule.left, rule.right, rule.action == "allow"), entry).rule
        if before is rule:
            continue
        other = "" if (before.action, before.tag) == (rule.action, rule.tag) else ", which has another action or tag"
        yield "duplicate", entry, f"the same as {before.id}{other}"


def _hidden(entries: Sequence[Entry]) -> Iterator[tuple[str, Entry, str]]:
    """Yield what never counts: an allow entry covers it, it allows nothing, or a shorter entry blocks before."""
    acting = Matcher(entry for entry in entries if entry.rule.action != "allow")
    blocking = Matcher(entry for entry in entries if entry.rule.action == "block")
    allowing = Matcher(
        entry._replace(rule=entry.rule._replace(action="tag")) for entry in entries if entry.rule.action == "allow"
    )
    for entry in entries:
        word, rule = entry
        if rule.action == "allow":
            if not acting.scan(word).found:
                yield "allows nothing", entry, "allows nothing: no other entry is in it"
            continue
        allowed = [found.rule.id for found in allowing.scan(word).found if (found.start, found.end) == (0, len(word))]
        if allowed:
            yield "hidden", entry, f"never counts: the allow entry {allowed[0]} is the same"
            continue
        if rule.action == "block" and (other := next(_instead(entry, blocking), None)):
            yield "redundant", entry, f"never needed: {other.id} is in it and blocks already"


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


def _counted(each: Reviewed) -> dict[str, Any]:
    actions = Counter(entry.rule.action for entry in each.entries)
    tags = Counter(entry.rule.tag for entry in each.entries if entry.rule.tag)
    shown = ", ".join(f"{count} {action}" for action, count in sorted(actions.items()))
    sums = f"{len(each.entries)} entries" + (f" ({shown})" if shown else "")
    said = f"{each.path}: {sums}, version {each.source.version or 'none'}"
    return {
        "said": said,
        "file": str(each.path),
        "version": each.source.version,
        "entries": len(each.entries),
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
