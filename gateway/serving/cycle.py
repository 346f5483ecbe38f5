"""One request and its response on a caller's connection: uvicorn's cycle, with fewer system calls and no event object.

Head and first piece of a body leave in one write; waiting is a future that exists only while somebody waits; nothing
asks the operating system which loop is running. Together that is a fifth of what a small request costs
(docs/performance.md).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Generator, MutableMapping
from math import inf
from typing import Any, Protocol

import structlog
from starlette.types import ASGIApp
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE
from uvicorn.server import ServerState

from gateway.caller import CANCELLED, Resumed
from gateway.errors import Failure

log = structlog.get_logger()

Message = MutableMapping[str, Any]
Headers = list[tuple[bytes, bytes]]
_DISCONNECT: Message = {"type": "http.disconnect"}
_BODILESS = frozenset({204, 304})
_known: tuple[Headers, bytes, bool] = ([], b"", False)


def _defaults(headers: Headers) -> tuple[Headers, bytes, bool]:
    """Return the server's own headers, as lines, and whether they close; uvicorn makes a new list each second."""
    global _known  # noqa: PLW0603 - one list at a time is in use
    if _known[0] is not headers:
        _known = headers, b"".join([b"%b: %b\r\n" % header for header in headers]), (b"connection", b"close") in headers
    return _known


class Home(Protocol):
    """What a cycle needs of its connection."""

    transport: asyncio.Transport
    flow: FlowControl
    held: int
    refusal: Failure | None
    loop: asyncio.AbstractEventLoop
    server_state: ServerState

    def linger(self) -> None:
        """Close when the caller has stopped sending its body."""

    def on_response_complete(self) -> None:
        """The response is out: the next request may come."""


