"""One request's way in: its key's limits, then its model's gate; and all that it gives back at its end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import Any, Protocol

from gateway.admission.estimate import Estimate, Running
from gateway.admission.gate import Gate, Place, Rank
from gateway.admission.keys import Principal, SharedLimits
from gateway.admission.limits import Held, Limits
from gateway.errors import InvalidRequest, QueueFull
from gateway.record import Record

#: What the engine is told of a batch request comes after every interactive one, whatever their numbers.
_BATCH = 1_000_000
_LARGEST = 2**31


@dataclass(slots=True)
class Door:
    """What outlives the versions of the configuration for one model: its gate, and what its requests are known to take.

    ``tell_engine``: an engine orders by priority too, and has to be told.
    """

    gate: Gate = field(default_factory=Gate)
    estimate: Estimate = field(default_factory=Estimate)
    tell_engine: bool = False


class Meters(Protocol):
    """What is counted here."""

    def in_flight(self, model: str, change: int) -> None:
        """One more, or one less."""


def rank_of(principal: Principal, body: dict[str, Any], door: Door) -> Rank:
    """Say who goes first, by key and request, and write it into the request for the engine.

    A request can make itself less urgent than its key, never more. Raises InvalidRequest.
    """
    asked = body.get("priority")
    if asked is not None and (isinstance(asked, bool) or not isinstance(asked, int)):
        raise InvalidRequest("priority must be a whole number.", param="priority")
    priority = principal.priority if asked is None else max(principal.priority, min(asked, _LARGEST))
    rank = Rank(principal.batch or body.get("service_tier") == "flex", priority)
    if asked is not None or door.tell_engine:
        body["priority"] = priority + _BATCH if rank.batch else priority
    return rank


class Entry:
    """Holds a request's place in the limits of its key and at its model's gate, from ``begin`` to ``end``.

    ``size``: bytes of the request; ``most``: tokens that all its choices may have.
    """

    __slots__ = (
        *("_choices", "_door", "_loop", "_meters", "_model", "_most", "_place", "_principal"),
        *("_rank", "_record", "_size", "_running", "_ticket", "tokens"),
    )

    def __init__(
        self,
        principal: Principal,
        model: str,
        door: Door,
        rank: Rank,
        record: Record,
        meters: Meters,
        loop: asyncio.AbstractEventLoop,
        *,
        size: int,
        most: int,
        choices: int,
    ) -> None:
        self._principal, self._model, self._door, self._rank = principal, model, door, rank
        self._record, self._meters, self._loop = record, meters, loop
        self._size, self._most = size, most
        self._ticket: Held | None = None
        self._place: Place | None = None
        self._choices = choices
        self._running: Running | None = None
        self.tokens = door.estimate.tokens(principal.name, size, most, choices)  # that it is expected to take

    @property
    def prompt(self) -> int:
        """How many tokens the prompt most likely has, where the engine does not tell."""
        return self._door.estimate.likely(self._principal.name, self._size)

    def begin(self, now: float) -> Awaitable[None] | None:
        """Enter; something to await only where one has to wait. Raises RateLimited and QueueFull."""
        limits = self._principal.limits
        most = self._door.estimate.prompt(self._principal.name, self._size) + self._most
        if not isinstance(limits, Limits):
            return self._begin_outside(limits, now, most)
        self._ticket = limits.enter(now, most)
        self._record.limits = self._ticket.headers
        return self._at_the_gate(now)

    async def _begin_outside(self, limits: SharedLimits, now: float, most: int) -> None:
        """Ask whoever keeps the count; if the caller leaves meanwhile, what has been counted goes back all the same."""
        entering = self._loop.create_task(limits.enter(now, most))
        try:
            self._ticket = await asyncio.shield(entering)
        except asyncio.CancelledError:
            entering.add_done_callback(_give_back)
            raise
        self._record.limits = self._ticket.headers
        waiting = self._at_the_gate(self._loop.time())
        if waiting is not None:
            await waiting

    def _at_the_gate(self, now: float) -> Awaitable[None] | None:
        principal = self._principal
        self._place = place = self._door.gate.enter(now, self.tokens, principal.name, principal.share, self._rank)
        if place.inside:
            self._let_in()
            return None
        return self._turn_of(place)

    def _let_in(self) -> None:
        self._meters.in_flight(self._model, 1)
        self._running = self._door.estimate.begin(self._principal.name, self._size, self._most, self._choices)

    def _turn_of(self, place: Place) -> asyncio.Future[None]:
        """Return what is done when the place is: told from now on, not only once somebody awaits it."""
        turn: asyncio.Future[None] = self._loop.create_future()

        def tell(why: QueueFull | None) -> None:
            if why is None:
                self._let_in()
            if not turn.done():
                if why is None:
                    turn.set_result(None)
                else:
                    turn.set_exception(why)

        place.tell = tell
        return turn

    def end(self, now: float) -> None:
        """Give everything back; what was used is charged, and learnt from. To be called once."""
        record, place, ticket = self._record, self._place, self._ticket
        name = self._principal.name
        if record.completion_tokens and not record.prompt_tokens:  # a stream that ended before the engine told
            record.prompt_tokens = self.prompt
        if ticket is not None:
            used = record.prompt_tokens + record.completion_tokens
            if used:
                ticket.settle(now, used)
            ticket.leave()
        if self._running is not None:
            self._meters.in_flight(self._model, -1)
            answered = (record.prompt_tokens, record.completion_tokens) if record.outcome == "ok" else (0, 0)
            self._door.estimate.end(name, self._running, *answered)
        if place is None:
            return
        place.tell = None
        place.leave(now)


def _give_back(entering: asyncio.Task[Held]) -> None:
    if not entering.cancelled() and entering.exception() is None:
        entering.result().leave()
