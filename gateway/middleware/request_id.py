"""Gives every request its id and its Record, in which all further facts are written."""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable
from itertools import count
from time import perf_counter

from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.record import Record
from gateway.telemetry.catalogue import OTHER, ROUTES

#: What a caller's own id may be made of: it goes into headers, logs and to the engine.
_ACCEPTED = re.compile(rb"[A-Za-z0-9._-]{1,128}").fullmatch

_ROUTES = {route: route for route in ROUTES} | {route + "/": route for route in ROUTES}
_ONE_MODEL = "/v1/models/"


class RequestId:
    """Outermost: puts ``scope["sluice"]``, the Record, with request id, method, route and start time.

    ``in_place`` is for the server: the paths whose requests it may answer without a task (``Cycle.start``).
    """

    def __init__(self, app: ASGIApp, in_place: frozenset[str] = frozenset()) -> None:
        self._app = app
        self.in_place = in_place
        # Unique without asking the system each time: 64 random bits of this process and a count.
        self._prefix = f"req-{os.urandom(8).hex()}-"
        self._count = count(1).__next__

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Begin the Record of one request."""
        if scope["type"] == "http":
            headers = scope["sluice.headers"] = dict(scope["headers"])  # by name, for whoever looks for one
            given, path = headers.get(b"x-request-id"), scope["path"]
            scope["sluice"] = Record(
                f"{self._prefix}{self._count():x}" if given is None or not _ACCEPTED(given) else given.decode("ascii"),
                scope["method"],
                _ROUTES.get(path) or ("/v1/models" if path.startswith(_ONE_MODEL) else OTHER),
                started=perf_counter(),
            )
        return self._app(scope, receive, send)
