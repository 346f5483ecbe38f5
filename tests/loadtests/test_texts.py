"""What the callers of the load tests say."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.testing import play
from loadtests.texts import disguised, document, question
from plugins.sensitive_words import SensitiveWords

WORDS = ("赌博", "forbiddenzebra")  # what locustfile.py says unless told otherwise


@given(st.integers(0, 10**6), st.integers(1, 5000))
def test_a_document_is_about_as_long_as_was_said_and_the_same_from_the_same_seed(seed: int, length: int) -> None:
    text = document(random.Random(seed), length)
    assert length - 1 <= len(text) < length + 120
    assert text == document(random.Random(seed), length)


def test_questions_differ_from_one_to_the_next() -> None:
    rng = random.Random(1)
    assert len({question(rng) for _ in range(100)}) == 100


@pytest.mark.parametrize("word", WORDS)
async def test_every_disguise_is_another_and_the_filter_sees_through_it(word: str) -> None:
    plugin = SensitiveWords(SensitiveWords.Options.model_validate({"words": list(WORDS)}))
    spelt = {disguised(random.Random(seed), word) for seed in range(50)}
    assert len(spelt) >= 3
    for each in spelt:
        rng = random.Random(2)
        assert (await play(plugin, f"{question(rng)} {each} {question(rng)}")).failure is not None, each
    assert (await play(plugin, document(random.Random(3), 4000))).failure is None
