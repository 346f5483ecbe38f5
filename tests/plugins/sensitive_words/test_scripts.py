"""A letter tells of its script where it could not be taken for another's."""

from __future__ import annotations

import pytest

from plugins.sensitive_words.scripts import AHEAD, ALIKE, letter_before, script, script_after, telling, tells


def test_scripts_are_told_by_letters_that_look_like_no_others() -> None:
    assert [script(letter) for letter in "aиψ赌か"] == ["LATIN", "CYRILLIC", "GREEK", "CJK", "HIRAGANA"]
    assert {"CYRILLIC", "GREEK", "ARMENIAN"} <= ALIKE
    assert not {"LATIN", "CJK"} & ALIKE
    assert tells("сор x")
    assert not tells("сор 69, …")


@pytest.mark.parametrize(
    ("text", "letter"), [("не выноси сор 5, а", "и"), ("и сор ①²½5", "и"), ("ab сор", "b"), ("сор, хор", ""), ("", "")]
)
def test_look_alikes_digits_and_signs_are_looked_past(text: str, letter: str) -> None:
    assert letter_before(text, len(text)) == letter
    assert [text[at] for at in telling(text)][-1:] == [*letter]


def test_what_comes_is_waited_for_as_far_as_it_matters() -> None:
    assert script_after("сор, хор и", 3, final=False) == "CYRILLIC"
    assert script_after("сор, хор", 3, final=False) is None
    assert script_after("сор, хор", 3, final=True) == ""
    assert script_after("сор" + "." * AHEAD, 3, final=False) == ""
