"""The tables have no chains and no Latin letters of their own to fold away."""

from __future__ import annotations

import re

from plugins.sensitive_words.tables import LATIN, LIGATURES, LOOKALIKES, MARKS, NUMBERS, SIMPLIFIED, STRANGERS, STROKES


def test_what_is_read_as_something_is_not_read_as_something_else_again() -> None:
    assert set(SIMPLIFIED).isdisjoint(SIMPLIFIED.values())
    for table in (LOOKALIKES, STRANGERS, LATIN, STROKES):
        assert all(plain.isascii() and plain.islower() for plain in table.values())
        assert not any(letter.isascii() for letter in table)


def test_usual_characters_are_in_the_tables() -> None:
    assert [SIMPLIFIED[old] for old in "賭線產門裡乾"] == list("赌线产门里干")
    assert [LOOKALIKES[letter] for letter in "аеорсухіѕјһοΑαօոꓢ"] == list("aeopcyxisjhoaaons")
    assert [STRANGERS[letter] for letter in "סဝഠዐଠهө"] == list("ooooooo")
    assert "ꝏoo" in LIGATURES.split(" ")


def test_variants_of_taiwan_hong_kong_and_japan_are_their_simplified_characters() -> None:
    assert [SIMPLIFIED[old] for old in "蔴鎗婬妳靑汚鬭黙胷囘"] == list("麻枪淫你青污斗默胸回")
    assert "卍" not in SIMPLIFIED


def test_a_letter_with_a_stroke_has_its_small_form() -> None:
    assert [STROKES[letter] for letter in "ʉⱨⱪꝁⱦʈɲð"] == list("uhkkttnd")


def test_marks_are_those_of_scripts_that_take_them_for_letters() -> None:
    assert all(re.match(f"[{MARKS}]", mark) for mark in "\u0e49\u3099\u2de0\U00016fe4\ua670\u0903")
    assert all(re.match(f"[{NUMBERS}]", number) for number in "௰፲❿\U00010107")
    assert not any(re.match(f"[{MARKS}]", letter) for letter in "aก赌\u0301\u200b")
