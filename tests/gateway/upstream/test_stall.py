"""Who works and gets nowhere is found out; who waits for work is not."""

from __future__ import annotations

from gateway.upstream.stall import Stall


def test_a_count_that_stands_still_while_there_is_work_is_a_stall() -> None:
    stall = Stall(30)
    looks = [stall.look(now, works=True, heard=False, progress=7) for now in range(0, 45, 3)]
    assert looks == [False] * 10 + [True] * 5
    assert not stall.look(45, works=True, heard=False, progress=8)


def test_nothing_is_expected_of_who_has_no_work() -> None:
    stall = Stall(30)
    assert not any(stall.look(now, works=False, heard=False, progress=7) for now in range(0, 100, 3))
    assert not stall.look(100, works=True, heard=False, progress=7)


def test_whatever_is_heard_is_progress() -> None:
    stall = Stall(30)
    assert not any(stall.look(now, works=True, heard=now % 27 == 0, progress=None) for now in range(0, 100, 3))
    assert any(stall.look(now, works=True, heard=False, progress=None) for now in range(100, 140, 3))
