"""Deadlines of many by one timer: none is forgotten, none is early, and nothing runs where nothing is watched."""

from __future__ import annotations

import asyncio

from gateway.clock import GRAIN_S, Clock


class Watched:
    def __init__(self, clock: Clock, due: float, *, again: float | None = None) -> None:
        self.clock, self.due, self.again = clock, due, again
        self.noticed: list[float] = []
        self.told = asyncio.Event()

    def overdue(self, now: float) -> None:
        self.noticed.append(now)
        if self.again is None:
            self.clock.forget(self)
        else:
            self.due, self.again = now + self.again, None
        self.told.set()


async def test_a_deadline_is_noticed_soon_after_it_and_never_before() -> None:
    loop, clock = asyncio.get_running_loop(), Clock()
    soon, later = (Watched(clock, loop.time() + delay) for delay in (0.03, 0.12))
    for each in (later, soon):
        clock.watch(each)
    await asyncio.wait_for(later.told.wait(), 5)
    assert soon.noticed[0] < later.noticed[0]
    for each in (soon, later):
        assert each.due <= each.noticed[0]
        assert len(each.noticed) == 1


async def test_a_deadline_that_moves_is_kept_where_it_moved_to() -> None:
    loop, clock = asyncio.get_running_loop(), Clock()
    one = Watched(clock, loop.time() + 0.01, again=0.1)
    clock.watch(one)
    await asyncio.wait_for(one.told.wait(), 5)
    one.told.clear()
    await asyncio.wait_for(one.told.wait(), 5)
    assert one.noticed[1] - one.noticed[0] >= 0.1


async def test_what_is_forgotten_is_not_noticed() -> None:
    loop, clock = asyncio.get_running_loop(), Clock()
    gone, kept = Watched(clock, loop.time() + 0.02), Watched(clock, loop.time() + 0.06)
    clock.watch(gone)
    clock.watch(kept)
    clock.forget(gone)
    clock.forget(gone)
    await asyncio.wait_for(kept.told.wait(), 5)
    assert gone.noticed == []


async def test_the_timer_rests_where_nothing_is_watched_and_wakes_for_the_next() -> None:
    loop, clock = asyncio.get_running_loop(), Clock()
    first = Watched(clock, loop.time())
    clock.watch(first)
    await asyncio.wait_for(first.told.wait(), 5)
    while clock._timer is not None:
        await asyncio.sleep(GRAIN_S)
    second = Watched(clock, loop.time())
    clock.watch(second)
    await asyncio.wait_for(second.told.wait(), 5)
