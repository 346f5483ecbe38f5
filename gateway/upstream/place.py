"""An engine as it was configured, and what an operator has ordered since."""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import msgspec

from gateway.upstream.origin import Origin
from gateway.upstream.want import Preference


@dataclass(frozen=True, slots=True)
class Place:
    """One engine as configured. ``each_address``: every address of its name is an engine; None: where it is http."""

    name: str
    url: str
    served_model: str | None = None
    api_key: str | None = None
    weight: float = 1.0
    connect_s: float = 3.0
    preference: Preference | None = None
    mirror: float = 0.0
    dialect: str = "vllm"
    scheduling: str = "fcfs"
    each_address: bool | None = None
    draining: bool = False

    @property
    def identity(self) -> tuple[object, ...]:
        """What an engine cannot change without being another one."""
        return self.name, self.url, self.served_model, self.api_key, self.connect_s


class Order(msgspec.Struct, frozen=True, omit_defaults=True):
    """What an operator wants of an engine; ``configured`` is what stood in the configuration then (url, weight)."""

    configured: tuple[str, float] | None = None
    weight: float | None = None
    draining: bool = False
    removed: bool = False


class Added(msgspec.Struct, frozen=True):
    """An engine that is in no configuration: all but these is as with the first of its model's."""

    model: str
    name: str
    url: str
    weight: float


class Orders(msgspec.Struct, frozen=True):
    """All that was ordered. An order holds until the configuration says something else of its engine."""

    engines: dict[str, Order] = {}
    added: tuple[Added, ...] = ()

    def with_order(self, place: Place, **changes: object) -> Self:
        """Change the order for one engine."""
        before = self.engines.get(place.name)
        before = before if before is not None and before.configured == (place.url, place.weight) else Order()
        order = msgspec.structs.replace(before, configured=(place.url, place.weight), **changes)
        return msgspec.structs.replace(self, engines={**self.engines, place.name: order})

    def with_engine(self, added: Added) -> Self:
        """Add an engine, anew where it had been removed."""
        orders = {name: order for name, order in self.engines.items() if name != added.name}
        others = tuple(each for each in self.added if each.name != added.name)
        return msgspec.structs.replace(self, engines=orders, added=(*others, added))

    def places(self, model: str, configured: Iterable[Place]) -> list[Place]:
        """Return a model's engines as they are to be now."""
        known = list(configured)
        for each in self.added:
            if each.model == model and known and all(each.name != place.name for place in known):
                like = replace(known[0], preference=None, mirror=0.0)
                known.append(replace(like, name=each.name, url=each.url, weight=each.weight))
        return [placed for place in known if (placed := self._placed(place)) is not None]

    def _placed(self, place: Place) -> Place | None:
        order = self.engines.get(place.name)
        if order is None or order.configured != (place.url, place.weight):
            return place
        weight = place.weight if order.weight is None else order.weight
        return None if order.removed else replace(place, weight=weight, draining=order.draining)


class Book:
    """Where the orders stand: in a file that all workers read, or, without one, in memory."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._stamp = 0
        self.orders = Orders()

    def changed(self) -> bool:
        """Read what another worker has written; True where there was something new."""
        if self._file is None:
            return False
        try:
            stamp = self._file.stat().st_mtime_ns
            if stamp == self._stamp:
                return False
            self.orders = msgspec.json.decode(self._file.read_bytes(), type=Orders)
        except FileNotFoundError:
            return False
        self._stamp = stamp
        return True

    def write(self, change: Callable[[Orders], Orders]) -> None:
        """Change the orders: one worker at a time, and the others read a whole file or the old one."""
        if self._file is None:
            self.orders = change(self.orders)
            return
        with self._file.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.changed()
            self.orders = change(self.orders)
            beside = self._file.with_suffix(".new")
            beside.write_bytes(msgspec.json.encode(self.orders))
            beside.rename(self._file)
            self._stamp = self._file.stat().st_mtime_ns


def one_address(place: Place) -> bool:
    """Say whether a place is one engine, whatever its name leads to: behind TLS a name usually is a service's door."""
    return not (place.each_address if place.each_address is not None else Origin.parse(place.url).scheme == "http")
