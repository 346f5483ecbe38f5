"""Each code point is covered once, and what starts first says by what."""

from __future__ import annotations

from plugins.sensitive_words.cover import Cover, covers
from plugins.sensitive_words.matcher import Found
from plugins.sensitive_words.wordlist import Rule


def found(start: int, end: int, replacement: str | None = None, action: str = "") -> Found:
    action = action or ("mask" if replacement is None else "replace")
    return Found(start, end, Rule("list:1", action, None, None, False, False, replacement))


def test_masks_that_overlap_or_touch_are_one() -> None:
    assert covers([found(0, 2), found(1, 3), found(3, 4), found(6, 7)]) == [Cover(0, 4), Cover(6, 7)]


def test_only_masks_and_replacements_cover() -> None:
    assert covers([found(0, 2, action="tag"), found(0, 2, action="block"), found(4, 5, "x")]) == [Cover(4, 5, "x")]


def test_each_of_two_replacements_side_by_side_is_told() -> None:
    assert covers([found(0, 2, "x"), found(2, 4, "x")]) == [Cover(0, 2, "x"), Cover(2, 4, "x")]


def test_of_what_overlaps_the_first_and_of_those_the_longest_takes_the_place_of_all() -> None:
    assert covers([found(0, 2), found(0, 4, "house"), found(3, 6)]) == [Cover(0, 6, "house")]
    assert covers([found(0, 2), found(1, 4, "house")]) == [Cover(0, 4)]


def test_what_has_begun_before_goes_on() -> None:
    assert covers([found(0, 3, "x"), found(3, 4, "y")], [Cover(0, 1, "")]) == [Cover(0, 3, ""), Cover(3, 4, "y")]
