"""The table of cards."""

from __future__ import annotations

import pytest

from gateway.engine.cards import CARDS, named


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ("H100", "H100-80GB"),
        ("h100-80gb", "H100-80GB"),
        ("NVIDIA A100", "A100-80GB"),
        ("a100-40gb", "A100-40GB"),
        ("l4", "L4"),
    ],
)
def test_cards_are_found_as_people_call_them(said: str, name: str) -> None:
    assert named(said).name == name


def test_a_card_that_is_not_listed_is_its_memory() -> None:
    assert named("96GB").memory == named("96 gib").memory == 96 * 2**30


def test_what_is_no_card_brings_the_table() -> None:
    with pytest.raises(ValueError, match=r"H100-80GB.*96GB"):
        named("H1000")


def test_every_card_has_less_than_its_name_promises_and_not_much_less() -> None:
    for card in CARDS.values():
        if "GB" in card.name:
            promised = int(card.name.rpartition("-")[2].removesuffix("GB"))
            assert 0.93 < card.memory / 2**30 / promised <= 1.01
