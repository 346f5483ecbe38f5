"""The caller's side of an exchange: writes at once where nothing blocks, by a task where the caller is slow.

Waking a task for each piece would cost as much as filtering it. An ASGI ``send`` that does not have to wait ends at its
first step, so it is driven in place; only one that waits gets a task, and the engine is not read meanwhile.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator, Mapping, MutableMapping
from typing import Any

import msgspec

from gateway.errors import Failure

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


class Caller:
    """Sends one response. ``slow`` and ``ready`` are called when the caller cannot take more, and can again."""

    __slots__ = ("_backlog", "_ready", "_send", "_slow", "_task", "blocked_since", "finished", "started")

    def __init__(self, send: Send, slow: Callable[[], None], ready: Callable[[], None]) -> None:
        self._send, self._slow, self._ready = send, slow, ready
        self._backlog: deque[Message] = deque()
        self._task: asyncio.Task[None] | None = None
        self.started = self.finished = False
        self.blocked_since: float | None = None  # event loop's time

    def start(self, status: int, headers: Headers) -> None:
        """Send the head."""
        self.started = True
        self._put({"type": "http.response.start", "status": status, "headers": headers})

    def write(self, data: bytes) -> None:
        """Send a piece of the body."""
        self._put({"type": "http.response.body", "body": data, "more_body": True})

    def end(self, data: bytes = b"") -> None:
        """Send the last piece."""
        self.finished = True
        self._put({"type": "http.response.body", "body": data, "more_body": False})

    def answer(self, status: int, headers: Headers, body: bytes) -> None:
        """Send a whole response."""
        self.start(status, [*headers, (b"content-length", b"%d" % len(body))])
        self.end(body)

    def drop(self) -> None:
        """The caller has left: forget what has not been sent."""
        self._backlog.clear()
        if self._task is not None:
            self._task.cancel()

    def _put(self, message: Message) -> None:
        if self._task is not None:
            self._backlog.append(message)
            return
        sending: Any = self._send(message)  # a coroutine: every ASGI server's is
        try:
            waits_for = sending.send(None)
        except StopIteration:
            return
        loop = asyncio.get_running_loop()
        self.blocked_since = loop.time()
        self._slow()
        self._task = loop.create_task(self._drain(sending, waits_for))

    async def _drain(self, sending: Coroutine[Any, Any, None], waits_for: Any) -> None:
        try:
            await Resumed(sending, waits_for)
            while self._backlog:
                await self._send(self._backlog.popleft())
        finally:
            self._task = None
            self.blocked_since = None
        self._ready()


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
                    raise asyncio.CancelledError
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


async def send_failure(send: Send, failure: Failure, *, close: bool = False) -> None:
    """Answer with a failure; ``close`` where the rest of the request's body was not read."""
    body = msgspec.json.encode(failure.body())
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
