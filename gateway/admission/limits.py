"""What a key may use: requests and tokens a minute, requests in flight.

Pure: no clock, no waiting, no I/O. Times are monotonic seconds, passed in, and must not go backwards.

The minute is a sliding window, not a bucket that refills: what was admitted in *any* 60 seconds never exceeds the
limit, so there is no burst of twice the limit around a full minute. What came within a tenth of a second is kept as one
moment and leaves the window together, with its latest part: entering costs a few µs whatever the limit, a key costs at
most 600 moments, and the price is that a place may come back up to 0.1 s late, never early.

Tokens are counted before they are used: a request reserves its prompt and the most it may answer, so a storm of long
requests cannot slip through before the first has finished. When its usage is known the rest is given back at the
moment it came in; what the estimate missed counts from the moment it became known.
"""

from __future__ import annotations

from collections import deque
from math import ceil

from gateway.errors import RateLimited

WINDOW_S = 60.0
GRAIN_S = 0.1


class _Moment:
    """What came within GRAIN_S. ``counted`` until it has left the window."""

    __slots__ = ("began", "counted", "latest", "requests", "tokens")

    def __init__(self, now: float) -> None:
        self.began = self.latest = now
        self.requests = self.tokens = 0
        self.counted = True


class Ticket:
    """One request inside its key's limits. Both methods may be called again; only the first call counts."""

    __slots__ = ("_held", "_limits", "_moment", "_reserved", "_settled")

    def __init__(self, limits: Limits, moment: _Moment | None, reserved: int) -> None:
        self._limits, self._moment, self._reserved = limits, moment, reserved
        self._settled = False
        self._held = True

    def settle(self, now: float, used_tokens: int) -> None:
        """Count what was used (prompt and answer) in place of what was reserved."""
        if self._settled:
            return
        self._settled = True
        if self._moment is None:
            return
        missed = used_tokens - self._reserved
        if missed > 0:
            self._limits.count(now, 0, missed)
        elif self._moment.counted:
            self._limits.give_back(self._moment, -missed)

    def leave(self) -> None:
        """Give the slot back; tokens that were never settled were never used, so they go back too."""
        if not self._held:
            return
        self._held = False
        self._limits.in_flight -= 1
        if not self._settled:
            self._settled = True
            if self._moment is not None and self._moment.counted:
                self._limits.give_back(self._moment, self._reserved)


class Limits:
    """The limits of one key and what is used of them; None is no limit.

    The object is the key's memory: a reload changes its figures with ``change`` and keeps what was counted.
    """

    __slots__ = ("_moments", "_requests", "_tokens", "in_flight", "max_in_flight", "rpm", "tpm")

    def __init__(self, rpm: int | None = None, tpm: int | None = None, max_in_flight: int | None = None) -> None:
        self.rpm, self.tpm, self.max_in_flight = rpm, tpm, max_in_flight
        self.in_flight = 0
        self._moments: deque[_Moment] = deque()
        self._requests = self._tokens = 0

    def change(self, rpm: int | None = None, tpm: int | None = None, max_in_flight: int | None = None) -> None:
        """Put other figures in force from the next request on."""
        self.rpm, self.tpm, self.max_in_flight = rpm, tpm, max_in_flight

    def enter(self, now: float, tokens: int = 0) -> Ticket:
        """Admit a request that may use ``tokens`` (its prompt's and the most it may answer).

        One that may use more than the whole minute's tokens reserves them all: it passes when the minute is empty.
        Raises RateLimited; its ``retry_after`` is the smallest number of whole seconds after which the same request
        would pass if nothing else came or went (1 where a slot must come free, which no clock knows).
        """
        if self.max_in_flight is not None and self.in_flight >= self.max_in_flight:
            message = f"Too many requests at once: this key may have {self.max_in_flight} in flight."
            raise RateLimited(message, retry_after=1)
        if self.rpm is None and self.tpm is None:
            self.in_flight += 1
            return Ticket(self, None, 0)
        self._forget(now)
        if self.tpm is not None and tokens > self.tpm:
            tokens = self.tpm
        if self.rpm is not None and self._requests >= self.rpm:
            wait = self._wait(now, tokens)
            raise RateLimited(f"Rate limit: this key may make {self.rpm} requests a minute.", retry_after=wait)
        if self.tpm is not None and self._tokens + tokens > self.tpm:
            wait = self._wait(now, tokens)
            message = f"Rate limit: this key may use {self.tpm} tokens a minute; this request may need {tokens}."
            raise RateLimited(message, retry_after=wait)
        self.in_flight += 1
        return Ticket(self, self.count(now, 1, tokens), tokens)

    def count(self, now: float, requests: int, tokens: int) -> _Moment:
        """Write down what was used now; for this module's own use."""
        moments = self._moments
        if not moments or now - moments[-1].began > GRAIN_S:
            moments.append(_Moment(now))
        moment = moments[-1]
        moment.latest = now
        moment.requests += requests
        moment.tokens += tokens
        self._requests += requests
        self._tokens += tokens
        return moment

    def give_back(self, moment: _Moment, tokens: int) -> None:
        """Take tokens back from the moment they were reserved in; for this module's own use."""
        moment.tokens -= tokens
        self._tokens -= tokens

    def _forget(self, now: float) -> None:
        """Let what is older than the window leave it."""
        moments = self._moments
        while moments and moments[0].latest + WINDOW_S <= now:
            moment = moments.popleft()
            moment.counted = False
            self._requests -= moment.requests
            self._tokens -= moment.tokens

    def _wait(self, now: float, tokens: int) -> int:
        """Find when enough has left the window for this request, in whole seconds from now."""
        requests, used = self._requests, self._tokens
        for moment in self._moments:
            requests -= moment.requests
            used -= moment.tokens
            if (self.rpm is None or requests < self.rpm) and (self.tpm is None or used + tokens <= self.tpm):
                free = moment.latest + WINDOW_S
                wait = max(1, ceil(free - now))
                return wait if now + wait >= free else wait + 1  # the subtraction may have rounded the wrong way
        return int(WINDOW_S)  # a limit of nought: it never passes
