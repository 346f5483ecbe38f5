"""Gives every request its id and its Record, in which all further facts are written."""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from itertools import count
from time import perf_counter

from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.record import Record
from gateway.telemetry.catalogue import OTHER, ROUTES

#: What a caller's own id may be made of: it goes into headers, logs and to the engine.
_ACCEPTED = re.compile(rb"[A-Za-z0-9._-]{1,128}").fullmatch

_ROUTES = {route: route for route in ROUTES} | {route + "/": route for route in ROUTES}
_ONE_MODEL = "/v1/models/"
_port = re.compile(r"^(\d+(?:\.\d+){3}):\d{1,5}$|^\[([^\]]*)\](?::\d{1,5})?$").sub
_one_response = re.compile("/v1/responses/[^/]+(/cancel)?/?").fullmatch

Networks = Sequence[IPv4Network | IPv6Network]


class RequestId:
    """Puts ``scope["sluice"]``, the Record, with request id, method, route and start time, before all that looks at it.

    The caller's address is the peer's, or what ``trusted_proxies`` say of it.
    """

    def __init__(self, app: ASGIApp, trusted_proxies: Networks = ()) -> None:
        self._app = app
        self._trusted = trusted_proxies
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
                _ROUTES.get(path) or _route(path),
                started=perf_counter(),
            )
            if (peer := scope.get("client")) is not None:
                forwarded = headers.get(b"x-forwarded-for") if self._trusted else None
                scope["sluice"].client = (
                    peer[0] if forwarded is None else caller(peer[0], scope["headers"], self._trusted)
                )
        return self._app(scope, receive, send)


def _route(path: str) -> str:
    """Return the name of a route that has an id in its path."""
    if (found := _one_response(path)) is not None:
        return f"/v1/responses/{{id}}{found[1] or ''}"
    return "/v1/models" if path.startswith(_ONE_MODEL) else OTHER


def caller(peer: str, headers: Sequence[tuple[bytes, bytes]], trusted: Networks) -> str:
    """Return who called: the peer, or where that is a trusted proxy the right-most X-Forwarded-For entry that is none.

    Entries to the left of it are the caller's own words, and so is one that is no address: there the last proxy counts.
    Some proxies write a port behind the address; one of IPv4 that came over IPv6 is one of IPv4.
    """
    fields = [value.decode("latin-1") for name, value in headers if name == b"x-forwarded-for"]
    address = peer
    for entry in reversed(",".join(fields).split(",")):
        if not _is_trusted(address, trusted):
            break
        try:
            address = str(_address(_port(r"\1\2", entry.strip())))
        except ValueError:
            break
    return address


def _address(text: str) -> IPv4Address | IPv6Address:
    found = ip_address(text)
    return getattr(found, "ipv4_mapped", None) or found


def _is_trusted(address: str, trusted: Networks) -> bool:
    try:
        found = _address(address)
    except ValueError:  # a Unix socket's peer has no address
        return False
    return any(found in network for network in trusted)
