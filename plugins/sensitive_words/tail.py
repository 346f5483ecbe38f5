"""What the end of a text means for what comes after it: entries that may have begun, and what stands before."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence

from plugins.sensitive_words.alone import has_alone
from plugins.sensitive_words.fold import WORD
from plugins.sensitive_words.gaps import LONGEST, between, gap
from plugins.sensitive_words.scripts import ALIKE, letter_before, script
from plugins.sensitive_words.skeleton import TABLE, Copy

#: A letter of a script that looks like no Latin one, to stand for a word that has some.
_FOREIGN = {"CYRILLIC": "и", "GREEK": "ψ", "ARMENIAN": "ֆ", "GEORGIAN": "კ"}
_ARTICLES = "ai"
_LETTERS = 5  # more of a word say nothing of what stands behind it
#: What stands for an article and for two other letters: Latin ones tell of their script, look-alikes tell of none.
_TELL_LATIN, _TELL_NOTHING = ("a", "x", "y"), ("а", "х", "у")


class Beginnings:
    """Answers whether letters are the beginning of an entry that goes on."""

    __slots__ = ("_firsts", "_pairs", "_words")

    def __init__(self, words: Iterable[str]) -> None:
        self._words = sorted(set(words))
        self._firsts = {word[0] for word in self._words if len(word) > 1}
        self._pairs = {word[:2] for word in self._words if len(word) > 2}

    def __contains__(self, letters: str) -> bool:
        if len(letters) == 1:
            return letters in self._firsts
        if letters[:2] not in self._pairs:
            return False
        after = bisect_right(self._words, letters)
        return len(letters) == 2 or (after < len(self._words) and self._words[after].startswith(letters))

    def begins(self, letters: str) -> bool:
        """Does some entry begin with letters, or is it them?"""
        after = bisect_left(self._words, letters)
        return after < len(self._words) and self._words[after].startswith(letters)


class Tail:
    """Answers where the first entry may have begun that a text's end cuts off."""

    __slots__ = ("_anywhere", "_at_words", "_furthest", "_gapped", "_lines", "_longest", "_max_skip", "_mixed")

    def __init__(
        self, anywhere: Iterable[str], at_words: Iterable[str], max_skip: int, own: Iterable[str] = ()
    ) -> None:
        """``own``: separators that entries have of themselves."""
        everywhere, bounded = list(anywhere), list(at_words)
        self._anywhere, self._at_words = Beginnings(everywhere), Beginnings(bounded)
        self._longest = max(map(len, (*everywhere, *bounded)), default=0)
        gaps = list(own)
        self._max_skip, self._gapped = max_skip, bool(gaps)
        self._lines = max((run.count("\n") for run in gaps), default=1)
        self._furthest = max((len(run) for run in gaps), default=0) + LONGEST
        #: Letters of scripts with spaces and of others in one entry: then spaces may follow the former.
        self._mixed = any(len({letter in WORD for letter in word}) > 1 for word in (*everywhere, *bounded))

    def begins(self, letters: str) -> bool:
        """Is there an entry that begins with these letters, or is them?"""
        return self._anywhere.begins(letters) or self._at_words.begins(letters)

    def alive(self, copy: Copy) -> int:
        """Return the index of the first letter with which an entry may have begun, or the number of letters."""
        letters = copy.letters
        size = len(letters)
        places = self._last_letters(letters)
        shown = "".join([letters[place] for place in places])
        for index, place in enumerate(places):
            tail = shown[index:]
            joined = place > 0 and letters[place - 1] in WORD
            if (tail in self._anywhere or (not joined and tail in self._at_words)) and (
                size - place == len(tail) or self._may_go_on(copy, places[index:])
            ):
                return place
        return size

    def tails(self, copy: Copy) -> list[str]:
        """Return all that an entry may have begun with at the end."""
        shown = "".join([copy.letters[place] for place in self._last_letters(copy.letters)])
        return [shown[index:] for index in range(len(shown)) if self.begins(shown[index:])]

    def _last_letters(self, letters: str) -> list[int]:
        places: list[int] = []
        skipped, at = 0, len(letters)
        while at and len(places) < self._longest - 1:
            at -= 1
            if letters[at] in " -":
                skipped += 1
                if skipped > self._furthest + 1:
                    break
            else:
                places.append(at)
                skipped = 0
        return places[::-1]

    def _may_go_on(self, copy: Copy, places: Sequence[int]) -> bool:
        """May separators stand where they do? In doubt yes: then a little more text is held."""
        letters, previous = copy.letters, places[0]
        alone = True
        spaces = False
        for place in (*places[1:], len(letters)):
            run = between(copy, previous + 1, place)
            last = place == len(letters)
            latin = letters[previous] in WORD and (not self._mixed if last else letters[place] in WORD)
            if run:
                judged = gap(run, self._max_skip, latin=latin, digits=False)
                if not (judged.opens if last else judged.spelled) and not (
                    self._gapped and run.count("\n") <= max(self._lines, 1)
                ):
                    return False
                spaces = spaces or (latin and (" " in run or "\n" in run))
            elif latin and not last:
                alone = False
            previous = place
        return alone or not spaces or self._gapped or letters[places[0]] not in WORD


