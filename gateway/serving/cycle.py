"""One request and its response on a caller's connection: uvicorn's cycle, with fewer system calls and no event object.

Head and first piece of a body leave in one write; waiting is a future that exists only while somebody waits; nothing
asks the operating system which loop is running. Together that is a fifth of what a small request costs
(docs/performance.md).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator, MutableMapping
from typing import Any

import structlog
from starlette.types import ASGIApp
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from gateway.caller import CANCELLED, Resumed

log = structlog.get_logger()

Message = MutableMapping[str, Any]
Headers = list[tuple[bytes, bytes]]
_DISCONNECT: Message = {"type": "http.disconnect"}
_BODILESS = frozenset({204, 304})


class Cycle:
    """What uvicorn's protocol expects of a cycle; it is its own ``message_event``."""

    __slots__ = ("_chunked", "_coroutine", "_default_headers", "_expected", "_flow", "_head", "_loop", "_on_response",
                 "_running", "_scope", "_task", "_told", "_transport", "_waiter", "_waits", "_wants_continue", "body",
                 "disconnected", "keep_alive", "more_body", "response_complete", "response_started")

    def __init__(
        self, scope: MutableMapping[str, Any], transport: asyncio.Transport, flow: FlowControl, default_headers: Headers,
        on_response: Callable[[], None], loop: asyncio.AbstractEventLoop, *, wants_continue: bool, keep_alive: bool,
    ) -> None:
        self._scope, self._transport, self._flow, self._default_headers = scope, transport, flow, default_headers
        self._on_response, self._loop, self._wants_continue = on_response, loop, wants_continue
        self.keep_alive = keep_alive
        self.disconnected = self.response_started = self.response_complete = False
        self.more_body = True
        self.body = b""  # what has come and was not yet received
        self._task: asyncio.Task[None] | None = None
        self._coroutine: Coroutine[Any, Any, None] | None = None  # of an application that runs in place
        self._running: set[Any] = set()
        self._waits = False
        self._told = False  # the end of the body was received
        self._head = b""  # of the response, until there is a body to go with it
        self._chunked = False
        self._expected = 0  # bytes of a counted body that are still to come
        self._waiter: asyncio.Future[None] | None = None

    @property
    def message_event(self) -> Cycle:
        """What uvicorn's protocol sets; not an attribute, for that would be a reference cycle in every request."""
        return self

    @property
    def path(self) -> str:
        """What is asked for."""
        path: str = self._scope["path"]
        return path

    def set(self) -> None:
        """Something has happened: a piece of the body, the caller has left, the response is complete."""
        if self._waits:
            self._waits = False
            if self._coroutine is not None:
                self._loop.call_soon(self._step)
            elif self._waiter is not None and not self._waiter.done():
                self._waiter.set_result(None)

    async def receive(self) -> Message:
        """Return the next piece of the body; after its end wait until the caller leaves or the response is complete."""
        if self._wants_continue and not self._transport.is_closing():
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self._wants_continue = False
        while not (self.disconnected or self.response_complete):
            if not self._told and (self.body or not self.more_body):
                self._told = not self.more_body
                body, self.body = self.body, b""
                return {"type": "http.request", "body": body, "more_body": self.more_body}
            self._flow.resume_reading()
            self._waits = True
            if self._coroutine is not None:
                await _Wait(self)
            else:
                self._waiter = self._loop.create_future()
                await self._waiter
        return _DISCONNECT

    async def send(self, message: Message) -> None:
        """Send head or body. Ends at its first step unless the caller is slow."""
        if self._flow.write_paused and not self.disconnected:
            await self._flow.drain()
        if self.disconnected:
            return
        if not self.response_started:
            self.response_started = True
            self._wants_continue = False
            self._head = self._start(message["status"], message.get("headers", []))
        elif not self.response_complete:
            self._write(message.get("body", b""), more=message.get("more_body", False))

    def _start(self, status: int, headers: Headers) -> bytes:
        """Return the head of the response, and note how its body is framed."""
        framed = closes = False
        headers = self._default_headers + headers
        parts = [STATUS_LINE[status]]
        for name, value in headers:
            parts += (name, b": ", value, b"\r\n")
            if name == b"content-length":
                self._expected, framed = int(value), True
            elif name == b"connection":
                closes = value.lower() == b"close"
        lines = len(headers) + 2
        if closes:
            self.keep_alive = False
        elif not self.keep_alive:
            parts.append(b"connection: close\r\n")
            lines += 1
        if not framed and status not in _BODILESS and self._scope["method"] != "HEAD":
            self._chunked = True
            parts.append(b"transfer-encoding: chunked\r\n")
            lines += 1
        parts.append(b"\r\n")
        head = b"".join(parts)
        if head.count(b"\n") != lines or head.count(b"\r") != lines:
            raise ValueError("a header of the response holds a line break")
        return head

    def _write(self, body: bytes, *, more: bool) -> None:
        head, self._head = self._head, b""
        if self._scope["method"] == "HEAD":
            self._expected = 0
            data = head
        elif self._chunked:
            data = b"%b%x\r\n%b\r\n" % (head, len(body), body) if body else head
            if not more:
                data += b"0\r\n\r\n"
        else:
            self._expected -= len(body)
            if self._expected < 0:
                raise ValueError("the body is longer than its content-length")
            data = head + body if head else body
        if data:
            self._transport.write(data)
        if not more:
            self._complete()

    def _complete(self) -> None:
        if self._expected:
            raise ValueError("the body is shorter than its content-length")
        self.response_complete = True
        self.set()
        if not self.keep_alive:
            self._transport.close()
        self._on_response()

    def start(self, app: ASGIApp, running: set[Any], *, in_place: bool) -> None:
        """Let the application answer: in a task, or ``in_place``.

        In place its coroutine is driven by what the connection hears, and becomes a task only if it waits for anything
        else. Of a request that is handed on nothing does: a task for it would cost as much as filtering it.
        """
        self._running = running
        if in_place:
            running.add(self)
            self._coroutine = app(self._scope, self.receive, self.send)
            self._step()
        else:
            self._run_as_task(app(self._scope, self.receive, self.send))

    def _step(self) -> None:
        coroutine: Any = self._coroutine
        try:
            waits_for = coroutine.send(None)
        except StopIteration:
            self._ended()
        except Exception as fault:  # noqa: BLE001 - an application may raise anything
            self._ended(fault)
        else:
            if waits_for is not self:
                self._coroutine = None
                self._running.discard(self)
                self._run_as_task(Resumed(coroutine, waits_for))

    def _run_as_task(self, answering: Awaitable[None]) -> None:
        self._task = self._loop.create_task(self._run(answering))
        self._running.add(self._task)

    async def _run(self, answering: Awaitable[None]) -> None:
        fault = None
        try:
            await answering
        except Exception as raised:  # noqa: BLE001 - an application may raise anything
            fault = raised
        finally:
            self._ended(fault)

    def _ended(self, fault: Exception | None = None) -> None:
        """What the application has left undone closes the connection."""
        self._coroutine = None
        self._running.discard(self if self._task is None else self._task)
        if fault is not None:
            log.error("application_broke", exc_info=fault)
        if not self.response_complete and not self.disconnected:
            self._transport.close()

    def cancel(self, msg: object = None) -> None:
        """Do as a task's cancel does: the server ends what is left when the drain is over."""
        del msg
        coroutine = self._coroutine
        if coroutine is not None:
            self._coroutine = None
            self._running.discard(self)
            self._run_as_task(Resumed(coroutine, CANCELLED))


class _Wait:
    """Awaited by an application that runs in place: gives control back to the connection."""

    __slots__ = ("_cycle",)

    def __init__(self, cycle: Cycle) -> None:
        self._cycle = cycle

    def __await__(self) -> Generator[Any, None, None]:
        yield self._cycle
