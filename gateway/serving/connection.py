"""A caller's connection: uvicorn's, with limits on what a request may be and take, and refusals in our shape.

Two cycles matter: ``cycle`` is the request that is answered now, as in uvicorn until another comes behind it;
``_reading`` the one whose head or body came last. Those in between wait in ``_behind``.
"""

from __future__ import annotations

import asyncio
import functools
from collections import deque
from typing import Any, cast
from urllib.parse import unquote

import httptools
import msgspec
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from gateway.errors import Failure, InvalidRequest, RequestTimeout, RequestTooLarge
from gateway.serving.cycle import Cycle

#: Bytes of names and values, and of the URL; nginx and most balancers allow 32 KiB in all.
HEAD_BYTES = 64 * 1024
HEAD_FIELDS = 200
#: For a connection's first byte, the whole head of each request, and each piece of a body; a body's bytes a second.
PATIENCE_S, SLOWEST = 60.0, 512
#: How long, and for how much, what is refused is still read and thrown away.
LINGER_S, LINGER_BYTES = 5.0, 256 << 20
#: In the place of both while the server ends.
ENDING_S = 2.0
_MAPPED = "::ffff:"
_ASGI = {"version": "3.0", "spec_version": "2.3"}
_METHODS = {b"POST": "POST", b"GET": "GET"}
#: Headers that say how the rest of a request is to be read.
_TELLING = frozenset({b"host", b"expect", b"transfer-encoding"})


@functools.cache
def _urls(paths: frozenset[str]) -> dict[bytes, str]:
    """Return the URLs that need not be taken apart."""
    return {path.encode("ascii"): path for path in paths}


