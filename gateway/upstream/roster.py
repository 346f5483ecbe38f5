"""Which engines there are: from the configuration, from what operators order, and from where names lead."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from gateway.upstream import resolve
from gateway.upstream.client import Origin, Pool
from gateway.upstream.engine import Engine
from gateway.upstream.fleet import Fleet
from gateway.upstream.health import Care
from gateway.upstream.mirror import Mirrors
from gateway.upstream.place import Added, Book, Orders, Place, one_address

#: The orders' file is looked at this often.
LOOK_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class Serving:
    """A model's engines, and how they are treated."""

    places: Sequence[Place]
    keeps_prefixes: bool = True
    slow_start_s: float = 0.0
    warm_up: bool = False
    warm_after_idle_s: float | None = None
    stalled_after_s: float = 30.0


@dataclass(slots=True)
class _Known:
    """A place's engines by address (None: wherever its name leads), and the number of each for its name."""

    engines: dict[str | None, Engine] = field(default_factory=dict)
    numbers: dict[str | None, int] = field(default_factory=dict)
    addresses: tuple[str | None, ...] = (None,)

    def keep(self, addresses: Collection[str | None]) -> None:
        """Forget the engines at all other addresses; their numbers are free."""
        self.engines = {address: engine for address, engine in self.engines.items() if address in addresses}
        self.numbers = {address: number for address, number in self.numbers.items() if address in addresses}


