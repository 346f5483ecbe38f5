"""A caller's connection: uvicorn's, with limits on the head of a request and refusals in our shape."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import unquote

import httptools
import msgspec
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from gateway.errors import TYPES, error_body
from gateway.serving.cycle import Cycle

#: Bytes of names and values, and of the URL; nginx and most balancers allow 32 KiB in all.
HEAD_BYTES = 64 * 1024
HEAD_FIELDS = 200
#: For a connection's first byte, and for the whole head of each request.
HEAD_S = 60.0


class Connection(HttpToolsProtocol):
    """Refuses heads that are too long or come too slowly; everything else is uvicorn's."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._read = self._head = 0
        self._idle_since = 0.0
        self._unstarted: Cycle | None = None
        self._in_place: frozenset[str] = getattr(self.app, "in_place", frozenset())
        self._head_timer: asyncio.TimerHandle | None = None
        self._refusal: tuple[int, str] = (400, "")

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # uvicorn narrows it too
        """Begin to wait for the first byte; uvicorn's own timer, which the first byte takes away."""
        super().connection_made(transport)
        self.timeout_keep_alive_task = self.loop.call_later(HEAD_S, self.timeout_keep_alive_handler)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the timer."""
        self._unwatch()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse, then see whether a head is still not whole."""
        self._read = len(data)
        super().data_received(data)
        cycle, self._unstarted = self._unstarted, None
        if cycle is not None:
            self._start_asgi_task(cycle, self.app)
        scope: Any = self.scope  # None before the first request
        if scope is not None and "method" not in scope:
            self._head_is_partial()
        elif self._head:
            self._unwatch()

    def on_headers_complete(self) -> None:
        """Refuse a head that is whole and too long, before the application hears of it."""
        fields = len(self.headers)
        if fields > HEAD_FIELDS or (self._head + self._read > HEAD_BYTES and self._size() > HEAD_BYTES):
            self._refusal = (431, "The request's URL and headers are too long.")
            raise ValueError(self._refusal[1])  # the parser stops, and uvicorn calls send_400_response
        self._begin()

    def _begin(self) -> None:
        """Do what uvicorn does when a head is complete, with a cycle of our own."""
        parser, scope = self.parser, self.scope
        version = parser.get_http_version()
        scope["method"] = parser.get_method().decode("ascii")
        if version != "1.1":
            scope["http_version"] = version
        url = httptools.parse_url(self.url)
        path = url.path.decode("ascii")
        scope["path"] = unquote(path) if "%" in path else path
        scope["raw_path"] = url.path
        scope["query_string"] = url.query or b""
        scope["sluice.drop"] = self.transport.abort  # for a caller that takes nothing any more
        before = self.cycle
        cycle = Cycle(
            scope, self.transport, self.flow, self.server_state.default_headers, self.on_response_complete, self.loop,
            wants_continue=self.expect_100_continue, keep_alive=version != "1.0" and parser.should_keep_alive(),
        )
        self.cycle = cycle  # type: ignore[assignment] # all that uvicorn's protocol asks of one
        if before is None or before.response_complete:
            self._unstarted = cycle  # until all that came has been parsed
        else:  # pipelined: its turn comes
            self.flow.pause_reading()
            self.pipeline.appendleft((cycle, self.app))  # type: ignore[arg-type] # likewise

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        cycle.start(app, self.tasks, in_place=not cycle.more_body and cycle.path in self._in_place)

    def on_response_complete(self) -> None:
        """Take the next request; the time for it is looked at by one timer a connection, not one a request."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
            return
        self._idle_since = self.loop.time()
        if self.timeout_keep_alive_task is None:
            self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)

    def _unset_keepalive_if_required(self) -> None:
        if self.transport.is_closing():
            super()._unset_keepalive_if_required()

    def timeout_keep_alive_handler(self) -> None:
        """Close if nothing has come for the whole time; else look again when that can be."""
        self.timeout_keep_alive_task = None
        cycle = self.cycle
        if cycle is None or (cycle.response_complete and self._head_timer is None):
            left = self._idle_since + self.timeout_keep_alive - self.loop.time() if cycle is not None else 0.0
            if left <= 0.001:
                super().timeout_keep_alive_handler()
            else:
                self.timeout_keep_alive_task = self.loop.call_later(left, self.timeout_keep_alive_handler)

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - uvicorn's signature
        """Answer what is no HTTP, or too much of it, in our error shape, and close."""
        cycle: Any = self.cycle  # None before the first request
        if cycle is not None and cycle.response_started and not cycle.response_complete:
            self.transport.close()  # in the middle of an answer there is no place for another
            return
        status, why = self._refusal
        code = "request_too_large" if status == 431 else "invalid_request"
        kind = TYPES.get(status, "invalid_request_error")
        body = msgspec.json.encode(error_body(why or "The request is not valid HTTP.", kind, None, code))
        head = b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(body)
        self.transport.write(STATUS_LINE[status] + head + body)
        self.transport.close()

    def _size(self) -> int:
        return len(self.url) + sum(len(name) + len(value) for name, value in self.headers)

    def _head_is_partial(self) -> None:
        self._head += self._read
        if self._head > HEAD_BYTES and self._size() > HEAD_BYTES // 2:
            self._refusal = (431, "The request's URL and headers are too long.")
            self.send_400_response("")
        elif self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_S, self.transport.close)

    def _unwatch(self) -> None:
        self._head = 0
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
