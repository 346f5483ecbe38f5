"""A bounded memory: what was not asked for longest goes first, and nothing stays longer than its time."""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

#: What an entry takes beside its bytes: two objects, a key, a place in the dict (measured with tracemalloc).
OVERHEAD = 400


class Kept(NamedTuple):
    """What was kept, and when (in the caller's seconds)."""

    value: bytes
    since: float


class Memory:
    """At most ``limit`` bytes, overhead included, each for at most ``ttl_s``. It reads no clock of its own."""

    def __init__(self, limit: int, ttl_s: float) -> None:
        self._limit, self._ttl_s = limit, ttl_s
        self._kept: OrderedDict[bytes, Kept] = OrderedDict()
        self.size = 0

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, name: bytes, now: float) -> Kept | None:
        """Return what was kept under the name, if it is not too old."""
        kept = self._kept.get(name)
        if kept is None:
            return None
        if now - kept.since >= self._ttl_s:
            self._drop(name)
            return None
        self._kept.move_to_end(name)
        return kept

    def put(self, name: bytes, value: bytes, now: float) -> None:
        """Keep a value, in the place of the oldest unused ones; not at all if it alone is too large."""
        self._drop(name)
        if len(value) + OVERHEAD > self._limit:
            return
        self._kept[name] = Kept(value, now)
        self.size += len(value) + OVERHEAD
        while self.size > self._limit:
            self._drop(next(iter(self._kept)))

    def clear(self) -> None:
        """Forget everything."""
        self._kept.clear()
        self.size = 0

    def _drop(self, name: bytes) -> None:
        kept = self._kept.pop(name, None)
        if kept is not None:
            self.size -= len(kept.value) + OVERHEAD
