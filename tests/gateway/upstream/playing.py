"""What the client's tests play with: a sink that writes down, a transport without a socket, a server of raw bytes."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable
from typing import Any, cast

from gateway.upstream.client import Broken, Connection, Headers, Origin, Pool, request_head
from gateway.upstream.connection import Wire

CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
UNTIL_CLOSE = b"HTTP/1.1 200 OK\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


class Seen:
    """A sink that writes down what it is told."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: Headers = []
        self.pieces: list[bytes] = []
        self.endings: list[Broken | None] = []  # None: the answer ended well
        self.calls = 0
        self.ended = asyncio.Event()

    @property
    def body(self) -> bytes:
        return b"".join(self.pieces)

    @property
    def failure(self) -> Broken:
        assert len(self.endings) == 1, self.endings
        assert self.endings[0] is not None
        return self.endings[0]

    @property
    def whole(self) -> bool:
        return self.endings == [None]

    def _called(self) -> None:
        assert not self.endings, "called after the end"
        self.calls += 1

    def on_head(self, status: int, headers: Headers) -> None:
        self._called()
        assert not self.status
        self.status, self.headers = status, headers

    def on_data(self, data: bytes) -> None:
        self._called()
        assert self.status
        assert data
        self.pieces.append(data)

    def on_end(self) -> None:
        self._called()
        assert self.status
        self.endings.append(None)
        self.ended.set()

    def on_failure(self, failure: Broken) -> None:
        self._called()
        self.endings.append(failure)
        self.ended.set()


class Line:
    """A transport without a socket: it writes down what is written, and pretends to be slow if told so."""

    def __init__(self) -> None:
        self.written = b""
        self.unsent = 0
        self.closing = False
        self.reading = True

    def write(self, data: bytes) -> None:
        self.written += data

    def writelines(self, parts: tuple[bytes, ...]) -> None:
        self.written += b"".join(parts)

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def is_closing(self) -> bool:
        return self.closing

    def abort(self) -> None:
        self.closing = True

    def pause_reading(self) -> None:
        assert not self.closing
        assert self.reading
        self.reading = False

    def resume_reading(self) -> None:
        assert not self.closing
        assert not self.reading
        self.reading = True


class Shelf:
    """A pool that only writes down what it is given back."""

    def __init__(self, body_bytes: int = 2**28) -> None:
        self.body_bytes = body_bytes
        self.heard = False
        self.kept: list[Wire] = []
        self.gone: list[Wire] = []

    def keep(self, wire: Wire) -> None:
        self.kept.append(wire)

    def forget(self, wire: Wire) -> None:
        self.gone.append(wire)


class Bench:
    """A connection on a ``Line``, with one request sent and nothing answered yet."""

    def __init__(self, method: str = "POST", *, body_bytes: int = 2**28, sink: Seen | None = None) -> None:
        self.shelf = Shelf(body_bytes)
        self.line = Line()
        self.wire = Wire(self.shelf)
        self.wire.connection_made(cast("asyncio.Transport", self.line))
        self.sink, self.connection = self.ask(method, sink)

    def ask(self, method: str = "POST", sink: Seen | None = None) -> tuple[Seen, Connection]:
        """Send a request, as the first or the next user of the connection."""
        sink = sink or Seen()
        connection = Connection(self.wire, reused=hasattr(self, "sink"))
        connection.send(f"{method} / HTTP/1.1\r\n\r\n".encode(), b"", sink)
        return sink, connection

    def hear(self, *pieces: bytes, eof: bool = False) -> Seen:
        """Let the server's bytes come in, and its end."""
        for piece in pieces:
            if piece and not self.line.closing:
                self.wire.data_received(piece)
        if eof and not self.line.closing:
            self.wire.eof_received()
        return self.sink

    @property
    def reusable(self) -> bool:
        assert self.line.closing == (not self.shelf.kept)
        return not self.line.closing


class Caller:
    """The server's side of one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
        self.reader = reader
        self.writer = writer
        self.number = number

    async def request(self) -> tuple[bytes, bytes]:
        """Read one request: head and body. Raises ``IncompleteReadError`` when the caller has left."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head)
        return head, await self.reader.readexactly(int(length[1])) if length else b""

    async def say(self, *pieces: bytes) -> None:
        """Write each piece by itself."""
        for piece in pieces:
            self.writer.write(piece)
            await self.writer.drain()

    def reset(self) -> None:
        """End the connection with a TCP reset."""
        sock: Any = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    async def left(self) -> None:
        """Wait until the caller has closed."""
        with contextlib.suppress(ConnectionError):
            while await self.reader.read(65536):
                pass


Play = Callable[[Caller], Awaitable[None]]


class Server:
    """Plays one function for every connection; closes each when its function returns."""

    def __init__(self, play: Play) -> None:
        self.play = play
        self.opened = 0
        self.open = 0
        self.requests: list[bytes] = []
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def tcp(self, tls: ssl.SSLContext | None = None) -> Origin:
        """Listen on a free port of loopback."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, ssl=tls)
        port = self._server.sockets[0].getsockname()[1]
        return Origin.parse(f"http{'s' if tls else ''}://{'localhost' if tls else '127.0.0.1'}:{port}")

    async def unix(self, path: str) -> Origin:
        """Listen on a Unix socket."""
        self._server = await asyncio.start_unix_server(self._accept, path)
        return Origin.parse(f"unix:{path}")

    async def close(self) -> None:
        """Stop listening and end every connection."""
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = cast("asyncio.Task[None]", asyncio.current_task())
        self._tasks.add(task)
        self.opened += 1
        self.open += 1
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                await self.play(Caller(reader, writer, self.opened))
        except asyncio.CancelledError:
            writer.transport.abort()
        finally:
            self.open -= 1
            self._tasks.discard(task)
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()


async def always_ok(caller: Caller) -> None:
    """Answer every request with ``OK``."""
    while True:
        await caller.request()
        await caller.say(OK)


Serve = Callable[[Play], Server]


async def ask(pool: Pool, sink: Seen, body: bytes = b"{}") -> Connection:
    """Send one request as the relay does: an idle connection, else a new one."""
    connection = pool.idle() or await pool.connect()
    connection.send(request_head("POST", "/", pool.origin, (), len(body)), body, sink)
    return connection


async def settle() -> None:
    """Let both ends of a loopback connection hear of what has been done."""
    for _ in range(5):
        await asyncio.sleep(0.002)


async def until(true: Callable[[], bool], within: float = 5) -> None:
    """Wait for something to become true."""
    async with asyncio.timeout(within):
        while not true():
            await asyncio.sleep(0.002)
