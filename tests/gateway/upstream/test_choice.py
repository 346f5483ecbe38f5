"""Which engine gets the next request."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from gateway.upstream.choice import choose
from gateway.upstream.client import Origin, Pool
from gateway.upstream.engine import Engine


def engines(*weights: float) -> list[Engine]:
    pool = Pool(Origin.parse("http://engine:8000"))
    return [Engine(f"e{number}", pool, weight=weight) for number, weight in enumerate(weights)]


def spread(among: list[Engine], requests: int, now: float = 100.0) -> Counter[str]:
    """Send requests that never end."""
    count: Counter[str] = Counter()
    for _ in range(requests):
        chosen = choose(among, (), now)
        assert chosen is not None
        chosen.begin()
        count[chosen.name] += 1
    return count


def test_the_engine_with_the_fewest_requests_is_chosen() -> None:
    one, two, three = among = engines(1, 1, 1)
    one.in_flight, two.in_flight, three.in_flight = 3, 1, 2
    assert choose(among, (), 0) is two


def test_equals_take_turns() -> None:
    among = engines(1, 1, 1)
    turns = []
    for _ in range(9):
        chosen = choose(among, (), 0)
        assert chosen is not None
        chosen.begin()
        chosen.end()
        turns.append(chosen.name)
    assert Counter(turns) == {"e0": 3, "e1": 3, "e2": 3}
    assert turns[:3] == turns[3:6] == turns[6:]


@given(st.lists(st.floats(0.5, 10), min_size=1, max_size=5), st.integers(1, 200))
def test_requests_are_spread_by_weight(weights: list[float], requests: int) -> None:
    among = engines(*weights)
    count = spread(among, requests)
    for engine in among:
        share = requests * engine.weight / sum(weights)
        assert abs(count[engine.name] - share) <= len(among) + engine.weight / min(weights)


def test_weight_zero_takes_nothing_even_alone() -> None:
    assert choose(engines(0), (), 0) is None
    assert spread(engines(0, 1), 10) == {"e1": 10}


def test_the_excluded_and_the_dead_are_never_chosen() -> None:
    one, two, three = among = engines(1, 1, 1)
    two.probed(up=False)
    assert choose(among, {one}, 0) is three
    assert choose(among, {one, three}, 0) is None
    assert choose([], (), 0) is None


def test_who_was_not_asked_yet_may_be_chosen() -> None:
    assert choose(engines(1), (), 0) is not None


def test_a_failed_or_busy_engine_is_passed_over_while_there_are_others() -> None:
    for trouble in (Engine.failed, Engine.busy):
        one, two = among = engines(1, 1)
        two.in_flight = 50
        trouble(one, 100.0)
        assert choose(among, (), 100.0) is two
        assert choose(among, (), 200.0) is one


def test_when_all_have_failed_they_are_asked_all_the_same() -> None:
    among = engines(1, 1)
    for engine in among:
        engine.failed(100.0)
    assert choose(among, (), 100.0) in among
    assert choose(among, {among[0]}, 100.0) is among[1]


def test_an_engine_that_failed_is_tried_with_one_request_before_it_gets_more() -> None:
    one, two = among = engines(1, 1)
    one.failed(100.0)
    two.in_flight = 10
    back = 200.0
    assert choose(among, (), back) is one
    one.begin()
    assert choose(among, (), back) is two
    one.answered()
    assert choose(among, (), back) is one
