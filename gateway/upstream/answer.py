"""What comes back from an engine: the sink that an answer is pushed into, why there is none, and a whole one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Literal, NamedTuple, Protocol

Headers = list[tuple[bytes, bytes]]
Kind = Literal["refused", "broke_off", "nonsense", "too_large"]


class Broken(Exception):
    """There is no (whole) answer.

    ``kind``: ``refused`` (no connection), ``broke_off`` (closed before the end), ``nonsense`` (not an HTTP/1.1 answer
    to what we asked), ``too_large`` (over a limit). While ``answer_begun`` is false not one byte of an answer was seen;
    ``reused`` then tells that the connection had served before, so that it may just have been closed for idleness.
    The text is for the log; it holds no address.
    """

    def __init__(self, kind: Kind, reason: str, *, answer_begun: bool = True, reused: bool = False) -> None:
        super().__init__(reason)
        self.kind: Kind = kind
        self.answer_begun = answer_begun
        self.reused = reused


class Sink(Protocol):
    """Where an answer goes. Called on the event loop, straight from the socket: it must not block.

    Exactly one of ``on_end`` and ``on_failure`` comes last, unless the connection was cancelled; nothing else comes
    after it. What had been read when ``pause`` was called still comes.
    """

    def on_head(self, status: int, headers: Headers) -> None:
        """Take status and header fields, names in lower case; once, and before anything else but a failure."""

    def on_data(self, data: bytes) -> None:
        """Take the next bytes of the body (never none), all that one read of the socket brought."""

    def on_end(self) -> None:
        """The answer is whole; its connection serves others from here on."""

    def on_failure(self, failure: Broken) -> None:
        """The answer will not come, or not to its end."""


class Response(NamedTuple):
    """A whole answer; header names in lower case."""

    status: int
    headers: Headers
    body: bytes


class Gather:
    """A sink that keeps the whole answer, up to ``limit`` bytes, and gives it as a future."""

    def __init__(self, limit: int, cancel: Callable[[], None]) -> None:
        self.answer: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self._room = limit
        self._cancel = cancel
        self._head: tuple[int, Headers] = (0, [])
        self._parts: list[bytes] = []

    def on_head(self, status: int, headers: Headers) -> None:
        """Keep the head."""
        self._head = (status, headers)

    def on_data(self, data: bytes) -> None:
        """Keep the bytes, or give up when they are too many."""
        self._room -= len(data)
        self._parts.append(data)
        if self._room < 0:
            self._cancel()
            self.on_failure(Broken("too_large", "the body is over the limit"))

    def on_end(self) -> None:
        """Give the answer to whoever still waits."""
        if not self.answer.done():
            self.answer.set_result(Response(*self._head, b"".join(self._parts)))

    def on_failure(self, failure: Broken) -> None:
        """Give the failure to whoever still waits."""
        if not self.answer.done():
            self.answer.set_exception(failure)
