"""Hundreds of engines and floods of callers in virtual time, behind the very policy classes that run in production.

Real: ``Gate`` with its fair queue, ``Estimate``, ``capacity``, the choice among ``Engine`` objects and their ejection.
Played: callers (Poisson arrivals, heavy-tailed lengths), the engines' work, and the clock, which jumps from event to
event. Everything is seeded: the same world twice is the same to the last token.

    python -m tests.simulation.plots docs/images            draws what docs/admission.md shows
    python -m tests.simulation.plots --full docs/images     with all 50,000 requests a second
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from gateway.admission.doors import SWEEP_S, capacity
from gateway.admission.estimate import Estimate, Running
from gateway.admission.gate import Gate, Place, Policy, Rank
from gateway.errors import QueueFull
from gateway.upstream.choice import Shares, choose
from gateway.upstream.client import Origin, Pool
from gateway.upstream.engine import Engine
from gateway.upstream.figures import Figures
from gateway.upstream.want import ANY, Want


class Caller(NamedTuple):
    """Who asks: ``load`` of the whole capacity in each phase. ``median`` tokens of an answer, lognormal around it."""

    key: str
    load: tuple[float, ...]
    share: float = 1.0
    rank: Rank = Rank()
    prompt: int = 400
    median: int = 200
    spread: float = 1.0
    most: int = 4000


@dataclass(frozen=True, slots=True)
class Scene:
    """What is played. An engine holds ``kv_tokens`` and takes ``token_s`` for a token of each of its requests.

    ``dies``: when, and how many engines; nobody is told, the probes find out ``noticed_s`` later.
    """

    callers: Sequence[Caller]
    engines: int = 200
    kv_tokens: int = 60_000
    token_s: float = 0.02
    prefill_s: float = 0.0002
    phases: Sequence[float] = (20.0, 40.0)
    dies: tuple[float, int] | None = None
    noticed_s: float = 3.0
    policy: Policy = field(default_factory=lambda: Policy(length=1000, max_wait_s=5.0, timeout_s=20.0))
    headroom: float = 0.2
    seed: int = 1


@dataclass(slots=True)
class Asked:
    """One request and what became of it. ``wait`` -1: it was refused."""

    caller: Caller
    came: float
    prompt: int
    answer: int
    wait: float = -1.0
    served: bool = False
    reserved: int = 0


@dataclass(slots=True)
class Told:
    """What the world has seen. ``fullest``: of each second the largest part of an engine's KV cache really in use."""

    asked: list[Asked] = field(default_factory=list)
    refused: int = 0
    failed: int = 0
    fullest: dict[int, float] = field(default_factory=dict)
    reserved: dict[int, float] = field(default_factory=dict)
    depth: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Work:
    asked: Asked
    place: Place
    running: Running | None = None
    want: Want = ANY
    engine: Engine | None = None
    began: float = 0.0
    over: bool = False


