"""The gate before a model: bounds, order, aging, leaving, refusals."""

from __future__ import annotations

from collections import Counter
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.admission.gate import FIRST, LONGEST_RETRY_S, Gate, Place, Policy, Rank
from gateway.errors import QueueFull

BATCH = Rank(batch=True)


def full(requests: int = 1, **policy: float) -> tuple[Gate, list[Place]]:
    """A gate with everything taken, and who is inside."""
    gate = Gate(requests, Policy(**policy))  # type: ignore[arg-type] # length is whole
    return gate, [gate.enter(0.0, 1, "holder") for _ in range(requests)]


def inside(places: list[Place]) -> list[int]:
    return [number for number, place in enumerate(places) if place.inside]


def test_room_is_given_at_once_and_in_requests_and_tokens() -> None:
    gate = Gate(3)
    gate.max_tokens = 100
    first = gate.enter(0.0, 60)
    assert first.inside
    waits = gate.enter(0.0, 50)
    assert not waits.inside
    assert (gate.in_flight, gate.tokens, gate.depth) == (1, 60, 1)
    first.leave(1.0)
    assert inside([waits])
    assert (gate.in_flight, gate.tokens, gate.depth) == (1, 50, 0)


def test_a_request_larger_than_the_whole_passes_alone() -> None:
    gate = Gate(3)
    gate.max_tokens = 100
    small, large = gate.enter(0.0, 10), gate.enter(0.0, 500)
    assert not large.inside
    small.leave(1.0)
    assert inside([large])
    assert not gate.enter(1.0, 1).inside


def test_who_does_not_fit_is_not_overtaken_by_smaller_ones() -> None:
    gate = Gate(10)
    gate.max_tokens = 100
    gate.enter(0.0, 60)
    large, small = gate.enter(0.0, 80), gate.enter(0.0, 10)
    assert not large.inside
    assert not small.inside
    large.leave(1.0)
    assert inside([small])  # what it stood behind has left


def test_the_lower_number_goes_first_and_batch_last() -> None:
    gate, (holder,) = full()
    ranks = [BATCH, Rank(priority=5), Rank(batch=True, priority=-9), FIRST, Rank(priority=-1)]
    places = [gate.enter(0.0, 1, rank=rank) for rank in ranks]
    order = list[int]()
    leaves = holder
    while len(order) < len(places):
        leaves.leave(1.0)
        (now,) = [n for n in inside(places) if n not in order]
        order.append(now)
        leaves = places[now]
    assert order == [4, 3, 1, 2, 0]


def test_who_has_waited_max_wait_s_goes_first_every_second_place() -> None:
    gate, (holder,) = full(max_wait_s=10, timeout_s=1000)
    old = [gate.enter(0.0, 1, "b", rank=Rank(priority=9)) for _ in range(4)]
    leaves, seen = holder, list[str]()
    for step in range(8):
        now = 5.0 if step < 2 else 11.0
        urgent = [gate.enter(now, 1, "a") for _ in range(2)]
        leaves.leave(now)
        (leaves,) = [place for place in (*old, *urgent) if place.inside and not place.over]
        seen.append("old" if leaves in old else "urgent")
        for place in urgent:
            if not place.inside:
                place.leave(now)
    assert seen == ["urgent", "urgent", "old", "urgent", "old", "urgent", "old", "urgent"]


def test_a_batch_request_that_may_not_have_more_hides_no_other_that_is_overdue() -> None:
    gate = Gate(4, Policy(max_wait_s=1, timeout_s=99, batch_share=0.5))
    batch = [gate.enter(0.0, 1, rank=BATCH) for _ in range(3)]
    assert inside(batch) == [0, 1]
    others = [gate.enter(0.0, 1) for _ in range(2)]
    assert inside(others) == [0, 1]
    late = gate.enter(0.1, 1, rank=Rank(priority=9))
    urgent = gate.enter(5.0, 1)
    others[0].leave(5.0)
    assert late.inside
    assert not urgent.inside


def test_batch_leaves_room_for_interactive_requests() -> None:
    gate = Gate(10, Policy(batch_share=0.8))
    gate.max_tokens = 1000
    flood = [gate.enter(0.0, 100, rank=BATCH) for _ in range(20)]
    assert len(inside(flood)) == 8
    assert gate.enter(0.0, 100).inside
    assert gate.enter(0.0, 100).inside
    flood[0].leave(1.0)
    assert len(inside(flood)) == 9  # who left, and the next
    gate = Gate(1, Policy(batch_share=0.1))
    assert gate.enter(0.0, 1, rank=BATCH).inside  # one may always be


def test_keys_share_by_weight() -> None:
    gate, (leaves,) = full(length=500, timeout_s=1e9, max_wait_s=1e9)
    places = [(key, gate.enter(0.0, 7, key, weight)) for key, weight in (("a", 3), ("b", 1)) for _ in range(100)]
    got: Counter[str] = Counter()
    for _ in range(80):
        leaves.leave(1.0)
        ((key, leaves),) = [(key, place) for key, place in places if place.inside and not place.over]
        got[key] += 1
    assert got == {"a": 60, "b": 20}


