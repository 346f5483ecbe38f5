"""What a request will take, learnt from others."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from gateway.admission.estimate import Estimate


def learn(estimate: Estimate, key: str, size: int, most: int, choices: int, prompt: int, output: int) -> None:
    estimate.end(key, estimate.begin(key, size, most, choices), prompt, output)


def test_the_most_is_taken_until_something_is_known() -> None:
    assert Estimate().tokens("k", 400, 1000) == 101 + 1000
    assert Estimate().tokens("k", 400, 4000, 4) == 101 + 4000


def test_answers_far_shorter_than_what_was_asked_take_less() -> None:
    estimate, dice = Estimate(), random.Random(1)
    for _ in range(200):
        learn(estimate, "k", 400, 1024, 1, 100, dice.randint(80, 120))
    assert 100 + 100 < estimate.tokens("k", 400, 1024) < 100 + 200
    assert estimate.tokens("other", 400, 1024) == 101 + 1024  # each key is known by its own


def test_nine_of_ten_stay_within_their_estimate() -> None:
    estimate, dice, within = Estimate(), random.Random(2), 0
    for count in range(2000):
        output = min(1024, int(dice.lognormvariate(4, 0.8)))
        within += count >= 1000 and estimate.tokens("k", 400, 1024) >= 100 + output
        learn(estimate, "k", 400, 1024, 1, 100, output)
    assert 850 <= within <= 980


def test_answers_cut_off_at_small_limits_do_not_promise_short_ones() -> None:
    estimate = Estimate()
    for _ in range(200):
        learn(estimate, "k", 400, 16, 1, 100, 16)
    assert estimate.tokens("k", 400, 1000) >= 1000


def test_a_language_of_more_tokens_a_byte_is_learnt() -> None:
    estimate = Estimate()
    for _ in range(100):
        learn(estimate, "zh", 300, 10, 1, 200, 10)
    assert 390 <= estimate.prompt("zh", 600) <= 410


def test_what_is_likely_is_the_mean_and_no_margin_on_top() -> None:
    estimate = Estimate()
    assert estimate.likely("zh", 400) == 101
    for prompt in (100, 300) * 100:
        learn(estimate, "zh", 300, 10, 1, prompt, 10)
    assert 180 <= estimate.likely("zh", 300) <= 220 < estimate.prompt("zh", 300)


def test_choices_share_the_prompt() -> None:
    estimate = Estimate()
    for _ in range(100):
        learn(estimate, "k", 400, 4000, 4, 100, 400)
    assert 500 <= estimate.tokens("k", 400, 4000, 4) <= 520
    assert 200 <= estimate.tokens("k", 400, 1000, 1) <= 210


def test_no_more_than_the_window_is_taken_for_a_choice() -> None:
    estimate = Estimate()
    estimate.window = 2048
    assert estimate.tokens("k", 400, 100_000) == 2048
    assert estimate.tokens("k", 400, 100_000, 2) == 4096


@given(
    st.lists(st.tuples(st.integers(0, 10**7), st.integers(0, 10**6), st.integers(1, 8), st.integers(0, 10**6))),
    st.integers(0, 10**7),
    st.integers(0, 10**6),
)
def test_an_estimate_is_positive_and_never_more_than_was_asked(
    seen: list[tuple[int, int, int, int]], size: int, most: int
) -> None:
    estimate = Estimate()
    for length, asked, choices, output in seen:
        learn(estimate, "k", length, asked, choices, length // 4, output)
    assert 1 <= estimate.tokens("k", size, most) <= estimate.prompt("k", size) + most


def test_short_ones_that_end_first_are_not_taken_for_all() -> None:
    estimate = Estimate()
    together = [(estimate.begin("k", 400, 1000), length) for length in (1000, 10, 10, 10)]
    for one, length in together[1:]:
        estimate.end("k", one, 100, length)
    assert estimate.tokens("k", 400, 1000) == 101 + 1000
    estimate.end("k", together[0][0], 100, 1000)
    assert estimate.tokens("k", 400, 1000) >= 1000
    for _ in range(100):
        learn(estimate, "k", 400, 1000, 1, 100, 10)
    assert estimate.tokens("k", 400, 1000) < 200


def test_one_that_runs_very_long_does_not_keep_the_others_unknown() -> None:
    estimate = Estimate()
    long = estimate.begin("k", 400, 1000)
    for _ in range(300):
        learn(estimate, "k", 400, 1000, 1, 100, 10)
    assert estimate.tokens("k", 400, 1000) < 200
    estimate.end("k", long, 100, 1000)
    assert not estimate._lines["k"].requests


def test_requests_that_failed_teach_nothing() -> None:
    estimate = Estimate()
    for _ in range(50):
        estimate.end("k", estimate.begin("k", 400, 1000))
    assert estimate.tokens("k", 400, 1000) == 101 + 1000


def test_keys_beyond_measure_make_no_memory() -> None:
    estimate = Estimate()
    for number in range(25_000):
        learn(estimate, str(number), 4, 1, 1, 1, 1)
    assert len(estimate._keys) <= 10_000
