"""What is unlike the rest comes first, in any script, and every part has its place."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugins.length.ranking import ranked, terms

TEXTS = st.text(st.sampled_from([*"ab你好 。.!\n-", "\u0301"]), max_size=40)


@given(st.lists(TEXTS, max_size=12), st.integers(0, 5))
def test_the_order_names_every_part_once_first_and_last_before_all(parts: list[str], outliers: int) -> None:
    order = ranked(parts, outliers)
    assert sorted(order) == list(range(len(parts)))
    assert set(order[:2]) == {0, len(parts) - 1} or len(parts) < 2


def test_outliers_are_least_like_the_first_the_rest_least_like_the_whole() -> None:
    parts = [
        "red green blue.",
        "red green cyan.",
        "red apple pear.",
        "stone water fire.",
        "green blue sky.",
        "red end.",
    ]
    assert ranked(parts, 1)[2] == 3
    assert ranked(parts, 0)[2:].index(3) == 0


def test_a_separator_is_kept_last() -> None:
    assert ranked(["One two three.", "-----", "Four five six.", "Seven eight."], 3)[-1] == 1


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("The CAT, the cat.", {"the": 2, "cat": 2}),
        ("你好世界。", {"你好": 1, "好世": 1, "世界": 1}),
        ("GPU价格 7", {"gpu": 1, "价格": 1, "7": 1}),
        ("好", {"好": 1}),
        ("……—— ！", {}),
    ],
)
def test_words_are_compared_where_spaces_part_them_and_pairs_where_not(sentence: str, expected: dict[str, int]) -> None:
    assert terms(sentence) == expected
