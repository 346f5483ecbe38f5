"""The caller's side of an exchange: writes at once where nothing blocks, by a task where the caller is slow.

Waking a task for each piece would cost as much as filtering it. An ASGI ``send`` that does not have to wait ends at its
first step, so it is driven in place; only one that waits gets a task, and the engine is not read meanwhile.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator, Mapping, MutableMapping
from typing import Any, Protocol
from urllib.parse import quote

import msgspec

from gateway.errors import Failure
from gateway.protocol import body as bodies
from gateway.protocol import sse
from gateway.protocol.surface import Surface, error_body
from gateway.record import Record
from gateway.sdk import Exchange, Reply

Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]
JSON_HEADERS: Headers = [(b"content-type", b"application/json")]
#: The last one is nginx's: it must not hold a stream back.
EVENT_STREAM: Headers = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]
_JSON_LINES, _STREAM_LINES = (
    b"".join([b"%b: %b\r\n" % header for header in headers]) for headers in (JSON_HEADERS, EVENT_STREAM)
)
SECRET = frozenset({"authorization", "x-api-key", "cookie", "proxy-authorization"})


class CallerHeaders(Mapping[str, str]):
    """The caller's headers by lower-case name, without credentials; decoded only when somebody looks."""

    __slots__ = ("raw",)

    def __init__(self, raw: dict[bytes, bytes]) -> None:
        self.raw = raw

    def __getitem__(self, name: str) -> str:
        if name in SECRET:
            raise KeyError(name)
        try:
            return self.raw[name.encode("latin-1")].decode("latin-1")
        except (KeyError, UnicodeEncodeError):
            raise KeyError(name) from None

    def get(self, name: str, default: Any = None) -> Any:
        """Return a header's value; looking for what is not there costs no exception."""
        return self[name] if name.encode("latin-1", "replace") in self.raw and name not in SECRET else default

    def __iter__(self) -> Iterator[str]:
        return iter([name for name in map(bytes.decode, self.raw) if name not in SECRET])

    def __len__(self) -> int:
        return sum(1 for _ in self)


_TOLD = b"x-request-id: %b\r\nserver-timing: %b\r\n"


class Port(Protocol):
    """What our own server offers beyond ASGI: a response without a coroutine and a message for each of its pieces."""

    def take(self) -> bytes | None:
        """Return the request's body if all of it is there and none was received yet."""

    def head(self, status: int, lines: bytes, length: int | None) -> None:
        """Begin the response; ``lines`` are header lines as they stand on the wire, None a length not known yet."""

    def data(self, body: bytes, *, more: bool) -> bool:
        """Send a piece of the body; False, and nothing is sent, where that would have to wait."""

    def drop(self) -> None:
        """Close on a caller that takes nothing any more."""


_forms: dict[tuple[str, ...], bytes] = {}  # one for each way a request can go: a handful


def timing(phases: Mapping[str, float]) -> bytes:
    """Write what a request has taken so far, in ms (W3C Server Timing)."""
    names = tuple(phases)
    form = _forms.get(names)
    if form is None:
        form = _forms[names] = b", ".join([name.encode("ascii") + b";dur=%.3f" for name in names])
    return form % tuple([seconds * 1e3 for seconds in phases.values()])


class Listener(Protocol):
    """Who writes, and has to know how fast."""

    def slow(self) -> None:
        """The caller takes nothing more for now."""

    def ready(self) -> None:
        """The caller has taken what there was."""


