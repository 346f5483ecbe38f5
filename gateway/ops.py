"""The operator's surface: is it alive, is it ready, what does it count, which version, and what it offers."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from fastapi import APIRouter, Request, Response
from starlette.responses import HTMLResponse, JSONResponse

from gateway.errors import Failure, InvalidKey, ModelNotAllowed
from gateway.openapi import describe, page
from gateway.telemetry.exposition import CONTENT_TYPE

#: Who asks this often within the time is a load balancer or a kubelet, and will notice.
_WATCHED_ASKS, _WATCHED_S = 3, 60.0

Usable = Callable[[], Mapping[str, Mapping[str, bool]]]
Endpoint = Callable[[Request], Awaitable[Response]]


@dataclass(slots=True)
class Lifecycle:
    """What the server and the application tell each other.

    ``draining`` is set by the server on SIGTERM: not ready any more. ``reload`` is set by the application: called on
    SIGHUP.
    """

    draining: bool = False
    reload: Callable[[], object] | None = None
    _asks: deque[float] = field(default_factory=lambda: deque(maxlen=_WATCHED_ASKS))

    def asked(self) -> None:
        """Somebody has asked whether we are ready, and we are."""
        self._asks.append(monotonic())

    def watched(self) -> bool:
        """Say whether somebody asks regularly, and so has to be given time to notice."""
        return len(self._asks) == _WATCHED_ASKS and monotonic() - self._asks[0] < _WATCHED_S


@dataclass(frozen=True, slots=True)
class Ops:
    """Builds the routes. ``usable`` says of each model which of its engines can be used now; ``render`` the metrics;
    ``limits`` where keys' limits are counted.

    ``operators_only``: /metrics asks for an operator's key, which the auth middleware has put into the scope.
    """

    lifecycle: Lifecycle
    usable: Usable
    render: Callable[[], bytes]
    version: str
    operators_only: bool = False
    docs: bool = True
    limits: Callable[[], str] = lambda: "in memory"

    def router(self) -> APIRouter:
        """Return all routes, each with and without a slash at its end."""
        routes: dict[str, Endpoint] = {
            "/livez": self.livez,
            "/readyz": self.readyz,
            "/health": self.readyz,
            "/metrics": self.metrics,
            "/version": self.tell_version,
        }
        if self.docs:
            routes |= {"/openapi.json": self.openapi, "/docs": self.docs_page}
        router = APIRouter()
        for path, endpoint in routes.items():
            for spelled in (path, f"{path}/"):
                router.add_route(spelled, endpoint, methods=["GET"])
        return router

    async def livez(self, _: Request) -> Response:
        """Alive is who answers, whatever its engines do."""
        return JSONResponse({"status": "alive"})

    async def readyz(self, _: Request) -> Response:
        """Ready is who is not draining and has an engine to use."""
        models = {
            name: {"ready": any(engines.values()), "engines": dict(engines)} for name, engines in self.usable().items()
        }
        if self.lifecycle.draining:
            status = "draining"
        else:
            status = "ready" if any(model["ready"] for model in models.values()) else "no_usable_engine"
        told = {"status": status, "models": models, "limits": self.limits()}
        if status == "ready":
            self.lifecycle.asked()
            return JSONResponse(told)
        return JSONResponse(told, 503, {"retry-after": "1"})

    async def metrics(self, request: Request) -> Response:
        """Show the sum over all workers."""
        if self.operators_only and (failure := _not_an_operator(request)):
            return JSONResponse(failure.body(), failure.status)
        return Response(await asyncio.to_thread(self.render), media_type=CONTENT_TYPE)

    async def tell_version(self, _: Request) -> Response:
        """Name the version, as vLLM's route of this name does."""
        return JSONResponse({"version": self.version})

    async def openapi(self, _: Request) -> Response:
        """Describe what callers may send and get."""
        return JSONResponse(self._description())

    async def docs_page(self, _: Request) -> Response:
        """Show the same to people; the page loads nothing from elsewhere."""
        return HTMLResponse(page(self._description()))

    def _description(self) -> dict[str, Any]:
        return describe(self.version)


def _not_an_operator(request: Request) -> Failure | None:
    principal = request.scope.get("sluice.principal")
    if principal is None:
        return InvalidKey("/metrics needs an operator's key here.")
    return None if principal.operator else ModelNotAllowed("/metrics is for operators here, and this key is not one's.")
