"""What a key is allowed, how it stands, and how callers are told."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from math import ceil
from typing import NamedTuple

from gateway.errors import RateLimited

Headers = list[tuple[bytes, bytes]]


class Allowance(NamedTuple):
    """The limits of one key; None is no limit. Days and months are those of UTC."""

    rpm: int | None = None
    tpm: int | None = None
    max_in_flight: int | None = None
    tokens_per_day: int | None = None
    tokens_per_month: int | None = None

    @property
    def nothing(self) -> bool:
        """Is there no limit at all?"""
        return self == NO_LIMITS

    @property
    def counted(self) -> bool:
        """Is there anything but requests in flight?"""
        return self[:2] != (None, None) or self[3:] != (None, None)

    def part(self, parts: int) -> Allowance:
        """Return one of so many even parts, so that all together never pass the whole. Of a small limit one remains."""
        return (
            self if parts <= 1 else Allowance(*(limit if limit is None else max(1, limit // parts) for limit in self))
        )

    def bounded(self, tokens: int) -> int:
        """Return what a request reserves: one larger than a limit takes all of it, and passes when it is unused."""
        return min([tokens, *(limit for limit in (self.tpm, *self[3:]) if limit is not None)])


NO_LIMITS = Allowance()


class Standing(NamedTuple):
    """What is left of a key's limits after a request came in, and in how many seconds all of it will be back."""

    requests: int = 0
    tokens: int = 0
    requests_reset_s: float = 60.0
    tokens_reset_s: float = 60.0


def told(allowed: Allowance, standing: Standing) -> Headers:
    """Write the headers that OpenAI has; of the token limits the one for the shortest time."""
    headers: Headers = []
    if allowed.rpm is not None:
        headers += _three(b"requests", allowed.rpm, standing.requests, standing.requests_reset_s)
    tokens = next((limit for limit in (allowed.tpm, *allowed[3:]) if limit is not None), None)
    if tokens is not None:
        headers += _three(b"tokens", tokens, standing.tokens, standing.tokens_reset_s)
    return headers


def _three(kind: bytes, limit: int, left: int, reset_s: float) -> Headers:
    return [
        (b"x-ratelimit-limit-" + kind, b"%d" % limit),
        (b"x-ratelimit-remaining-" + kind, b"%d" % max(0, left)),
        (b"x-ratelimit-reset-" + kind, duration(reset_s)),
    ]


def duration(seconds: float) -> bytes:
    """Write a time as OpenAI's headers do: 250ms, 1.5s, 6m0s, 20h0m3s."""
    if seconds <= 0.999:
        return b"%dms" % ceil(max(0.0, seconds) * 1000)
    if seconds <= 59.9:
        return b"%gs" % (ceil(seconds * 10) / 10)
    minutes, rest = divmod(ceil(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return b"%dh%dm%ds" % (hours, minutes, rest) if hours else b"%dm%ds" % (minutes, rest)


def day_of(now: datetime) -> int:
    """Number the day."""
    return now.toordinal()


def month_of(now: datetime) -> int:
    """Number the month."""
    return now.year * 12 + now.month


def until_tomorrow(now: datetime) -> float:
    """Return the seconds until the next day begins."""
    return (_midnight(now) + timedelta(days=1) - now).total_seconds()


def until_next_month(now: datetime) -> float:
    """Return the seconds until the next month begins."""
    return ((_midnight(now).replace(day=1) + timedelta(days=32)).replace(day=1) - now).total_seconds()


def _midnight(now: datetime) -> datetime:
    return now.replace(hour=0, minute=0, second=0, microsecond=0)


def utc() -> datetime:
    """Return the time."""
    return datetime.now(UTC)


# ---- refusals: the same words whoever keeps the count ----


def too_many_at_once(allowed: Allowance) -> RateLimited:
    """No clock knows when a slot will come free: try soon."""
    message = f"Too many requests at once: this key may have {allowed.max_in_flight} in flight."
    return RateLimited(message, retry_after=1)


def too_many_requests(allowed: Allowance, wait: float) -> RateLimited:
    """Too many within a minute."""
    return RateLimited(f"Rate limit: this key may make {allowed.rpm} requests a minute.", retry_after=ceil(wait))


def too_many_tokens(allowed: Allowance, tokens: int, wait: float) -> RateLimited:
    """Too much within a minute."""
    message = f"Rate limit: this key may use {allowed.tpm} tokens a minute; this request may need {tokens}."
    return RateLimited(message, retry_after=ceil(wait))


def spent(limit: int, period: str, tokens: int, wait: float) -> RateLimited:
    """The budget does not hold it any more."""
    message = f"Budget: this key may use {limit} tokens a {period} (UTC); this request may need {tokens}."
    return RateLimited(message, retry_after=max(1, ceil(wait)))
