"""Limits that several gateways share: counted in Redis, exact over all of them, or in even parts while it is away.

A request that enters costs one round trip and one atomic script (``shared.lua``), its end a place in the next pipeline.
What a gateway holds has a lease that it renews, so what a killed one held comes back by itself.

Redis is away when it fails or does not answer in time; only the beat, a call every second, finds that it is back. While
it is away each process grants one part of every limit, by its own count, which it keeps all the time; what was used
meanwhile is told to Redis when it is back.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import deque
from collections.abc import Callable
from importlib.resources import files
from itertools import count
from typing import Any, Final, NamedTuple, cast

import structlog
from redis.asyncio import BlockingConnectionPool, Redis
from redis.exceptions import NoScriptError, RedisError

from gateway.admission import allowance
from gateway.admission.allowance import Allowance, Headers, Standing
from gateway.admission.limits import WINDOW_S, Held, Limits, Ticket
from gateway.errors import RateLimited

log = structlog.get_logger()

BEAT_S: Final = 1.0
#: Who has not been seen for so many beats is no replica any more.
_GONE: Final = 5
#: Ends of requests that wait for Redis; of an absence of hours the newest are kept.
_OUTBOX: Final = 100_000
_CONNECTIONS: Final = 8
#: All keys in one slot, so that a cluster takes them.
_PREFIX: Final = "{sluice}"
_ALIVE: Final = f"{_PREFIX}:alive"
_FAILURES = (RedisError, OSError, TimeoutError)


class _End(NamedTuple):
    """A request that has ended; ``used`` -1: it used nothing. ``again``: Redis may know it already."""

    key: str
    ticket: str
    used: int
    again: bool = False


class SharedTicket:
    """A Held in Redis, and beside it in this process's own count."""

    __slots__ = ("_held", "_id", "_key", "_local", "_store", "_used", "headers")

    def __init__(self, store: SharedStore, key: str, ticket: str, local: Ticket, headers: Headers) -> None:
        self._store, self._key, self._id, self._local, self.headers = store, key, ticket, local, headers
        self._used = -1
        self._held = True

    def settle(self, now: float, used_tokens: int) -> None:
        """Count what was used in place of what was reserved; Redis hears of it when the request leaves."""
        if self._used < 0:
            self._used = used_tokens
            self._local.settle(now, used_tokens)

    def leave(self) -> None:
        """Give the slot back."""
        if self._held:
            self._held = False
            self._local.leave()
            self._store.ended(_End(self._key, self._id, self._used))


class SharedLimits:
    """The limits of one key."""

    __slots__ = ("_key", "_local", "_store", "allowed")

    def __init__(self, store: SharedStore, key: str) -> None:
        self._store, self._key = store, key
        self._local = Limits()
        self.allowed = allowance.NO_LIMITS

    async def enter(self, now: float, tokens: int) -> Held:
        """Admit a request that may use ``tokens``. Raises RateLimited."""
        allowed, store = self.allowed, self._store
        tokens, ticket = allowed.bounded(tokens), store.new_ticket()
        if store.here:
            reply = await store.enter(self._key, ticket, tokens, allowed)
            if reply is not None:
                standing = _standing(allowed, reply)
                if reply[0] != b"ok":
                    raise _refusal(allowed, reply, tokens, standing)
                headers = allowance.told(allowed, standing)
                return SharedTicket(store, self._key, ticket, self._local.admit(now, tokens), headers)
            store.ended(_End(self._key, ticket, -1))  # it may have been counted
            ticket = store.new_ticket()
        self._local.allowed = allowed.part(store.parts)
        local = self._local.enter(now, tokens)
        return SharedTicket(store, self._key, ticket, local, local.headers)


