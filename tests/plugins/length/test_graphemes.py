"""A text is cut where a reader sees one character end and the next begin."""

from __future__ import annotations

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from plugins.length.graphemes import after, before

FAMILY = "👨\u200d👩\u200d👧"
TRICKY = st.text(
    st.sampled_from([*"ab你 \r\n", "\u0301", "\u200d", "\ufe0f", *"👨👩👧🇨🇳🇫", "क", "्", "ष", "한", "ᄒ", "ᅡ", "ᆫ"])
)


def boundaries(text: str) -> list[int]:
    return [0, *(match.end() for match in regex.finditer(r"\X", text))]


@given(st.one_of(TRICKY, st.text()), st.integers(0, 30))
def test_a_boundary_is_the_nearest(text: str, place: int) -> None:
    all_of_them = boundaries(text)
    assert before(text, place) == max(each for each in all_of_them if each <= max(place, 0))
    if place <= len(text):
        assert after(text, place) == min(each for each in all_of_them if each >= place)


@pytest.mark.parametrize("run", ["\u0301", "🇨", "\u200d", "👨\u200d"])
def test_what_never_ends_is_cut_all_the_same_and_soon(run: str) -> None:
    text = run * 200_000
    assert 0 < before(text, 150_000) <= 150_000 <= after(text, 150_000)


@pytest.mark.parametrize(
    ("text", "place", "found"),
    [(f"ab{FAMILY}cd", 3, 2), (f"ab{FAMILY}cd", 7, 7), ("e\u0301e\u0301", 3, 2), ("🇨🇳🇫🇷", 3, 2), ("a\r\nb", 2, 1)],
)
def test_families_accents_flags_and_line_ends_are_one(text: str, place: int, found: int) -> None:
    assert before(text, place) == found
