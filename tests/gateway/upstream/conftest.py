"""Whatever these tests say of sockets holds on the loop that serves and on the one of the standard library."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
import uvloop

from tests.gateway.upstream.playing import Play, Server


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"uvloop": uvloop.new_event_loop, "asyncio": asyncio.new_event_loop}


@pytest.fixture
async def serve() -> AsyncIterator[Callable[[Play], Server]]:
    """Make servers on loopback that play one function for every connection; all are closed at the end."""
    servers: list[Server] = []

    def begin(play: Play) -> Server:
        servers.append(Server(play))
        return servers[-1]

    yield begin
    for server in servers:
        await server.close()
