"""Turns by weight between the keys that wait in one class: start-time fair queueing.

Goyal, Vin, Cheng, "Start-time Fair Queueing" (SIGCOMM 1996). Every key has a virtual time at which its next request may
start; serving one moves it on by cost / weight. The key that is earliest goes next, and the class's own virtual time is
the start of what was served last: who was idle begins there, and has saved nothing up.

The cost is tokens: a key of short requests gets as many tokens as one of long ones, not as many requests.
"""

from __future__ import annotations

from collections import OrderedDict
from heapq import heappop, heappush
from itertools import count
from typing import Protocol


class Costly(Protocol):
    """What waits; ``tokens`` is its cost."""

    tokens: int


class Flow:
    """One key in one class."""

    __slots__ = ("queued", "start", "waiting", "weight")

    def __init__(self, weight: float) -> None:
        self.weight = weight
        self.start = 0.0
        self.queued = False  # it stands in the heap, perhaps with nobody left
        self.waiting: OrderedDict[Costly, None] = OrderedDict()  # leaving from the middle is O(1)


class FairQueue:
    """The requests of one class that wait, by key; each operation is O(log keys)."""

    __slots__ = ("_count", "_flows", "_heap", "_order", "_virtual")

    def __init__(self) -> None:
        self._flows: dict[str | None, Flow] = {}
        self._heap: list[tuple[float, int, Flow]] = []
        self._order = count().__next__  # among equals who came first
        self._virtual = 0.0
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, one: Costly, key: str | None, weight: float) -> Flow:
        """Let it wait, behind its key's others; return its flow, with which it leaves."""
        flow = self._flows.get(key)
        if flow is None:
            flow = self._flows[key] = Flow(weight)
        flow.weight = weight
        flow.waiting[one] = None
        self._count += 1
        if not flow.queued:
            flow.start = max(flow.start, self._virtual)
            self._push(flow)
        return flow

    def first(self) -> Costly | None:
        """Return whose turn it is, or None where nobody waits."""
        heap = self._heap
        while heap and not heap[0][2].waiting:
            heappop(heap)[2].queued = False
        return next(iter(heap[0][2].waiting)) if heap else None

    def serve(self) -> None:
        """The first one's turn has come: it goes, and its key pays."""
        start, _, flow = heappop(self._heap)
        one, _ = flow.waiting.popitem(last=False)
        flow.queued = False
        self._virtual = max(self._virtual, start)
        flow.start = max(start, self._virtual) + one.tokens / flow.weight
        self._left()
        if flow.waiting:
            self._push(flow)

    def leave(self, one: Costly, flow: Flow) -> None:
        """It waits no more, and cost nothing."""
        del flow.waiting[one]
        self._left()

    def _push(self, flow: Flow) -> None:
        flow.queued = True
        heappush(self._heap, (flow.start, self._order(), flow))

    def _left(self) -> None:
        self._count -= 1
        if not self._count:  # the busy period is over, and with it all that anybody got in it
            self._flows.clear()
            self._heap.clear()
            self._virtual = 0.0
