"""The request's body, whole, unpacked and within the limit, before anything looks at it."""

from __future__ import annotations

import zlib

from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.caller import send_failure
from gateway.errors import Failure, InvalidRequest, RequestTooLarge, UnsupportedEncoding

GZIP = 16 + zlib.MAX_WBITS


class CallerLeft(Exception):  # noqa: N818 - not an error: there is nobody left to tell
    """The caller left before the body was complete."""


class Body:
    """Puts the body of a POST into the scope as ``sluice.body``; the limit of the configuration counts unpacked bytes."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "POST":
            try:
                scope["sluice.body"] = await self._read(scope, receive, scope["sluice.live"].max_body_bytes)
            except CallerLeft:
                scope["sluice"].outcome = "client_left"
                return
            except Failure as failure:
                await send_failure(send, failure, close=True)
                return
        await self._app(scope, receive, send)

    async def _read(self, scope: Scope, receive: Receive, limit: int) -> bytes:
        headers = scope["sluice.headers"]
        length, encoding = headers.get(b"content-length"), headers.get(b"content-encoding")
        if length is not None and int(length) > limit:  # the server has checked that it is a number
            raise _too_large(limit)
        packed = encoding is not None and _is_gzip(encoding)
        if not _is_json(headers.get(b"content-type", b"")):
            raise InvalidRequest("The body must be JSON: Content-Type: application/json.")
        message = await receive()
        parts: list[bytes] = []
        size = 0
        while True:
            if message["type"] == "http.disconnect":
                raise CallerLeft
            part = message.get("body", b"")
            size += len(part)
            if size > limit:
                raise _too_large(limit)
            parts.append(part)
            if not message.get("more_body", False):
                break
            message = await receive()
        body = parts[0] if len(parts) == 1 else b"".join(parts)
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
