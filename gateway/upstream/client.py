"""The data path's HTTP/1.1 client: a pool of connections to one engine, and all that others need of it.

It exists because the HTTP client is the largest single cost of a gateway in Python (docs/performance.md). httptools
parses and the event loop does TLS and Unix sockets; what lies between is ``connection.py``. The answer is pushed into
a sink as it arrives. Timeouts are the caller's business, and so is the decision to send a request again:
``Broken.answer_begun`` says whether that is safe.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import time
from collections import deque
from collections.abc import Iterable
from typing import Final

from gateway.upstream.answer import Broken, Gather, Headers, Response, Sink
from gateway.upstream.connection import Connection, Home, Wire
from gateway.upstream.origin import Origin, request_head, tls_context

__all__ = [
    "Broken",
    "Connection",
    "Headers",
    "Origin",
    "Pool",
    "Response",
    "Sink",
    "fetch",
    "request_head",
    "tls_context",
    "whole",
]

#: Bytes of one answer's body unless the pool is told otherwise: no engine's answer comes near, a runaway one ends.
BODY_BYTES: Final = 256 * 2**20


class Pool:
    """The connections to one origin: idle ones, the one used last first, and new ones on demand.

    ``idle_s`` stays below the engine's keep-alive (5 s in vLLM's uvicorn), so that hardly ever a request is sent into
    a connection that is being closed. The number of connections is bounded by the requests in flight, which is the
    caller's affair. ``tls`` is used for https; by default it verifies in the ordinary way. ``address`` is where to
    connect to, where the origin's name has several; ``heard`` becomes true with every byte that comes.
    """

    def __init__(
        self,
        origin: Origin,
        *,
        idle_s: float = 4.0,
        connect_s: float = 3.0,
        tls: ssl.SSLContext | None = None,
        body_bytes: int = BODY_BYTES,
        address: str | None = None,
    ) -> None:
        self.origin = origin
        self.address = address
        self.heard = False
        self.body_bytes = body_bytes
        self._idle_s = idle_s
        self._connect_s = connect_s
        self.tls = (tls or tls_context()) if origin.scheme == "https" else None
        self._idle: deque[Wire] = deque()  # the youngest at the right end
        self._sweep: asyncio.TimerHandle | None = None
        self._closed = False

    @property
    def idle_count(self) -> int:
        """How many connections wait for use."""
        return len(self._idle)

    def idle(self) -> Connection | None:
        """Take the connection used last if it is young enough; a caller that then sends nothing must cancel it."""
        oldest = time.monotonic() - self._idle_s
        while self._idle:
            wire = self._idle.pop()
            if wire.idle_since > oldest and wire.usable():
                return Connection(wire, reused=True)
            wire.abort()
        return None

    async def connect(self, home: Home | None = None) -> Connection:
        """Open a connection; a caller that then sends nothing must cancel it. Raises ``Broken`` (refused).

        ``home`` gets it when its answer has ended; by default the pool.
        """
        wire = Wire(home or self)
        opened = False
        try:
            async with asyncio.timeout(self._connect_s):
                await self._dial(wire)
            opened = True
        except OSError as error:  # TimeoutError is one
            raise Broken("refused", _reason(error), answer_begun=False) from None
        finally:
            if not opened:
                wire.abort()
        return Connection(wire, reused=False)

    async def _dial(self, wire: Wire) -> None:
        loop, origin = asyncio.get_running_loop(), self.origin
        if origin.scheme == "unix":
            await loop.create_unix_connection(lambda: wire, origin.socket)
        else:
            name = origin.host if self.tls else None
            host = self.address or origin.host
            await loop.create_connection(lambda: wire, host, origin.port, ssl=self.tls, server_hostname=name)

    async def close(self) -> None:
        """Close what is idle now and, as their answers end, what is in use."""
        self._closed = True
        while self._idle:
            self._idle.pop().abort()
        if self._sweep is not None:
            self._sweep.cancel()

    def keep(self, wire: Wire) -> None:
        """Take back a connection whose answer has ended (called by the connection)."""
        if self._closed:
            wire.abort()
            return
        wire.idle_since = time.monotonic()
        self._idle.append(wire)
        if self._sweep is None:
            self._sweep = asyncio.get_running_loop().call_later(self._idle_s, self._close_old)

    def forget(self, wire: Wire) -> None:
        """Drop a connection that is gone (called by the connection)."""
        if wire in self._idle:
            self._idle.remove(wire)

    def _close_old(self) -> None:
        self._sweep = None
        oldest = time.monotonic() - self._idle_s
        while self._idle and self._idle[0].idle_since <= oldest:
            self._idle[0].abort()  # which forgets it
        if self._idle:
            wait = self._idle[0].idle_since - oldest
            self._sweep = asyncio.get_running_loop().call_later(wait, self._close_old)


class _Nowhere:
    """The home of a connection that serves once."""

    body_bytes = BODY_BYTES
    heard = False

    def keep(self, wire: Wire) -> None:
        wire.abort()

    def forget(self, wire: Wire) -> None:
        pass


def _reason(error: OSError) -> str:
    """Say why there is no connection, without the address that the error's own text names."""
    if isinstance(error, ssl.SSLError):
        return f"no TLS: {getattr(error, 'verify_message', None) or error.reason or type(error).__name__}"
    if isinstance(error, socket.gaierror):
        return "no connection: the host name is not known"
    return f"no connection: {os.strerror(error.errno) if error.errno else type(error).__name__}"


async def whole(pool: Pool, head: bytes, body: bytes, *, limit: int, fresh: bool = False) -> Response:
    """Send a request and wait for the whole answer, of at most ``limit`` bytes.

    Sent again only where a kept connection had gone stale; ``fresh``: on a new one. Cancelled, it closes its
    connection. Raises ``Broken``.
    """
    while True:
        connection = await pool.connect(_Nowhere()) if fresh else pool.idle() or await pool.connect()
        gather = Gather(limit, connection.cancel)
        connection.send(head, body, gather)
        try:
            return await gather.answer
        except Broken as failure:
            if failure.answer_begun or not failure.reused:
                raise
        finally:
            connection.cancel()


async def fetch(
    pool: Pool,
    method: str,
    path: str,
    body: bytes = b"",
    headers: Iterable[tuple[bytes, bytes]] = (),
    *,
    limit: int = 2**20,
    timeout_s: float = 10.0,
    fresh: bool = False,
) -> Response:
    """Ask for a small whole answer within ``timeout_s`` seconds (see ``whole``).

    Raises ``Broken``, ``TimeoutError``, and ``ValueError`` for a path or header that cannot be sent.
    """
    head = request_head(method, path, pool.origin, headers, len(body))
    async with asyncio.timeout(timeout_s):
        return await whole(pool, head, body, limit=limit, fresh=fresh)
