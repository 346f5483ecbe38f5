"""Whether what looks like an entry is one: what stands around it, between its letters, and how they are written."""

from __future__ import annotations

from typing import NamedTuple

from plugins.sensitive_words.fold import WORD
from plugins.sensitive_words.folding import Folding
from plugins.sensitive_words.forms import SOLID, Form
from plugins.sensitive_words.gaps import GROUPING, LONGEST, between, gap, is_point, matches
from plugins.sensitive_words.skeleton import Copy
from plugins.sensitive_words.writing import Place, written

_VOICED = frozenset("\u3099\u309a")  # make another letter of the kana before them


def verdict(form: Form, place: Place, folding: Folding) -> bool | None:
    """Is the word there, written in a way that counts? None: that depends on text that has not come yet.

    What is False stays so, whatever comes.
    """
    for holds in (_begins, _skips, _ends, written):
        held = holds(form, place, folding)
        if not held:
            return held
    return True


def _begins(form: Form, place: Place, _: Folding) -> bool | None:
    """Is the word not only the end of a longer one, and the number of a longer number? None if more must be seen."""
    letters, start = place.copy.letters, place.start
    if not form.left or not start:
        return True
    if letters[start - 1] in WORD:
        return False
    return not letters[start].isdecimal() or _parts(place, start - 1)


def _parts(place: Place, at: int) -> bool | None:
    """Does the separator at ``at`` part two numbers? One in 4.69, 69,000 and 69 000 does not.

    None if more text must be seen.
    """
    copy, letters = place.copy, place.copy.letters
    sign = copy.text[copy.places[at]]
    if is_point(sign):
        if not at or not letters[at - 1].isdecimal():
            return True
        return not letters[at + 1].isdecimal() if at + 1 < len(letters) else True if place.final else None
    if sign not in GROUPING or copy.runs:
        return True
    first, last = at, at + 1
    while first and at - first < 4 and letters[first - 1].isdecimal():
        first -= 1
    if not 1 <= at - first <= 3 or (first and letters[first - 1] in WORD):
        return True
    while last < len(letters) and last - at < 5 and letters[last].isdecimal():
        last += 1
    if last == len(letters) and last - at < 5 and not place.final:
        return None
    return last - at != 4 or (last < len(letters) and letters[last] in WORD)


def _ends(form: Form, place: Place, _: Folding) -> bool | None:
    """Is the word not only the beginning of a longer one? None if more text must be seen."""
    letters, end = place.copy.letters, place.end
    last = letters[end - 1]
    kana = "\u3041" <= last <= "\u30ff"
    if end == len(letters):
        waits = not place.final and (form.right or last in WORD or kana or bool(place.copy.runs))
        return None if waits else True
    if (kana and letters[end] in _VOICED) or (form.right and letters[end] in WORD):
        return False
    return not form.right or not last.isdecimal() or letters[end] not in " -" or _parts(place, end)


def _skips(form: Form, place: Place, folding: Folding) -> bool | None:
    """May all that stands between the letters stand there? None if that depends on the letters that come after."""
    contiguous = place.end - place.start == len(form.key)
    if form.gaps is None and (contiguous or not form.spaced):
        return contiguous or not place.barriers.within(place.start, place.end)
    judged = _judged(form, place, folding.max_skip)
    size = len(form.key)
    if not judged.plain:
        if not judged.spelled or size < 3 or (size < 4 and form.key.isdecimal()):
            return False
        apart = _apart(place)
        if not apart:
            return apart
    if not (judged.spelled and judged.skipped and form.left and form.right):
        return True
    return _stands_alone(place, size, folding.max_skip, spaces=judged.spaces)


class _Judged(NamedTuple):
    """A word's separators: do they skip, or if each letter stands alone? Are some between Latin ones, some spaces?"""

    plain: bool = True
    spelled: bool = True
    skipped: bool = False
    spaces: bool = False


_NEVER = _Judged(plain=False, spelled=False)


def _judged(form: Form, place: Place, most: int) -> _Judged:
    copy, start, end, *_ = place
    letters, judged = copy.letters, _Judged()
    previous, at = start, 0
    for index in range(start + 1, end):
        if letters[index] in " -":
            continue
        if letters[index] != form.key[at + 1]:  # what is no Latin letter was skipped for a look at the others
            return _NEVER
        run = between(copy, previous + 1, index)
        own = form.gaps[at] if form.gaps is not None else ""
        if own is SOLID or own:
            if run if own is SOLID else not matches(run, own or "", most):
                return _NEVER
        else:
            judged = _and(judged, run, letters[previous], letters[index], most, pinyin=form.pinyin)
        previous, at = index, at + 1
    return judged


def _and(judged: _Judged, run: str, left: str, right: str, most: int, *, pinyin: bool) -> _Judged:
    """Judge one more run of separators between two letters."""
    latin = left in WORD and right in WORD and not pinyin
    if not run:
        return judged._replace(spelled=judged.spelled and not latin)
    one = gap(run, most, latin=latin, digits=left.isdecimal() and right.isdecimal())
    spaces = judged.spaces or " " in run or "\n" in run
    return _Judged(judged.plain and one.plain, judged.spelled and one.spelled, judged.skipped or latin, spaces)


def _apart(place: Place) -> bool | None:
    """Are the letters at the edges of a word that is spelled letter by letter alone too?"""
    letters, start, end = place.copy.letters, place.start, place.end
    if start and letters[start - 1] in WORD:
        return False
    if end == len(letters):
        return True if place.final else None
    return letters[end] not in WORD


def _stands_alone(place: Place, size: int, most: int, *, spaces: bool) -> bool | None:
    """Is a word that is spelled letter by letter not only a part of one? The a s s of c l a s s is none.

    A word of four letters and more may stand at either end of a longer one; an article may stand before it.
    """
    before = _letter_before(place.copy, place.start, most, spaces=spaces)
    if before != (size >= 4):  # alone at its beginning is enough for a long word, and needed for a short one
        return not before
    after = _letter_after(place, most, spaces=spaces)
    return None if after is None else not after


def _letter_before(copy: Copy, start: int, most: int, *, spaces: bool) -> bool:
    """Does another single letter of a spelled word stand before it?"""
    letters = copy.letters
    at = start
    while at and letters[at - 1] in " -" and start - at <= LONGEST:
        at -= 1
    if not at or at == start or letters[at - 1] not in WORD or (at > 1 and letters[at - 2] in WORD):
        return False
    run = between(copy, at, start)
    if (" " in run or "\n" in run) and (not spaces or (run.isspace() and letters[at - 1] in "ai")):
        return False
    return gap(run, most, latin=True, digits=False).spelled


def _letter_after(place: Place, most: int, *, spaces: bool) -> bool | None:
    """Does another single letter of a spelled word stand after it? None if more text must be seen."""
    copy, _, end, final, _ = place
    letters, at = copy.letters, place.end
    while at < len(letters) and letters[at] in " -" and at - end <= LONGEST:
        at += 1
    run = between(copy, end, at)
    if not run:
        return False if final or at < len(letters) else None
    if not spaces and (" " in run or "\n" in run):
        return False
    judged = gap(run, most, latin=True, digits=False)
    if at == len(letters):
        return None if judged.opens and not final else False
    there = judged.spelled and letters[at] in WORD
    if there and at + 1 == len(letters) and not final:
        return None
    return there and (at + 1 == len(letters) or letters[at + 1] not in WORD)
