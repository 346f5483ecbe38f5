"""How a key's limits are told."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from gateway.admission.allowance import (
    NO_LIMITS,
    Allowance,
    Standing,
    day_of,
    duration,
    month_of,
    told,
    until_next_month,
    until_tomorrow,
)


@pytest.mark.parametrize(
    ("seconds", "written"),
    [
        (0, b"0ms"),
        (-1, b"0ms"),
        (0.0201, b"21ms"),
        (1, b"1s"),
        (0.9999, b"1s"),
        (29.54, b"29.6s"),
        (59.98, b"1m0s"),
        (60, b"1m0s"),
        (361, b"6m1s"),
        (72_003.2, b"20h0m4s"),
    ],
)
def test_a_time_is_written_as_openai_writes_it_and_never_too_short(seconds: float, written: bytes) -> None:
    assert duration(seconds) == written


def test_parts_of_a_limit_never_make_more_than_the_whole() -> None:
    whole = Allowance(100, 1001, 7, None, 10**9)
    assert whole.part(1) is whole
    assert whole.part(3) == (33, 333, 2, None, 333_333_333)
    assert Allowance(rpm=2).part(5).rpm == 1  # a key that may do something can do something


def test_a_request_reserves_at_most_a_whole_limit() -> None:
    assert Allowance(tpm=10, tokens_per_day=5).bounded(100) == 5
    assert NO_LIMITS.bounded(100) == 100


def test_only_what_is_limited_is_told() -> None:
    assert told(NO_LIMITS, Standing()) == []
    assert told(Allowance(max_in_flight=1), Standing()) == []
    assert [name for name, _ in told(Allowance(rpm=3), Standing(-2))][:2] == [
        b"x-ratelimit-limit-requests",
        b"x-ratelimit-remaining-requests",
    ]
    assert told(Allowance(rpm=3), Standing(-2))[1][1] == b"0"
    assert dict(told(Allowance(tokens_per_month=9), Standing(tokens=4)))[b"x-ratelimit-remaining-tokens"] == b"4"


def test_days_and_months_end_where_the_calendar_says() -> None:
    eve = datetime(2026, 12, 31, 23, 59, 30, tzinfo=UTC)
    assert (until_tomorrow(eve), until_next_month(eve)) == (30, 30)
    leap = datetime(2028, 2, 28, 12, tzinfo=UTC)
    assert until_next_month(leap) == 1.5 * 86400
    assert day_of(eve) + 1 == day_of(datetime(2027, 1, 1, tzinfo=UTC))
    assert month_of(eve) + 1 == month_of(datetime(2027, 1, 1, tzinfo=UTC))
