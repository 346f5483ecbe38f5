"""One request's way in and out: what it holds, what it is charged, what is learnt from it."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from gateway.admission.allowance import Allowance
from gateway.admission.entry import Door, Entry, rank_of
from gateway.admission.gate import Gate, Policy, Rank
from gateway.admission.keys import Principal
from gateway.admission.limits import Held, Limits
from gateway.errors import InvalidRequest, QueueFull, RateLimited
from gateway.record import Record


class Meters:
    def __init__(self) -> None:
        self.flights: Counter[str] = Counter()

    def in_flight(self, model: str, change: int) -> None:
        self.flights[model] += change


class Outside:
    """Limits that somebody else keeps, in his own time."""

    def __init__(self) -> None:
        self.limits = Limits(Allowance(max_in_flight=1))
        self.answers = asyncio.Event()

    async def enter(self, now: float, tokens: int) -> Held:
        await self.answers.wait()
        return self.limits.enter(now, tokens)


def entry(
    principal: Principal, door: Door, record: Record | None = None, meters: Meters | None = None, most: int = 100
) -> Entry:
    return Entry(
        principal,
        "m",
        door,
        Rank(),
        record or Record(),
        meters or Meters(),
        asyncio.get_running_loop(),
        size=400,
        most=most,
        choices=1,
    )


def limited(**allowed: int) -> Principal:
    return Principal("k", limits=Limits(Allowance(**allowed)))


@pytest.mark.parametrize(
    ("key", "body", "rank", "told"),
    [
        (Principal("k"), {}, Rank(), None),
        (Principal("k", priority=3), {}, Rank(priority=3), None),
        (Principal("k", priority=3), {"priority": 7}, Rank(priority=7), 7),
        (Principal("k", priority=3), {"priority": -50}, Rank(priority=3), 3),
        (Principal("k"), {"priority": 10**30}, Rank(priority=2**31), 2**31),
        (Principal("k", batch=True), {"priority": 1}, Rank(True, 1), 1_000_001),
        (Principal("k"), {"service_tier": "flex"}, Rank(batch=True), None),
        (Principal("k"), {"service_tier": "auto"}, Rank(), None),
    ],
)
def test_a_request_makes_itself_less_urgent_than_its_key_never_more(
    key: Principal, body: dict[str, Any], rank: Rank, told: int | None
) -> None:
    assert rank_of(key, body, Door()) == rank
    assert body.get("priority") == told


def test_an_engine_that_orders_by_priority_is_told_of_every_request() -> None:
    body: dict[str, Any] = {}
    rank_of(Principal("k", priority=4), body, Door(tell_engine=True))
    assert body == {"priority": 4}


@pytest.mark.parametrize("wrong", ["1", 1.5, True, [], {}])
def test_a_priority_that_is_no_number_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        rank_of(Principal("k"), {"priority": wrong}, Door())
    assert refusal.value.param == "priority"


async def test_with_room_nothing_has_to_be_awaited() -> None:
    door, meters, principal = Door(), Meters(), limited(tpm=1000, max_in_flight=5)
    record = Record(prompt_tokens=90, completion_tokens=10)
    one = entry(principal, door, record, meters)
    assert one.begin(0.0) is None
    assert (door.gate.in_flight, door.gate.tokens, meters.flights["m"]) == (1, 201, 1)
    assert dict(record.limits)[b"x-ratelimit-remaining-tokens"] == b"799"
    one.end(1.0)
    assert (door.gate.in_flight, door.gate.tokens, meters.flights["m"]) == (0, 0, 0)
    assert isinstance(principal.limits, Limits)
    assert principal.limits._tokens == 100
    assert door.estimate.tokens("k", 400, 100) < 201  # it was learnt from


async def test_a_full_model_refuses_and_the_key_has_lost_nothing() -> None:
    door, principal = Door(Gate(1, Policy(length=0))), limited(tpm=1000, max_in_flight=5)
    first, second = entry(principal, door), entry(principal, door)
    first.begin(0.0)
    with pytest.raises(QueueFull):
        second.begin(0.0)
    second.end(0.0)
    assert isinstance(principal.limits, Limits)
    assert (principal.limits.in_flight, principal.limits._tokens) == (1, 201)


async def test_who_waits_goes_on_when_there_is_room() -> None:
    door, meters = Door(Gate(1)), Meters()
    first, second = entry(limited(), door, meters=meters), entry(limited(), door, meters=meters)
    first.begin(0.0)
    waiting = second.begin(0.0)
    assert waiting is not None
    task = asyncio.ensure_future(waiting)
    await asyncio.sleep(0)
    assert not task.done()
    first.end(1.0)
    await task
    assert (door.gate.in_flight, meters.flights["m"]) == (1, 1)
    second.end(2.0)
    assert (door.gate.in_flight, meters.flights["m"]) == (0, 0)


async def test_who_leaves_while_waiting_leaves_the_queue_and_the_limits() -> None:
    door, principal, meters = Door(Gate(1)), limited(tpm=1000, max_in_flight=2), Meters()
    first, second = entry(principal, door, meters=meters), entry(principal, door, meters=meters)
    first.begin(0.0)
    task = asyncio.ensure_future(second.begin(0.0) or asyncio.sleep(0))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    second.end(1.0)
    assert door.gate.depth == 0
    assert isinstance(principal.limits, Limits)
    assert principal.limits.in_flight == 1
    first.end(1.0)
    assert (door.gate.in_flight, meters.flights["m"], principal.limits._tokens) == (0, 0, 0)


async def test_who_is_let_in_while_its_caller_leaves_gives_its_place_back() -> None:
    door, meters = Door(Gate(1)), Meters()
    first, second = entry(limited(), door, meters=meters), entry(limited(), door, meters=meters)
    first.begin(0.0)
    task = asyncio.ensure_future(second.begin(0.0) or asyncio.sleep(0))
    await asyncio.sleep(0)
    task.cancel()
    first.end(1.0)  # in the same moment
    await asyncio.gather(task, return_exceptions=True)
    second.end(1.0)
    assert (door.gate.in_flight, door.gate.depth, meters.flights["m"]) == (0, 0, 0)


async def test_who_waits_too_long_is_told() -> None:
    door = Door(Gate(1, Policy(timeout_s=5)))
    first, second = entry(limited(), door), entry(limited(), door)
    first.begin(0.0)
    task = asyncio.ensure_future(second.begin(0.0) or asyncio.sleep(0))
    await asyncio.sleep(0)
    door.gate.expire(6.0)
    with pytest.raises(QueueFull):
        await task
    second.end(6.0)
    assert door.gate.in_flight == 1


@pytest.mark.parametrize(
    ("prompt", "completion", "outcome", "charged"),
    [
        (30, 7, "ok", 37),
        (0, 7, "client_left", 108),  # an aborted stream: the prompt by the estimate, and what was generated
        (0, 7, "engine_timeout", 108),
        (0, 0, "client_left", 0),
        (0, 0, "engine_error", 0),
        (30, 7, "content_filter", 37),
    ],
)
async def test_what_was_generated_is_charged_and_what_was_not_is_given_back(
    prompt: int, completion: int, outcome: str, charged: int
) -> None:
    principal = limited(tpm=1000)
    record = Record(prompt_tokens=prompt, completion_tokens=completion, outcome=outcome)
    one = entry(principal, Door(), record)
    one.begin(0.0)
    one.end(1.0)
    assert isinstance(principal.limits, Limits)
    assert principal.limits._tokens == charged == record.prompt_tokens + record.completion_tokens


async def test_a_refused_request_says_how_the_key_stands() -> None:
    principal = limited(rpm=1)
    entry(principal, Door()).begin(0.0)
    refused = entry(principal, Door())
    with pytest.raises(RateLimited) as refusal:
        refused.begin(0.0)
    refused.end(0.0)
    assert dict(refusal.value.headers())[b"x-ratelimit-remaining-requests"] == b"0"


async def test_limits_that_are_kept_outside_are_waited_for() -> None:
    outside, door = Outside(), Door()
    principal = Principal("k", limits=outside)
    one = entry(principal, door)
    task = asyncio.ensure_future(one.begin(0.0) or asyncio.sleep(0))
    await asyncio.sleep(0)
    assert not task.done()
    outside.answers.set()
    await task
    assert (outside.limits.in_flight, door.gate.in_flight) == (1, 1)
    two = entry(principal, door)
    with pytest.raises(RateLimited):
        await (two.begin(0.0) or asyncio.sleep(0))
    two.end(0.0)
    one.end(1.0)
    assert (outside.limits.in_flight, door.gate.in_flight) == (0, 0)


async def test_who_leaves_while_the_limits_are_asked_leaves_nothing_there() -> None:
    outside = Outside()
    one = entry(Principal("k", limits=outside), Door())
    task = asyncio.ensure_future(one.begin(0.0) or asyncio.sleep(0))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    one.end(1.0)
    outside.answers.set()
    for _ in range(5):
        await asyncio.sleep(0)
    assert outside.limits.in_flight == 0
