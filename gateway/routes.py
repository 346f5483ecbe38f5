"""The OpenAI surface: which path is which exchange. What is not here does not exist."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.accounting import Meters
from gateway.admission.keys import Principal
from gateway.caller import send_failure, send_json
from gateway.clock import Clock
from gateway.errors import ModelNotFound, NotFound
from gateway.live import ANY_MODEL, Live, Model
from gateway.protocol.surface import CANCELLED, POSTED, STORED
from gateway.relay import Relay
from gateway.stored import Stored

MODELS = "/v1/models"
_KEPT = "/v1/responses/"


class Routes:
    """Plain ASGI in front of the rest: nothing of a framework runs for an exchange."""

    def __init__(self, meters: Meters, others: ASGIApp) -> None:
        self._meters, self._others = meters, others
        self._clock = Clock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Answer one request."""
        if scope["type"] != "http":
            return self._others(scope, receive, send)
        path: str = scope["path"]
        surface = POSTED.get(path)
        if surface is None and path.endswith("/") and path != "/":
            path = path.removesuffix("/")
            scope["path"] = path
            scope["raw_path"] = scope.get("raw_path", b"").rstrip(b"/")
            surface = POSTED.get(path)
        if surface is not None:
            if scope["method"] == "POST":
                return Relay(scope, surface, self._meters, self._clock, self._running())(receive, send)
            return send_failure(scope, send, NotFound(f"{path} is asked with POST."))
        if path.startswith(_KEPT):
            return self._kept(path, scope, receive, send)
        if path == MODELS or path.startswith(MODELS + "/"):
            return self._models(path, scope["method"], scope, send)
        return self._others(scope, receive, send)

    def _kept(self, path: str, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Answer with what an engine keeps, or stop it."""
        answer, _, what = path.removeprefix(_KEPT).partition("/")
        surface = {("GET", ""): STORED, ("POST", "cancel"): CANCELLED}.get((scope["method"], what))
        if surface is None:
            return self._others(scope, receive, send)
        return Stored(scope, surface, self._meters, self._clock, self._running(), answer)(receive, send)

    def _running(self) -> asyncio.AbstractEventLoop:
        """Return the event loop; asking Python for it costs a system call each time."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        return self._loop

    @staticmethod
    async def _models(path: str, method: str, scope: Scope, send: Send) -> None:
        live, principal = scope["sluice.live"], scope["sluice.principal"]
        if method not in {"GET", "HEAD"}:
            await send_failure(scope, send, NotFound(f"{MODELS} is asked with GET."))
            return
        cards = model_cards(live, principal)
        if path == MODELS:
            await send_json(send, {"object": "list", "data": list(cards.values())})
            return
        name = path.removeprefix(MODELS + "/")
        if name in cards:
            await send_json(send, cards[name])
        else:
            await send_failure(scope, send, ModelNotFound(f"The model `{name[:200]}` does not exist.", param="model"))


def model_cards(live: Live, principal: Principal) -> dict[str, dict[str, Any]]:
    """Return the card of each model that the key may use, by every name it goes by."""
    cards: dict[str, dict[str, Any]] = {}
    for name, model in live.models.items():
        if not principal.may_use(model.name):
            continue
        if name == ANY_MODEL:
            cards |= {card["id"]: card for engine in model.engines for card in engine.cards}
        else:
            cards[name] = _card(name, model)
    return cards


def _card(name: str, model: Model) -> dict[str, Any]:
    lengths = [engine.max_model_len for engine in model.engines if engine.max_model_len]
    card = {"id": name, "object": "model", "created": model.created, "owned_by": "sluice", "root": model.name}
    card["parent"] = None
    return {**card, "max_model_len": min(lengths)} if lengths else card
