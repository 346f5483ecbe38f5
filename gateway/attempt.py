"""One request at its engines: the best first, the next while none has begun to answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Protocol

from gateway.errors import NoEngineAvailable
from gateway.upstream.client import Broken, Connection, Sink
from gateway.upstream.engine import Engine
from gateway.upstream.fleet import Fleet
from gateway.upstream.want import Want

#: After [DONE] an engine has this long to end its body, so that its connection can be used again.
LINGER_S = 1.0


class Asking(Sink, Protocol):
    """Who asks, and takes the answer."""

    def request_for(self, engine: Engine) -> tuple[bytes, bytes]:
        """Write head and body of what one engine gets."""

    def sent(self, engine: Engine) -> None:
        """The request is on its way to this engine."""


class Attempt:
    """Holds the engine at work for a request and the connection to it, and gives both back."""

    __slots__ = (
        *("_again", "_asking", "_busy", "_connection", "_copied", "_engines", "_loop", "_sent_at", "_tried", "_want"),
        "engine",
    )

    def __init__(self, engines: Fleet, asking: Asking, loop: asyncio.AbstractEventLoop, want: Want) -> None:
        self._engines, self._asking, self._loop, self._want = engines, asking, loop, want
        self._tried: frozenset[Engine] = frozenset()
        self._again: bool | None = None  # an engine has had the request; None: nobody was asked yet
        self._busy = False  # the last one had no room
        self._copied: tuple[str, ...] = ()  # the mirrors that have the request too
        self._sent_at = 0.0
        self._connection: Connection | None = None
        self.engine: Engine | None = None  # at work, and counted as such

    def ask(self) -> Awaitable[None] | None:
        """Send the request to the best engine not yet tried; something to await only where one has to be connected to.

        Raises NoEngineAvailable.
        """
        now, engines = self._loop.time(), self._engines
        if self._again is None:
            self._again = False
            engines.budget.asked(now)
        engine = engines.choose(self._tried, now, self._want)
        if engine is None or (self._again and not engines.again(engine, now, busy=self._busy)):
            raise NoEngineAvailable("No engine can take the request now; try again soon.", retry_after=2)
        if engines.mirrors and not self._tried and not self._copied:
            self._copied = engines.copy(self._asking.request_for, self._want)
            self._sent_at = now
        self.engine = engine
        engine.begin(self._want)  # from now on others see that it is about to get it
        head, body = self._asking.request_for(engine)
        connection = engine.pool.idle()
        if connection is None:
            return self._connect(engine, head, body)
        self._send(engine, connection, head, body)
        return None

    async def _connect(self, engine: Engine, head: bytes, body: bytes) -> None:
        try:
            connection = await engine.pool.connect()
        except Broken:
            engine.failed(self._loop.time())
            self._tried |= {engine}
            self.end()
            waiting = self.ask()
            if waiting is not None:
                await waiting
            return
        self._send(engine, connection, head, body)

    def _send(self, engine: Engine, connection: Connection, head: bytes, body: bytes) -> None:
        self._connection = connection
        connection.send(head, body, self._asking)
        self._asking.sent(engine)

    # ---- how it goes ----

    def answered(self) -> None:
        """The engine has begun to answer."""
        if self.engine is not None:
            self.engine.answered()

    def failed(self) -> None:
        """What went wrong is the engine's fault."""
        if self.engine is not None:
            self.engine.failed(self._loop.time())

    def busy(self) -> None:
        """The engine has no room: another is to be asked."""
        self._again = self._busy = True
        if self.engine is not None:
            self.engine.busy(self._loop.time())
            self._tried |= {self.engine}

    def broke_off(self, broken: Broken) -> None:
        """Not a byte of an answer came; a kept connection that the engine had closed says nothing about the engine."""
        self._connection = None
        if not broken.reused and self.engine is not None:
            self.engine.failed(self._loop.time())
            self._tried |= {self.engine}
            self._again, self._busy = True, False

    def pause(self) -> None:
        """Stop reading the answer."""
        if self._connection is not None:
            self._connection.pause()

    def resume(self) -> None:
        """Read on."""
        if self._connection is not None:
            self._connection.resume()

    # ---- how it ends ----

    def linger(self) -> None:
        """The answer is complete: the engine may end its body, so that its connection can be used again."""
        connection, self._connection = self._connection, None
        if connection is not None and connection.wire is not None:
            self._loop.call_later(LINGER_S, connection.cancel)

    def stop(self) -> None:
        """Stop the engine, if it is still at work for us."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.cancel()

    def over(self, outcome: str, tokens: int) -> None:
        """The exchange is over: its copies are compared with it."""
        if self._copied:
            self._engines.compare(self._copied, outcome, self._loop.time() - self._sent_at, tokens)

    def end(self) -> None:
        """The engine is done with us, however it went."""
        self.stop()
        engine, self.engine = self.engine, None
        if engine is not None:
            engine.end(self._want)
