"""The request's body, whole, unpacked and within the limit, before anything looks at it."""

from __future__ import annotations

import zlib
from collections.abc import Awaitable

from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.caller import send_failure
from gateway.errors import Failure, InvalidRequest, RequestTooLarge, UnsupportedEncoding

GZIP = 16 + zlib.MAX_WBITS


class CallerLeft(Exception):
    """The caller left before the body was complete."""


class Body:
    """Puts the body of a POST into the scope as ``sluice.body``; the configuration's limit counts unpacked bytes."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Answer one request, once its body is there."""
        if scope["type"] != "http" or scope["method"] != "POST":
            return self._app(scope, receive, send)
        limit = scope["sluice.live"].max_body_bytes
        try:
            packed = self._check(scope["sluice.headers"], limit)
            port = scope.get("sluice.port")
            body = None if port is None else port.take()
            if body is None:
                return self._later(scope, receive, send, limit, packed=packed)
            scope["sluice.body"] = _checked(body, limit, packed=packed)
        except Failure as failure:
            return send_failure(scope, send, failure, close=True)
        return self._app(scope, receive, send)

    @staticmethod
    def _check(headers: dict[bytes, bytes], limit: int) -> bool:
        """Tell from the head whether the body is packed. Raises Failure."""
        length, encoding = headers.get(b"content-length"), headers.get(b"content-encoding")
        if length is not None and int(length) > limit:  # the server has checked that it is a number
            raise _too_large(limit)
        packed = encoding is not None and _is_gzip(encoding)
        if not _is_json(headers.get(b"content-type", b"")):
            raise InvalidRequest("The body must be JSON: Content-Type: application/json.")
        return packed

    async def _later(self, scope: Scope, receive: Receive, send: Send, limit: int, *, packed: bool) -> None:
        """Wait for a body of which not all is there."""
        try:
            scope["sluice.body"] = _checked(await _read(receive, limit), limit, packed=packed)
        except CallerLeft:
            scope["sluice"].outcome = "client_left"
        except Failure as failure:
            await send_failure(scope, send, failure, close=True)
        else:
            await self._app(scope, receive, send)


async def _read(receive: Receive, limit: int) -> bytes:
    parts: list[bytes] = []
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise CallerLeft
        part = message.get("body", b"")
        size += len(part)
        if size > limit:
            raise _too_large(limit)
        parts.append(part)
        more = message.get("more_body", False)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _checked(body: bytes, limit: int, *, packed: bool) -> bytes:
    if len(body) > limit:
        raise _too_large(limit)
    return _unpacked(body, limit) if packed else body


def _too_large(limit: int) -> RequestTooLarge:
    return RequestTooLarge(f"The body is longer than {limit} bytes.")


def _is_json(content_type: bytes) -> bool:
    if content_type == b"application/json":
        return True
    kind = content_type.partition(b";")[0].strip().lower()
    return kind == b"application/json" or not kind or (kind.startswith(b"application/") and kind.endswith(b"+json"))


def _is_gzip(encoding: bytes) -> bool:
    encoding = encoding.strip().lower()
    if encoding in {b"gzip", b"x-gzip"}:
        return True
    if encoding in {b"", b"identity"}:
        return False
    raise UnsupportedEncoding("The body may be sent as it is or as gzip; no other Content-Encoding is understood.")


def _unpacked(body: bytes, limit: int) -> bytes:
    """Unpack gzip, never more than ``limit`` and a byte, whatever the archive claims."""
    parts: list[bytes] = []
    room = limit + 1
    while body:
        unpacker = zlib.decompressobj(GZIP)
        try:
            part = unpacker.decompress(body, room)
        except zlib.error:
            raise InvalidRequest("The body says it is gzip, but it is not.") from None
        room -= len(part)
        parts.append(part)
        if room <= 0:
            raise _too_large(limit)
        if not unpacker.eof:
            raise InvalidRequest("The gzip body is cut off.")
        body = unpacker.unused_data
    return b"".join(parts)