def context(copy: Copy, end: int) -> str:
    """Return what matters of the letters before ``end`` for what comes after: something short that is read alike."""
    if copy.same or not end:
        return _in_short(copy, end, _TELL_LATIN)
    text = copy.text if end == len(copy.letters) else copy.text[: copy.lasts[end - 1] + 1]
    own = letter_before(text, len(text))
    its = script(own) if own else ""
    own = _FOREIGN.get(its, own if its in ALIKE else "")
    head = own * 2 + " " if own else ""
    if has_alone(text[-2 * LONGEST :]):
        last = text[_reach(copy, text) :]
        if has_alone(last):  # it is read in two ways, so nothing short stands for it
            return last if letter_before(last, len(last)) else head + last
    return head + _in_short(copy, end, _TELL_NOTHING if own else _TELL_LATIN)


def _reach(copy: Copy, text: str) -> int:
    """Return where the last separators and the letters before them begin, as many of those as may matter."""
    at = max(0, len(text) - 2 * LONGEST)
    if copy.runs:
        return at
    first, letters = len(text), 0
    while first > at and letters < _LETTERS:
        first -= 1
        letters += TABLE[ord(text[first])].isalnum() and not has_alone(text[first])
    return first


def _in_short(copy: Copy, end: int, stand_ins: Sequence[str]) -> str:
    letters = copy.letters
    at = end
    while at and letters[at - 1] in " -" and end - at <= LONGEST:
        at -= 1
    if not at or end - at > LONGEST or letters[at - 1] not in WORD:
        return ""
    run = copy.text[copy.places[at]] if end - at == 1 else between(copy, at, end)
    alone = at == 1 or letters[at - 2] not in WORD
    last = letters[at - 1]
    article, one, other = stand_ins
    if copy.runs:  # a letter that stands for others would join a run of its own kind
        raw = copy.text[copy.lasts[at - 1]]
        joined = "" if alone else next(each for each in (one, other) if TABLE[ord(each)] != last)
        return joined + (raw if stand_ins is _TELL_NOTHING and TABLE[ord(raw)] == last else last) + run
    if last.isdecimal():
        number = _number(letters, at, one)
        return number + run if alone or len(run) <= 1 else ""
    stands = article if last in _ARTICLES else one
    if not run:
        return stands if alone else one + stands
    return stands + run if alone else ""


def _number(letters: str, end: int, stands: str) -> str:
    """Return what stands for the digits before ``end``: up to three that no word is before are a group of them."""
    first = end
    while first and end - first < 4 and letters[first - 1].isdecimal():
        first -= 1
    group = end - first < 4 and not (first and letters[first - 1] in WORD)
    return "1" * (end - first) if group else stands + "1"
