"""A caller's connection: uvicorn's, with limits on the head of a request and refusals in our shape."""

from __future__ import annotations

import asyncio
import functools
from typing import Any
from urllib.parse import unquote

import httptools
import msgspec
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from gateway.errors import TYPES, error_body
from gateway.serving.cycle import Cycle

#: Bytes of names and values, and of the URL; nginx and most balancers allow 32 KiB in all.
HEAD_BYTES = 64 * 1024
HEAD_FIELDS = 200
#: For a connection's first byte, and for the whole head of each request.
HEAD_S = 60.0
#: How long, and for how much, a refused body is still read and thrown away.
LINGER_S, LINGER_BYTES = 5.0, 256 << 20
_ASGI = {"version": "3.0", "spec_version": "2.3"}


@functools.cache
def _urls(paths: frozenset[str]) -> dict[bytes, str]:
    """Return the URLs that need not be taken apart."""
    return {path.encode("ascii"): path for path in paths}


class Connection(HttpToolsProtocol):
    """Refuses heads that are too long or come too slowly; everything else is uvicorn's."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._read = self._head = 0
        self._idle_since = 0.0
        self._unstarted: Cycle | None = None
        self._heading = False
        self._in_place: frozenset[str] = getattr(self.app, "in_place", frozenset())
        self._paths = _urls(self._in_place)
        self._head_timer: asyncio.TimerHandle | None = None
        self._refusal: tuple[int, str] = (400, "")
        self._lingers = 0  # bytes that are still thrown away

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # uvicorn narrows it too
        """Begin to wait for the first byte; uvicorn's own timer, which the first byte takes away."""
        super().connection_made(transport)
        self.timeout_keep_alive_task = self.loop.call_later(HEAD_S, self.timeout_keep_alive_handler)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the timer, and the last cycle: it knows us, and would wait for the collector."""
        self._unwatch()
        super().connection_lost(exc)
        self.cycle = None  # type: ignore[assignment] # as before the first request

    def data_received(self, data: bytes) -> None:
        """Parse, then see whether a head is still not whole."""
        self._read = len(data)
        if self._lingers:
            self._lingers -= self._read
            if self._lingers <= 0:
                self.transport.close()
            return
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError:
            self.send_400_response("")
        except httptools.HttpParserUpgrade:
            pass  # what it would like to speak instead we do not; the request itself is answered
        cycle = self._unstarted
        if cycle is not None:
            self._unstarted = None
            if not self._lingers:
                cycle.start(self.app, self._in_place)
        if self._heading:
            self._head_is_partial()
        elif self._head:
            self._unwatch()

    # ---- what the parser calls ----

    def on_message_begin(self) -> None:
        """Begin a head."""
        self.url = b""
        self.headers = []
        self.expect_100_continue = False
        self._heading = True

    def on_headers_complete(self) -> None:
        """Make the request's cycle; refuse a head that is whole and too long, before the application hears of it."""
        fields = len(self.headers)
        if fields > HEAD_FIELDS or (self._head + self._read > HEAD_BYTES and self._size() > HEAD_BYTES):
            self._refusal = (431, "The request's URL and headers are too long.")
            raise ValueError(self._refusal[1])  # the parser stops, and we answer
        self._heading = False
        parser = self.parser
        version = parser.get_http_version()
        scope = self._scope(version)
        cycle = Cycle(
            scope,
            self,
            wants_continue=self.expect_100_continue,
            keep_alive=version != "1.0" and parser.should_keep_alive(),
        )
        scope["sluice.port"] = cycle
        before: Any = self.cycle  # None before the first request
        self.cycle = cycle  # type: ignore[assignment] # all that uvicorn's protocol asks of one
        if before is None or before.response_complete:
            self._unstarted = cycle  # until all that came has been parsed
        else:  # pipelined: its turn comes
            self.flow.pause_reading()
            self.pipeline.appendleft((cycle, self.app))  # type: ignore[arg-type] # likewise

    def _scope(self, version: str) -> dict[str, Any]:
        """Return the request's ASGI scope."""
        url = self.url
        path = self._paths.get(url)
        query: bytes | None = None
        if path is None:
            parsed: Any = httptools.parse_url(url)
            url, query = parsed.path, parsed.query
            path = url.decode("ascii")
            if "%" in path:
                path = unquote(path)
        return {
            "type": "http",
            "asgi": _ASGI,
            "http_version": version,
            "method": self.parser.get_method().decode("ascii"),
            "scheme": self.scheme,
            "path": path,
            "raw_path": url,
            "query_string": query or b"",
            "root_path": self.root_path,
            "headers": self.headers,
            "client": self.client,
            "server": self.server,
        }

    def on_body(self, body: bytes) -> None:
        """Keep a piece of the body until it is asked for."""
        cycle: Any = self.cycle
        if not cycle.response_complete:
            cycle.body += body
            if len(cycle.body) > HIGH_WATER_LIMIT:
                self.flow.pause_reading()
            cycle.set()

    def on_message_complete(self) -> None:
        """Note the end of the body."""
        cycle: Any = self.cycle
        if not cycle.response_complete:
            cycle.more_body = False
            cycle.set()

    # ---- between requests ----

    def linger(self) -> None:
        """Close when the caller has stopped sending: closing at once resets the connection, and the answer is lost.

        A proxy that hands a body on while it comes would make a 502 of our 413. RFC 9112, section 9.6.
        """
        self._lingers = LINGER_BYTES
        self._unwatch()
        self._head_timer = self.loop.call_later(LINGER_S, self.transport.close)
        if self.transport.can_write_eof():
            self.transport.write_eof()

    def on_response_complete(self) -> None:
        """Take the next request; the time for it is looked at by one timer a connection, not one a request."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self._lingers:
            return
        if self.pipeline:
            cycle: Any = self.pipeline.pop()[0]
            self.loop.call_soon(cycle.start, self.app, self._in_place)  # not from here: there may be thousands
            return
        self._idle_since = self.loop.time()
        if self.timeout_keep_alive_task is None:
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def _unset_keepalive_if_required(self) -> None:
        if self.transport.is_closing():
            super()._unset_keepalive_if_required()

    def timeout_keep_alive_handler(self) -> None:
        """Close if nothing has come for the whole time; else look again when that can be."""
        self.timeout_keep_alive_task = None
        cycle: Any = self.cycle  # None before the first request
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
