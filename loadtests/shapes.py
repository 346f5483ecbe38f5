"""The shapes of a load over time: how many callers there are at which moment; pure functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping

#: Seconds since the start, of so many in all, with so many callers at the most: how many now.
Shape = Callable[[float, float, int], int]


def steady(_: float, __: float, users: int) -> int:
    """All of them, all the time."""
    return users


def ramp(at: float, length: float, users: int) -> int:
    """More and more, to the end."""
    return max(1, round(users * min(1.0, at / length)))


def spike(at: float, length: float, users: int) -> int:
    """A tenth of them, and in the middle fifth all."""
    return users if 0.4 <= at / length < 0.6 else max(1, users // 10)


def soak(at: float, length: float, users: int) -> int:
    """Two thirds, breathing by a third over six periods: what leaks shows at the same level later on."""
    phase = (at * 6 / length) % 1
    swing = abs(2 * phase - 1)  # 1 to 0 to 1
    return max(1, round(users * (1 / 3 + 2 / 3 * swing)))


SHAPES: Mapping[str, Shape] = {"steady": steady, "ramp": ramp, "spike": spike, "soak": soak}


def stairs(step: int, first: int = 1, factor: float = 1.5) -> int:
    """Return the callers of one step of the way to the knee: each at least one more than the last."""
    users = first
    for _ in range(step):
        users = max(users + 1, int(users * factor))
    return users