class Cycle:
    """What uvicorn's protocol expects of a cycle; it is its own ``message_event``.

    For the application it is also ``scope["sluice.port"]`` (``gateway.caller.Port``): the same response, without a
    coroutine and a message for each piece.
    """

    __slots__ = (
        "_bodiless",
        "_chunked",
        "_coroutine",
        "_expected",
        "_head",
        "_home",
        "_old",
        "_running",
        "_scope",
        "_task",
        "_told",
        "_transport",
        "_waiter",
        "_wants_continue",
        "body",
        "disconnected",
        "keep_alive",
        "more_body",
        "response_complete",
        "response_started",
        "waits",
    )

    def __init__(
        self,
        scope: MutableMapping[str, Any],
        home: Home,
        *,
        wants_continue: bool,
        keep_alive: bool,
        old: bool,
    ) -> None:
        self._scope: MutableMapping[str, Any] | None = scope  # until it is handed on
        self._bodiless = scope["method"] == "HEAD"
        self._home, self._transport = home, home.transport
        self._wants_continue, self.keep_alive = wants_continue, keep_alive
        self.disconnected = self.response_started = self.response_complete = False
        self.more_body = True
        self.body = b""  # what has come and was not yet received
        self._task: asyncio.Task[None] | None = None
        self._coroutine: Coroutine[Any, Any, None] | None = None  # of an application that runs in place
        self.waits = False
        self._told = False  # the end of the body was received
        self._head = b""  # of the response, until there is a body to go with it
        self._old = old  # of HTTP/1.0, which knows no chunks
        self._chunked = False
        self._expected = 0.0  # bytes of a counted body that are still to come

    @property
    def message_event(self) -> Cycle:
        """What uvicorn's protocol sets; not an attribute, for that would be a reference cycle in every request."""
        return self

    def set(self) -> None:
        """Something has happened: a piece of the body, the caller has left, the response is complete."""
        if self.waits:
            self.waits = False
            if self._coroutine is not None:
                self._home.loop.call_soon(self._step)
            elif not self._waiter.done():
                self._waiter.set_result(None)

    def __await__(self) -> Generator[Any, None, None]:
        """Give control back to the connection: awaited by an application that runs in place."""
        yield self

    def forget(self) -> None:
        """Never begin: the caller has left before its turn came."""
        self._scope = None

    async def receive(self) -> Message:
        """Return the next piece of the body; after its end wait until the caller leaves or the response is complete.

        Raises the Failure for which the body does not come to its end.
        """
        if self._wants_continue and not self._transport.is_closing():
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self._wants_continue = False
        while not (self.disconnected or self.response_complete):
            if not self._told and (self.body or not self.more_body):
                self._told = not self.more_body
                body, self.body = self.body, b""
                return {"type": "http.request", "body": body, "more_body": self.more_body}
            home = self._home
            if home.refusal is not None and self.more_body and not self.response_started:
                raise home.refusal
            if home.flow.read_paused and home.held <= HIGH_WATER_LIMIT:  # else much waits behind this one already
                home.flow.resume_reading()
            self.waits = True
            if self._coroutine is not None:
                await self
            else:
                self._waiter: asyncio.Future[None] = home.loop.create_future()
                await self._waiter
        return _DISCONNECT

    async def send(self, message: Message) -> None:
        """Send head or body. Ends at its first step unless the caller is slow."""
        flow = self._home.flow
        if flow.write_paused and not self.disconnected:
            await flow.drain()
        if self.disconnected:
            return
        if not self.response_started:
            self._start(message["status"], message.get("headers", []))
        elif not self.response_complete:
            self._write(message.get("body", b""), more=message.get("more_body", False))

    # ---- the port ----

    def take(self) -> bytes | None:
        """Return the request's body if all of it is there and none was received yet."""
        if self.more_body or self._told or self._wants_continue:
            return None
        self._told = True
        body, self.body = self.body, b""
        return body

    def head(self, status: int, lines: bytes, length: int | None) -> None:
        """Begin the response; ``lines`` are header lines as they stand on the wire, None a length not known yet."""
        self.response_started = True
        if length is None:
            framing = self._chunks()
        else:
            self._expected = length
            framing = b"content-length: %d\r\n" % length
        _, defaults, closes = _defaults(self._home.server_state.default_headers)
        close = b""
        if closes:
            self.keep_alive = False
        elif not self.keep_alive:
            close = b"connection: close\r\n"
        self._head = b"%b%b%b%b%b\r\n" % (STATUS_LINE[status], defaults, lines, framing, close)

    def data(self, body: bytes, *, more: bool) -> bool:
        """Send a piece of the body; False, and nothing is sent, where that would have to wait."""
        if self._home.flow.write_paused:
            return self.disconnected
        if not (self.disconnected or self.response_complete):
            self._write(body, more=more)
        return True

    def drop(self) -> None:
        """Close on a caller that takes nothing any more."""
        self._transport.abort()

    # ---- the response ----

    def _chunks(self) -> bytes:
        if self._bodiless:
            return b""
        if self._old:  # the end of the connection is the end of the body
            self._expected = inf
            return b""
        self._chunked = True
        return b"transfer-encoding: chunked\r\n"

    def _start(self, status: int, headers: Headers) -> None:
        """Make the head of the response, and note how its body is framed."""
        framed = False
        _, defaults, closes = _defaults(self._home.server_state.default_headers)
        parts: list[bytes] = []
        for name, value in headers:
            parts += (name, b": ", value, b"\r\n")
            if name == b"content-length":
                self._expected, framed = int(value), True
            elif name == b"connection":
                closes = closes or value.lower() == b"close"
        lines = b"".join(parts)
        if lines.count(b"\n") != len(headers) or lines.count(b"\r") != len(headers):
            raise ValueError("a header of the response holds a line break")
        if closes:
            self.keep_alive = False
        elif not self.keep_alive:
            lines += b"connection: close\r\n"
        if not framed and status not in _BODILESS:
            lines += self._chunks()
        self.response_started = True
        self._wants_continue = False
        self._head = b"%b%b%b\r\n" % (STATUS_LINE[status], defaults, lines)

    def _write(self, body: bytes, *, more: bool) -> None:
        head, self._head = self._head, b""
        if self._chunked:
            data = b"%b%x\r\n%b\r\n" % (head, len(body), body) if body else head
            if not more:
                data += b"0\r\n\r\n"
        elif self._bodiless:
            self._expected = 0
            data = head
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
        if self._expected and self._expected != inf:
            raise ValueError("the body is shorter than its content-length")
        self.response_complete = True
        if not self.keep_alive:
            if self.more_body:
                self._home.linger()
            else:
                self._transport.close()
        self._home.on_response_complete()
        if self.waits:
            if self._coroutine is None:
                self.set()
            else:  # it waits for nothing else, and what it does now is short
                self.waits = False
                self._step()

    def start(self, app: ASGIApp, in_place: frozenset[str] = frozenset()) -> None:
        """Let the application answer: in a task, or (the paths of ``in_place``) in place.

        In place its coroutine is driven by what the connection hears, and becomes a task only if it waits for anything
        else. Of a request that is handed on nothing does: a task for it would cost as much as filtering it.
        """
        scope, self._scope = self._scope, None  # it knows us: a circle for the collector
        if scope is None or self.disconnected:
            return
        running: Any = self._home.server_state.tasks
        self._running: set[Any] = running  # one that runs in place stands for itself
        coroutine: Any = app(scope, self.receive, self.send)  # every ASGI application's call is one
        if not self.more_body and scope["path"] in in_place:
            self._running.add(self)
            self._coroutine = coroutine
            self._step()
        else:
            self._run_as_task(coroutine)

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
        self._task = self._home.loop.create_task(self._run(answering))
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
            self.waits = False
            self._running.discard(self)
            self._run_as_task(Resumed(coroutine, CANCELLED))
