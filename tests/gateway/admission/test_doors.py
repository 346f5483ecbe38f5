"""Gates as wide as what is behind them, queues that move, limits that outlive a reload."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from gateway.admission import doors as module
from gateway.admission.allowance import Allowance
from gateway.admission.doors import Bounds, Doors, capacity
from gateway.admission.gate import Policy
from gateway.admission.limits import Limits
from gateway.errors import QueueFull
from gateway.upstream.client import Origin, Pool
from gateway.upstream.engine import Engine
from gateway.upstream.figures import Figures


@dataclass
class Meters:
    depths: dict[str, int] = field(default_factory=dict)
    tokens: dict[str, tuple[int, int | None]] = field(default_factory=dict)

    def queue_depth(self, model: str, waiting: int) -> None:
        self.depths[model] = waiting

    def reserved(self, model: str, tokens: int, capacity: int | None) -> None:
        self.tokens[model] = tokens, capacity


class Store:
    here = True
    instances = 4

    def __init__(self) -> None:
        self.ran = False

    def limits(self, key: str, allowed: Allowance) -> Any:
        return key, allowed

    async def run(self) -> None:
        self.ran = True


def engine(kv_tokens: int | None = None, *, up: bool = True, weight: float = 1.0, window: int | None = None) -> Engine:
    made = Engine("e", Pool(Origin.parse("http://127.0.0.1:1")), weight=weight)
    made.up, made.max_model_len = up, window
    made.told(Figures(kv_tokens=kv_tokens))
    return made


def test_capacity_is_what_the_usable_engines_hold_without_the_headroom() -> None:
    assert capacity([engine(1000), engine(500)], 0.0, 0.2) == 1200
    assert capacity([engine(1000), engine(500, up=False), engine(900, weight=0)], 0.0, 0.1) == 900
    assert capacity([engine(1000)], 0.0, 0.0, parts=4) == 250


def test_engines_that_do_not_say_are_counted_by_requests_alone() -> None:
    assert capacity([engine(1000), engine(None)], 0.0, 0.2) is None
    assert capacity([], 0.0, 0.2) is None


def test_an_engine_too_busy_to_say_holds_what_it_held() -> None:
    """It is under load that its figures come too late; counting requests alone then would flood it."""
    busy = engine(1000)
    busy.told(None)
    assert capacity([busy], 0.0, 0.2) == 800
    busy.told(Figures(kv_tokens=500))
    assert capacity([busy], 0.0, 0.2) == 400


async def test_gates_follow_their_engines_and_queues_move(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SWEEP_S", 0.005)
    meters, serving = Meters(), engine(100, window=77)
    doors = Doors(meters)
    doors.follow({"m": (Bounds(8, 0.0, Policy(timeout_s=0.05)), [serving])})
    door = doors.door("m")
    running = asyncio.get_running_loop().create_task(doors.run())
    await until(lambda: door.gate.max_tokens == 100)
    assert door.estimate.window == 77
    now = asyncio.get_running_loop().time()
    door.gate.enter(now, 80)
    why: list[QueueFull | None] = []
    door.gate.enter(now, 60).tell = why.append
    assert meters.depths["m"] == 1
    await until(lambda: bool(why))
    assert isinstance(why[0], QueueFull)
    door.gate.enter(asyncio.get_running_loop().time(), 60).tell = why.append
    serving.told(Figures(kv_tokens=200))
    await until(lambda: len(why) == 2)
    assert why[1] is None
    await until(lambda: meters.tokens["m"] == (140, 200))
    assert doors.in_use()
    running.cancel()


async def until(condition: object) -> None:
    assert callable(condition)
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.002)


def test_workers_split_evenly_and_with_a_store_whoever_lives() -> None:
    alone = Doors(Meters(), workers=3)
    alone.follow({"m": (Bounds(10), [])})
    assert alone.door("m").gate.max_requests == 3
    limits = alone.limits("k", Allowance(rpm=10))
    assert isinstance(limits, Limits)
    assert limits.allowed.rpm == 3
    shared = Doors(Meters(), workers=2, store=Store())
    shared.follow({"m": (Bounds(10), [])})
    assert shared.door("m").gate.max_requests == 2
    given: Any = shared.limits("k", Allowance(rpm=10))
    assert given == ("k", Allowance(rpm=10))
    assert isinstance(shared.limits("k", Allowance()), Limits)  # nothing to share, nothing to wait for


async def test_the_store_runs_beside_and_its_state_is_told() -> None:
    store = Store()
    doors = Doors(Meters(), store=store)
    running = asyncio.get_running_loop().create_task(doors.run())
    await until(lambda: store.ran)
    running.cancel()
    assert doors.kept() == "shared by 4"
    store.here = False
    assert doors.kept() == "in parts: Redis is away"
    assert Doors(Meters()).kept() == "in memory"


def test_a_reload_keeps_what_is_inside_and_what_was_counted() -> None:
    doors = Doors(Meters())
    doors.follow({"m": (Bounds(4), [])})
    place = doors.door("m").gate.enter(0.0, 10)
    doors.limits("k", Allowance(rpm=5)).enter(0.0, 0)
    doors.follow({"n": (Bounds(2, policy=Policy(length=1)), [])})
    assert doors.in_use()
    assert doors.door("n").gate.policy.length == 1
    place.leave(1.0)
    assert not doors.in_use()
    doors.follow({"n": (Bounds(3), [])})
    assert doors.door("n").gate.max_requests == 3
    limits = doors.limits("k", Allowance(rpm=9))
    assert isinstance(limits, Limits)
    assert limits._requests == 1
