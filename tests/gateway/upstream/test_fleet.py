"""The engines of one model, while they come and go."""

from __future__ import annotations

from gateway.upstream.client import Origin, Pool
from gateway.upstream.engine import Engine
from gateway.upstream.fleet import Fleet
from gateway.upstream.want import Want

POOL = Pool(Origin.parse("http://engine:8000"))
BODY = {"messages": [{"role": "system", "content": "x" * 1000}]}


def test_a_fleet_is_a_sequence_that_can_be_changed_under_way() -> None:
    one, two = Engine("a", POOL), Engine("b", POOL)
    fleet = Fleet([one])
    assert (list(fleet), len(fleet), fleet[0], fleet[:1]) == ([one], 1, one, (one,))
    assert fleet.choose((), 0) is one
    fleet.change([two])
    assert fleet.choose((), 0) is two


def test_of_a_request_nothing_is_looked_at_where_there_is_nothing_to_choose() -> None:
    headers = {b"x-session-id": b"s"}
    assert Fleet([Engine("a", POOL)]).want(BODY, headers, work=7, stream=True, key="k") == Want(7, True)


def test_a_session_goes_before_a_prefix_and_is_its_keys_own() -> None:
    fleet = Fleet([Engine("a", POOL), Engine("b", POOL)])
    plain = fleet.want(BODY, {}, work=1, stream=False, key="k")
    assert (plain.session, plain.prefix != 0) == (0, True)
    ours, theirs = (fleet.want(BODY, {b"x-session-id": b"s"}, work=1, stream=False, key=key) for key in ("k", "l"))
    assert ours.prefix == 0
    assert len({ours.session, theirs.session, 0}) == 3
    fleet.keeps_prefixes = False
    assert fleet.want(BODY, {}, work=1, stream=False).prefix == 0


def test_from_a_busy_engine_a_request_may_always_go_to_a_fit_one_and_elsewhere_only_within_the_budget() -> None:
    engine = Engine("a", POOL)
    fleet = Fleet([engine])
    assert all(fleet.again(engine, 100.0, busy=True) for _ in range(50))
    assert [fleet.again(engine, 100.0, busy=False) for _ in range(4)] == [True, True, True, False]
    engine.busy(100.0)
    assert not fleet.again(engine, 100.5, busy=True)
