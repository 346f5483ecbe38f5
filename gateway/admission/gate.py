"""The gate before one model: so many requests and KV tokens inside, a fair queue outside.

Pure: no clock, no waiting, no I/O. Times are monotonic seconds, passed in. Whoever waits is told by a call.

The engine's own queue is kept short on purpose. Inside an engine nothing is fair (vLLM orders by priority and arrival,
and a running request that finds no KV block is thrown out to begin anew), so what does not fit waits here, where it
can be put in order, counted, and let go when its caller leaves.

The order: interactive before batch, the lower priority number first, and between the keys of one class turns by weight
(``fair.py``). Who has waited ``max_wait_s`` behind a more urgent class is overdue: every second place goes to the
overdue, among whom the keys take turns again. So nobody starves, and a flood that has grown old does not shut out what
is urgent; in the most urgent class turns alone decide, so that nobody gets more than its share by waiting. What batch
requests may hold is bounded by ``batch_share``, so that an interactive one finds room without waiting for a long answer
to end.
"""

from __future__ import annotations

from bisect import insort
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from math import ceil
from typing import NamedTuple, cast

from gateway.admission.fair import FairQueue, Flow
from gateway.errors import QueueFull

FULL = "The model is busy with as many requests as it may hold; try again."
TOO_LONG = "The model was too busy to begin in time; try again."
#: Weight of the newest answer in the mean time that a request stays inside.
_NEWEST = 0.125
LONGEST_RETRY_S = 120


class Rank(NamedTuple):
    """Who goes first: interactive before batch, then the lower number."""

    batch: bool = False
    priority: int = 0


FIRST = Rank()


@dataclass(frozen=True, slots=True)
class Policy:
    """How a model's queue behaves; times in seconds, ``batch_share`` of the whole from 0 to 1."""

    length: int = 256
    max_wait_s: float = 10.0
    timeout_s: float = 30.0
    batch_share: float = 0.8


class Place:
    """One request at the gate, until it calls ``leave``. ``inside``: it has been let in; ``since``: or came, then."""

    __slots__ = ("_gate", "flow", "inside", "key", "over", "queue", "rank", "since", "tell", "tokens")

    def __init__(self, gate: Gate, tokens: int, key: str | None, rank: Rank, since: float) -> None:
        self._gate, self.tokens, self.key, self.rank, self.since = gate, tokens, key, rank, since
        self.inside = self.over = False
        self.queue: FairQueue | None = None  # while it waits, and its flow there; the gate's
        self.flow: Flow | None = None
        self.tell: Callable[[QueueFull | None], object] | None = None
        """Called once when it is let in, or with why it will not be; set by who waits."""

    def leave(self, now: float) -> None:
        """Go, from inside or out of the queue. May be called again."""
        if not self.over:
            self.over = True
            self._gate.left(self, now)


