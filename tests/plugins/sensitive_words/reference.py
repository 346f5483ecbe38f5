"""The obvious way to find words, slow and easy to believe: what the matcher and its streams are held against."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import product
from typing import NamedTuple

from plugins.sensitive_words.alone import is_power, readings
from plugins.sensitive_words.fold import WORD, fold
from plugins.sensitive_words.folding import Folding
from plugins.sensitive_words.matcher import Found
from plugins.sensitive_words.pinyin import spelled
from plugins.sensitive_words.skeleton import is_mark, spelling
from plugins.sensitive_words.wordlist import ANYONE, Asker, Entry, Rule
from tests.plugins.sensitive_words.reference_rules import (
    Match,
    Unit,
    latin_gaps,
    marks_hold,
    one_number,
    scripts_hold,
    skips,
    spelled_neighbours,
    units,
    walk,
)

PLAIN = Folding()


class Verdict(NamedTuple):
    """What is shown of a text, which rules fired where, and the rule that ended it."""

    shown: str
    hits: list[tuple[int, int, str]]
    blocked: str | None


class Spelled(NamedTuple):
    """One way an entry is written: letters, what they are read as, marks, and what the entry has between them."""

    key: str
    letters: list[str]
    marks: list[str]
    counts: list[int]
    own: list[str | None]
    left: bool
    right: bool
    pinyin: bool = False


def ways(entry: Entry, folding: Folding) -> list[Spelled]:
    word, rule = entry
    read = units(word, repeats=folding.repeats)
    letters = [one for one in read if not one.separates]
    own: list[str | None] = []
    for one in read:
        if one.separates:
            own[-1] = (own[-1] or "") + one.read_as
        else:
            own.append("")
    key = "".join(one.read_as for one in letters)
    counts = [one.run for one in letters]
    made = [Spelled(key, [o.letter for o in letters], [o.marks for o in letters], counts, own, rule.left, rule.right)]
    if folding.pinyin and rule.action != "allow":
        for syllables in spelled(key):
            joints: list[str | None] = []
            for syllable in syllables:
                joints += [*[None] * (len(syllable) - 1), ""]
            latin = "".join(syllables)
            made.append(Spelled(latin, list(latin), [""] * len(latin), [1] * len(latin), joints, True, True, True))
    return made


def boundaries(read: list[Unit], match: Match, way: Spelled, *, groups: bool) -> bool:
    """Does the word begin and end where it has to, and not go on?"""
    first, last = match.at[0], match.at[-1]
    after = read[last + 1 :]
    for bounded, letter, beside in ((way.left, way.key[0], first - 1), (way.right, way.key[-1], last + 1)):
        if bounded and 0 <= beside < len(read):
            number = letter.isdecimal() and one_number(read, beside, groups=groups)
            if read[beside].in_word or number:
                return False
    return not (after and re.match("[\u3041-\u30ff]", way.key[-1]) and after[0].read_as in "\u3099\u309a")


def gaps(read: list[Unit], match: Match, way: Spelled, most: int) -> bool:
    """May all that stands between the letters stand there?"""
    free: list[str] = []
    for run, own in zip(match.runs, way.own, strict=False):
        if own is None and run:
            return False
        if own and not own_run(run, own, most):
            return False
        free.append("" if own else run)
    if way.pinyin:
        return all(skips(run, most) for run in free)
    spelled, joined = latin_gaps(read, Match(match.at, free), most, [bool(own) for own in way.own])
    edges = [at for at in (match.at[0] - 1, match.at[-1] + 1) if 0 <= at < len(read)]
    if not joined and (not spelled or any(read[at].in_word for at in edges)):
        return False
    latin = any(
        run and read[a].in_word and read[b].in_word for run, a, b in zip(free, match.at, match.at[1:], strict=False)
    )
    if not (latin and way.left and way.right) or not all_alone(read, match, way):
        return True
    before, after = spelled_neighbours(read, Match(match.at, free), most)
    return not (before and after) if len(match.at) >= 4 else not (before or after)


def all_alone(read: list[Unit], match: Match, way: Spelled) -> bool:
    """Does each letter stand alone?"""
    pairs = zip(match.runs, way.own, match.at, match.at[1:], strict=False)
    return all(run or own for run, own, a, b in pairs if read[a].in_word and read[b].in_word)


def own_run(run: str, own: str, most: int) -> bool:
    """May a run stand where the entry itself has a separator?"""
    if run == own:
        return True
    if not run or own.isspace():
        return bool(run) and skips(run, most)
    bare = [re.sub("[ \n]", "", one) for one in (run, own)]
    return bare[0] == bare[1] and run.count("\n") <= 1 and len(run) - len(own) <= most


def reach(text: str, read: list[Unit], match: Match) -> tuple[int, int]:
    """The code points of a match, marks on its last letter included."""
    last = read[match.at[-1]]
    end = last.last + 1
    more = end
    while last.in_word and more < len(text) and (is_mark(text[more]) or not fold(text[more])):
        more += 1
        end = more if is_mark(text[more - 1]) else end
    return read[match.at[0]].first, end


def occurrences(text: str, entry: Entry, folding: Folding) -> Iterator[tuple[int, int, int, int]]:
    """Yield where an entry is: code points, and units to sort by."""
    signs = spelling(entry.word)
    if not signs:
        return
    if signs[0].read_as in " -" or signs[-1].read_as in " -":
        yield from symbols(text, entry)
        return
    for one, way in product(readings(text), ways(entry, folding)):
        read = units(one, repeats=folding.repeats)
        for start in range(len(read)):
            match = None if read[start].separates else walk(read, start, way.key)
            if match is not None and counts(one, read, match, way, entry, folding):
                yield *reach(one, read, match), match.at[-1], start


def counts(text: str, read: list[Unit], match: Match, way: Spelled, entry: Entry, folding: Folding) -> bool:
    """Is it the word, by all that the policy says?"""
    if not boundaries(read, match, way, groups=not folding.repeats) or not gaps(read, match, way, folding.max_skip):
        return False
    if any(read[at].run < count for at, count in zip(match.at, way.counts, strict=True)):
        return False
    if entry.rule.action == "allow":
        first, end = reach(text, read, match)
        return fold(text[first:end]) == entry.word and all(map(fold, text[first:end]))
    if way.pinyin:
        return True
    if way.key.isdecimal() and is_power([read[at].raw for at in match.at]):
        return False
    marked = [(read[at], own) for at, own in zip(match.at, way.marks, strict=True)]
    spaced = [pair for pair, letter in zip(marked, way.letters, strict=True) if letter in WORD]
    same = [read[at].letter for at in match.at] == way.letters
    return marks_hold(spaced) and (same or (folding.confusables and scripts_hold(text, read, match, way.letters)))


def joins(beside: str, side: int) -> bool:
    """Is a neighbour, as it is read, a letter of a word?"""
    letters = spelling(beside)
    return bool(letters) and letters[side].read_as in WORD


def symbols(text: str, entry: Entry) -> Iterator[tuple[int, int, int, int]]:
    """Entries with symbols at an edge are as they are written, but for width, case and what is invisible."""
    word, rule = entry
    pairs = [(folded, at) for at, character in enumerate(text) for folded in fold(character)]
    folded = "".join(character for character, _ in pairs)
    for start in range(len(folded)):
        end = start + len(word)
        if not folded.startswith(word, start):
            continue
        before = start
        while before and is_mark(folded[before - 1]):
            before -= 1
        if (rule.left and joins(folded[:before][-1:], -1)) or (rule.right and joins(folded[end : end + 1], 0)):
            continue
        first, last = pairs[start][1], pairs[end - 1][1] + 1
        if rule.action != "allow" or all(map(fold, text[first:last])):
            yield first, last, last, first


def find(text: str, entries: Sequence[Entry], asker: Asker = ANYONE, folding: Folding = PLAIN) -> list[Found]:
    """Return everything that counts, by its place."""
    found: dict[tuple[int, int, int], tuple[int, int, int, int, int, Rule]] = {}
    for order, entry in enumerate(entries):
        if entry.rule.applies(asker):
            for first, end, last, start in occurrences(text, entry, folding):
                found.setdefault((first, end, order), (first, end, last, start, order, entry.rule))
    matches = [Found(start, end, rule) for start, end, *_, rule in sorted(found.values(), key=lambda match: match[:5])]
    allows = [(start, end) for start, end, rule in matches if rule.action == "allow"]
    return [
        match
        for match in matches
        if match.rule.action != "allow" and not any(start <= match.start and match.end <= end for start, end in allows)
    ]


def judge(text: str, entries: Sequence[Entry], asker: Asker = ANYONE, folding: Folding = PLAIN) -> Verdict:
    """Return what a caller may see of the whole text."""
    matches = find(text, entries, asker, folding)
    hits = []
    for match in matches:
        hits.append((match.start, match.end, match.rule.id))
        if match.rule.action == "block":
            return Verdict(_covered(text[: match.start], matches), hits, match.rule.id)
    return Verdict(_covered(text, matches), hits, None)


def _covered(text: str, matches: Sequence[Found]) -> str:
    """Of what overlaps, the first (the longest of those) says what takes the place of all."""
    shown = ""
    inside: str | None = None  # the replacement of which we are inside; None: masks
    spans = [(start, -end, rule.replacement) for start, end, rule in matches if rule.action in {"mask", "replace"}]
    reach = 0
    for index, character in enumerate(text):
        starting = sorted((span for span in spans if span[0] == index), key=lambda span: span[1])
        for _, end, replacement in starting:
            if index >= reach:
                inside = replacement
                shown += replacement or ""
            reach = max(reach, -end)
        if index >= reach:
            shown += character
        elif inside is None:
            shown += "*"
    return shown
