"""The gateway's own stages: what each says of its numbers."""

from __future__ import annotations

from gateway.why.stages import chain, client_write, connect, entry, queue
from gateway.why.window import Lookup, Snapshot, Window
from tests.gateway.why.exposition import phases, text, window


def test_the_way_in_names_the_event_loop_where_it_is_late() -> None:
    late = {"sluice_event_loop_lag_seconds_sum": 1.0, "sluice_event_loop_lag_seconds_count": 20.0}
    assert entry(window(phases(10, auth=0.1) | late)).cause == "event loop"
    assert entry(window(phases(10, auth=0.1, tokenize=0.5))).cause == "tokenize"


def test_the_slowest_plugin_is_named_with_what_it_takes_of_a_request() -> None:
    runs = {'sluice_plugin_seconds_sum{plugin="a"}': 0.5, 'sluice_plugin_seconds_sum{plugin="b"}': 4.0}
    found = chain(window(phases(10, chain_request=4.5) | runs))
    assert found.cause == "slow plugin"
    assert found.seconds == 0.45
    assert found.evidence.startswith("b takes 400 ms")


def test_who_waits_still_counts_by_little_s_law() -> None:
    waiting = {'sluice_queue_depth{model="m"}': 6.0}
    found = queue(window(phases(3, queue=0.0) | waiting, seconds=10, before=waiting))
    assert (found.cause, found.seconds) == ("long queue", 20.0)


def test_a_key_that_has_nearly_all_the_tokens_is_named_if_there_are_others() -> None:
    spent = {'sluice_key_tokens_total{key="bulk"}': 90.0, 'sluice_key_tokens_total{key="team"}': 10.0}
    found = queue(window(phases(10, queue=20.0) | spent))
    assert found.cause == "hot key"
    assert "bulk has 90% of the tokens" in found.evidence
    del spent['sluice_key_tokens_total{key="team"}']
    assert queue(window(phases(10, queue=20.0) | spent)).cause == "long queue"


def test_a_queue_before_a_full_kv_cache_is_the_cache_s() -> None:
    room = {"sluice_reserved_tokens": 800.0, "sluice_capacity_tokens": 1000.0, "sluice_in_flight": 2.0}
    assert queue(window(phases(10, queue=20.0) | room, before=room)).cause == "KV pressure"
    small = room | {"sluice_in_flight": 8.0}  # one more like these would fit
    assert queue(window(phases(10, queue=20.0) | small, before=small)).cause == "long queue"


def test_a_slow_name_is_told_apart_from_a_slow_network() -> None:
    counted = text(phases(10, connect=20.0))
    for name_s, connect_s, cause in ((2.0, 0.001, "DNS"), (0.001, 2.0, "connect"), (None, None, "connect")):
        after = Snapshot(at=10.0, gateway=counted, lookups={"m-0": Lookup(name_s, connect_s)})
        found = connect(Window(Snapshot(at=0.0, gateway=""), after))
        assert (found.cause, found.seconds) == (cause, 2.0)


def test_a_slow_caller_is_counted() -> None:
    blocked = {'sluice_phase_seconds_count{phase="client_write"}': 3.0}
    found = client_write(window(phases(10, decode=1.0, client_write=30.0) | blocked))
    assert (found.cause, found.seconds) == ("slow client", 3.0)
    assert found.evidence.startswith("3 of 10 callers")