class Roster:
    """Makes engines and keeps them as long as they are wanted; ``changed`` is called when there are others than before.

    An engine outlives a reload that leaves its name, address, model and key alone; what else is said of it is changed
    in place. ``tell`` hears of each twice a second. ``orders``: a file shared with the other workers.
    """

    def __init__(
        self,
        changed: Callable[[], None],
        tell: Callable[[Engine], None] = lambda _: None,
        *,
        mirrors: Mirrors | None = None,
        orders: Path | None = None,
        leads_here: Callable[[str], bool] = lambda _: False,
        look_up: resolve.Resolve = resolve.addresses,
    ) -> None:
        self._changed = changed
        self._tell = tell
        self._mirrors = mirrors
        self._look_up, self._leads_here = look_up, leads_here
        self._book = Book(orders)
        self._serving: Mapping[str, Serving] = {}
        self._fleets: dict[str, Fleet] = {}
        self._known: dict[tuple[object, ...], _Known] = {}
        self._cares: dict[Engine, Serving] = {}
        self._placed: dict[Engine, Place] = {}

    # ---- what there is ----

    @property
    def engines(self) -> tuple[Engine, ...]:
        """Every engine once."""
        return tuple(self._cares)

    def care(self, engine: Engine) -> Care:
        """Say how an engine is looked after."""
        serving = self._cares[engine]
        return Care(serving.warm_up, serving.warm_after_idle_s, serving.stalled_after_s)

    def serve(self, models: Mapping[str, Serving]) -> dict[str, Fleet]:
        """Serve these models from now on; a model keeps its fleet. Does not call ``changed``. Raises ``ValueError``."""
        self._serving = dict(models)
        self._book.changed()
        self._arrange()
        return {model: self._fleets[model] for model in models}

    async def close(self) -> None:
        """Close what is open to the engines."""
        if self._mirrors is not None:
            self._mirrors.close()
        for engine in self._cares:
            await engine.pool.close()

    # ---- what moves it ----

    async def run(self) -> None:
        """Follow names and orders until cancelled."""
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            moved = False
            if loop.time() >= due or any(engine.up is False and engine.pool.address for engine in self._cares):
                moved = await self._resolve()
                due = loop.time() + resolve.EVERY_S
            if self._book.changed() or moved:
                self._arrange()
                self._changed()
            for engine in self._cares:
                self._tell(engine)
            await asyncio.sleep(LOOK_S)

    async def _resolve(self) -> bool:
        """Look all names up; what cannot be looked up stays where it was. True when one leads elsewhere."""
        moved = False
        for place in {place.identity: place for place in self._all_places()}.values():
            origin = Origin.parse(place.url)
            if one_address(place) or not resolve.is_name(origin):
                continue
            try:
                found = tuple(sorted(await self._look_up(origin.host, origin.port)))
            except (OSError, UnicodeError):
                continue
            known = self._known.get(place.identity)
            if known is not None and found and found != known.addresses:
                if known.addresses == (None,):  # the engine that was there before is the first of them
                    self._adopt(known, found[0])
                known.addresses, moved = found, True
        return moved

    @staticmethod
    def _adopt(known: _Known, address: str) -> None:
        if (engine := known.engines.pop(None, None)) is not None:
            engine.pool.address = address
            known.engines[address] = engine
            known.numbers[address] = known.numbers.pop(None)

    # ---- how it is arranged ----

    def _all_places(self) -> list[Place]:
        orders = self._book.orders
        return [place for model, each in self._serving.items() for place in orders.places(model, each.places)]

    def _arrange(self) -> None:
        """Bring engines and fleets into line with what is wanted."""
        wanted: dict[str, list[Engine]] = {}
        cares: dict[Engine, Serving] = {}
        placed: dict[Engine, Place] = {}
        for model, serving in self._serving.items():
            wanted[model] = []
            for place in self._book.orders.places(model, serving.places):
                known = self._known.setdefault(place.identity, _Known())
                known.keep(known.addresses)
                for address in known.addresses:
                    engine = self._engine(place, known, address, serving)
                    wanted[model].append(engine)
                    cares[engine], placed[engine] = serving, place
        self._cares, self._placed = cares, placed
        for model, engines in wanted.items():
            fleet = self._fleets.setdefault(model, Fleet(copies=self._mirrors))
            fleet.keeps_prefixes = self._serving[model].keeps_prefixes
            fleet.change(engines)
        self._fleets = {model: fleet for model, fleet in self._fleets.items() if model in wanted}
        self._forget()

    def _engine(self, place: Place, known: _Known, address: str | None, serving: Serving) -> Engine:
        engine = known.engines.get(address)
        if engine is None:
            taken = set(known.numbers.values())
            number = known.numbers[address] = next(each for each in range(len(taken) + 1) if each not in taken)
            pool = Pool(Origin.parse(place.url), connect_s=place.connect_s, address=address)
            engine = known.engines[address] = Engine(
                f"{place.name}/{number}" if number else place.name,
                pool,
                served_model=place.served_model,
                api_key=place.api_key,
                warm=not serving.warm_up,
            )
        engine.weight = place.weight / len(known.addresses)
        engine.preference, engine.mirror, engine.dialect = place.preference, place.mirror, place.dialect
        engine.draining, engine.slow_start_s = place.draining, serving.slow_start_s
        return engine

    def _forget(self) -> None:
        """Let go of engines that nobody wants; answers under way go on, idle connections close by themselves."""
        for identity, known in tuple(self._known.items()):
            known.keep([address for address, engine in known.engines.items() if engine in self._cares])
            if not known.engines:
                del self._known[identity]

    # ---- what operators do ----

    def order(self, name: str, **changes: object) -> None:
        """Change weight, ``draining`` or ``removed`` of a configured or added engine. Raises ``LookupError``."""
        place = self._place(name)
        self._write(lambda orders: orders.with_order(place, **changes))

    def add(self, model: str, name: str, url: str, weight: float) -> None:
        """Add an engine to a model, like its first. Raises ``LookupError`` and ``ValueError`` with one line."""
        if model not in self._serving:
            raise LookupError(f"there is no model {model!r}")
        Origin.parse(url)
        if self._leads_here(url):
            raise ValueError(f"{url} is Sluice itself")
        if any(place.name == name for place in self._all_places()) or self._configured(name) is not None:
            raise ValueError(f"there is an engine {name!r} already")
        self._write(lambda orders: orders.with_engine(Added(model, name, url, weight)))

    def _write(self, change: Callable[[Orders], Orders]) -> None:
        self._book.write(change)
        self._arrange()
        self._changed()

    def _configured(self, name: str) -> Place | None:
        places = (place for serving in self._serving.values() for place in serving.places)
        return next((place for place in places if place.name == name), None)

    def _place(self, name: str) -> Place:
        """Find what an order is about: as configured or added, not as ordered."""
        if (place := self._configured(name)) is not None:
            return place
        found = next((each for each in self._book.orders.added if each.name == name), None)
        if found is None:
            raise LookupError(f"there is no engine {name!r}")
        return Place(found.name, found.url, weight=found.weight)

    def told(self, now: float) -> list[dict[str, Any]]:
        """Describe every engine, for operators."""
        return [
            {"model": model, **described(engine, self._placed[engine], now)}
            for model, fleet in self._fleets.items()
            for engine in fleet
        ]


def described(engine: Engine, place: Place, now: float) -> dict[str, Any]:
    """Say how an engine is, for operators: where it is too."""
    figures = engine.figures
    return {
        "name": engine.name,
        "url": place.url,
        "address": engine.pool.address,
        "state": state(engine, now),
        "weight": round(engine.weight, 4),
        "mirror": engine.mirror,
        "in_flight": engine.in_flight,
        "work": engine.work,
        "running": None if figures is None else figures.running,
        "waiting": None if figures is None else figures.waiting,
        "kv_used": None if figures is None else round(figures.kv_used, 4),
        "trouble": "" if engine.available(now) else engine.trouble,
    }


def state(engine: Engine, now: float) -> str:
    """Name an engine's state in a word."""
    if engine.up is not True:
        return "down" if engine.up is False else "unknown"
    if engine.draining:
        return "draining"
    if not engine.warm:
        return "cold"
    if engine.stalled:
        return "stuck"
    if now < engine.shunned_until:
        return "failing" if engine.failures else "busy"
    return "slow start" if engine.share(now) < 1 else "up"
