"""A cut text is no longer than asked, made of whole graphemes of the text, and says where something is missing."""

from __future__ import annotations

import random

import pytest
import regex
from hypothesis import example, given
from hypothesis import strategies as st

from plugins.length.cutting import Cutter, Way
from plugins.length.sentences import sentences

WAYS = ("head", "tail", "semantic")
MARK = " […] "
TEXTS = st.text(st.sampled_from([*"ab你好 。.!\n", "\u0301", "\u200d", *"👨👩🇨🇳"]), max_size=80)


@given(TEXTS, st.integers(1, 90), st.sampled_from(WAYS), st.integers(0, 4))
@example("a\n\u0301", 2, "semantic", 0)
def test_a_cut_is_short_enough_and_made_of_whole_graphemes_in_order(
    text: str, length: int, way: Way, outliers: int
) -> None:
    cut = Cutter(text, way, MARK, outliers).cut(length)
    if len(text) <= length:
        assert cut == text
        return
    left = iter(regex.findall(r"\X", text))
    pieces = cut.replace(MARK, "\0").replace(MARK.rstrip(), "\0").replace(MARK.lstrip(), "\0").split("\0")
    said = regex.findall(r"\X", "".join(pieces))
    assert len(cut) <= length or len(said) == 1, "never less than a grapheme, and more only where it is short enough"
    assert said
    for piece in pieces:
        for cluster in regex.findall(r"\X", piece):
            assert cluster in left, "in its order, none torn"


@given(TEXTS, st.integers(1, 90))
def test_head_keeps_the_beginning_and_tail_the_end(text: str, length: int) -> None:
    assert text.startswith(Cutter(text, "head", "", 0).cut(length))
    assert text.endswith(Cutter(text, "tail", "", 0).cut(length))


def test_three_characters_are_two_where_the_third_is_a_family() -> None:
    family = "👨\u200d👩\u200d👧"
    assert Cutter(f"ab{family}cd", "head", MARK).cut(3) == "ab"
    assert Cutter("e\u0301" * 4, "head", MARK).cut(3) == "e\u0301"
    assert Cutter(f"ab{family}cd", "tail", MARK).cut(4) == "cd"
    assert Cutter(family * 9, "head", MARK).cut(3) == Cutter(family * 9, "tail", MARK).cut(3) == family


def test_a_gap_is_marked_where_there_is_room_for_a_mark() -> None:
    text = "word " * 100
    assert Cutter(text, "head", MARK).cut(44) == "word " * 8 + " […]"
    assert Cutter(text, "tail", MARK).cut(44) == "[…] " + "word " * 8
    assert "…" not in Cutter(text, "head", MARK).cut(19)


SAME = [f"The committee of the town met again on day {day} and spoke of the budget for roads." for day in range(30)]


def test_semantic_keeps_first_and_last_and_what_is_unlike_the_others_in_order() -> None:
    said = [*SAME]
    said[9] = "Quarantined ferrets escaped through an open skylight."
    said[21] = "Password for the archive: heliotrope."
    text = " ".join(said)
    cut = Cutter(text, "semantic", MARK).cut(420)
    assert cut.startswith(SAME[0])
    assert cut.endswith(SAME[-1])
    assert 0 < cut.index("ferrets") < cut.index("heliotrope")
    assert cut.count("[…]") >= 3


def test_semantic_in_chinese_needs_no_dictionary() -> None:
    said = [f"第{day}天委员会继续讨论了城市道路预算的安排。" for day in range(40)]
    said[17] = "保险箱密码是向日葵。"
    assert "向日葵" in Cutter("".join(said), "semantic", MARK).cut(150)


def test_where_first_and_last_are_too_long_their_ends_are_kept() -> None:
    first, last = "Alpha " + "x" * 150 + ". ", "y" * 150 + " omega."
    cut = Cutter(first + "Middle. " + last, "semantic", MARK).cut(60)
    assert cut.startswith("Alpha xxx")
    assert cut.endswith("yyy omega.")
    assert (len(cut), cut.count(MARK)) == (60, 1)


@pytest.mark.parametrize("way", WAYS)
def test_a_megabyte_is_cut_in_time(way: Way) -> None:
    random.seed(1)
    words = ["".join(random.choices("abcdefghij", k=6)) for _ in range(3000)]
    text = "".join(" ".join(random.choices(words, k=12)) + ". " for _ in range(12_000))
    assert len(Cutter(text, way, MARK).cut(8000)) > 7500
    assert len(sentences(text)) <= 4000
