"""The copy that is searched is plain, and every character of it knows where it stands."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugins.pii.fold import fold, ranges, visible


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("１３８ ＡｂＺ ａ＠ｂ．ｃｎ", "138 AbZ a@b.cn"),
        ("٣۴५๙𝟗", "34599"),
        ("𝐥𝐢ⓐ﹫", "lia@"),
        ("①² ，：（）", "①² ，：（）"),  # they number what stands next to them; marks are not of a value
    ],
)
def test_digits_and_letters_become_plain_ones(text: str, plain: str) -> None:
    assert fold(text) == plain


@given(st.text(st.sampled_from("1aé１٣Ａ字，…\u200b\u2060\ufeff\xad\x00\n\U000e0041\ufe0f")))
def test_every_character_knows_its_place(text: str) -> None:
    seen, places = visible(text)
    assert len(seen) == len(places)
    assert [fold(text[place]) for place in places] == list(seen)
    assert {text[place] for place in set(range(len(text))) - set(places)} <= set(
        "\u200b\u2060\ufeff\xad\x00\U000e0041\ufe0f"
    )
    assert not set(seen) & set("\u200b\u2060\ufeff\xad\x00\U000e0041\ufe0f１Ａ")


def test_a_class_is_written_in_ranges() -> None:
    assert ranges([97, 98, 99, 120]) == "a-cx"
