"""A window: what a gateway and its engines had counted at its two ends, and what that makes in between."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec
from prometheus_client.parser import text_string_to_metric_families


class Sample(NamedTuple):
    """One series' value."""

    labels: Mapping[str, str]
    value: float


Scrape = Mapping[str, list[Sample]]


def read(text: str) -> Scrape:
    """Read Prometheus's text into the samples of each name. Raises ValueError for what is none."""
    found: dict[str, list[Sample]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append(Sample(sample.labels, float(sample.value)))
    return found


class Lookup(msgspec.Struct, frozen=True):
    """What it took, from here, to find an engine's address and to connect to it; seconds. None: it was not done."""

    name_s: float | None = None
    connect_s: float | None = None


class Snapshot(msgspec.Struct, frozen=True):
    """What was scraped at one moment (seconds since 1970): texts; None of who did not answer, with ``troubles``."""

    at: float
    gateway: str | None
    engines: dict[str, str | None] = {}
    troubles: dict[str, str] = {}
    lookups: dict[str, Lookup] = {}


class Window:
    """What happened between two snapshots; ``gateway`` and ``engines`` say it by name of metric."""

    def __init__(self, before: Snapshot, after: Snapshot) -> None:
        self.seconds = max(1e-3, after.at - before.at)
        self.gateway = Span(before.gateway, after.gateway)
        self.engines = {name: Span(before.engines.get(name), text) for name, text in after.engines.items()}
        self.troubles = after.troubles
        self.lookups = {**before.lookups, **after.lookups}


class Span:
    """One side's two scrapes. Of a counter that began anew (a restart) the later value is what happened."""

    def __init__(self, before: str | None, after: str | None) -> None:
        self._before = read(before or "")
        self._after = read(after or "")

    def __bool__(self) -> bool:
        """Whether there is anything to go by."""
        return bool(self._after)

    def has(self, name: str) -> bool:
        """Whether there is such a metric."""
        return name in self._after

    def by(self, name: str, label: str, **labels: str) -> dict[str, float]:
        """Return by how much a counter grew, for each value of a label."""
        then = {_key(each): each.value for each in self._before.get(name, [])}
        grown: dict[str, float] = {}
        for each in _with(self._after.get(name, []), labels):
            start = then.get(_key(each), 0.0)
            more = each.value - start if each.value >= start else each.value
            grown[each.labels.get(label, "")] = grown.get(each.labels.get(label, ""), 0.0) + more
        return grown

    def grew(self, name: str, **labels: str) -> float:
        """Return by how much a counter grew, over all its series with these labels."""
        return sum(self.by(name, "", **labels).values())

    def mean(self, name: str, **labels: str) -> float:
        """Return the mean of what a histogram took in; 0 where there was nothing."""
        count = self.grew(f"{name}_count", **labels)
        return self.grew(f"{name}_sum", **labels) / count if count else 0.0

    def quantile(self, name: str, share: float) -> float:
        """Return the bound below which so much of what a histogram took in lies; 0 where there was nothing."""
        buckets = sorted((_bound(le), grown) for le, grown in self.by(f"{name}_bucket", "le").items())
        total = buckets[-1][1] if buckets else 0.0
        return next((bound for bound, below in buckets if total and below >= share * total), 0.0)

    def now(self, name: str, **labels: str) -> float:
        """Return a gauge at the end, over all its series."""
        return sum(each.value for each in _with(self._after.get(name, []), labels) if math.isfinite(each.value))

    def between(self, name: str, **labels: str) -> float:
        """Return the mean of a gauge at both ends."""
        start = sum(each.value for each in _with(self._before.get(name, []), labels) if math.isfinite(each.value))
        return (start + self.now(name, **labels)) / 2

    def always(self, name: str, **labels: str) -> bool:
        """Whether a gauge was above 0 at both ends."""
        start = sum(each.value for each in _with(self._before.get(name, []), labels) if math.isfinite(each.value))
        return start > 0 and self.now(name, **labels) > 0

    def top(self, name: str) -> float:
        """Return the largest value at the end."""
        return max((each.value for each in self._after.get(name, []) if math.isfinite(each.value)), default=0.0)

    def zeros(self, name: str, label: str) -> list[str]:
        """Name the series of a gauge that are 0 at the end."""
        return [each.labels.get(label, "") for each in self._after.get(name, []) if each.value == 0]


def _with(samples: list[Sample], labels: Mapping[str, str]) -> Iterator[Sample]:
    return (each for each in samples if labels.items() <= each.labels.items())


def _key(sample: Sample) -> frozenset[tuple[str, str]]:
    return frozenset(sample.labels.items())


def _bound(le: str) -> float:
    return float(le) if le else math.inf
