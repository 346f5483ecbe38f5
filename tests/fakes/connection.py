"""One connection to the fake engine: a parser in front, one playing task behind."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import struct
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import httptools

from tests.fakes.default import GENERATION
from tests.fakes.forms import error
from tests.fakes.script import CLOSE, RESET, SILENCE, Action, Gate, Reply, Script, answers

if TYPE_CHECKING:
    from tests.fakes.vllm import FakeVLLM


@dataclass(eq=False, slots=True)
class Received:
    """One request as it arrived, and what became of its connection. Times are ``time.monotonic()`` seconds."""

    number: int
    connection: int
    method: str
    target: str
    headers: list[tuple[str, str]]
    head: bytes
    at: float
    raw: bytes = b""
    body: Any = None
    done: threading.Event = field(default_factory=threading.Event)  # the answer was written, or the caller left
    left: threading.Event = field(default_factory=threading.Event)  # the caller closed before the answer was written
    left_at: float | None = None
    written: int = 0  # actions played

    @property
    def route(self) -> str:
        """The path without its query."""
        return self.target.partition("?")[0]

    def header(self, name: str) -> str | None:
        """Return the first header of this name."""
        return next((value for key, value in self.headers if key == name), None)

    def seconds_until_left(self, since: float, within: float) -> float:
        """Wait for the caller to leave; return how long that took, counted from ``since``."""
        assert self.left.wait(within), f"the connection was still open {within} s later"
        assert self.left_at is not None
        return self.left_at - since


class Connection(asyncio.Protocol):
    """One keep-alive connection: a parser in front, one playing task behind."""

    def __init__(self, fake: FakeVLLM) -> None:
        self.fake = fake
        self.loop = asyncio.get_running_loop()
        self.number = next(fake.accepted)
        self.parser = httptools.HttpRequestParser(self)
        self.task: asyncio.Task[None] | None = None
        self.idle: asyncio.TimerHandle | None = None
        self.drained = asyncio.Event()
        self.drained.set()
        self.received: Received | None = None
        self.head = b""
        self._start()

    def _start(self) -> None:
        self.url, self.headers, self.pieces = b"", list[tuple[str, str]](), list[bytes]()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.fake.connections.add(self)
        self._wait_idle()

    def connection_lost(self, exc: Exception | None) -> None:
        self.fake.connections.discard(self)
        if self.idle:
            self.idle.cancel()
        if self.received is not None and not self.received.done.is_set():
            self.received.left_at = time.monotonic()
            self.received.left.set()
            self.received.done.set()
        if self.task:
            self.task.cancel()

    def pause_writing(self) -> None:
        self.drained.clear()

    def resume_writing(self) -> None:
        self.drained.set()

    def data_received(self, data: bytes) -> None:
        if self.idle:
            self.idle.cancel()
        self.head += data if len(self.head) < 65536 else b""
        if self.fake.read_pause_s:
            self.transport.pause_reading()
            self.loop.call_later(self.fake.read_pause_s, self._resume_reading)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError:
            self.transport.write(b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
            self.transport.close()

    def _resume_reading(self) -> None:
        if not self.transport.is_closing():
            self.transport.resume_reading()

    # -- the parser's callbacks ------------------------------------------------------------------------------------

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.decode("latin-1").lower(), value.decode("latin-1")))

    def on_body(self, piece: bytes) -> None:
        self.pieces.append(piece)

    def on_headers_complete(self) -> None:
        method, target = self.parser.get_method().decode(), self.url.decode("latin-1")
        self.received = Received(
            self.fake.next_number(), self.number, method, target, self.headers, self.head.partition(b"\r\n\r\n")[0],
            time.monotonic(),
        )  # fmt: skip
        script = self.fake.early_script(self.received.route)
        if script is not None:
            self.fake.arrived(self.received)
            self.task = self.loop.create_task(self._play(self.received, script))

    def on_message_complete(self) -> None:
        received = self.received
        assert received is not None
        received.raw = b"".join(self.pieces)
        with contextlib.suppress(ValueError):
            received.body = json.loads(received.raw) if received.raw else None
        self.head = b""
        self._start()
        if self.task is None:
            self.fake.arrived(received)
            self.task = self.loop.create_task(self._play(received, self.fake.script_for(received)))

    # -- playing ---------------------------------------------------------------------------------------------------

    async def _play(self, received: Received, script: Script) -> None:
        generation = received.route in GENERATION
        self.fake.running += generation
        try:
            if received.method == "POST" and received.route in GENERATION and received.raw and received.body is None:
                script = answers(error(400, "1 validation error", "Bad Request", "body"), 400)
            await self._perform(received, script(received))
        finally:
            self.fake.running -= generation
        received.done.set()
        self.task = None
        self._wait_idle()

    async def _perform(self, received: Received, reply: Reply) -> None:
        await asyncio.sleep(reply.before_head_s)
        head = _head(reply)
        if reply.framing == "chunked":
            await self._write(head, reply.write_size)
            head = b""
        for action in reply.actions:
            if isinstance(action, bytes):
                piece = b"%x\r\n%b\r\n" % (len(action), action) if reply.framing == "chunked" and action else action
                await self._write(head + piece, reply.write_size)
                head = b""
            else:
                await self._act(action)
            received.written += 1
        if reply.framing == "chunked":
            await self._write(b"0\r\n\r\n", reply.write_size)
        elif head:
            await self._write(head, reply.write_size)

    async def _act(self, action: Action) -> None:
        if action is RESET:
            self.reset()
        elif action is CLOSE:
            self._end(received_done=True)
            self.transport.close()
        if action in {RESET, CLOSE, SILENCE}:
            await asyncio.Event().wait()  # until the connection is lost, which cancels this task
        elif isinstance(action, Gate):
            while not action.is_set():
                await asyncio.sleep(0.002)
        else:
            assert isinstance(action, float | int)
            await asyncio.sleep(action)

    async def _write(self, data: bytes, size: int | None) -> None:
        for piece in _cut(data, size):
            await self.drained.wait()
            self.transport.write(piece)
            await asyncio.sleep(0)

    def reset(self) -> None:
        """Send RST."""
        self._end(received_done=True)
        raw: socket.socket = self.transport.get_extra_info("socket")
        with contextlib.suppress(OSError):  # it may be closed by now
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()

    def _end(self, *, received_done: bool) -> None:
        if self.received is not None and received_done:
            self.received.done.set()

    def _wait_idle(self) -> None:
        if not self.transport.is_closing():
            self.idle = self.loop.call_later(self.fake.keep_alive_s, self.transport.close)


def _cut(data: bytes, size: int | None) -> Iterator[bytes]:
    if not data:
        return
    for start in range(0, len(data), size or len(data)):
        yield data[start : start + (size or len(data))]


def _head(reply: Reply) -> bytes:
    if reply.framing == "raw":
        return b""
    lines = [f"HTTP/1.1 {reply.status} {HTTPStatus(reply.status).phrase}", "server: uvicorn"]
    if reply.framing == "counted":
        lines.append(f"content-length: {sum(len(action) for action in reply.actions if isinstance(action, bytes))}")
    lines += [f"{name}: {value}" for name, value in reply.headers]
    lines += ["transfer-encoding: chunked"] * (reply.framing == "chunked")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