class Gate:
    """Counts what is inside one model, and lets others in as room comes. It outlives the versions of the configuration.

    ``max_tokens`` None: the engines do not say how much they hold, and requests alone are counted.
    """

    __slots__ = (
        *(
            "_batch",
            "_batch_tokens",
            "_classes",
            "_favour",
            "_fresh",
            "_held",
            "_old",
            "_overdue",
            "_ranks",
            "_stay",
            "_weights",
        ),
        *("changed", "depth", "in_flight", "max_requests", "max_tokens", "policy", "tokens"),
    )

    def __init__(self, max_requests: int = 64, policy: Policy | None = None) -> None:
        self.max_requests = max_requests
        self.max_tokens: int | None = None
        self.policy = policy or Policy()
        self.in_flight = self.tokens = self.depth = 0  # inside: requests and tokens; outside: who waits
        self.changed: Callable[[], object] | None = None  # called when ``depth`` has changed
        self._batch = self._batch_tokens = 0  # of those inside
        self._fresh: dict[Rank, OrderedDict[Place, None]] = {}  # who waits, by class in order of arrival
        self._old: OrderedDict[Place, None] = OrderedDict()  # and who is overdue
        self._held: dict[str | None, int] = {}  # places in the queue, by key
        self._weights: dict[str | None, float] = {}  # of those keys
        self._classes: dict[Rank, FairQueue] = {}
        self._ranks: list[Rank] = []  # of classes in which somebody waits, in order
        self._overdue = FairQueue(), FairQueue()  # interactive, batch
        self._favour = True  # the next place may go to one that is overdue
        self._stay: float | None = None  # how long a request is inside, on average, in seconds

    def enter(self, now: float, tokens: int, key: str | None = None, weight: float = 1.0, rank: Rank = FIRST) -> Place:
        """Ask for room for ``tokens``, prompt and expected answer; where there is some the place is ``inside`` at once.

        A request that is larger than the whole passes when nothing else is inside. Raises QueueFull.
        """
        place = Place(self, tokens, key, rank, now)
        if not self.depth and self._fits(place):
            self._let_in(place, now)
            return place
        if self.depth >= self.policy.length and not self._make_room(rank, key, weight):
            raise QueueFull(FULL, retry_after=self.retry_after())
        queue = self._classes.get(rank)
        if queue is None:
            queue = self._classes[rank] = FairQueue()
            self._fresh[rank] = OrderedDict()
            insort(self._ranks, rank)
        place.queue, place.flow = queue, queue.add(place, key, weight)
        self._fresh[rank][place] = None
        self._held[key] = self._held.get(key, 0) + 1
        self._weights[key] = weight
        self.depth += 1
        self.advance(now)
        self._told()
        return place

    def left(self, place: Place, now: float) -> None:
        """For Place.leave alone."""
        if place.inside:
            self.in_flight -= 1
            self.tokens -= place.tokens
            if place.rank.batch:
                self._batch -= 1
                self._batch_tokens -= place.tokens
            stayed = now - place.since
            self._stay = stayed if self._stay is None else self._stay + (stayed - self._stay) * _NEWEST
        else:
            self._take_out(place)
            self._told()
        if self.depth:  # a place is free, or what stood behind this one is smaller
            self.advance(now)

    def resize(self, now: float, max_requests: int, max_tokens: int | None) -> None:
        """Put other bounds in force; what is inside stays."""
        if (max_requests, max_tokens) != (self.max_requests, self.max_tokens):
            self.max_requests, self.max_tokens = max_requests, max_tokens
            self.advance(now)

    def expire(self, now: float) -> None:
        """Send away who has waited too long; to be called a few times a second while somebody waits."""
        latest = now - self.policy.timeout_s
        for arrivals in (self._old, *self._fresh.values()):
            while arrivals and (place := next(iter(arrivals))).since <= latest:
                self._send_away(place, QueueFull(TOO_LONG, retry_after=self.retry_after()))
        self.advance(now)  # somebody may be overdue by now, and smaller than the first

    def retry_after(self) -> int:
        """Return in how many whole seconds all who wait will have been let in, at the measured pace (Little's law)."""
        if self._stay is None or not self.in_flight:
            return 1
        return min(max(1, ceil((self.depth + 1) * self._stay / self.in_flight)), LONGEST_RETRY_S)

    def advance(self, now: float) -> None:
        """Let in whoever's turn it is while there is room; who does not fit is not overtaken by smaller ones."""
        before = self.depth
        self._age(now)
        while self.depth:
            place = (self._favoured() or self._turn()) if self._favour else (self._turn() or self._favoured())
            if place is None or not self._fits(place):
                break
            self._favour = place.queue not in self._overdue
            self._take_out(place, turn=True)
            self._let_in(place, now)
            if place.tell is not None:
                place.tell(None)
        if self.depth != before:
            self._told()

    # ---- room ----

    def _fits(self, place: Place) -> bool:
        if self.in_flight >= self.max_requests:
            return False
        if self.max_tokens is not None and self.tokens + place.tokens > self.max_tokens and self.in_flight:
            return False
        return not place.rank.batch or self._share_allows(place)

    def _share_allows(self, place: Place) -> bool:
        """Say whether batch requests may hold this one too; one may always be inside."""
        if not place.rank.batch or not self._batch:
            return True
        share = self.policy.batch_share
        if self._batch >= int(self.max_requests * share):
            return False
        return self.max_tokens is None or self._batch_tokens + place.tokens <= self.max_tokens * share

    def _let_in(self, place: Place, now: float) -> None:
        place.inside, place.since = True, now
        self.in_flight += 1
        self.tokens += place.tokens
        if place.rank.batch:
            self._batch += 1
            self._batch_tokens += place.tokens

    # ---- the queue ----

    def _age(self, now: float) -> None:
        """Let who has waited too long behind others take turns with all of whom that is true."""
        latest = now - self.policy.max_wait_s
        for rank in self._ranks[1:]:
            arrivals = self._fresh[rank]
            while arrivals and (place := next(iter(arrivals))).since <= latest:
                weight = cast("Flow", place.flow).weight
                self._leave_queue(place)
                place.queue = self._overdue[rank.batch]
                place.flow = place.queue.add(place, place.key, weight)
                self._old[place] = None

    def _favoured(self) -> Place | None:
        """Return whose turn it is among the overdue, the older one of interactive and batch."""
        people, batch = (cast("Place | None", queue.first()) for queue in self._overdue)
        if batch is None or not self._share_allows(batch):
            return people
        return batch if people is None or batch.since < people.since else people

    def _turn(self) -> Place | None:
        """Return who is first of the first class that may have more."""
        for rank in self._ranks:
            place = cast("Place", self._classes[rank].first())
            if self._share_allows(place):
                return place
        return None

    def _take_out(self, place: Place, *, turn: bool = False) -> None:
        """Of the queue: in its ``turn``, or because it leaves."""
        self._leave_queue(place, turn=turn)
        self.depth -= 1
        self._held[place.key] -= 1
        if not self._held[place.key]:
            del self._held[place.key], self._weights[place.key]

    def _leave_queue(self, place: Place, *, turn: bool = False) -> None:
        queue = cast("FairQueue", place.queue)
        if turn:
            queue.serve()
        else:
            queue.leave(place, cast("Flow", place.flow))
        place.queue = place.flow = None
        if place in self._old:
            del self._old[place]
            return
        del self._fresh[place.rank][place]
        if not queue:
            self._ranks.remove(place.rank)
            del self._classes[place.rank], self._fresh[place.rank]

    def _make_room(self, rank: Rank, key: str | None, weight: float) -> bool:
        """Of a full queue, send the newest of the greediest key away, if that is not who asks; no people for batch.

        Of its own a key may only push out what is less important than what it asks now.
        """
        held, weights = self._held, self._weights
        if not held:
            return False
        greediest = max(held, key=lambda each: held[each] / weights[each])
        own = greediest == key
        if not own and held[greediest] / weights[greediest] <= (held.get(key, 0) + 1) / weight:
            return False
        for place in self._newest():
            if place.key == greediest and (place.rank > rank if own else place.rank.batch >= rank.batch):
                self._send_away(place, QueueFull(FULL, retry_after=self.retry_after()))
                return True
        return False

    def _newest(self) -> Iterator[Place]:
        """Who waits, the least urgent class first, in each the newest first."""
        return chain(*(reversed(self._fresh[rank]) for rank in reversed(self._ranks)), reversed(self._old))

    def _send_away(self, place: Place, why: QueueFull) -> None:
        self._take_out(place)
        place.over = True
        self._told()
        if place.tell is not None:
            place.tell(why)

    def _told(self) -> None:
        if self.changed is not None:
            self.changed()
