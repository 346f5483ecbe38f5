"""A caller's connection: uvicorn's, with limits on the head of a request and refusals in our shape."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from gateway.errors import TYPES, error_body

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
        super().on_headers_complete()

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
