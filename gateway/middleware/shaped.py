"""Tells what leaves in the shape that path or key ask for: /b/<profile>/v1/… is /v1/… in another form."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway import errors
from gateway.caller import Port
from gateway.live import Live
from gateway.pipeline import Chain
from gateway.protocol import sse
from gateway.protocol.merging import finish_merge, merge_chunk
from gateway.protocol.surface import takes_shape
from gateway.sdk import Record, Shape

PREFIX = "/b/"


def _statuses(kind: type[errors.Failure]) -> dict[str | int | None, int]:
    """Return the status of each code: a failure in a stream comes without one."""
    found = {kind.code: kind.status}
    for each in kind.__subclasses__():
        found |= _statuses(each)
    return found


_STATUSES = _statuses(errors.Failure)


class Shaped:
    """Outermost. Where no plugin of the chain has a shape, nothing of it runs but one comparison.

    ``in_place`` is for the server: the paths whose requests it may answer without a task (``Cycle.start``).
    """

    def __init__(self, app: ASGIApp, live: Callable[[], Live], in_place: frozenset[str] = frozenset()) -> None:
        self._app, self._live = app, live
        self.in_place = in_place

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Answer one request; a plain function, so that what needs no shape pays for no coroutine."""
        if scope["type"] == "http" and self._live().chain.shapes:
            send = self._telling(self._live().chain, scope, send)
        return self._app(scope, receive, send)

    @staticmethod
    def _telling(chain: Chain, scope: Scope, send: Send) -> Send:
        path: str = scope["path"]
        name = None
        if path.startswith(PREFIX):
            name, _, rest = path.removeprefix(PREFIX).partition("/")
            if (
                not rest.startswith("v1/")
                or not takes_shape(f"/{rest}")
                or all(shape.name != name for _, shape in chain.shapes)
            ):
                return send
            scope["path"] = f"/{rest}"
            scope["raw_path"] = scope.get("raw_path", b"").removeprefix(f"{PREFIX}{name}".encode())
            scope["sluice.profile"] = name
        elif not path.startswith("/v1/") or not takes_shape(path) or all(link.keys is None for link, _ in chain.shapes):
            return send
        telling = _Telling(chain, name, scope, send)
        if "sluice.port" in scope:
            scope["sluice.port"] = telling
        return telling.send


class _Telling:
    """The caller's side of one response that may have to be told in a shape.

    It is the server's port too (``gateway.caller.Port``), for what comes past ``send`` would leave untold.
    """

    def __init__(self, chain: Chain, name: str | None, scope: Scope, send: Send) -> None:
        self._chain, self._name, self._scope, self._send = chain, name, scope, send
        self._port: Port | None = scope.get("sluice.port")
        self._shape: Shape | None = None
        self._stream: _Stream | None = None
        self._ahead: Message | None = None  # a head that came by the port
        self._start: MutableMapping[str, Any] = {}
        self._parts: list[bytes] = []

    async def send(self, message: Message) -> None:
        """Take what the application sends; a whole answer is held until it is complete, for its status may change."""
        if self._ahead is not None:
            ahead, self._ahead = self._ahead, None
            await self.send(ahead)
        if message["type"] == "http.response.start":
            self._scope.pop("sluice.port", None)  # a circle for the collector; who needs it has it
            self._shape = self._wanted()
            kind = dict(message.get("headers", ())).get(b"content-type", b"")
            if self._shape is not None and kind.startswith(b"application/json"):
                self._start = message
                return
            if self._shape is not None and kind.startswith(b"text/event-stream"):
                self._stream = _Stream(self._shape, self._scope["sluice"])
        elif self._stream is not None:
            message = {**message, "body": self._stream.feed(message.get("body", b""))}
        elif self._start:
            self._parts.append(message.get("body", b""))
            if message.get("more_body", False):
                return
            message = await self._head(message, b"".join(self._parts))
        await self._send(message)

    def take(self) -> bytes | None:
        """Return the request's body if all of it is there and none was received yet."""
        return None if self._port is None else self._port.take()

    def head(self, status: int, lines: bytes, length: int | None) -> None:
        """Keep the head for the body that follows at once."""
        pairs = [line.partition(b": ") for line in lines.split(b"\r\n") if line]
        headers = [(name, value) for name, _, value in pairs]
        if length is not None:
            headers.append((b"content-length", b"%d" % length))
        self._ahead = {"type": "http.response.start", "status": status, "headers": headers}

    def data(self, body: bytes, *, more: bool) -> bool:  # noqa: ARG002 - a port's signature
        """Take nothing: a body goes by ``send``."""
        return False

    def drop(self) -> None:
        """Close on a caller that takes nothing any more."""
        if self._port is not None:
            self._port.drop()

    def _wanted(self) -> Shape | None:
        principal, record = self._scope.get("sluice.principal"), self._scope["sluice"]
        if self._name is not None and principal is None:  # a wrong key is told in the shape too
            return next(shape for _, shape in self._chain.shapes if shape.name == self._name)
        return self._chain.shape(self._name, principal.name if principal else None, record.model)

    async def _head(self, message: Message, raw: bytes) -> Message:
        """Send the head that goes with the answer, and return the answer."""
        start = self._start
        told = self._told(start["status"], raw)
        if told is not None:
            status, body = told
            raw = msgspec.json.encode(body)
            headers = [pair for pair in start["headers"] if pair[0] != b"content-length"]
            start = {**start, "status": status, "headers": [*headers, (b"content-length", b"%d" % len(raw))]}
        await self._send(start)
        return {**message, "body": raw}

    def _told(self, status: int, raw: bytes) -> tuple[int, dict[str, Any]] | None:
        record: Record = self._scope["sluice"]
        try:
            body = msgspec.json.decode(raw)
        except msgspec.MsgspecError:
            return None  # no body, as to HEAD
        if self._shape is None or not isinstance(body, dict):
            return None
        if status >= 400 and isinstance(body.get("error"), dict):
            return self._shape.failure(body["error"], status, record)
        return status, self._shape.answer(body, record)


class _Stream:
    """A stream told in a shape. The answer is put together on the way, for what is told at its end."""

    def __init__(self, shape: Shape, record: Record) -> None:
        self._shape, self._record = shape, record
        self._splitter = sse.Splitter()
        self._whole: dict[str, Any] = {}
        self._usage: Any = None

    def feed(self, data: bytes) -> bytes:
        """Take bytes of the stream in OpenAI's form; return those for the caller."""
        return b"".join([self._frame(frame) for frame in self._splitter.feed(data)])

    def _frame(self, frame: bytes) -> bytes:
        payload = sse.payload(frame)
        if payload is None:
            return frame  # a heartbeat
        if payload == b"[DONE]":
            return self._end()
        chunk = msgspec.json.decode(payload)
        error = chunk.get("error")
        if isinstance(error, dict):
            code = error.get("code")
            status = code if isinstance(code, int) and 400 <= code < 600 else _STATUSES.get(code, 500)
            return _event(self._shape.failure(error, status, self._record)[1])
        merge_chunk(self._whole, chunk)
        self._usage = chunk.get("usage") or self._usage
        if "sluice" in chunk:
            self._whole["sluice"] = chunk["sluice"]
        return b"".join([_event(told) for told in self._shape.event(chunk, self._record)])

    def _end(self) -> bytes:
        body = finish_merge(self._whole, None)
        last = self._shape.last({**body, "usage": self._usage}, self._record)
        return (b"" if last is None else _event(last)) + (sse.DONE if self._shape.done else b"")


def _event(body: dict[str, Any]) -> bytes:
    return sse.encode(msgspec.json.encode(body))
