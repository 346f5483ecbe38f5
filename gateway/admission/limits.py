"""What a key may use, counted in this process: requests and tokens a minute, requests in flight, budgets.

Pure: no waiting, no I/O. Times are monotonic seconds, passed in, and must not go backwards; days and months come from a
calendar that a test can replace.

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
from collections.abc import Callable
from datetime import datetime
from math import ceil
from typing import Protocol

from gateway.admission import allowance
from gateway.admission.allowance import NO_LIMITS, Allowance, Headers, Standing
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


class Budgets:
    """The tokens of this day and of this month."""

    __slots__ = ("_day", "_month", "day", "month", "now")

    def __init__(self, calendar: Callable[[], datetime]) -> None:
        self.now = calendar
        self._day = self._month = 0
        self.day = self.month = 0  # spent, with what is reserved

    def turn(self) -> tuple[int, int]:
        """Begin anew where a day or a month has; return which they are."""
        now = self.now()
        day, month = allowance.day_of(now), allowance.month_of(now)
        if day != self._day:
            self._day, self.day = day, 0
        if month != self._month:
            self._month, self.month = month, 0
        return day, month

    def add(self, tokens: int, of: tuple[int, int]) -> None:
        """Count tokens (or fewer, below nought) of a request that came in that day and month."""
        self.turn()
        if of[0] == self._day:
            self.day = max(0, self.day + tokens)
        if of[1] == self._month:
            self.month = max(0, self.month + tokens)


class Held(Protocol):
    """One request inside its key's limits. Both methods may be called again; only the first call counts.

    ``headers`` tell the caller how its key stands.
    """

    headers: Headers

    def settle(self, now: float, used_tokens: int) -> None:
        """Count what was used (prompt and answer) in place of what was reserved."""

    def leave(self) -> None:
        """Give the slot back; tokens that were never settled were never used, so they go back too."""


class Ticket:
    """A Held of this process."""

    __slots__ = ("_day", "_held", "_limits", "_moment", "_reserved", "_settled", "headers")

    def __init__(
        self, limits: Limits, moment: _Moment | None, reserved: int, day: tuple[int, int] | None, headers: Headers
    ) -> None:
        self._limits, self._moment, self._reserved, self._day = limits, moment, reserved, day
        self._settled = False
        self._held = True
        self.headers = headers

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
        if self._day is not None:
            self._limits.budgets.add(missed, self._day)

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
            if self._day is not None:
                self._limits.budgets.add(-self._reserved, self._day)


class Limits:
    """The limits of one key and what is used of them.

    The object is the key's memory: a reload changes what is ``allowed`` and keeps what was counted.
    """

    __slots__ = ("_moments", "_requests", "_tokens", "allowed", "budgets", "in_flight")

    def __init__(self, allowed: Allowance = NO_LIMITS, calendar: Callable[[], datetime] = allowance.utc) -> None:
        self.allowed = allowed
        self.in_flight = 0
        self.budgets = Budgets(calendar)
        self._moments: deque[_Moment] = deque()
        self._requests = self._tokens = 0

    def enter(self, now: float, tokens: int = 0) -> Ticket:
        """Admit a request that may use ``tokens`` (its prompt's and the most it may answer).

        One that may use more than the whole minute's tokens reserves them all: it passes when the minute is empty.
        Raises RateLimited; its ``retry_after`` is the smallest number of whole seconds after which the same request
        would pass if nothing else came or went (1 where a slot must come free, which no clock knows).
        """
        allowed = self.allowed
        if allowed.max_in_flight is not None and self.in_flight >= allowed.max_in_flight:
            raise self._told(allowance.too_many_at_once(allowed), now)
        if not allowed.counted:
            self.in_flight += 1
            return Ticket(self, None, 0, None, [])
        self._forget(now)
        tokens = allowed.bounded(tokens)
        if allowed[3:] != (None, None):
            self._check_budgets(now, tokens)
        if allowed.rpm is not None and self._requests >= allowed.rpm:
            raise self._told(allowance.too_many_requests(allowed, self._wait(now, tokens)), now)
        if allowed.tpm is not None and self._tokens + tokens > allowed.tpm:
            raise self._told(allowance.too_many_tokens(allowed, tokens, self._wait(now, tokens)), now)
        ticket = self.admit(now, tokens)
        ticket.headers = allowance.told(allowed, self._standing(now))
        return ticket

    def admit(self, now: float, tokens: int) -> Ticket:
        """Count a request that somebody else has admitted."""
        self._forget(now)
        self.in_flight += 1
        today = self.budgets.turn() if self.allowed[3:] != (None, None) else None
        if today is not None:
            self.budgets.add(tokens, today)
        return Ticket(self, self.count(now, 1, tokens), tokens, today, [])

    def _told(self, failure: RateLimited, now: float) -> RateLimited:
        """Let the refusal say how the key stands."""
        if self.allowed.counted:
            self._forget(now)
            failure.standing = allowance.told(self.allowed, self._standing(now))
        return failure

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

    def _check_budgets(self, now: float, tokens: int) -> None:
        """Raise RateLimited where a budget does not hold the tokens any more."""
        allowed, budgets = self.allowed, self.budgets
        budgets.turn()
        if allowed.tokens_per_month is not None and budgets.month + tokens > allowed.tokens_per_month:
            wait = allowance.until_next_month(budgets.now())
            raise self._told(allowance.spent(allowed.tokens_per_month, "month", tokens, wait), now)
        if allowed.tokens_per_day is not None and budgets.day + tokens > allowed.tokens_per_day:
            wait = allowance.until_tomorrow(budgets.now())
            raise self._told(allowance.spent(allowed.tokens_per_day, "day", tokens, wait), now)

    def _standing(self, now: float) -> Standing:
        allowed, moments, budgets = self.allowed, self._moments, self.budgets
        reset = moments[-1].latest + WINDOW_S - now if moments else 0.0
        tokens, tokens_reset = 0, reset
        if allowed.tpm is not None:
            tokens = allowed.tpm - self._tokens
        elif allowed.tokens_per_day is not None:
            tokens, tokens_reset = allowed.tokens_per_day - budgets.day, allowance.until_tomorrow(budgets.now())
        elif allowed.tokens_per_month is not None:
            tokens, tokens_reset = allowed.tokens_per_month - budgets.month, allowance.until_next_month(budgets.now())
        return Standing((allowed.rpm or 0) - self._requests, tokens, reset, tokens_reset)

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
        rpm, tpm = self.allowed.rpm, self.allowed.tpm
        requests, used = self._requests, self._tokens
        for moment in self._moments:
            requests -= moment.requests
            used -= moment.tokens
            if (rpm is None or requests < rpm) and (tpm is None or used + tokens <= tpm):
                free = moment.latest + WINDOW_S
                wait = max(1, ceil(free - now))  # the subtraction may have rounded either way
                return wait + 1 if now + wait < free else wait - 1 if wait > 1 and now + wait - 1 >= free else wait
        return int(WINDOW_S)  # a limit of nought: it never passes
