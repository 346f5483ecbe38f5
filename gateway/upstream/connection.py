"""One HTTP/1.1 connection to an engine: httptools parses what the socket brings, and the sink has it at once.

No future, no task and no timer per chunk or per request: what is added between the parser and the sink is a few
attribute reads. The whole of the client's speed is decided in ``data_received``.
"""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Final, NoReturn, Protocol, cast

import httptools

from gateway.upstream.answer import Broken, Headers, Kind, Sink

#: Bytes and number of an answer's header fields, and bytes that may come without a byte of body among them.
HEAD_BYTES: Final = 65_536
HEAD_FIELDS: Final = 128
#: Below this one buffer (head and body copied together) costs less than two.
ONE_WRITE: Final = 32_768

_NO_PARSER: Final = httptools.HttpResponseParser(object())


class Home(Protocol):
    """Where a connection goes when its answer has ended: the pool."""

    body_bytes: int
    heard: bool

    def keep(self, wire: Wire) -> None:
        """Take back a connection that can serve again."""

    def forget(self, wire: Wire) -> None:
        """Drop a connection that is gone."""


class Connection:
    """One use of a connection: one request, one answer.

    When the answer has ended the socket goes back to its pool by itself and is let go here: from then on every call
    does nothing, so that a late ``cancel`` cannot hit the next user of the same socket.
    """

    __slots__ = ("reused", "wire")

    def __init__(self, wire: Wire, *, reused: bool) -> None:
        self.wire: Wire | None = wire
        self.reused = reused

    def send(self, head: bytes, body: bytes, sink: Sink) -> None:
        """Write one request at once (what the socket does not take is buffered) and direct its answer to ``sink``.

        Nothing is called before ``send`` has returned. Raises ``RuntimeError`` on a second request.
        """
        if self.wire is None or self.wire.sink is not None:
            raise RuntimeError("a connection sends one request")
        self.wire.send(head, body, sink, self)

    def pause(self) -> None:
        """Stop reading: the engine feels through TCP that the caller is slow. Safe in any state."""
        if self.wire is not None:
            self.wire.pause()

    def resume(self) -> None:
        """Read on. Safe in any state."""
        if self.wire is not None:
            self.wire.resume()

    def cancel(self) -> None:
        """Close the socket at once; the sink hears nothing more. Safe in any state, and nothing after the end."""
        if self.wire is not None:
            self.wire.abort()


