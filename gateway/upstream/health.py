"""Asks every engine regularly whether it is well and how much it has to do, and tells of each change."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from gateway.upstream import figures, warming
from gateway.upstream.client import Broken, fetch
from gateway.upstream.engine import Engine
from gateway.upstream.models import MODELS, read_models
from gateway.upstream.stall import Stall

#: Readiness is false within 10 s of the last engine's death, also of one that hangs:
#: 1.5 + 2 + 1.5 + 2 = 7 s, and another 2 s if the probe of a neighbour hangs just then.
INTERVAL_S: Final = 1.5
PROBE_S: Final = 2.0
#: One silence may be a hiccup; two are not. A refused connection or an error is said aloud and counts at once.
SILENCES: Final = 2
SILENT: Final = "no answer in time"
STUCK: Final = "no progress"
#: Models that come and go at a running engine (LoRA adapters) are seen within so many rounds.
ROUNDS_PER_LIST: Final = 20
#: An engine without figures is asked for them again after so many rounds.
ROUNDS_WITHOUT: Final = 40
FIGURES_BYTES: Final = 8 * 2**20

Changed = Callable[[Engine, bool], None]


@dataclass(slots=True)
class Care:
    """What one engine needs, and what was seen of it."""

    warm_up: bool = True
    warm_after_idle_s: float | None = None
    stalled_after_s: float = 30.0
    told: bool | None = None
    silences: int = 0
    next_figures: int = 0  # the round in which it is asked for them
    stall: Stall = field(init=False)
    warming: asyncio.Task[None] | None = None
    turn: int = 0  # the engine's, at the last look: when it moves, the engine is in use

    def __post_init__(self) -> None:
        self.stall = Stall(self.stalled_after_s)


class Health:
    """Looks after the engines that it follows; ``changed`` hears of each when it is first known, and of each change."""

    def __init__(self, changed: Changed, *, interval_s: float = INTERVAL_S, probe_s: float = PROBE_S) -> None:
        self._changed = changed
        self._interval_s = interval_s
        self._probe_s = probe_s
        self._cares: dict[Engine, Care] = {}
        self._wake = asyncio.Event()

    def follow(self, engines: Iterable[Engine], care: Callable[[Engine], Care] = lambda _: Care(warm_up=False)) -> None:
        """Look after these engines from now on, and after no others. Needs no event loop; wakes a running one."""
        before, self._cares = self._cares, {engine: care(engine) for engine in engines}
        for engine, known in before.items():
            if (now := self._cares.get(engine)) is not None:
                now.told, now.silences, now.warming, now.turn = known.told, known.silences, known.warming, known.turn
                now.stall = known.stall if known.stalled_after_s == now.stalled_after_s else now.stall
            elif known.warming is not None:
                known.warming.cancel()
        self._wake.set()

    async def run(self) -> None:
        """Probe until cancelled."""
        try:
            for rounds in itertools.count():
                self._wake.clear()
                await asyncio.gather(*(self._look_at(*each, rounds) for each in tuple(self._cares.items())))
                self._tell()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._interval_s):
                        await self._wake.wait()
        finally:
            for care in self._cares.values():
                if care.warming is not None:
                    care.warming.cancel()

    async def _look_at(self, engine: Engine, care: Care, rounds: int) -> None:
        heard = engine.pool.heard
        trouble, _ = await asyncio.gather(self._probe(engine), self._read_figures(engine, care, rounds))
        engine.pool.heard = False  # what the probes have heard says nothing
        if trouble == SILENT:
            care.silences += 1
            if care.silences < SILENCES and engine.up is True:
                return
        else:
            care.silences = 0
        risen = engine.probed(up=not trouble, trouble=trouble)
        if risen or (not trouble and rounds % ROUNDS_PER_LIST == 0):
            await read_models(engine, self._probe_s)
        if not trouble:
            if risen:
                engine.warm = not care.warm_up
            self._look_closer(engine, care, heard=heard, risen=risen)

    async def _probe(self, engine: Engine) -> str:
        """Return what is wrong with the engine, in a word or two; nothing if it is well."""
        try:
            async with asyncio.timeout(self._probe_s):
                status = await self._status(engine, "/health")
                if 400 <= status < 500:  # not everything that speaks the protocol has this route
                    status = await self._status(engine, MODELS)
        except TimeoutError:
            return SILENT
        except Broken as fault:
            return "no connection" if fault.kind == "refused" else "no HTTP" if fault.kind == "nonsense" else fault.kind
        except (OSError, ValueError) as fault:  # a key that cannot be sent
            return type(fault).__name__
        return "" if status < 500 else f"status {status}"

    async def _status(self, engine: Engine, path: str) -> int:
        """Ask on a connection of its own, so that an engine that accepts no new ones is found out."""
        answer = await fetch(engine.pool, "GET", path, headers=engine.key_header(), timeout_s=self._probe_s, fresh=True)
        return answer.status

    async def _read_figures(self, engine: Engine, care: Care, rounds: int) -> None:
        if rounds < care.next_figures:
            return
        told = None
        with contextlib.suppress(Broken, TimeoutError, ValueError):
            answer = await fetch(
                engine.pool,
                "GET",
                "/metrics",
                headers=engine.key_header(),
                limit=FIGURES_BYTES,
                timeout_s=self._probe_s,
            )
            told = figures.read(answer.body) if answer.status == 200 else None
        engine.told(told)
        # Who has told before is asked again soon: it is when they are busy that they do not answer in time.
        without = ROUNDS_WITHOUT if engine.kv_tokens is None else 1
        care.next_figures = rounds + (without if told is None else 1)

    def _look_closer(self, engine: Engine, care: Care, *, heard: bool, risen: bool) -> None:
        """See whether it gets on with its work, and whether it has to be warmed."""
        now = asyncio.get_running_loop().time()
        told = engine.figures
        works = bool(engine.streams) if told is None else told.running > 0
        stuck = care.stall.look(
            now, works=works, heard=heard and told is None, progress=None if told is None else told.progress
        )
        if stuck and not engine.stalled:
            engine.trouble = STUCK
        engine.stalled = stuck
        if engine.in_flight or engine.turn != care.turn:
            care.turn, engine.used_at = engine.turn, now
        limit = care.warm_after_idle_s
        if risen and not care.warm_up:
            engine.joins(now)
        elif not engine.warm or (limit is not None and now - (engine.used_at or now) > limit):
            self._warm(engine, care)
        engine.used_at = engine.used_at or now

    def _warm(self, engine: Engine, care: Care) -> None:
        if care.warming is None or care.warming.done():
            care.warming = asyncio.get_running_loop().create_task(self._warmed(engine))

    async def _warmed(self, engine: Engine) -> None:
        if await warming.warm(engine):
            now = asyncio.get_running_loop().time()
            engine.used_at = now
            if not engine.warm:
                engine.joins(now)
                self._tell()
        else:
            engine.trouble = "no answer to a first request"

    def _tell(self) -> None:
        now = asyncio.get_running_loop().time()
        for engine, care in self._cares.items():
            up = engine.available(now)
            if care.told is None and not up and not engine.trouble:
                continue  # nothing is known of it yet, or it is about to be warm
            if care.told is not up:
                care.told = up
                self._changed(engine, up)