class Caller:
    """Sends one response.

    With a ``port`` the two commonest heads go by it, with what AccessLog would add to them.
    """

    __slots__ = (
        *("_backlog", "_port", "_record", "_surface", "_task", "blocked_since", "broken", "finished", "listener"),
        *("send", "started"),
    )

    def __init__(self, record: Record, surface: Surface, port: Port | None = None) -> None:
        self._record, self._surface, self._port = record, surface, port
        self.broken = surface.failure_event  # writes the event that ends a stream which has begun
        self.send: Send  # the server's, to be set before anything is sent
        self.listener: Listener | None = None
        self._backlog: deque[Message] | None = None
        self._task: asyncio.Task[None] | None = None
        self.started = self.finished = False
        self.blocked_since: float | None = None  # event loop's time

    def start(self, status: int, headers: Headers) -> None:
        """Send the head."""
        self.started = True
        self._put({"type": "http.response.start", "status": status, "headers": headers})

    def start_stream(self) -> None:
        """Send the head of a stream of events."""
        if self._port is None or self._task is not None:
            self.start(200, [*EVENT_STREAM, *self._tags()])
        else:
            self.started = True
            self._port.head(200, _STREAM_LINES + self._told(), None)

    def write(self, data: bytes) -> None:
        """Send a piece of the body."""
        if self._task is not None or self._port is None or not self._port.data(data, more=True):
            self._put({"type": "http.response.body", "body": data, "more_body": True})

    def end(self, data: bytes = b"") -> None:
        """Send the last piece."""
        self.finished = True
        if self._task is not None or self._port is None or not self._port.data(data, more=False):
            self._put({"type": "http.response.body", "body": data, "more_body": False})

    def answer(self, status: int, headers: Headers, body: bytes) -> None:
        """Send a whole response."""
        self.start(status, [*headers, (b"content-length", b"%d" % len(body))])
        self.end(body)

    def answer_json(self, body: bytes) -> None:
        """Send a whole answer."""
        if self._port is None or self._task is not None:
            self.answer(200, [*JSON_HEADERS, *self._tags()], body)
        else:
            self.started = True
            self._port.head(200, _JSON_LINES + self._told(), len(body))
            self.end(body)

    def heartbeat(self) -> None:
        """Show that the connection lives, unless there is something that waits to be taken."""
        if self.blocked_since is None:
            if not self.started:
                self.start_stream()
            self.write(sse.HEARTBEAT)

    def fail(self, failure: Failure) -> None:
        """Answer with a failure."""
        headers = [*JSON_HEADERS, *failure.headers(), *self._tags()]
        self.answer(failure.status, headers, bodies.encode(self._surface.error_body(failure)))

    def break_off(self, failure: Failure) -> None:
        """End a stream that has begun: one event in the route's form, no [DONE], no invented finish_reason."""
        self.note(failure)
        self.end(self.broken(failure))

    def note(self, failure: Failure) -> None:
        """Write down what became of the request."""
        record = self._record
        record.outcome = "engine_refused" if isinstance(failure.code, int) else str(failure.code)
        if record.rule is None:
            record.rule = getattr(failure, "rule", None)

    def cut_off(self) -> None:
        """Close on a caller that takes nothing any more; a server that is not ours has a limit of its own."""
        self._record.outcome = "client_left"
        if self._port is not None:
            self._port.drop()

    def reply(self, reply: Reply, extra: dict[str, Any] | None, *, stream: bool, want_usage: bool) -> None:
        """Answer what a plugin says, in the form that was asked for, in a stream also after heartbeats.

        Its own headers win; ``extra`` goes under "sluice".
        """
        own = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in reply.headers]
        names = {name.lower() for name, _ in own}
        body = dict(self._surface.own(reply.status, reply.body))
        if reply.status == 200 and extra:
            body["sluice"] = {**body.get("sluice", {}), **extra}
        if stream and reply.status == 200:
            if not self.started:
                self.start(200, [*_without(names, [*EVENT_STREAM, *self._tags()]), *own])
            self.end(self._surface.as_stream(body, want_usage=want_usage))
        else:
            self.answer(reply.status, [*_without(names, [*JSON_HEADERS, *self._tags()]), *own], bodies.encode(body))

    def _tags(self) -> Headers:
        tags = self._record.tags
        return [(b"x-sluice-tags", ",".join([quote(tag, safe="") for tag in tags]).encode())] if tags else []

    def _told(self) -> bytes:
        """Write the header lines that say what the request has come to."""
        record = self._record
        record.status = 200
        lines = _TOLD % (record.request_id.encode("ascii"), timing(record.phases))
        more = [*record.limits, *self._tags()] if record.tags else record.limits
        return lines + b"".join([b"%b: %b\r\n" % header for header in more]) if more else lines

    def drop(self) -> None:
        """The caller has left: forget what has not been sent."""
        self._unblocked()
        self._backlog = self.listener = None
        self.broken = self._surface.failure_event
        if self._task is not None:
            self._task.cancel()

    def _put(self, message: Message) -> None:
        if self._task is not None:
            if self._backlog is None:
                self._backlog = deque()
            self._backlog.append(message)
            return
        sending: Any = self.send(message)  # a coroutine: every ASGI server's is
        try:
            waits_for = sending.send(None)
        except StopIteration:
            return
        loop = asyncio.get_running_loop()
        self.blocked_since = loop.time()
        if self.listener is not None:
            self.listener.slow()
        self._task = loop.create_task(self._drain(sending, waits_for))

    async def _drain(self, sending: Coroutine[Any, Any, None], waits_for: Any) -> None:
        try:
            await Resumed(sending, waits_for)
            while self._backlog:
                await self.send(self._backlog.popleft())
        finally:
            self._task = None
            self._unblocked()
        if self.listener is not None:
            self.listener.ready()

    def _unblocked(self) -> None:
        """Note for how long the caller took nothing."""
        since, self.blocked_since = self.blocked_since, None
        if since is not None:
            phases = self._record.phases
            phases["client_write"] = phases.get("client_write", 0.0) + asyncio.get_running_loop().time() - since


