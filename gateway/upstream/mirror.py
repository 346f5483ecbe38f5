"""Copies of requests to an engine on trial: nobody sees the answers, and nobody waits for them or fails by them."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from gateway.errors import Failure
from gateway.upstream.client import Broken, Headers
from gateway.upstream.engine import Engine
from gateway.upstream.want import Want

#: So many copies are at one mirror at a time; more are dropped. After so long one is given up.
AT_MOST: Final = 8
LONGEST_S: Final = 300.0
#: Of an answer its end is kept, where the number of tokens stands.
_END: Final = 4096
_tokens = re.compile(rb'"(?:completion|output)_tokens"\s*:\s*(\d+)').findall


class Meters(Protocol):
    """Who compares."""

    def mirrored(self, engine: str, side: str, outcome: str, seconds: float, tokens: int) -> None:
        """A ``copy`` at a mirror, or the ``original`` of one, has ended."""


class Mirrors:
    """Sends copies, and tells of each and of its original. ``draw`` returns numbers from 0 to 1."""

    def __init__(self, meters: Meters, draw: Callable[[], float] = random.random) -> None:
        self._meters = meters
        self._draw = draw
        self._tasks: set[asyncio.Task[None]] = set()

    def send(
        self, mirrors: Iterable[Engine], request_for: Callable[[Engine], tuple[bytes, bytes]], want: Want
    ) -> tuple[str, ...]:
        """Send copies to those whose turn it is, in the background; return their names."""
        sent = []
        for engine in mirrors:
            if engine.up is False or engine.draining or self._draw() >= engine.mirror:
                continue
            if engine.in_flight >= AT_MOST:
                self._meters.mirrored(engine.name, "copy", "dropped", 0.0, 0)
                continue
            try:
                head, body = request_for(engine)
            except Failure:  # it does not speak of what is asked: no fault of the caller's
                self._meters.mirrored(engine.name, "copy", "dropped", 0.0, 0)
                continue
            engine.begin(want)
            task = asyncio.get_running_loop().create_task(self._copy(engine, head, body, want))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            sent.append(engine.name)
        return tuple(sent)

    def original(self, mirrors: Iterable[str], outcome: str, seconds: float, tokens: int) -> None:
        """Tell how the request fared whose copies these mirrors got."""
        for name in mirrors:
            self._meters.mirrored(name, "original", outcome, seconds, tokens)

    def close(self) -> None:
        """Give all copies up."""
        for task in self._tasks:
            task.cancel()

    async def _copy(self, engine: Engine, head: bytes, body: bytes, want: Want) -> None:
        now = asyncio.get_running_loop().time
        began, copy, outcome = now(), _Copy(), "broken"
        connection = None
        try:
            async with asyncio.timeout(LONGEST_S):
                connection = engine.pool.idle() or await engine.pool.connect()
                connection.send(head, body, copy)
                outcome = await copy.outcome
        except Broken:
            outcome = "refused"
        except TimeoutError:
            outcome = "timed_out"
        finally:
            if connection is not None:
                connection.cancel()
            engine.end(want)
            self._meters.mirrored(engine.name, "copy", outcome, now() - began, copy.tokens)


class _Copy:
    """A sink that keeps nothing but how it went."""

    def __init__(self) -> None:
        self.outcome: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._status = 0
        self._end = b""

    @property
    def tokens(self) -> int:
        found = _tokens(self._end)
        return int(found[-1]) if found else 0

    def on_head(self, status: int, _: Headers) -> None:
        self._status = status

    def on_data(self, data: bytes) -> None:
        self._end = (self._end + data)[-_END:]

    def on_end(self) -> None:
        self._tell("ok" if self._status == 200 else f"status_{self._status // 100}xx")

    def on_failure(self, _: Broken) -> None:
        self._tell("broken")

    def _tell(self, outcome: str) -> None:
        if not self.outcome.done():
            self.outcome.set_result(outcome)
