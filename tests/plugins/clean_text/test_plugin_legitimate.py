"""How people write goes through clean_text, pii and sensitive_words as it is, whole and in any pieces."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.pipeline import Chain, Link
from gateway.sdk import Channel, Exchange, Plugin
from plugins.clean_text import CleanText
from plugins.pii import Pii
from plugins.sensitive_words import SensitiveWords
from tests.harness import WORDS
from tests.plugins.exchanges import chat, contents
from tests.plugins.legitimate import EMOJI, SCRIPTS

KINDS = [
    *("phone_cn", "phone_fixed_cn", "id_card_cn", "bank_card", "email", "id_card_15_cn", "passport_cn", "plate_cn"),
    *("ipv4", "ipv6", "api_key"),
]
PLUGINS: dict[str, Plugin] = {
    "clean_text": CleanText(CleanText.Options(tokens=("<filename>", "]~b]"))),
    "pii": Pii(Pii.Options.model_validate({"kinds": KINDS})),
    "sensitive_words": SensitiveWords(SensitiveWords.Options.model_validate(WORDS["options"])),
}
CHAIN = Chain([Link(name, plugin) for name, plugin in PLUGINS.items()])
EVERYTHING = [*SCRIPTS.values(), *EMOJI]


def streamed(exchange: Exchange, pieces: Iterable[str]) -> str:
    made = CHAIN.filter_for(exchange, Channel(0, "content", 0))
    assert made is not None
    shown = [made.feed(piece)[0] for piece in pieces if piece]
    return "".join([*shown, made.finish()[0]])


def pieces_of(text: str, edges: Sequence[int]) -> list[str]:
    return [text[start:end] for start, end in itertools.pairwise([0, *sorted(edges), len(text)])]


def assert_untouched(text: str, exchange: Exchange, *splits: Sequence[str]) -> None:
    assert CHAIN.on_request(exchange) is None
    assert contents(exchange) == [text], "a request"
    for pieces in ([text], list(text), *splits):
        assert streamed(exchange, pieces) == text, "an answer"
    assert not exchange.record.hits
    assert not exchange.record.tags


@pytest.mark.parametrize("script", SCRIPTS)
def test_the_scripts_of_the_world_stay_as_they_are(script: str) -> None:
    text = SCRIPTS[script]
    cut = [pieces_of(text, [at]) for at in range(1, len(text))]
    assert_untouched(text, chat(text), *cut)
    assert_untouched(f"{text}\n{text}", chat(f"{text}\n{text}"))


def test_every_line_of_the_emoji_test_file_stays_as_it_is() -> None:
    assert len(EMOJI) > 5_000
    for sequence in EMOJI:
        for text in (sequence, f"a{sequence}b", f"中{sequence}{sequence}文"):
            assert_untouched(text, chat(text))


def test_all_emoji_in_a_row_stay_as_they_are_in_any_pieces() -> None:
    text, rng = "".join(EMOJI), random.Random(1)
    for size in (2, 3, 7, 50):
        edges = rng.sample(range(1, len(text)), len(text) // size)
        assert streamed(chat("hi"), pieces_of(text, edges)) == text


@settings(max_examples=120, deadline=None)
@given(
    st.lists(st.sampled_from(EVERYTHING), min_size=1, max_size=5),
    st.sampled_from(["", " ", "\n", "赌", "x"]),
    st.data(),
)
def test_any_mixture_in_any_pieces_stays_as_it_is(parts: list[str], between: str, data: st.DataObject) -> None:
    text = between.join(parts)
    edges = data.draw(st.lists(st.integers(0, len(text)), max_size=12))
    assert_untouched(text, chat(text), pieces_of(text, edges))
