"""Finds the longest of many candidates that fits, measuring few of them: a measurement is a call of the engine."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

_MOST = 12  # measurements
_FULL = 0.97  # so full is full enough


async def longest_fit(measure: Callable[[int], Awaitable[float]], low: int, high: int, over: float) -> int | None:
    """Return the largest number found whose measure is at most 1, None where not even ``low`` fits.

    ``measure`` grows with its argument; of ``high`` it is known to be ``over``, more than 1. Guesses follow the
    straight line between the two closest measurements, so that texts of even density take two or three.
    """
    size = await measure(low)
    if size > 1:
        return None
    measured = 1
    while high - low > 1 and size < _FULL and measured < _MOST:
        share = (0.99 - size) / (over - size) if measured % 3 else 0.5  # and now and then by halves
        guess = min(high - 1, max(low + 1, low + int((high - low) * share)))
        found = await measure(guess)
        measured += 1
        if found <= 1:
            low, size = guess, found
        else:
            high, over = guess, found
    return low