class World:
    """Plays a scene."""

    def __init__(self, scene: Scene) -> None:
        self.scene, self.told = scene, Told()
        self._draw = random.Random(scene.seed)
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self.now = 0.0
        self.gate = Gate(10**9, scene.policy)
        self.estimate = Estimate()
        self._shares = Shares()
        self._at: dict[Engine, dict[int, _Work]] = {}
        self._dead: set[Engine] = set()
        for number in range(scene.engines):
            engine = Engine(f"e{number}", Pool(Origin.parse("http://127.0.0.1:9")))
            engine.probed(up=True)
            engine.told(Figures(kv_tokens=scene.kv_tokens))
            self._at[engine] = {}
        self._engines = list(self._at)

    def play(self) -> Told:
        """Play it to its end; what still waits or runs then has not been served."""
        random.seed(self.scene.seed)  # the choice draws two of many
        end = sum(self.scene.phases)
        for caller in self.scene.callers:
            self._arrivals(caller)
        self._at_time(0.0, self._sweep)
        if self.scene.dies is not None:
            self._at_time(self.scene.dies[0], self._die)
        while self._events and self._events[0][0] < end:
            self.now, _, event = heapq.heappop(self._events)
            event()
        return self.told

    # ---- callers ----

    def _at_time(self, when: float, event: Callable[[], None]) -> None:
        heapq.heappush(self._events, (when, next(self._order), event))

    def _arrivals(self, caller: Caller) -> None:
        phase = 0 if self.now < self.scene.phases[0] else 1
        load = caller.load[phase]
        if not load:
            self._at_time(self.scene.phases[0], lambda: self._arrivals(caller))
            return
        self._at_time(self.now + self._draw.expovariate(load * self._pace_of(caller)), lambda: self._come(caller))

    def _pace_of(self, caller: Caller) -> float:
        """Return the requests a second with which this caller alone would fill the fleet."""
        scene = self.scene
        tokens = scene.engines * scene.kv_tokens * (1 - scene.headroom)
        mean, reserved = _taken(caller)
        return tokens / (reserved * (mean * scene.token_s + caller.prompt * scene.prefill_s))

    def _come(self, caller: Caller) -> None:
        self._arrivals(caller)
        answer = max(1, min(caller.most, int(self._draw.lognormvariate(0, caller.spread) * caller.median)))
        asked = Asked(caller, self.now, caller.prompt, answer)
        self.told.asked.append(asked)
        tokens = self.estimate.tokens(caller.key, caller.prompt * 4, caller.most)
        try:
            place = self.gate.enter(self.now, tokens, caller.key, caller.share, caller.rank)
        except QueueFull:
            self._refuse()
            return
        work = _Work(asked, place)
        if place.inside:
            self._begin(work)
        else:
            place.tell = lambda why: self._begin(work) if why is None else self._refuse()

    def _refuse(self) -> None:
        self.told.refused += 1

    # ---- engines ----

    def _begin(self, work: _Work) -> None:
        asked, scene = work.asked, self.scene
        asked.wait, asked.reserved = self.now - asked.came, work.place.tokens
        work.want = Want(work.place.tokens)
        caller = asked.caller
        work.running = self.estimate.begin(caller.key, caller.prompt * 4, caller.most)
        engine = choose(self._engines, work.want, (), self.now, self._shares)
        if engine is None or engine in self._dead:  # connection refused: another one, once
            if engine is not None:
                engine.failed(self.now)
            engine = choose(self._engines, work.want, self._dead, self.now, self._shares)
        if engine is None:
            self._end(work, served=False)
            return
        work.engine = engine
        engine.begin(work.want)
        self._at[engine][id(work)] = work
        work.began = self.now
        stay = asked.prompt * scene.prefill_s + asked.answer * scene.token_s
        self._at_time(self.now + stay, lambda: self._end(work, served=True))

    def _end(self, work: _Work, *, served: bool) -> None:
        if work.over:
            return
        work.over = True
        asked, engine = work.asked, work.engine
        asked.served = served
        if engine is not None:
            engine.end(work.want)
            del self._at[engine][id(work)]
        taken = (asked.prompt, asked.answer) if served else (0, 0)
        self.told.failed += not served
        if work.running is not None:
            self.estimate.end(asked.caller.key, work.running, *taken)
        work.place.leave(self.now)

    def _die(self) -> None:
        assert self.scene.dies is not None
        dead = self._engines[: self.scene.dies[1]]
        self._dead.update(dead)
        for engine in dead:
            for work in list(self._at[engine].values()):
                engine.failed(self.now)
                self._end(work, served=False)
        self._at_time(self.now + self.scene.noticed_s, lambda: _probe(dead))

    def _fullness(self, engine: Engine) -> float:
        """Return which part of an engine's KV cache its requests have filled by now."""
        step = self.scene.token_s
        used = sum(
            work.asked.prompt + min(work.asked.answer, (self.now - work.began) / step)
            for work in self._at[engine].values()
        )
        return used / self.scene.kv_tokens

    def _sweep(self) -> None:
        """Do what Doors does all the time."""
        bound = capacity(self._engines, self.now, self.scene.headroom)
        self.gate.resize(self.now, 10**9, bound)
        self.gate.expire(self.now)
        second = int(self.now)
        self.told.reserved[second] = self.gate.tokens / bound if bound else 0.0
        self.told.depth[second] = self.gate.depth
        if second not in self.told.fullest:
            self.told.fullest[second] = max(map(self._fullness, self._engines))
        self._at_time(self.now + SWEEP_S, self._sweep)


def _probe(dead: Sequence[Engine]) -> None:
    for engine in dead:
        engine.probed(up=False)


@lru_cache
def _taken(caller: Caller) -> tuple[float, float]:
    """Return the tokens of a mean answer, and what is reserved for a request, by a fixed sample."""
    draw = random.Random(0)
    sample = [min(caller.most, draw.lognormvariate(0, caller.spread) * caller.median) for _ in range(4000)]
    mean = sum(sample) / len(sample)
    return mean, caller.prompt + mean + 2 * sum(abs(each - mean) for each in sample) / len(sample)