class Wire(asyncio.Protocol):
    """A socket with its parser, and the exchange that is on it now (``sink`` is None: none)."""

    __slots__ = (
        "_bodiless",
        "_complete",
        "_fault",
        "_framed",
        "_head_due",
        "_head_only",
        "_head_size",
        "_headers",
        "_parser",
        "_parts",
        "_paused",
        "_pool",
        "_reusable",
        "_room",
        "_special",
        "_status",
        "_transport",
        "_user",
        "idle_since",
        "sink",
    )

    def __init__(self, pool: Home) -> None:
        self.sink: Sink | None = None
        self.idle_since = 0.0
        self._pool = pool
        self._transport: asyncio.Transport | None = None
        self._user: Connection | None = None
        self._parts: list[bytes] = []  # of the body, in the data now being parsed
        self._paused = False
        self._parser = httptools.HttpResponseParser(
            SimpleNamespace(
                on_message_begin=self._on_message_begin,
                on_header=self._on_header,
                on_headers_complete=self._on_headers_complete,
                on_body=self._parts.append,
                on_message_complete=self._on_message_complete,
            )
        )
        self._begin(head_only=False)

    def _begin(self, *, head_only: bool) -> None:
        self._headers: Headers = []
        self._head_size = 0
        self._head_only = head_only
        self._head_due = False
        self._framed = False  # by a length or by chunks; else the body ends with the connection
        self._status = 0
        self._complete = False
        self._reusable = False
        self._special = True  # something else than "in the middle of the body": take the long way
        self._bodiless = 0  # bytes read in a row without a byte of body among them
        self._room = self._pool.body_bytes
        self._fault: Broken | None = None

    # ---- what the user does ----

    def send(self, head: bytes, body: bytes, sink: Sink, user: Connection) -> None:
        """Begin an exchange."""
        self._begin(head_only=head.startswith(b"HEAD "))
        self.sink = sink
        self._user = user
        if self._transport is None:  # lost since it was taken
            asyncio.get_running_loop().call_soon(self._end_of_input, None)
        elif len(body) < ONE_WRITE:
            self._transport.write(head + body)
        else:
            self._transport.writelines((head, body))

    def pause(self) -> None:
        """Stop reading."""
        if not self._paused and self._transport is not None and not self._transport.is_closing():
            self._paused = True
            self._transport.pause_reading()

    def resume(self) -> None:
        """Read on."""
        if self._paused:
            self._paused = False
            if self._transport is not None and not self._transport.is_closing():
                self._transport.resume_reading()

    def abort(self) -> None:
        """Close the socket, without waiting for anything."""
        self._let_go()
        self._pool.forget(self)
        if self._transport is not None:
            self._transport.abort()

    def usable(self) -> bool:
        """Tell whether the socket is, as far as we have heard, still open."""
        return self._transport is not None and not self._transport.is_closing()

    # ---- how an exchange ends ----

    def _let_go(self) -> Sink | None:
        sink, self.sink = self.sink, None
        if self._user is not None:
            self._user.wire = None
            self._user = None
        self._special = True
        self._parts.clear()
        return sink

    def _finish(self) -> None:
        sink = self._let_go()
        transport = self._transport
        # An answer that came before the whole request was written leaves the rest of it on the wire.
        if self._reusable and transport is not None and not transport.get_write_buffer_size():
            self.resume()
            self._pool.keep(self)
        else:
            self.abort()
        if sink is not None:
            sink.on_end()

    def _fail(self, failure: Broken) -> None:
        failure.reused = self._user is not None and self._user.reused
        sink = self._let_go()
        self.abort()
        if sink is not None:
            sink.on_failure(failure)

    # ---- what the event loop calls ----

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Parse, and hand on what came of it."""
        self._pool.heard = True
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fault = self._fault or Broken("nonsense", f"not HTTP: {error}")
            self._special = True
        sink = self._open() if self._special else self.sink
        if sink is None:
            return
        parts = self._parts
        if parts:
            body = parts[0] if len(parts) == 1 else b"".join(parts)
            parts.clear()
            self._bodiless = 0
            self._room -= len(body)
            if self._room >= 0:
                sink.on_data(body)
        else:
            self._bodiless += len(data)
        if self._special or self._room < 0 or self._bodiless > HEAD_BYTES:
            self._settle()

    def _open(self) -> Sink | None:
        """Hand on the head if it is due; None when there is nobody to hand anything to."""
        if self.sink is None:  # idle, or cancelled: these bytes answer nothing that we asked
            self.abort()
        elif self._head_due:
            self._head_due = False
            self.sink.on_head(self._status, self._headers)
        return self.sink

    def _settle(self) -> None:
        """Decide what the data just handed on means for the exchange."""
        if self.sink is None:  # cancelled by the sink itself
            return
        if self._room < 0:
            self._fail(Broken("too_large", "the body is over the limit"))
        elif self._complete:
            self._reusable = self._reusable and self._fault is None
            self._finish()
        elif self._fault is not None:
            self._fail(self._fault)
        elif self._bodiless > HEAD_BYTES:
            self._fail(Broken("too_large", "too much that is not body"))
        else:
            self._special = not self._status

    def eof_received(self) -> None:
        """End the exchange at once: ``connection_lost`` waits until what we still write has been taken."""
        self._end_of_input(None)
        self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the exchange, and the circle of references through the parser."""
        self._transport = None
        self._end_of_input(exc)
        self._pool.forget(self)
        self._parser = _NO_PARSER

    def _end_of_input(self, exc: Exception | None) -> None:
        if self.sink is None:
            return
        if self._status and not self._framed and exc is None:
            self._finish()
        else:
            begun = bool(self._status or self._bodiless)
            self._fail(Broken("broke_off", "the connection ended before the answer did", answer_begun=begun))

    # ---- what the parser calls ----

    def _refuse(self, kind: Kind, reason: str) -> NoReturn:
        self._fault = Broken(kind, reason)
        raise self._fault

    def _on_message_begin(self) -> None:
        if self._complete:
            self._refuse("nonsense", "bytes after the end of the answer")

    def _on_header(self, name: bytes, value: bytes) -> None:
        self._head_size += len(name) + len(value) + 4
        if self._head_size > HEAD_BYTES or len(self._headers) == HEAD_FIELDS:
            self._refuse("too_large", "the head is over the limit")
        if self._status:  # a trailer: nobody asked for any
            return
        name = name.lower()
        if name == b"content-length":
            self._framed = True
        elif name == b"transfer-encoding":
            # Exactly this word, as llhttp reads it: anything else is a coding we did not ask for, or smuggling.
            if self._framed or value.lower() != b"chunked":
                self._refuse("nonsense", "a transfer coding other than chunked, once")
            self._framed = True
        elif name == b"content-encoding" and value.strip().lower() not in {b"identity", b""}:
            self._refuse("nonsense", "a content coding that was not asked for")
        self._headers.append((name, value.strip(b" \t")))

    def _on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if self._parser.get_http_version() not in {"1.1", "1.0"}:
            self._refuse("nonsense", "an HTTP version other than 1")
        if status < 200:
            if self._framed or status == 101:
                self._refuse("nonsense", "an interim answer with a body, or a switch of protocols")
            self._headers.clear()
            return
        self._status = status
        self._head_due = True
        self._framed = self._framed or status in {204, 304}
        if self._head_only:  # the parser cannot be told that no body follows: stop it here, for good
            self._complete = True
            self._refuse("nonsense", "an answer to HEAD ends with its head")

    def _on_message_complete(self) -> None:
        if self._status:
            self._complete = self._special = True
            self._reusable = self._parser.should_keep_alive()
