"""The laws of a key's limits: never more than promised in any minute, and everything comes back."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.admission.allowance import Allowance
from gateway.admission.limits import GRAIN_S, WINDOW_S, Limits, Ticket
from gateway.errors import RateLimited

pauses = st.one_of(st.floats(0, 1), st.floats(0, 70), st.just(0.0), st.just(WINDOW_S), st.just(GRAIN_S))


def passes(limits: Limits, now: float, tokens: int = 0) -> bool:
    try:
        limits.enter(now, tokens)
    except RateLimited:
        return False
    return True


@given(rpm=st.integers(1, 6), steps=st.lists(pauses, max_size=60))
def test_any_minute_holds_at_most_the_limit_of_requests(rpm: int, steps: list[float]) -> None:
    limits, now, admitted = Limits(Allowance(rpm=rpm)), 1000.0, []
    for pause in steps:
        now += pause
        if passes(limits, now):
            admitted.append(now)
    for first, one_too_many in zip(admitted, admitted[rpm:], strict=False):
        assert first + WINDOW_S <= one_too_many


@given(tpm=st.integers(1, 50), steps=st.lists(st.tuples(pauses, st.integers(0, 40)), max_size=60))
def test_any_minute_holds_at_most_the_limit_of_reserved_tokens(tpm: int, steps: list[tuple[float, int]]) -> None:
    limits, now, admitted = Limits(Allowance(tpm=tpm)), 1000.0, []
    for pause, tokens in steps:
        now += pause
        if passes(limits, now, tokens):
            admitted.append((now, min(tokens, tpm)))
    for i, (end, _) in enumerate(admitted):
        assert sum(tokens for at, tokens in admitted[: i + 1] if end < at + WINDOW_S) <= tpm


@example(rpm=None, tpm=1, steps=[(0.0, 0), (1e-05, 0), (0.0, 0), (0.1, 1), (0.0, 1)])
@given(
    rpm=st.none() | st.integers(1, 4),
    tpm=st.none() | st.integers(1, 30),
    steps=st.lists(st.tuples(pauses, st.integers(0, 40)), min_size=5, max_size=40),
)
def test_retry_after_is_the_smallest_whole_second_that_passes(
    rpm: int | None, tpm: int | None, steps: list[tuple[float, int]]
) -> None:
    def replay(count: int) -> tuple[Limits, float]:
        limits, now = Limits(Allowance(rpm, tpm)), 1000.0
        for pause, tokens in steps[:count]:
            now += pause
            passes(limits, now, tokens)
        return limits, now

    for i, (pause, tokens) in enumerate(steps):
        limits, now = replay(i)
        now += pause
        try:
            limits.enter(now, tokens)
        except RateLimited as refusal:
            wait = refusal.retry_after
            assert wait is not None
            assert 1 <= wait <= WINDOW_S
            assert wait == 1 or not passes(replay(i)[0], now + wait - 1, tokens)
            assert passes(replay(i)[0], now + wait, tokens)


@given(
    max_in_flight=st.integers(1, 4),
    steps=st.lists(st.tuples(pauses, st.sampled_from(["enter", "settle", "leave"]), st.integers(0, 9)), max_size=60),
)
def test_slots_and_tokens_always_come_back(max_in_flight: int, steps: list[tuple[float, str, int]]) -> None:
    limits = Limits(Allowance(rpm=1000, tpm=10_000, max_in_flight=max_in_flight))
    now, tickets = 1000.0, list[Ticket]()
    for pause, act, number in steps:
        now += pause
        if act == "enter":
            inside = limits.in_flight
            try:
                tickets.append(limits.enter(now, number))
            except RateLimited:
                assert inside == max_in_flight
        elif tickets and act == "settle":
            tickets[number % len(tickets)].settle(now, number * 3)
        elif tickets:
            tickets[number % len(tickets)].leave()
        assert 0 <= limits.in_flight <= max_in_flight
        assert limits._tokens >= 0
    for ticket in tickets:
        ticket.leave()
        ticket.leave()
    assert limits.in_flight == 0
    limits.enter(now + WINDOW_S, 10_000)  # a minute later nothing of it is left


def test_more_in_flight_than_allowed_is_refused_at_once_and_costs_nothing_of_the_minute() -> None:
    limits = Limits(Allowance(rpm=2, max_in_flight=1))
    first = limits.enter(0.0)
    with pytest.raises(RateLimited, match="1 in flight") as refusal:
        limits.enter(0.0)
    assert refusal.value.headers()[0] == (b"retry-after", b"1")
    first.leave()
    limits.enter(0.0)


def test_usage_takes_the_place_of_the_reservation() -> None:
    limits = Limits(Allowance(tpm=100))
    ticket = limits.enter(0.0, 100)
    assert not passes(limits, 1.0, 1)
    ticket.settle(2.0, 30)
    ticket.settle(2.0, 0)
    assert not passes(limits, 3.0, 71)
    assert passes(limits, 3.0, 70)


def test_what_the_estimate_missed_counts_from_when_it_became_known() -> None:
    limits = Limits(Allowance(tpm=100))
    limits.enter(0.0, 10).settle(50.0, 100)
    assert not passes(limits, 61.0, 20)
    assert passes(limits, 110.0, 20)


def test_a_request_that_failed_gives_all_its_tokens_back_but_still_counts_as_a_request() -> None:
    limits = Limits(Allowance(rpm=2, tpm=100))
    limits.enter(0.0, 100).leave()
    assert passes(limits, 1.0, 100)
    assert not passes(limits, 2.0, 0)


def test_a_request_larger_than_the_minute_passes_when_the_minute_is_empty() -> None:
    limits = Limits(Allowance(tpm=10))
    limits.enter(0.0, 5000).settle(1.0, 5)
    with pytest.raises(RateLimited, match="10 tokens a minute") as refusal:
        limits.enter(2.0, 5000)
    assert refusal.value.retry_after == 58
    assert passes(limits, 60.0, 5000)


def test_a_reload_changes_the_figures_and_forgets_nothing() -> None:
    limits = Limits(Allowance(rpm=5))
    for _ in range(5):
        limits.enter(0.0)
    limits.allowed = Allowance(rpm=3)
    with pytest.raises(RateLimited) as refusal:
        limits.enter(10.0)
    assert refusal.value.retry_after == 50
    limits.allowed = Allowance(rpm=6)
    assert passes(limits, 10.0)


def test_a_limit_of_nought_never_passes() -> None:
    with pytest.raises(RateLimited) as refusal:
        Limits(Allowance(rpm=0)).enter(0.0)
    assert refusal.value.retry_after == WINDOW_S


def test_without_limits_everyone_enters() -> None:
    limits = Limits()
    tickets = [limits.enter(0.0, 10**9) for _ in range(1000)]
    assert limits.in_flight == 1000
    for ticket in tickets:
        ticket.settle(1.0, 5)
        ticket.leave()
    assert limits.in_flight == 0


def test_a_busy_key_keeps_at_most_600_moments_and_costs_a_few_microseconds() -> None:
    limits = Limits(Allowance(rpm=10**9, tpm=10**12))
    started = time.perf_counter()
    for i in range(30_000):
        ticket = limits.enter(i / 250, 500)
        ticket.settle(i / 250, 100)
        ticket.leave()
    each = (time.perf_counter() - started) / 30_000
    assert len(limits._moments) <= 601
    assert all(earlier.latest < later.began for earlier, later in pairwise(limits._moments))
    assert each < 50e-6


class Calendar:
    """A time that the test moves."""

    def __init__(self) -> None:
        self.now = datetime(2026, 1, 30, 23, 0, 0, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


def test_a_daily_and_a_monthly_budget_begin_anew_with_day_and_month() -> None:
    calendar = Calendar()
    limits = Limits(Allowance(tokens_per_day=100, tokens_per_month=150), calendar)
    limits.enter(0.0, 90).settle(1.0, 80)
    with pytest.raises(RateLimited, match="100 tokens a day") as refusal:
        limits.enter(2.0, 30)
    assert refusal.value.retry_after == 3600
    assert passes(limits, 3.0, 20)
    calendar.now += timedelta(hours=1)
    with pytest.raises(RateLimited, match="150 tokens a month") as refusal:
        limits.enter(3600.0, 60)
    assert refusal.value.retry_after == 86400
    calendar.now += timedelta(days=1)
    assert passes(limits, 90_000.0, 100)


def test_budgets_get_back_what_was_not_used_but_not_from_another_day() -> None:
    calendar = Calendar()
    limits = Limits(Allowance(tokens_per_day=100), calendar)
    limits.enter(0.0, 100).leave()
    late = limits.enter(1.0, 100)
    calendar.now += timedelta(hours=2)
    limits.enter(2.0, 60)
    late.settle(3.0, 10)
    assert limits.budgets.day == 60
    assert not passes(limits, 4.0, 41)


def test_what_is_left_is_told_with_every_answer() -> None:
    limits = Limits(Allowance(rpm=10, tpm=1000))
    ticket = limits.enter(0.0, 100)
    assert dict(ticket.headers) == {
        b"x-ratelimit-limit-requests": b"10",
        b"x-ratelimit-remaining-requests": b"9",
        b"x-ratelimit-reset-requests": b"1m0s",
        b"x-ratelimit-limit-tokens": b"1000",
        b"x-ratelimit-remaining-tokens": b"900",
        b"x-ratelimit-reset-tokens": b"1m0s",
    }
    ticket.settle(1.0, 50)
    limits.allowed = Allowance(rpm=1, tpm=1000)
    with pytest.raises(RateLimited) as refusal:
        limits.enter(30.5)
    headers = dict(refusal.value.headers())
    assert headers[b"retry-after"] == b"30"
    assert headers[b"x-ratelimit-remaining-tokens"] == b"950"
    assert headers[b"x-ratelimit-reset-tokens"] == b"29.5s"
    assert Limits(Allowance(max_in_flight=3)).enter(0.0).headers == []
    assert dict(Limits(Allowance(tokens_per_day=50)).enter(0.0, 8).headers)[b"x-ratelimit-remaining-tokens"] == b"42"
