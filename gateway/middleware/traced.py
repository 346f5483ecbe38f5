"""A span around every request. Only there where traces are switched on: without it nothing is paid."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.record import Record

if TYPE_CHECKING:  # OpenTelemetry is an extra
    from gateway.telemetry.traces import Traces

_PROBES = frozenset({"/livez", "/readyz", "/health", "/metrics"})


class Traced:
    """Between RequestId, whose Record it reads when all is over, and AccessLog, which completes that."""

    def __init__(self, app: ASGIApp, traces: Traces) -> None:
        self._app = app
        self._traces = traces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, in a span; the engine is told of it in the caller's place."""
        if scope["type"] != "http" or scope["sluice"].route in _PROBES:
            await self._app(scope, receive, send)
            return
        record: Record = scope["sluice"]
        began = time.time_ns()
        span = self._traces.begin(record, scope["sluice.headers"], began)
        try:
            await self._app(scope, receive, send)
        finally:
            self._traces.end(span, record, began)