class Connection(HttpToolsProtocol):
    """Refuses what is no request, too long or too slow; everything else is uvicorn's."""

    cycle: Cycle | None  # type: ignore[assignment] # all that uvicorn's protocol asks of one; None before the first

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.held = 0  # bytes read while requests wait behind the one that is answered
        self._behind: deque[Cycle] = deque()
        self._reading: Cycle | None = None
        self._unstarted: Cycle | None = None
        self._read = self._head = self._fed = self._hosts = 0
        self._idle_since = self._due = 0.0
        self._heading = False  # a head is being read
        self._whole = True  # a request is not
        self._part: object = None  # what has to come to its end until it is due: a head, or a body
        self._in_place: frozenset[str] = getattr(self.app, "in_place", frozenset())
        self._paths = _urls(self._in_place)
        self._timer: asyncio.TimerHandle | None = None
        self._patience_s, self._linger_s = PATIENCE_S, LINGER_S
        self.refusal: Failure | None = None  # why nothing more is read
        self._lingers = 0  # bytes that are still thrown away

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # uvicorn narrows it too
        """Begin to wait for the first byte; uvicorn's own timer, which the first byte takes away."""
        super().connection_made(transport)
        if self.client is not None and self.client[0].startswith(_MAPPED):
            self.client = (self.client[0].removeprefix(_MAPPED), self.client[1])
        self.timeout_keep_alive_task = self.loop.call_later(PATIENCE_S, self.timeout_keep_alive_handler)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the timer, and all cycles: they know us, and would wait for the collector."""
        self._unwatch()
        super().connection_lost(exc)  # the one that is answered hears it
        super()._unset_keepalive_if_required()
        while self._behind:
            self._behind.pop().forget()
        self.cycle = self._reading = self.refusal = None

    def data_received(self, data: bytes) -> None:
        """Parse, then see whether a head or a body is still not whole."""
        self._read = len(data)
        if self._lingers:
            self._lingers -= self._read
            if self._lingers <= 0:
                self.transport.close()
            return
        at = 0
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            at = upgrade.args[0]
        except httptools.HttpParserError as fault:
            self._refuse(_why(fault))
        if at:
            self._read_again(memoryview(data)[at:])
        cycle = self._unstarted
        if cycle is not None:
            self._unstarted = None
            cycle.start(self.app, self._in_place)
        if not self._whole:
            self._wait_for_more()
        if self._behind:
            self.held += self._read
            if self.held > HIGH_WATER_LIMIT:
                self.flow.pause_reading()

    def _read_again(self, rest: memoryview) -> None:
        """Read a request as if it did not ask for another protocol: its body is its body. RFC 9110, section 7.8.

        The parser takes all that follows such a head for the other protocol's.
        """
        while True:
            lines = [b"%b: %b\r\n" % header for header in self.headers if header[0] != b"upgrade"]
            head = b"%b %b HTTP/1.1\r\n%b\r\n" % (self.parser.get_method(), self.url, b"".join(lines))
            self.parser = httptools.HttpRequestParser(self)
            self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
            try:
                self.parser.feed_data(head)
                self.parser.feed_data(rest)
            except httptools.HttpParserUpgrade as another:
                rest = rest[another.args[0] :]
            except httptools.HttpParserError as fault:
                self._refuse(_why(fault))
                return
            else:
                return

    # ---- what the parser calls ----

    def on_message_begin(self) -> None:
        """Begin a head."""
        self.url = b""
        self.headers = []
        self.expect_100_continue = False
        self._heading, self._whole = True, False
        self._hosts = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a line of the head, and note what says how to read the rest."""
        name = name.lower()
        if name in _TELLING:
            if name == b"host":
                self._hosts += 1
            elif name == b"expect":
                self.expect_100_continue = value.lower() == b"100-continue"
            elif value.lower() != b"chunked":
                raise InvalidRequest("Transfer-Encoding may be chunked and nothing else.")
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Make the request's cycle; refuse a head that is not to be answered, before the application hears of it."""
        parser = self.parser
        fields = len(self.headers)
        if fields > HEAD_FIELDS or (self._head + self._read > HEAD_BYTES and self._size() > HEAD_BYTES):
            raise _too_long()  # the parser stops, and we answer
        version = parser.get_http_version()
        old = version < "1.1"
        if self._hosts != 1 and (self._hosts or not old):
            raise InvalidRequest("A request has one Host header.")
        if parser.should_upgrade():
            if parser.get_method() == b"CONNECT":
                raise InvalidRequest("CONNECT is not for a server that is no proxy.")
            return  # it is read again
        scope = self._scope(version)
        self.headers = []  # a body's trailers are not the head's
        self._heading = False
        cycle = self._reading = Cycle(
            scope,
            self,
            wants_continue=self.expect_100_continue and not old,
            keep_alive=not old and parser.should_keep_alive(),
            old=old,
        )
        scope["sluice.port"] = cycle
        before = self.cycle
        if before is None or before.response_complete:
            self.cycle = self._unstarted = cycle  # until all that came has been parsed
        else:  # pipelined: its turn comes
            self._behind.append(cycle)

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
            "method": _METHODS.get(method := self.parser.get_method()) or method.decode("ascii"),
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
        self._fed += len(body)
        cycle: Any = self._reading
        if not cycle.response_complete:
            cycle.body += body
            if len(cycle.body) > HIGH_WATER_LIMIT:
                self.flow.pause_reading()
            if cycle.waits:
                cycle.set()

    def on_message_complete(self) -> None:
        """Note the end of the body."""
        cycle: Any = self._reading
        if not self._heading:  # else it is read again
            self._whole = True
            cycle.more_body = False
            if cycle.waits:
                cycle.set()

    # ---- between requests ----

    def linger(self) -> None:
        """Close when the caller has stopped sending: closing at once resets the connection, and the answer is lost.

        A proxy that hands a body on while it comes would make a 502 of our 413. RFC 9112, section 9.6.
        """
        self._lingers = LINGER_BYTES
        self._unwatch()
        self._timer = self.loop.call_later(self._linger_s, self.transport.close)
        if self.transport.can_write_eof():
            self.transport.write_eof()

    def on_response_complete(self) -> None:
        """Take the next request; the time for it is looked at by one timer a connection, not one a request."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        behind = self._behind
        if behind:
            cycle = self.cycle = behind.popleft()
            if not behind:
                self.held = 0
                self.flow.resume_reading()
            self.loop.call_soon(cycle.start, self.app, self._in_place)  # not from here: there may be thousands
            return
        if self.flow.read_paused:
            self.flow.resume_reading()
        if self._lingers:
            if self.refusal is not None and not cast("Cycle", self.cycle).more_body:  # else it was what is out now
                self._answer(self.refusal)
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
        cycle = self.cycle
        if not self._heading and (cycle is None or cycle.response_complete):
            left = self._idle_since + self.timeout_keep_alive - self.loop.time() if cycle is not None else 0.0
            if left <= 0.001:
                super().timeout_keep_alive_handler()
            else:
                self.timeout_keep_alive_task = self.loop.call_later(left, self.timeout_keep_alive_handler)

    def shutdown(self) -> None:
        """Close if nothing runs; what runs is the last, and what the caller has not brought to its end must hurry."""
        self._patience_s = self._linger_s = ENDING_S
        super().shutdown()
        if self._timer is not None and not self.transport.is_closing():
            self._unwatch()
            self._due = min(self._due, self.loop.time() + ENDING_S)
            self._timer = self.loop.call_later(ENDING_S, self._late)

    # ---- what is not answered by the application ----

    def _refuse(self, failure: Failure) -> None:
        """End what cannot be read further: in a body, the application hears it; else we answer when it is its turn."""
        self._lingers, self.refusal = LINGER_BYTES, failure
        reading, running = self._reading, self.cycle
        heading, self._heading, self._whole = self._heading, False, True
        if not heading and reading is not None and reading.more_body:
            if reading.response_complete:
                self.transport.close()
            else:
                reading.keep_alive = False
                reading.set()
            return
        if running is None or running.response_complete:
            self._answer(failure)

    def _answer(self, failure: Failure) -> None:
        """Answer with a failure, and close."""
        body = msgspec.json.encode(failure.body())
        head = b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(body)
        self.transport.write(STATUS_LINE[failure.status] + head + body)
        self.linger()

    def _size(self) -> int:
        return len(self.url) + sum(len(name) + len(value) for name, value in self.headers)

    def _wait_for_more(self) -> None:
        """Note when the caller has to have brought more, and refuse what is too long for what it brings."""
        now = self.loop.time()
        if self._part is not self.headers:  # which are others for each of them
            self._part, self._head = self.headers, self._read if self._heading else 0
            self._due = now + self._patience_s
        elif self._fed and not self._heading:
            self._head = 0
            self._due = min(self._due + self._fed / SLOWEST, now + self._patience_s)
        else:  # of a head, or of what frames a body: extensions of chunks, trailers
            self._head += self._read
        self._fed = 0
        if self._head > HEAD_BYTES and (not self._heading or self._size() > HEAD_BYTES // 2):
            self._refuse(_too_long())
            return
        if self._timer is None:
            self._timer = self.loop.call_later(self._due - now, self._late)

    def _late(self) -> None:
        """Refuse what is not whole in time; the time runs while it is the caller who is waited for."""
        self._timer = None
        reading, running = self._reading, self.cycle
        if self._lingers or self._whole:
            return
        now = self.loop.time()
        if self.flow.read_paused or (
            running is not None
            and not running.response_complete
            and (running is not reading or self._heading or running.response_started)
        ):
            self._due = now + self._patience_s
        if (left := self._due - now) > 0.001:
            self._timer = self.loop.call_later(left, self._late)
        else:
            self._refuse(RequestTimeout("The request did not come to its end in time."))

    def _unwatch(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _why(fault: httptools.HttpParserError) -> Failure:
    """Return what one of our callbacks has raised, or that it is no HTTP."""
    cause = fault.__context__
    return cause if isinstance(cause, Failure) else InvalidRequest("The request is not valid HTTP.")


def _too_long() -> Failure:
    failure = RequestTooLarge("The request's URL and headers are too long.")
    failure.status = 431
    return failure
