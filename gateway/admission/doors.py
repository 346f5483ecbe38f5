"""All that admission keeps while the gateway runs: models' doors, keys' limits, and what moves them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from gateway.admission.allowance import Allowance
from gateway.admission.entry import Door
from gateway.admission.gate import Policy
from gateway.admission.keys import SharedLimits
from gateway.admission.limits import Limits
from gateway.upstream.engine import Engine

#: So often who has waited too long is sent away, and a gate made as wide as its engines are. Seconds.
SWEEP_S = 0.1


class Meters(Protocol):
    """What is told about the doors."""

    def queue_depth(self, model: str, waiting: int) -> None:
        """So many wait."""

    def reserved(self, model: str, tokens: int, capacity: int | None) -> None:
        """So many KV tokens are reserved, of so many; None: the engines do not say."""


class Store(Protocol):
    """Where limits are kept that several gateways share."""

    instances: int
    here: bool

    def limits(self, key: str, allowed: Allowance) -> SharedLimits:
        """Return the limits of a key."""

    async def run(self) -> None:
        """Keep in touch, until cancelled."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a model's gate is to hold: requests, and of its engines' KV cache all but the ``headroom``."""

    max_in_flight: int = 64
    headroom: float = 0.2
    policy: Policy = field(default_factory=Policy)
    tell_engine: bool = False


class Doors:
    """Doors and limits by name. ``workers``: so many processes share nothing and split everything evenly.

    With a ``store`` limits are exact over all gateways, and queues are split among those that live.
    """

    def __init__(self, meters: Meters, *, workers: int = 1, store: Store | None = None) -> None:
        self._meters = meters
        self._workers = workers
        self._store = store
        self._doors: dict[str, Door] = {}
        self._limits: dict[str, Limits] = {}
        self._served: dict[str, tuple[Bounds, Iterable[Engine]]] = {}

    def follow(self, served: dict[str, tuple[Bounds, Iterable[Engine]]]) -> None:
        """Look after these models from now on; doors with somebody inside are kept until all have left."""
        self._served = served
        for name, (bounds, _) in served.items():
            door = self.door(name)
            door.gate.policy, door.tell_engine = bounds.policy, bounds.tell_engine
        self._doors = {name: door for name, door in self._doors.items() if name in served or _used(door)}
        self._widen(None)

    def door(self, model: str) -> Door:
        """Return the door of a model."""
        door = self._doors.get(model)
        if door is None:
            door = self._doors[model] = Door()
            door.gate.changed = self._teller(model, door)
        return door

    def limits(self, key: str, allowed: Allowance) -> Limits | SharedLimits:
        """Return the limits of a key, with what was counted before a reload."""
        if self._store is not None and not allowed.nothing:
            return self._store.limits(key, allowed)
        limits = self._limits.setdefault(key, Limits())
        limits.allowed = allowed.part(self._workers)
        return limits

    def in_use(self) -> bool:
        """Say whether any request is inside or waits."""
        return any(map(_used, self._doors.values()))

    def kept(self) -> str:
        """Say where limits are counted."""
        store = self._store
        if store is None:
            return "in memory"
        return f"shared by {store.instances}" if store.here else "in parts: Redis is away"

    async def run(self) -> None:
        """Keep the queues moving, and in touch with the store, until cancelled."""
        async with asyncio.TaskGroup() as group:
            if self._store is not None:
                group.create_task(self._store.run())
            group.create_task(self._sweep())

    async def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._widen(now := loop.time())
            for door in self._doors.values():
                if door.gate.depth:
                    door.gate.expire(now)
            await asyncio.sleep(SWEEP_S)

    def _teller(self, model: str, door: Door) -> Callable[[], None]:
        return lambda: self._meters.queue_depth(model, door.gate.depth)

    def _widen(self, now: float | None) -> None:
        """Make every gate as wide as what is behind it; without a time only in requests, for nothing is known yet."""
        parts = max(self._workers, self._store.instances if self._store is not None else 1)
        for name, (bounds, engines) in self._served.items():
            door = self.door(name)
            tokens = door.gate.max_tokens
            if now is not None:
                tokens = capacity(engines, now, bounds.headroom, parts)
                door.estimate.window = min((each.max_model_len for each in engines if each.max_model_len), default=None)
                self._meters.reserved(name, door.gate.tokens, tokens)
            door.gate.resize(now or 0.0, max(1, bounds.max_in_flight // parts), tokens)


def capacity(engines: Iterable[Engine], now: float, headroom: float, parts: int = 1) -> int | None:
    """Return this process's part of the KV tokens that the usable engines hold, without the headroom.

    None where there is none, or one of them does not say: requests alone are counted then.
    """
    usable = [each for each in engines if each.usable(now)]
    told = [each.kv_tokens for each in usable]
    known = [tokens for tokens in told if tokens is not None]
    return int(sum(known) * (1 - headroom) / parts) if known and len(known) == len(told) else None


def _used(door: Door) -> bool:
    return bool(door.gate.in_flight or door.gate.depth)
