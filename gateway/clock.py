"""Deadlines of many exchanges by one timer: one for each would cost a request more than all its other bookkeeping."""

from __future__ import annotations

import asyncio
from typing import Protocol

#: How late a deadline may be noticed, in seconds.
GRAIN_S = 0.02


class Watched(Protocol):
    """Something with a deadline. ``due`` is the event loop's time; it may be moved at any time."""

    due: float

    def overdue(self, now: float) -> None:
        """``due`` has passed: move it, or leave the clock."""


class Clock:
    """Looks at all that it watches every GRAIN_S seconds, while there is anything."""

    __slots__ = ("_timer", "_watched")

    def __init__(self) -> None:
        self._watched: set[Watched] = set()
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, one: Watched) -> None:
        """Look at it from now on."""
        self._watched.add(one)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(GRAIN_S, self._look)

    def forget(self, one: Watched) -> None:
        """Look at it no more."""
        self._watched.discard(one)

    def _look(self) -> None:
        self._timer = None
        if not self._watched:
            return
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(GRAIN_S, self._look)
        now = loop.time()
        for one in [one for one in self._watched if one.due <= now]:
            one.overdue(now)
