"""Who is calling: the key, or anyone where there are no keys."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from time import perf_counter

from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.admission.keys import ANYONE, Principal
from gateway.caller import send_failure
from gateway.errors import InvalidKey
from gateway.live import Live

#: Health, metrics and the description are for whoever can reach the port; /metrics asks for itself where it must.
OPEN = frozenset({"/livez", "/readyz", "/health", "/metrics", "/version", "/openapi.json", "/docs"})
MISSING = "This route needs a key: Authorization: Bearer KEY."
WRONG = "The key is not known here."


class Auth:
    """Puts ``sluice.live`` (this request's configuration) and ``sluice.principal`` into the scope, or answers 401."""

    def __init__(self, app: ASGIApp, live: Callable[[], Live]) -> None:
        self._app, self._live = app, live

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Let the request in, or answer it."""
        if scope["type"] != "http":
            return self._app(scope, receive, send)
        began = perf_counter()
        live = scope["sluice.live"] = self._live()
        record = scope["sluice"]
        record.config_version, record.lists = live.version, live.lists
        principal, sent = self._find(scope, live) if len(live.keys) else (ANYONE, False)
        scope["sluice.principal"] = principal
        if principal is not None:
            record.key = principal.name
        elif scope["path"].rstrip("/") not in OPEN:
            return send_failure(scope, send, InvalidKey(WRONG if sent else MISSING))
        record.phases["auth"] = perf_counter() - began
        return self._app(scope, receive, send)

    @staticmethod
    def _find(scope: Scope, live: Live) -> tuple[Principal | None, bool]:
        """Return whose key came with the request, and whether one came at all."""
        headers = scope["sluice.headers"]
        value = headers.get(b"authorization")
        if value is not None:
            if len(headers) < len(scope["headers"]) and _twice(scope["headers"]):
                return None, True
            return live.keys.find(value), True
        key = headers.get(b"x-api-key")
        if key is not None and scope["path"].startswith("/v1/messages"):
            return live.keys.find_key(key), True
        return None, False


def _twice(headers: list[tuple[bytes, bytes]]) -> bool:
    """Are there two keys? Which of them another server on the way went by, nobody can say."""
    return sum(name == b"authorization" for name, _ in headers) > 1
