"""The scrape: every worker's numbers, summed, as Prometheus text."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from pathlib import Path

import prometheus_client
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from gateway.telemetry.catalogue import CATALOGUE, PROCESS, Kind, Metric
from gateway.telemetry.table import Key, Snapshot

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def exposition(snapshots: Sequence[Snapshot]) -> bytes:
    """Write what these workers have counted. What a dead one counted stays; what it gauged is gone with it."""
    return prometheus_client.generate_latest(_Workers(snapshots))


class _Workers(Collector):
    def __init__(self, snapshots: Sequence[Snapshot]) -> None:
        self._snapshots = snapshots

    def collect(self) -> Iterator[Family]:
        """Hand the library one family for each metric of the catalogue."""
        totals: dict[str, dict[tuple[str, ...], list[float]]] = {metric.name: {} for metric in CATALOGUE}
        declared = {metric.name: metric for metric in CATALOGUE}
        for worker in self._snapshots:
            for key, values in worker.series.items():
                if metric := declared.get(key.name):
                    _add(totals[key.name], metric, key, values, alive=worker.alive)
        for metric in CATALOGUE:
            yield _family(metric, totals[metric.name].items())
        living = [worker for worker in self._snapshots if worker.alive]
        yield from _processes(living)


def _add(
    totals: dict[tuple[str, ...], list[float]], metric: Metric, key: Key, values: list[float], *, alive: bool
) -> None:
    if metric.kind is Kind.GAUGE and (not alive or values[0] != values[0]):  # not a number: never set, or taken back
        return
    sofar = totals.get(key.labels)
    if sofar is None:
        totals[key.labels] = values
    elif metric.across == "max":
        totals[key.labels] = [max(sofar[0], values[0])]
    else:
        totals[key.labels] = [one + other for one, other in zip(sofar, values, strict=True)]


def _family(metric: Metric, series: Iterable[tuple[tuple[str, ...], list[float]]]) -> Family:
    family = Family(metric.name.removesuffix("_total"), metric.help, metric.kind)
    for values_of_labels, values in series:
        labels = dict(zip(metric.labels, values_of_labels, strict=True))
        if metric.kind is not Kind.HISTOGRAM:
            family.add_sample(metric.name, labels, values[0])
            continue
        *buckets, total = values
        bounds = [*map(floatToGoString, metric.buckets), "+Inf"]
        for bound, count in zip(bounds, accumulate(buckets), strict=True):
            family.add_sample(f"{metric.name}_bucket", {**labels, "le": bound}, count)
        family.add_sample(f"{metric.name}_count", labels, sum(buckets))
        family.add_sample(f"{metric.name}_sum", labels, total)
    return family


def _processes(workers: Sequence[Snapshot]) -> Iterator[Family]:
    """Read /proc for each worker; where there is none, there is nothing to tell."""
    seen = {worker.worker: numbers for worker in workers if (numbers := _process(worker.pid))}
    for index, metric in enumerate(PROCESS):
        if seen:
            yield _family(metric, [((name,), [numbers[index]]) for name, numbers in seen.items()])


def _process(pid: int) -> tuple[float, float, float, float] | None:
    folder = Path(f"/proc/{pid}")
    try:
        # After the name, which may hold anything: fields 3 and on of proc(5).
        stat = (folder / "stat").read_text().rpartition(")")[2].split()
        descriptors = len(os.listdir(folder / "fd"))  # noqa: PTH208 - names only
        booted = float(Path("/proc/stat").read_text().partition("\nbtime ")[2].partition("\n")[0])
    except (OSError, ValueError):
        return None
    tick = os.sysconf("SC_CLK_TCK")
    resident = int(stat[21]) * os.sysconf("SC_PAGE_SIZE")
    return float(resident), (int(stat[11]) + int(stat[12])) / tick, float(descriptors), booted + int(stat[19]) / tick
