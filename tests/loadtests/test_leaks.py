"""What a soak takes for a leak, and what for noise."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from loadtests.leaks import Sample, faults, slope

IDLE = Sample(0, 70, 20, 0)


def samples(mb: Callable[[float], float], minutes: int = 20) -> list[Sample]:
    """One every ten seconds."""
    return [Sample(at, mb(at), 30, 5) for at in range(0, minutes * 60, 10)]


def test_a_slope_is_mb_an_hour_and_no_single_jump_moves_it() -> None:
    steady = samples(lambda at: 70 + at / 3600 * 60)
    assert slope(steady) == pytest.approx(60)
    steady[40] = Sample(400, 500, 30, 5)
    assert slope(steady) == pytest.approx(60, abs=1)
    assert slope(steady[:1]) == 0


def test_steady_growth_is_a_leak() -> None:
    assert faults(samples(lambda at: 70 + at / 40), IDLE, IDLE) == ["memory grows by 90 MB an hour"]


def test_what_loads_at_first_and_what_breathes_is_none() -> None:
    assert faults(samples(lambda at: 70 + 30 * (1 - math.exp(-at / 60))), IDLE, IDLE) == []
    assert faults(samples(lambda at: 70 + 3 * math.sin(at / 50)), IDLE, IDLE) == []


def test_files_and_requests_left_over_are_told() -> None:
    told = faults(samples(lambda _: 70), IDLE, Sample(0, 70, 29, 2))
    assert told == ["9 file descriptors are left over", "2 requests are still counted as in flight"]
