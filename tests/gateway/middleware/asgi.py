"""One request through middleware, without a server."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.admission.keys import Keyring, Principal
from gateway.live import Live
from gateway.middleware.request_id import RequestId
from gateway.pipeline import Chain


def live(*principals: Principal, **more: Any) -> Live:
    """A configuration with these keys and nothing to ask."""
    return Live(version=3, models={}, keys=Keyring(principals), chain=Chain([]), **more)


@dataclass
class Inside:
    """The application behind the middleware: it notes that it was reached."""

    scope: Scope | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope = scope
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})


@dataclass
class Seen:
    """What the caller got."""

    status: int = 0
    headers: dict[bytes, bytes] = field(default_factory=dict)
    body: bytes = b""
    record: Any = None

    @property
    def error(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.body)["error"]
        return found


async def ask(
    app: ASGIApp,
    *,
    path: str = "/v1/chat/completions",
    method: str = "POST",
    headers: Sequence[tuple[bytes, bytes]] = (),
    parts: Sequence[bytes] = (b"{}",),
    leaves: bool = False,
    scope: dict[str, Any] | None = None,
) -> Seen:
    """Send one request whose body comes in ``parts``; a caller that ``leaves`` does so before the last."""
    seen = Seen()
    messages: list[dict[str, Any]] = [{"type": "http.request", "body": part, "more_body": True} for part in parts]
    messages[-1]["more_body"] = leaves
    asked = {"type": "http", "method": method, "path": path, "headers": list(headers), **(scope or {})}

    async def receive() -> Any:
        return messages.pop(0) if messages else {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            seen.status, seen.headers = message["status"], dict(message["headers"])
        else:
            seen.body += message["body"]

    await RequestId(app)(asked, receive, send)
    seen.record = asked["sluice"]
    return seen
