"""Accounts for every request: headers that say what it took, numbers, one log line; nothing raised passes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from time import perf_counter

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.caller import send_failure, timing
from gateway.errors import Failure, InternalError, NoEngineAvailable
from gateway.record import Record
from gateway.telemetry.log import access_line
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.output import Output

log = structlog.get_logger()

#: Asked every few seconds by machines: neither logged nor counted.
_PROBES = frozenset({"/livez", "/readyz", "/health", "/metrics"})
_LEFT = 499  # nginx's number for a caller that left before it heard anything
_OUTCOMES = {
    401: "invalid_api_key",
    403: "model_not_allowed",
    404: "not_found",
    405: "not_found",
    408: "request_timeout",
    413: "request_too_large",
    415: "unsupported_encoding",
    429: "rate_limit_exceeded",
    500: "internal_error",
    502: "engine_error",
    503: "no_engine_available",
    504: "engine_timeout",
}


class AccessLog:
    """Just inside RequestId. What the application raises becomes an answer here, if none has begun."""

    def __init__(self, app: ASGIApp, metrics: Metrics, output: Output) -> None:
        self._app = app
        self._metrics = metrics
        self._output = output
        output.on_drop = metrics.log_line_dropped

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, and account for it however it ends."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        record: Record = scope["sluice"]

        # Not a coroutine of its own but the server's, handed on: a streamed chunk pays for one comparison.
        def noting(message: Message) -> Awaitable[None]:
            return send(message if record.status else _told(message, record))

        failure: Failure | None = None
        try:
            await self._app(scope, receive, noting)
        except Failure as raised:
            failure = raised
        except asyncio.CancelledError:  # drain_s has passed
            failure = _cut_off(record)
            raise
        except Exception:  # a bug of ours: it is told here, and ends here
            log.exception("internal_error", request_id=record.request_id, route=record.route)
            failure = InternalError("The gateway failed; its log says more under this request id.")
        finally:
            if failure is not None:
                record.outcome = record.outcome if record.outcome == "shutdown" else str(failure.code)
                if not record.status:
                    await send_failure(scope, noting, failure)
            self._account(record)

    def _account(self, record: Record) -> None:
        if record.route in _PROBES:
            return
        if not record.status:
            record.status = _LEFT
            if record.outcome == "ok":
                record.outcome = "client_left"
        elif record.status >= 400 and record.outcome == "ok":
            record.outcome = _OUTCOMES.get(
                record.status, "invalid_request" if record.status < 500 else "internal_error"
            )
        record.total_s = perf_counter() - record.started
        self._metrics.finished(record)
        self._output.write_soon(access_line(record))


def _cut_off(record: Record) -> Failure:
    record.outcome = "shutdown"
    return NoEngineAvailable("The gateway is shutting down; send the request again.", retry_after=1)


def _told(start: Message, record: Record) -> Message:
    """Add the request id and the times so far to the head of the answer."""
    record.status = start["status"]
    headers = [*start.get("headers", ()), *record.limits, (b"x-request-id", record.request_id.encode("ascii"))]
    if record.phases:
        headers.append((b"server-timing", timing(record.phases)))
    return {**start, "headers": headers}
