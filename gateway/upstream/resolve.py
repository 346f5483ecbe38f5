"""Where a name leads: a headless Service of Kubernetes has an address for each of its engines."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Collection
from typing import Final

from gateway.upstream.origin import Origin

#: Names are looked up this often; Kubernetes' DNS keeps answers for 5 s.
EVERY_S: Final = 5.0

Resolve = Callable[[str, int], Awaitable[Collection[str]]]


async def addresses(host: str, port: int) -> tuple[str, ...]:
    """Return a name's addresses in order, of one family: an engine listens on both or on IPv4. Raises ``OSError``."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    families = {family: sorted({str(where[0]) for kind, *_, where in found if kind == family}) for family, *_ in found}
    return tuple(families.get(socket.AF_INET) or families.get(socket.AF_INET6) or ())


def is_name(origin: Origin) -> bool:
    """Say whether there is anything to look up: neither a socket nor an address, and not this machine itself."""
    if origin.scheme == "unix" or origin.host == "localhost":
        return False
    try:
        ipaddress.ip_address(origin.host)
    except ValueError:
        return True
    return False
