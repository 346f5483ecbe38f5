"""Which engine gets the next request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.upstream.choice import LOOK_AT_ALL, Shares, choose
from gateway.upstream.client import Origin, Pool
from gateway.upstream.engine import Engine
from gateway.upstream.figures import Figures
from gateway.upstream.want import ANY, Preference, Want

POOL = Pool(Origin.parse("http://engine:8000"))


def engines(*weights: float) -> list[Engine]:
    return [Engine(f"e{number}", POOL, weight=weight) for number, weight in enumerate(weights)]


def chosen(
    among: Sequence[Engine],
    want: Want = ANY,
    excluded: Sequence[Engine] = (),
    now: float = 0,
    shares: Shares | None = None,
) -> Engine | None:
    return choose(among, want, excluded, now, shares or Shares())


def spread(among: list[Engine], requests: int, now: float = 100.0, *, lasting: bool = True) -> Counter[str]:
    """Send requests one after another; ``lasting`` ones never end."""
    count: Counter[str] = Counter()
    shares = Shares()
    for _ in range(requests):
        engine = choose(among, ANY, (), now, shares)
        assert engine is not None
        engine.begin(ANY)
        if not lasting:
            engine.end(ANY)
        count[engine.name] += 1
    return count


def test_the_engine_with_the_least_work_is_chosen_not_the_one_with_the_fewest_requests() -> None:
    one, two, three = among = engines(1, 1, 1)
    one.begin(Want(300))
    two.begin(Want(100))
    two.begin(Want(100))
    three.begin(Want(250))
    assert chosen(among) is two


def test_equals_take_turns() -> None:
    turns: list[str] = []
    among = engines(1, 1, 1)
    for _ in range(9):
        turns += spread(among, 1, lasting=False)
    assert Counter(turns) == {"e0": 3, "e1": 3, "e2": 3}
    assert turns[:3] == turns[3:6] == turns[6:]


@given(st.lists(st.sampled_from([0.5, 1, 2, 3, 10]), min_size=1, max_size=5), st.integers(1, 200), st.booleans())
@settings(max_examples=60)
def test_weights_are_shares_whether_requests_pile_up_or_not(weights: list[float], requests: int, lasting: bool) -> None:
    among = engines(*weights)
    count = spread(among, requests, lasting=lasting)
    for engine in among:
        assert abs(count[engine.name] - requests * engine.weight / sum(weights)) <= len(among) + 1


def test_a_canary_gets_its_five_percent_also_from_one_caller_at_a_time() -> None:
    assert spread(engines(95, 5), 1000, lasting=False) == {"e0": 950, "e1": 50}


def test_a_canary_that_was_away_does_not_make_up_for_it() -> None:
    main, canary = among = engines(95, 5)
    shares = Shares()
    canary.up = False
    for _ in range(1000):
        assert choose(among, ANY, (), 0, shares) is main
    canary.up = True
    first = [choose(among, ANY, (), 0, shares) for _ in range(100)]
    assert first.count(canary) <= 6


def test_weight_zero_takes_nothing_even_alone() -> None:
    assert chosen(engines(0)) is None
    assert spread(engines(0, 1), 10) == {"e1": 10}


def test_the_excluded_the_dead_the_draining_and_mirrors_are_never_chosen() -> None:
    one, two, three = among = engines(1, 1, 1)
    two.probed(up=False)
    assert chosen(among, excluded=[one]) is three
    assert chosen(among, excluded=[one, three]) is None
    assert chosen([]) is None
    one.draining = True
    assert chosen(among) is three
    three.mirror = 0.5
    assert chosen(among) is None
    assert chosen([one]) is None


def test_who_was_not_asked_yet_may_be_chosen() -> None:
    assert chosen(engines(1)) is not None


def test_a_failed_busy_cold_or_stuck_engine_is_passed_over_while_there_are_others() -> None:
    def cold(engine: Engine, _: float) -> None:
        engine.warm = False

    def stuck(engine: Engine, _: float) -> None:
        engine.stalled = True

    for trouble in (Engine.failed, Engine.busy, cold, stuck):
        one, two = among = engines(1, 1)
        two.begin(Want(50))
        trouble(one, 100.0)
        assert chosen(among, now=100.0) is two
        assert chosen([one], now=100.0) is one
        two.up = False
        assert chosen(among, now=100.0) is one
    one, two = among = engines(1, 1)
    two.begin(Want(50))
    one.failed(100.0)
    assert chosen(among, now=200.0) is one


def test_when_all_have_failed_they_are_asked_all_the_same() -> None:
    among = engines(1, 1)
    for engine in among:
        engine.failed(100.0)
    assert chosen(among, now=100.0) in among
    assert chosen(among, excluded=[among[0]], now=100.0) is among[1]


def test_an_engine_that_failed_is_tried_with_one_request_before_it_gets_more() -> None:
    one, two = among = engines(1, 1)
    one.failed(100.0)
    two.begin(Want(10))
    back = 200.0
    assert chosen(among, now=back) is one
    one.begin(ANY)
    assert chosen(among, now=back) is two
    one.answered()
    assert chosen(among, now=back) is one


def test_an_engine_that_has_just_joined_gets_a_part_that_grows() -> None:
    for engine in (among := engines(1, 1)):
        engine.slow_start_s = 30
    among[1].joins(1000.0)
    early, late = spread(among, 100, 1003.0), spread(engines(1, 1), 100, 1040.0)
    assert early["e1"] <= 12
    assert late["e1"] == 50


def test_what_others_have_sent_to_an_engine_and_a_full_cache_count_too() -> None:
    one, two = among = engines(1, 1)
    one.begin(Want(100))
    two.begin(Want(100))
    one.told(Figures(running=5, waiting=3))
    assert chosen(among) is two
    one.told(Figures(running=1, kv_used=0.99))
    assert chosen(among) is two
    one.told(None)
    assert chosen(among) is one


def test_of_many_engines_the_better_of_two_is_chosen_and_nobody_is_far_behind() -> None:
    among = engines(*[1.0] * (LOOK_AT_ALL * 5))
    count = spread(among, 4000)
    assert max(count.values()) - min(count.values()) < 12


def test_those_whom_an_engine_is_for_go_to_it_first_and_elsewhere_when_it_cannot() -> None:
    main, canary = among = engines(1, 0)
    canary.preference = Preference(frozenset({"beta"}), {b"x-canary": b"1"}, priority=-10)
    for want in (Want(key="beta"), Want(headers={b"x-canary": b"1"}), Want(priority=-10)):
        assert chosen(among, want) is canary
        assert chosen(among, want, excluded=[canary]) is main
    for want in (ANY, Want(key="alpha"), Want(headers={b"x-canary": b"0"}), Want(priority=-9)):
        assert chosen(among, want) is main
        assert chosen(among, want, excluded=[main]) is None
    canary.failed(0)
    assert chosen(among, Want(key="beta"), now=1) is main
    main.up = False
    assert chosen(among, Want(key="beta"), now=1) is canary


def test_what_only_one_engine_can_answer_goes_nowhere_else() -> None:
    one, two = among = engines(1, 1)
    one.begin(Want(1000))
    one.draining = True
    want = Want(only="e0")
    assert chosen(among, want) is one
    assert chosen(among, want, excluded=[one]) is None
    one.up = False
    assert chosen(among, want) is None
    assert chosen(among, Want(only="gone")) is None
    assert chosen([two], want) is None


def test_a_session_stays_at_its_engine_while_that_has_room() -> None:
    among = engines(1, 1, 1)
    first = chosen(among, Want(10, session=77))
    assert first is not None
    for _ in range(5):
        assert chosen(among, Want(10, session=77)) is first
    first.begin(Want(500))
    assert chosen(among, Want(10, session=77)) not in {None, first}