def test_a_full_queue_refuses_and_says_when_it_will_have_drained() -> None:
    gate, places = full(4, length=3, timeout_s=1000)
    waiting = [gate.enter(0.0, 1, "x") for _ in range(3)]
    with pytest.raises(QueueFull) as refused:
        gate.enter(0.0, 1, "x")
    assert refused.value.retry_after == 1  # nothing is known yet
    for place in places[:2]:
        place.leave(8.0)  # eight seconds a request, four at a time: one in two seconds
    assert inside(waiting) == [0, 1]
    waiting += [gate.enter(8.0, 1, "x") for _ in range(2)]
    with pytest.raises(QueueFull) as refused:
        gate.enter(8.0, 1, "x")
    assert refused.value.retry_after == 8
    gate._stay = 1e9
    assert gate.retry_after() == LONGEST_RETRY_S


def test_a_flood_fills_the_queue_for_itself_alone() -> None:
    gate, _ = full(length=10)
    told: list[QueueFull | None] = []
    flood = [gate.enter(0.0, 1, "flood") for _ in range(10)]
    for place in flood:
        place.tell = told.append
    other = gate.enter(0.0, 1, "other")  # its own first: the flood's newest goes
    assert not other.over
    assert flood[-1].over
    assert [type(why) for why in told] == [QueueFull]
    with pytest.raises(QueueFull):
        gate.enter(0.0, 1, "flood")
    assert gate.depth == 10


def test_batch_gives_way_where_the_queue_is_full() -> None:
    gate, _ = full(length=2)
    batch = [gate.enter(0.0, 1, "b", rank=BATCH) for _ in range(2)]
    gate.enter(0.0, 1, "b")
    assert [place.over for place in batch] == [False, True]
    gate.enter(0.0, 1, "c", rank=BATCH)  # "b" waits with more
    assert batch[0].over
    for rank in (BATCH, FIRST):
        with pytest.raises(QueueFull):  # nobody waits with more than one
            gate.enter(0.0, 1, "d", rank=rank)


def test_without_a_queue_everybody_is_refused_at_once() -> None:
    gate, (holder,) = full(length=0)
    with pytest.raises(QueueFull):
        gate.enter(0.0, 1)
    holder.leave(1.0)
    assert gate.enter(1.0, 1).inside


def test_who_has_waited_too_long_is_sent_away() -> None:
    gate, _ = full(timeout_s=30)
    told: list[QueueFull | None] = []
    for start, rank in ((0.0, FIRST), (1.0, BATCH), (2.0, FIRST)):
        gate.enter(start, 1, rank=rank).tell = told.append
    gate.expire(29.9)
    assert not told
    gate.expire(31.0)
    assert len(told) == 2
    assert gate.depth == 1


def test_a_place_may_leave_more_than_once() -> None:
    gate, (holder,) = full()
    waiting = gate.enter(0.0, 1)
    for _ in range(2):
        waiting.leave(1.0)
        holder.leave(1.0)
    assert (gate.in_flight, gate.tokens, gate.depth) == (0, 0, 0)


def test_more_room_lets_more_in_and_less_throws_nobody_out() -> None:
    gate, places = full(4)
    waiting = [gate.enter(0.0, 1) for _ in range(3)]
    gate.resize(1.0, 6, None)
    assert inside(waiting) == [0, 1]
    gate.resize(1.0, 2, 1)
    assert gate.in_flight == 6
    places[0].leave(2.0)
    assert not waiting[2].inside


def test_the_depth_is_told_whenever_it_changes() -> None:
    gate, (holder,) = full()
    depths: list[int] = []
    gate.changed = lambda: depths.append(gate.depth)
    waiting = gate.enter(0.0, 1)
    holder.leave(1.0)
    assert waiting.inside
    assert depths == [1, 0]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["enter", "leave", "expire", "resize"]),
            st.integers(0, 40),
            st.sampled_from(["a", "b", None]),
            st.sampled_from([FIRST, BATCH, Rank(priority=3)]),
            st.floats(0, 8),
        ),
        max_size=60,
    )
)
def test_bounds_hold_and_nobody_is_forgotten(steps: list[tuple[str, int, str | None, Rank, float]]) -> None:
    gate = Gate(4, Policy(length=6, max_wait_s=5, timeout_s=20, batch_share=0.5))
    gate.max_tokens = 100
    now, places = 0.0, list[Place]()
    for what, number, key, rank, pause in steps:
        now += pause
        if what == "enter":
            try:
                places.append(gate.enter(now, number, key, 1.0 + number, rank))
            except QueueFull:
                assert gate.depth >= 6
        elif what == "leave" and places:
            places.pop(number % len(places)).leave(now)
        elif what == "expire":
            gate.expire(now)
        else:
            gate.resize(now, 4, 100)
        places = [place for place in places if not place.over]
        within = [place for place in places if place.inside]
        assert (gate.in_flight, gate.tokens) == (len(within), sum(place.tokens for place in within))
        assert gate.depth == len(places) - len(within) <= 6
        assert gate.in_flight <= 4
        assert gate.tokens <= 100 or gate.in_flight == 1
        if gate.depth:  # nobody waits for nothing
            assert gate.in_flight
    for place in places:
        place.leave(now)
    for place in places:
        place.leave(now)
    assert (gate.in_flight, gate.tokens, gate.depth, gate._batch, gate._batch_tokens) == (0, 0, 0, 0, 0)


def test_the_way_in_costs_about_a_microsecond_where_there_is_room() -> None:
    gate = Gate(10)
    gate.max_tokens = 100_000

    def seconds(count: int) -> float:
        began = process_time()
        for _ in range(count):
            gate.enter(1.0, 100, "key", 1.0, FIRST).leave(2.0)
        return process_time() - began

    seconds(1000)
    assert min(seconds(2000) for _ in range(5)) / 2000 < 20e-6  # measured: 1.5 in and out; a loaded machine has time
