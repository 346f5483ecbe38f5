"""What may stand between two characters of a word."""

from __future__ import annotations

import pytest

from plugins.sensitive_words.gaps import Barriers, between, gap, is_point, matches, sign
from plugins.sensitive_words.skeleton import read


@pytest.mark.parametrize(
    "run",
    [*" ,-￥*_~☆·、，：…", "*-", "- *", "\n", " \n ", "。。", "!!", "......", "-" * 64, " " * 40, "；；", "👍"],
)
def test_separators_between_chinese_characters_skip(run: str) -> None:
    assert gap("".join(map(sign, run)), 3, latin=False, digits=False).plain


@pytest.mark.parametrize("run", [*"。.!?;！？；．", ". ", "。！", "\n\n", "\n \n", "-*-*", "-" * 65, "*.", "? ?"])
def test_a_sentence_end_an_empty_line_and_what_is_too_long_end_a_word(run: str) -> None:
    assert not gap("".join(map(sign, run)), 3, latin=False, digits=False).plain


def test_latin_letters_are_joined_by_symbols_and_spelled_with_spaces_and_dots() -> None:
    assert gap("-", 3, latin=True, digits=False) == (True, True, True)
    assert gap(" ", 3, latin=True, digits=False) == (False, True, True)
    assert gap(".", 3, latin=True, digits=False) == (False, True, True)
    assert gap("'", 3, latin=True, digits=False).plain is False
    assert gap("!", 3, latin=True, digits=False) == (False, False, True)


@pytest.mark.parametrize("run", [*".,:/-*= '+%_、′″∶〜‒―⁄>≥→➔^(·٫°€\"~", "]["])
def test_digits_are_not_joined_by_what_numbers_are_written_with(run: str) -> None:
    assert not gap("".join(map(sign, run)), 3, latin=True, digits=True).plain


@pytest.mark.parametrize("run", [*"😀★#&@☆※", "☆☆", "”“"])
def test_digits_are_joined_by_what_no_number_is_written_with(run: str) -> None:
    assert gap("".join(map(sign, run)), 3, latin=True, digits=True).plain


def test_inside_a_number_are_its_point_and_what_groups_its_digits() -> None:
    assert all(map(is_point, ".,'’·٫٬_⁄．"))
    assert not any(map(is_point, "，、。;:-/ x5"))


def test_the_script_that_was_told_last_is_known_all_along_a_text() -> None:
    barriers = Barriers(read("x сор и сор"), 3)
    assert [barriers.script_before(at) for at in (0, 2, 8)] == ["", "LATIN", "CYRILLIC"]


def test_without_max_skip_nothing_skips() -> None:
    assert not any(gap(run, 0, latin=False, digits=False).plain for run in (" ", "--", "-"))


def test_how_many_are_skipped_is_configured() -> None:
    assert gap("-*-*-", 5, latin=False, digits=False).plain
    assert not gap("-*", 1, latin=False, digits=False).plain


def test_signs_are_narrow_and_a_line_end_is_one() -> None:
    text = "a　，\r\n\u2028’b"
    copy = read(text)
    assert between(copy, 1, len(text) - 1) == " ,\n\n'"


def test_an_entrys_own_separators_have_to_be_there() -> None:
    assert matches(".", ".", 3)
    assert matches(" . ", ".", 3)
    assert matches(", ", " ", 3)
    assert not matches("", " ", 3)
    assert not matches("-", ".", 3)
    assert not matches(". ", " ", 3)


def test_barriers_are_where_nothing_goes_across() -> None:
    copy = read("赌。博，赌\n\n博")
    barriers = Barriers(copy, 3)
    assert barriers.within(0, 3)
    assert not barriers.within(2, 5)
    assert barriers.within(4, 8)
