"""Answers that several gateways share, kept in Redis: bounded in age and in size, away without harm."""

from __future__ import annotations

from importlib.resources import files
from typing import Any, cast

import structlog
from redis.asyncio import Redis
from redis.exceptions import NoScriptError, RedisError

from plugins.cache.memory import Kept

_log = structlog.get_logger()

_FAILURES = (RedisError, OSError, TimeoutError)
_WAIT_S = 0.25  # for one call; an engine would begin to answer meanwhile
_SCRIPT = files("plugins.cache").joinpath("shared.lua").read_text("ascii")


class Shared:
    """At most ``limit`` bytes, overhead included, each for at most ``ttl_s`` seconds; the oldest go first.

    All keys have one hash tag, so that a cluster keeps them in one place. Redis counts the time.
    """

    def __init__(self, url: str, limit: int, ttl_s: float, prefix: str) -> None:
        self._limit, self._ttl_s, self._prefix = limit, max(1, int(ttl_s)), f"{{{prefix}}}:"
        self._redis = Redis.from_url(url, socket_timeout=_WAIT_S, socket_connect_timeout=_WAIT_S)
        self._put = self._redis.register_script(_SCRIPT)
        self._away = False

    async def get(self, name: bytes, now: float) -> Kept | None:
        """Return what was kept under the name; None where Redis is away."""
        key = self._prefix + name.hex()
        try:
            async with self._redis.pipeline(transaction=False) as asked:
                asked.get(key)
                asked.pttl(key)
                value, left = await asked.execute()
        except _FAILURES as fault:
            self._failed(fault)
            return None
        self._away = False
        return None if value is None else Kept(value, now - max(0.0, self._ttl_s - max(0, left) / 1000))

    async def put(self, name: bytes, value: bytes) -> None:
        """Keep a value, if Redis is there."""
        digest = name.hex()
        keys = [self._prefix + each for each in (digest, "places", "sizes", "sum")]
        arguments: list[Any] = [digest, value, self._ttl_s, self._limit, self._prefix]
        try:
            await cast("Any", self._put(keys=keys, args=arguments))
        except (*_FAILURES, NoScriptError) as fault:
            self._failed(fault)

    async def close(self) -> None:
        """Close what is open to Redis; what is in it stays."""
        await self._redis.aclose()

    def _failed(self, fault: Exception) -> None:
        """Say it once: each request would say the same until Redis is back."""
        if not self._away:
            _log.warning(
                "cache_away", said=f"Redis does not answer ({type(fault).__name__}); nothing is kept meanwhile"
            )
        self._away = True