def _without(names: set[bytes], headers: Headers) -> Headers:
    return [header for header in headers if header[0] not in names]


CANCELLED: Any = object()
"""In the place of a future to ``Resumed``: the coroutine is not to go on but to be cancelled."""


class Resumed:
    """Goes on, as a task, with a coroutine that has been driven by hand to its first wait."""

    __slots__ = ("_coroutine", "_waits_for")

    def __init__(self, coroutine: Coroutine[Any, Any, None], waits_for: Any) -> None:
        self._coroutine, self._waits_for = coroutine, waits_for

    def __await__(self) -> Generator[Any, Any, None]:
        waits_for = self._waits_for
        while True:
            try:
                if waits_for is CANCELLED:
                    raise asyncio.CancelledError  # noqa: TRY301 - it is thrown into the coroutine like all others
                if waits_for is not None:
                    # A future yielded to us by hand still bears the mark of a wait that a task would have taken off.
                    waits_for._asyncio_future_blocking = False  # noqa: SLF001 - asyncio's own protocol between future and task
                    yield from waits_for.__await__()
                else:
                    yield
            except BaseException as fault:  # noqa: BLE001 - whatever it is belongs to the coroutine
                try:
                    waits_for = self._coroutine.throw(fault)
                except StopIteration:
                    return
            else:
                try:
                    waits_for = self._coroutine.send(None)
                except StopIteration:
                    return


def extra(exchange: Exchange) -> dict[str, Any] | None:
    """Return what an exchange's caller is told under "sluice"."""
    tags, more = exchange.record.tags, exchange.extra
    return {**more, **({"tags": list(tags)} if tags else {})} if more or tags else None


async def send_failure(scope: Mapping[str, Any], send: Send, failure: Failure, *, close: bool = False) -> None:
    """Answer a request with a failure; ``close`` where the rest of its body was not read."""
    body = msgspec.json.encode(error_body(scope["path"], failure))
    headers = [*JSON_HEADERS, *failure.headers(), (b"content-length", b"%d" % len(body))]
    if close:
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": failure.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def send_json(send: Send, value: Any) -> None:
    """Answer 200 with JSON."""
    body = msgspec.json.encode(value)
    headers = [*JSON_HEADERS, (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})
