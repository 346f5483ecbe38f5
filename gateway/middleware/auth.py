"""Who is calling: the key, or anyone where there are no keys."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.admission.keys import ANYONE
from gateway.caller import send_failure
from gateway.errors import InvalidKey
from gateway.live import Live

#: Health, metrics and the description are for whoever can reach the port; /metrics asks for itself where it must.
OPEN = frozenset({"/livez", "/readyz", "/health", "/metrics", "/version", "/openapi.json", "/docs"})
MISSING = "This route needs a key: Authorization: Bearer KEY."
WRONG = "The key is not known here."


class Auth:
    """Puts ``sluice.live`` (the configuration this request sees) and ``sluice.principal`` into the scope, or answers 401."""

    def __init__(self, app: ASGIApp, live: Callable[[], Live]) -> None:
        self._app, self._live = app, live

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = perf_counter()
        live = scope["sluice.live"] = self._live()
        headers, sent = scope["sluice.headers"], False
        principal = None if len(live.keys) else ANYONE
        if principal is None:
            value, key = headers.get(b"authorization"), headers.get(b"x-api-key")
            if value is not None and len(headers) < len(scope["headers"]) and _twice(scope["headers"]):
                sent = True
            elif value is not None:
                principal, sent = live.keys.find(value), True
            elif key is not None and scope["path"].startswith("/v1/messages"):
                principal, sent = live.keys.find_key(key), True
        record = scope["sluice"]
        record.config_version = live.version
        scope["sluice.principal"] = principal
        if principal is None and scope["path"].rstrip("/") not in OPEN:
            await send_failure(send, InvalidKey(WRONG if sent else MISSING))
            return
        if principal is not None:
            record.key = principal.name
        record.phases["auth"] = perf_counter() - began
        await self._app(scope, receive, send)


def _twice(headers: list[tuple[bytes, bytes]]) -> bool:
    """Are there two keys? Which of them another server on the way went by, nobody can say."""
    return sum(name == b"authorization" for name, _ in headers) > 1