class SharedStore:
    """The connection to Redis, and who else is connected. ``here``: it answers; ``instances``: processes that live."""

    def __init__(
        self,
        url: str,
        *,
        timeout_s: float = 0.25,
        lease_s: float = 15.0,
        replicas: int | None = None,
        changed: Callable[[bool], object] = bool,
    ) -> None:
        pool: Any = BlockingConnectionPool.from_url(  # its stubs know no arguments of connections
            url, max_connections=_CONNECTIONS, timeout=timeout_s, socket_timeout=timeout_s,
            socket_connect_timeout=timeout_s, retry=None,
        )  # fmt: skip
        self._redis = Redis.from_pool(pool)
        self._lease_ms = int(lease_s * 1000)
        self._replicas = replicas
        self._changed = changed
        self._name = os.urandom(6).hex()
        self._count = count().__next__
        self._limits: dict[str, SharedLimits] = {}
        self._tickets: dict[str, str] = {}  # that are held, with their keys
        self._outbox: deque[_End] = deque(maxlen=_OUTBOX)
        self._sending: asyncio.Task[None] | None = None
        self._script = (files(__package__) / "shared.lua").read_text("utf-8")
        self._sha = ""
        self.here = False
        changed(False)  # until it has answered: one that is never found has to show in the metrics too
        self.instances = 1

    @property
    def parts(self) -> int:
        """In how many parts a limit is split while Redis is away."""
        return self._replicas or self.instances

    def limits(self, key: str, allowed: Allowance) -> SharedLimits:
        """Return the limits of a key."""
        limits = self._limits.setdefault(key, SharedLimits(self, key))
        limits.allowed = allowed
        return limits

    def new_ticket(self) -> str:
        """Name a request as no other is named anywhere."""
        return f"{self._name}-{self._count():x}"

    async def enter(self, key: str, ticket: str, tokens: int, allowed: Allowance) -> list[Any] | None:
        """Ask Redis; None where it is away."""
        now = allowance.utc()
        limits = [-1 if limit is None else limit for limit in allowed]
        today = allowance.day_of(now), allowance.month_of(now)
        self._tickets[ticket] = key  # before it is asked: a beat in between renews what was just made
        try:
            reply = await self._call(self._redis, key, "enter", ticket, tokens, self._lease_ms, *today, *limits)
        except _FAILURES as failure:
            self._away(failure)
            reply = None
        if reply is None or reply[0] != b"ok":
            self._tickets.pop(ticket, None)
        return cast("list[Any] | None", reply)

    def ended(self, end: _End) -> None:
        """Let Redis know, soon."""
        self._tickets.pop(end.ticket, None)
        self._outbox.append(end)
        if self.here and self._sending is None:
            self._sending = asyncio.get_running_loop().create_task(self._send())

    async def run(self) -> None:
        """Keep in touch with Redis, until cancelled."""
        this = cast("asyncio.Task[None]", asyncio.current_task())
        try:
            while not this.cancelling():  # the client may take a cancellation for a timeout, and swallow it
                try:
                    await self._beat()
                except _FAILURES as failure:
                    self._away(failure)
                await asyncio.sleep(0 if this.cancelling() else BEAT_S)
        finally:
            await self._say_goodbye()

    async def _say_goodbye(self) -> None:
        """Tell what has ended, so that nobody waits for a lease."""
        if self._sending is not None:
            await asyncio.wait({self._sending})
        if self.here:
            await self._send()
            with contextlib.suppress(*_FAILURES):
                await self._redis.zrem(_ALIVE, self._name)
        await self._redis.aclose()

    # ---- what goes over the wire ----

    async def _call(self, redis: Any, key: str, *arguments: object) -> Any:
        try:
            return await redis.evalsha(self._sha, 3, *_names(key), *arguments)
        except NoScriptError:  # it was restarted
            await redis.script_load(self._script)
            return await redis.evalsha(self._sha, 3, *_names(key), *arguments)

    async def _beat(self) -> None:
        redis = self._redis
        if not self.here:
            self._sha = await redis.script_load(self._script)
        seconds, micros = await redis.time()
        time_s = seconds + micros / 1e6
        async with redis.pipeline(transaction=False) as pipe:
            pipe.zadd(_ALIVE, {self._name: time_s})
            pipe.zremrangebyscore(_ALIVE, "-inf", time_s - _GONE * BEAT_S)
            pipe.zcard(_ALIVE)
            *_, living = await pipe.execute()
        self.instances = max(1, int(living))
        by_key: dict[str, list[str]] = {}
        for ticket, key in self._tickets.items():
            by_key.setdefault(key, []).append(ticket)
        for key, tickets in by_key.items():
            for start in range(0, len(tickets), 1000):
                await self._call(redis, key, "renew", self._lease_ms, *tickets[start : start + 1000])
        if not self.here:
            self.here = True
            log.info("limits_shared", instances=self.instances)
            self._changed(True)
        if self._outbox and self._sending is None:
            self._sending = asyncio.get_running_loop().create_task(self._send())

    async def _send(self) -> None:
        """Send what has ended, as much as there is at a time."""
        ends: list[_End] = []
        try:
            while self._outbox and self.here:
                ends = [self._outbox.popleft() for _ in range(min(len(self._outbox), 500))]
                now = allowance.utc()
                today = allowance.day_of(now), allowance.month_of(now)
                async with self._redis.pipeline(transaction=False) as pipe:
                    for key, ticket, used, again in ends:
                        pipe.evalsha(self._sha, 3, *_names(key), "settle", ticket, used, int(again), *today)
                    await pipe.execute()
                ends = []
        except NoScriptError:
            self._again(ends)
            self.here = False  # the next beat brings the script
        except _FAILURES as failure:
            self._again(ends)
            self._away(failure)
        finally:
            self._sending = None

    def _again(self, ends: list[_End]) -> None:
        self._outbox.extendleft(end._replace(again=True) for end in reversed(ends))

    def _away(self, failure: BaseException) -> None:
        if self.here or not self._sha:
            self._sha = self._sha or "?"
            log.warning("limits_not_shared", trouble=type(failure).__name__, parts=self.parts)
            self._changed(False)
        self.here = False


