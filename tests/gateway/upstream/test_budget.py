"""Second tries are few, whatever happens."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.upstream.budget import AT_LEAST, PART, WINDOW_S, Budget


def test_a_quiet_gateway_may_try_again_a_few_times() -> None:
    budget = Budget()
    budget.asked(100.0)
    assert [budget.again(100.0) for _ in range(5)] == [True] * AT_LEAST + [False] * 2
    assert budget.again(100.0 + WINDOW_S)


def test_a_bad_hour_adds_a_fifth_and_not_as_much_again() -> None:
    budget, granted = Budget(), 0
    for number in range(36_000):
        now = number / 100
        budget.asked(now)
        granted += budget.again(now)
    assert PART - 0.02 < granted / 36_000 < PART + 0.02


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 3)), max_size=200))
@settings(max_examples=60)
def test_in_any_ten_seconds_no_more_than_the_part_is_granted(events: list[tuple[bool, float]]) -> None:
    budget, now = Budget(), 0.0
    asked: list[float] = []
    granted: list[float] = []
    for again, pause in events:
        now += pause
        if not again:
            budget.asked(now)
            asked.append(now)
        elif budget.again(now):
            granted.append(now)
            lately = sum(each > now - WINDOW_S - 1 for each in asked)
            assert sum(each > now - WINDOW_S for each in granted) <= max(AT_LEAST, PART * lately + 1)
