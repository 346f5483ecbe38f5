"""What may stand between two characters of a word: separators that skip, and those that end it."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from plugins.sensitive_words.scripts import script, telling
from plugins.sensitive_words.skeleton import APOSTROPHES, Copy

LONGEST = 64  # of a run of one separator
_SENTENCE = frozenset("。.!?;")  # their wide forms are the same
#: Inside one number: its point, and what groups its digits.
_POINTS = frozenset(".,'_·٫٬⁄‧∙⋅・")
#: And what else dates, times, scores, ranges, sums, prices and measures are written with: these kinds and signs.
_NUMERIC_KINDS = frozenset(["Zs", "Pd", "Pc", "Ps", "Pe", "Sm", "Sc", "Sk"])
_NUMERIC = _POINTS | frozenset('\n:/*%‰٪°′"、•…✕✖➕➖➗')
GROUPING = frozenset(" \xa0\u2007\u2009\u202f")
"""Spaces that part a number into groups of three digits."""
_LINES = frozenset("\n\x0b\x0c\x85\u2028\u2029")


_runs = re.compile("[ -]+").finditer


class Gap(NamedTuple):
    """May a run of separators stand in a word? ``spelled``: if each of the word's letters stands alone.

    ``opens``: more of it may come, after which it may or still may.
    """

    plain: bool
    spelled: bool
    opens: bool


@lru_cache(4096)
def sign(character: str) -> str:
    """Return a separator as it is compared: narrow, and one for all spaces, line ends and apostrophes."""
    if character in _LINES:
        return "\n"
    if character == "\r":
        return character
    if character.isspace():
        return " "
    if character in APOSTROPHES:
        return "'"
    folded = unicodedata.normalize("NFKC", character)
    return folded if len(folded) == 1 else "…" if character == "…" else "-"


def is_point(character: str) -> bool:
    """Does a number go on behind it, if a digit follows? Behind a Chinese comma a clause begins."""
    return character != "，" and sign(character) in _POINTS


@lru_cache(4096)
def _numeric(one: str) -> bool:
    return (
        one in _NUMERIC or unicodedata.category(one) in _NUMERIC_KINDS or "ARROW" in unicodedata.name(one, "").split()
    )


def between(copy: Copy, start: int, end: int) -> str:
    """Return the separators ``letters[start:end]`` as signs, each line's end as one."""
    if start == end:
        return ""
    text, places = copy.text, copy.places
    run = "".join([sign(text[places[index]]) for index in range(start, end)])
    return run.replace("\r\n", "\n").replace("\r", "\n") if "\r" in run else run


def _skipped(run: str, max_skip: int) -> bool:
    if not max_skip or len(run) > LONGEST or run.count("\n") > 1:
        return False
    if run.count(run[0]) == len(run):
        return len(run) > 1 or run not in _SENTENCE
    return len(run) <= max_skip and _SENTENCE.isdisjoint(run)


class Barriers:
    """Where in a copy separators stand that no word of other than Latin letters goes across, and letters that tell of a
    script; found once for all.
    """

    __slots__ = ("_copy", "_known", "_max_skip", "_telling")

    def __init__(self, copy: Copy, max_skip: int) -> None:
        self._copy, self._max_skip = copy, max_skip
        self._known: list[int] | None = None
        self._telling: Sequence[int] | None = None

    def within(self, start: int, end: int) -> bool:
        """Is there one between two letters?"""
        if self._known is None:
            spans = (match.span() for match in _runs(self._copy.letters))
            self._known = [at for at, last in spans if not _skipped(between(self._copy, at, last), self._max_skip)]
        after = bisect_left(self._known, start)
        return after < len(self._known) and self._known[after] < end

    def script_before(self, at: int) -> str:
        """Return the script that the last letter before a place in the text tells, or nothing."""
        if self._telling is None:
            self._telling = telling(self._copy.text)
        before = bisect_left(self._telling, at)
        return script(self._copy.text[self._telling[before - 1]]) if before else ""


@lru_cache(16_384)
def gap(run: str, max_skip: int, *, latin: bool, digits: bool) -> Gap:
    """Judge a run of separators (at least one) by DESIGN's policy: between two Latin letters, two digits, or others.

    Up to ``max_skip`` of any kind, or up to 64 of one; a sentence's end only in a run of its own kind; never an empty
    line. In Latin words no spaces and no apostrophe, unless they are spelled letter by letter; then single dots
    too. Between digits nothing that numbers are written with.
    """
    plain = _skipped(run, max_skip)
    one = run.count(run[0]) == len(run)
    opens = bool(max_skip) and len(run) <= LONGEST and run.count("\n") <= 1 and (one or plain)
    if not latin:
        return Gap(plain, plain, opens)
    dotted = run.count(".") == 1 and _skipped(run.replace(".", "-"), max_skip)
    spelled = plain or dotted
    opens = opens or dotted
    if digits:
        return Gap(plain and not any(map(_numeric, run)), spelled and "." not in run and "," not in run, opens)
    spaced = " " in run or "\n" in run
    return Gap(plain and not spaced and "'" not in run, spelled, opens)


def matches(run: str, written: str, max_skip: int) -> bool:
    """May a run of separators stand where an entry itself has some? Spaces there may be any that skip."""
    if run == written:
        return True
    if not run:
        return False
    if written.isspace():
        return _skipped(run, max_skip)
    bare, own = (one.replace(" ", "").replace("\n", "") for one in (run, written))
    return bare == own and run.count("\n") <= 1 and len(run) - len(written) <= max_skip
