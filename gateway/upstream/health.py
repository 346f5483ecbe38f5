"""Asks every engine regularly whether it is well, and tells of each change."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import ssl
from collections.abc import Callable, Iterable
from typing import Final

import httpx

from gateway.upstream.engine import Engine
from gateway.upstream.models import MODELS, read_models

#: Readiness is false within 10 s of the last engine's death, also of one that hangs:
#: 1.5 + 2 + 1.5 + 2 = 7 s, and another 2 s if the probe of a neighbour hangs just then.
INTERVAL_S: Final = 1.5
PROBE_S: Final = 2.0
#: One silence may be a hiccup; two are not. A refused connection or an error is said aloud and counts at once.
SILENCES: Final = 2
SILENT: Final = "no answer in time"
#: Models that come and go at a running engine (LoRA adapters) are seen within so many rounds.
ROUNDS_PER_LIST: Final = 20

Changed = Callable[[Engine, bool], None]


class Health:
    """Probes the engines that it follows; ``changed`` hears of each when it is first known, and of each change."""

    def __init__(self, changed: Changed, *, interval_s: float = INTERVAL_S, probe_s: float = PROBE_S) -> None:
        self._changed = changed
        self._interval_s = interval_s
        self._probe_s = probe_s
        self._engines: tuple[Engine, ...] = ()
        self._told: dict[Engine, bool] = {}
        self._silences: dict[Engine, int] = {}
        self._clients: dict[Engine, httpx.AsyncClient] = {}
        self._wake = asyncio.Event()

    def follow(self, engines: Iterable[Engine]) -> None:
        """Look after these engines from now on, and after no others. Needs no event loop; wakes a running one."""
        self._engines = tuple(dict.fromkeys(engines))
        for known in (self._told, self._silences):
            for engine in known.keys() - set(self._engines):
                del known[engine]
        self._wake.set()

    async def run(self) -> None:
        """Probe until cancelled."""
        try:
            for rounds in itertools.count():
                self._wake.clear()
                await asyncio.gather(*(self._look_at(engine, rounds) for engine in self._engines))
                self._tell()
                await self._close(self._clients.keys() - set(self._engines))
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._interval_s):
                        await self._wake.wait()
        finally:
            await self._close(set(self._clients))

    async def _look_at(self, engine: Engine, rounds: int) -> None:
        trouble = await self._probe(engine)
        if trouble == SILENT:
            self._silences[engine] = self._silences.get(engine, 0) + 1
            if self._silences[engine] < SILENCES and engine.up is True:
                return
        else:
            self._silences[engine] = 0
        risen = engine.probed(up=not trouble, trouble=trouble)
        if risen or (not trouble and rounds % ROUNDS_PER_LIST == 0):
            await read_models(engine, self._probe_s)

    async def _probe(self, engine: Engine) -> str:
        """Return what is wrong with the engine, in a word or two; nothing if it is well."""
        try:
            async with asyncio.timeout(self._probe_s):
                status = await self._status(engine, "/health")
                if 400 <= status < 500:  # not everything that speaks the protocol has this route
                    status = await self._status(engine, MODELS)
        except (TimeoutError, httpx.TimeoutException):
            return SILENT
        except httpx.ConnectError:
            return "no connection"
        except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as fault:
            return type(fault).__name__
        return "" if status < 500 else f"status {status}"

    async def _status(self, engine: Engine, path: str) -> int:
        """Ask on a connection of its own, so that an engine that accepts no new ones is found out; read no body."""
        client = self._clients.get(engine)
        if client is None:
            client = self._clients[engine] = _client(engine, self._probe_s)
        async with client.stream("GET", path) as answer:
            return answer.status_code

    def _tell(self) -> None:
        now = asyncio.get_running_loop().time()
        for engine in self._engines:
            up = engine.available(now)
            if self._told.get(engine) is not up:
                self._told[engine] = up
                self._changed(engine, up)

    async def _close(self, engines: Iterable[Engine]) -> None:
        for engine in tuple(engines):
            await self._clients.pop(engine).aclose()


def _client(engine: Engine, timeout_s: float) -> httpx.AsyncClient:
    pool = engine.pool
    verify: ssl.SSLContext | bool = pool.tls or False  # False, where there is no TLS, saves reading the authorities
    return httpx.AsyncClient(
        transport=httpx.AsyncHTTPTransport(
            verify=verify, uds=pool.origin.socket or None, limits=httpx.Limits(max_keepalive_connections=0)
        ),
        base_url=pool.origin.url,
        headers={name.decode(): value.decode() for name, value in engine.key_header()},
        timeout=timeout_s,
        trust_env=False,
    )