def _names(key: str) -> tuple[str, str, str]:
    return f"{_PREFIX}:{key}:state", f"{_PREFIX}:{key}:window", f"{_PREFIX}:{key}:leases"


def _standing(allowed: Allowance, reply: list[Any]) -> Standing:
    _, _, requests, tokens, day, month = reply
    now = allowance.utc()
    left, reset = 0, WINDOW_S
    if allowed.tpm is not None:
        left = allowed.tpm - tokens
    elif allowed.tokens_per_day is not None:
        left, reset = allowed.tokens_per_day - day, allowance.until_tomorrow(now)
    elif allowed.tokens_per_month is not None:
        left, reset = allowed.tokens_per_month - month, allowance.until_next_month(now)
    return Standing((allowed.rpm or 0) - requests, left, WINDOW_S, reset)


def _refusal(allowed: Allowance, reply: list[Any], tokens: int, standing: Standing) -> RateLimited:
    verdict, wait_s = reply[0], max(1.0, reply[1] / 1000)
    if verdict == b"in_flight":
        failure = allowance.too_many_at_once(allowed)
    elif verdict == b"requests":
        failure = allowance.too_many_requests(allowed, wait_s)
    elif verdict == b"tokens":
        failure = allowance.too_many_tokens(allowed, tokens, wait_s)
    elif verdict == b"day":
        wait_s = allowance.until_tomorrow(allowance.utc())
        failure = allowance.spent(allowed.tokens_per_day or 0, "day", tokens, wait_s)
    else:
        wait_s = allowance.until_next_month(allowance.utc())
        failure = allowance.spent(allowed.tokens_per_month or 0, "month", tokens, wait_s)
    failure.standing = allowance.told(allowed, standing)
    return failure
