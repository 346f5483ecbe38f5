"""Whether the letters of what looks like an entry are its own: their marks, their script, how often they repeat."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

from plugins.sensitive_words.alone import is_power
from plugins.sensitive_words.fold import WORD, fold
from plugins.sensitive_words.folding import Folding
from plugins.sensitive_words.forms import Form
from plugins.sensitive_words.gaps import Barriers
from plugins.sensitive_words.scripts import script, script_after
from plugins.sensitive_words.skeleton import OVERLAYS, Copy, Letter, is_mark, most_marked, spelling
from plugins.sensitive_words.tables import LOOKALIKES


class Place(NamedTuple):
    """Where in a copy something looks like a form. ``final``: no more text will come."""

    copy: Copy
    start: int
    end: int
    final: bool
    barriers: Barriers


def span(place: Place) -> tuple[int, int]:
    """Return the code points of the text that the word is, marks on its last letter included."""
    copy = place.copy
    start, end = copy.places[place.start], copy.lasts[place.end - 1] + 1
    if not copy.same and copy.letters[place.end - 1] in WORD:
        for at in range(end, _after(copy.text, end)):
            if is_mark(copy.text[at]):
                end = at + 1
    return start, end


def written(form: Form, place: Place, folding: Folding) -> bool | None:
    """Is the word written as one that counts? None if that depends on the word that comes after."""
    if form.counts is not None and not _long_enough(form.counts, place):
        return False
    if form.rule.action == "allow":
        return _literal(form, place)
    if (place.copy.same or not form.spaced) and form.letters is None:
        return True
    return _as_written(form, place, folding)


def _after(text: str, at: int) -> int:
    """Return where marks and what is invisible end."""
    while at < len(text) and (is_mark(text[at]) or not fold(text[at])):
        at += 1
    return at


def _long_enough(counts: Sequence[int], place: Place) -> bool:
    """Is each run of a letter at least as long as the entry's?"""
    copy, start, end, *_ = place
    runs = [copy.runs[index] for index in range(start, end) if copy.letters[index] not in " -"]
    return all(run >= count for run, count in zip(runs, counts, strict=True))


def _literal(form: Form, place: Place) -> bool:
    """Is it the entry as it is written, but for width and case?"""
    start, end = span(place)
    its = place.copy.text[start:end]
    return fold(its) == form.word and all(map(fold, its))


def _as_written(form: Form, place: Place, folding: Folding) -> bool | None:
    """Do marks and look-alikes of other scripts not make another word of it?"""
    copy, start, end, *_ = place
    first, last = copy.places[start], copy.lasts[end - 1]
    spelled = spelling(copy.text[first : _after(copy.text, last + 1)])
    if copy.runs:
        spelled = [most_marked(list(run)) if one not in " -" else next(run) for one, run in groupby(spelled, _read_as)]
    spelled = [one for one in spelled if one.read_as not in " -"]
    before, skipped = start, 0  # letters that the first code point has before the word begins
    while before and copy.lasts[before - 1] == first:
        before -= 1
        skipped += copy.letters[before] not in " -"
    spelled = spelled[skipped:]
    size = len(form.key)
    own: Sequence[Letter] = form.letters or [Letter(one, one, "", one) for one in form.key]
    pairs = list(zip(spelled[:size], own, strict=False))
    if not form.pinyin and not _marks_allow(pairs):
        return False
    if form.key.isdecimal() and is_power([one.raw for one, _ in pairs]):
        return False
    foreign = [(one, its) for one, its in pairs if one.letter != its.letter]
    return _script_rule(place, [one for one, _ in pairs], foreign) if foreign and folding.confusables else not foreign


def _read_as(letter: Letter) -> str:
    return letter.read_as


def _marks(letter: Letter) -> str:
    """Return a letter's marks; the dot of İ is the i's own."""
    return letter.marks.replace("\u0307", "") if letter.letter in "ij" else letter.marks


def _own_marks(its: Letter, one: Letter) -> str:
    """Return the marks of an entry's letter; the accents of Greek are not written on capitals."""
    bare = one.raw.isupper() and "\u0370" <= one.letter <= "\u03ff" and "\u0301" not in one.marks
    return its.marks.replace("\u0301", "") if bare else _marks(its)


def _marks_allow(pairs: Sequence[tuple[Letter, Letter]]) -> bool:
    """Are the marks the entry's, or decoration: strokes through letters, heaps of marks, a mark on every letter?"""
    spaced = [(_marks(one), _own_marks(its, one)) for one, its in pairs if its.letter in WORD]
    if all(marks == own for marks, own in spaced):
        return True
    bare = [tuple("".join(mark for mark in marks if mark not in OVERLAYS) for marks in pair) for pair in spaced]
    if all(marks == own for marks, own in bare):
        return True
    if any(len(marks) >= len(own) + 3 for marks, own in bare):
        return True
    return len(spaced) >= 3 and all(marks for marks, _ in spaced)


def _script_rule(place: Place, written: Sequence[Letter], foreign: Sequence[tuple[Letter, Letter]]) -> bool | None:
    """May look-alikes count: are scripts mixed, or is a whole word of another script made of nothing else?

    The latter not where the next letter before or behind it that tells of a script is one of that script's own: сор is
    a word among Russian ones.
    """
    scripts = {script(one.letter) for one in written if not one.letter.isdecimal()}
    if len(scripts) > 1:
        return True
    if len(written) < 3 or "LATIN" in scripts:
        return False
    if not all(one.raw in LOOKALIKES and its.letter.isascii() for one, its in foreign):
        return False
    copy, start, end, final, barriers = place
    said = copy.letters
    if (start and said[start - 1] in WORD) or (end < len(said) and said[end] in WORD) or not scripts:
        return False
    its = scripts.pop()
    if barriers.script_before(copy.places[start]) == its:
        return False
    after = script_after(copy.text, copy.lasts[end - 1] + 1, final=final)
    return None if after is None else after != its
