"""From samples of a process to what leaks in it; pure."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

#: Growth that is noise: a heap breathes by this much in an hour.
ALLOWED_MB_AN_HOUR = 24.0
#: What the first part of a run loads (caches, pools) is not counted.
WARM_UP = 1 / 3


@dataclass(frozen=True, slots=True)
class Sample:
    """What the process held: seconds since the start, MB, open files, requests in flight."""

    at: float
    mb: float
    files: int
    in_flight: int


def slope(samples: Sequence[Sample]) -> float:
    """MB an hour, by Theil and Sen: the median of all pairs' slopes, which a collection or a reload does not move."""
    pairs = ((later.mb - one.mb) / (later.at - one.at) for one, later in itertools.combinations(samples, 2))
    return statistics.median(pairs) * 3600 if len(samples) > 1 else 0.0


def faults(samples: Sequence[Sample], before: Sample, after: Sample) -> list[str]:
    """What is wrong with a run; ``before`` and ``after`` are samples with nobody asking."""
    found = []
    warm = [each for each in samples if each.at >= samples[-1].at * WARM_UP] if samples else []
    hours = (warm[-1].at - warm[0].at) / 3600 if len(warm) > 1 else 0
    # Over minutes the noise is larger than what it grows by in an hour: 4 MB are allowed whatever the time.
    if slope(warm) * hours > max(4.0, ALLOWED_MB_AN_HOUR * hours):
        found.append(f"memory grows by {slope(warm):.0f} MB an hour")
    if after.files > before.files + 2:
        found.append(f"{after.files - before.files} file descriptors are left over")
    if after.in_flight:
        found.append(f"{after.in_flight} requests are still counted as in flight")
    return found
