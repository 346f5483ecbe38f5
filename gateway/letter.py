"""What is sent to an engine for one exchange, written anew for each engine that is asked."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import structlog

from gateway.protocol import body as bodies
from gateway.protocol.dialects import fitted
from gateway.protocol.surface import Surface
from gateway.sdk import Exchange
from gateway.upstream.client import Broken, fetch, request_head
from gateway.upstream.engine import Engine

log = structlog.get_logger()

_stopping: set[asyncio.Task[None]] = set()  # asyncio itself holds no task


class Letter(Protocol):
    """A request to whichever engine. ``stop_at`` is where that engine is asked to stop what goes on without us;
    ``counts``: the tokens of its answer have not been counted yet.
    """

    stop_at: str | None
    counts: bool

    def to(self, engine: Engine) -> tuple[bytes, bytes]:
        """Write head and body. Raises InvalidRequest."""


class Posted:
    """A request with a body: what the plugins have left of the caller's. ``owner`` is the digest of its key."""

    __slots__ = (
        "_exchange",
        "_headers",
        "_model",
        "_owner",
        "_salt",
        "_sampling",
        "_stream",
        "_surface",
        "counts",
        "stop_at",
    )

    def __init__(
        self,
        exchange: Exchange,
        surface: Surface,
        headers: Mapping[bytes, bytes],
        model: str,
        owner: str,
        *,
        stream: bool,
        isolated: bool,
        sampling: Mapping[str, float],
    ) -> None:
        self._exchange, self._surface, self._headers, self._model = exchange, surface, headers, model
        self._owner, self._stream, self._sampling = owner, stream, sampling
        self._salt = owner[:32] if isolated and owner else None
        self.stop_at: str | None = None
        self.counts = True

    def to(self, engine: Engine) -> tuple[bytes, bytes]:
        """Write head and body. Raises InvalidRequest."""
        exchange, surface = self._exchange, self._surface
        sent = surface.for_engine(exchange.body, model=engine.served_model, stream=self._stream, cache_salt=self._salt)
        if surface.keeping is not None:
            self.stop_at = surface.keeping.stamp(sent, keeper_name(self._model, engine), self._owner)
        body = bodies.encode(fitted(engine.dialect, surface.route, sent, self._sampling))
        return engine.head(surface.route, exchange.id, len(body), self._headers), body


@dataclass(slots=True)
class Again:
    """A request without a body, for an answer that the engine has."""

    method: str
    path: str
    request_id: str
    stop_at: str | None
    counts: bool = False

    def to(self, engine: Engine) -> tuple[bytes, bytes]:
        """Write the head."""
        headers = [*engine.key_header(), (b"x-request-id", self.request_id.encode())]
        return request_head(self.method, self.path, engine.pool.origin, headers), b""


def keeper_name(model: str, engine: Engine) -> str:
    """Name an engine as the keeper of an answer of ``model``: the caller may be allowed one model of two on it."""
    return f"{model}/{engine.name}"


def stop(engine: Engine, path: str) -> None:
    """Ask an engine, beside everything else, to stop what it does in the background."""
    task = asyncio.get_running_loop().create_task(_stop(engine, path))
    _stopping.add(task)
    task.add_done_callback(_stopping.discard)


async def _stop(engine: Engine, path: str) -> None:
    try:
        await fetch(engine.pool, "POST", path, headers=engine.key_header())
    except (Broken, TimeoutError):
        log.warning("not_stopped", engine=engine.name)
