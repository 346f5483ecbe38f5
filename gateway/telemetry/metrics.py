"""What is counted and when: facts of requests, streams, engines and reloads become numbers in a table."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Collection, Mapping
from math import nan
from typing import NamedTuple

from gateway.record import Hit, Listing, Record
from gateway.telemetry import catalogue
from gateway.telemetry.catalogue import NONE, OTHER, Metric
from gateway.telemetry.exposition import exposition
from gateway.telemetry.table import Key, Table

_GAPS, _PHASES, _PLUGINS = catalogue.GAP_BUCKETS, catalogue.PHASE_BUCKETS, catalogue.PLUGIN_BUCKETS
_REQUESTS, _TTFTS, _LAGS = catalogue.REQUEST_BUCKETS, catalogue.TTFT_BUCKETS, catalogue.LAG_BUCKETS
# A histogram's slots: one for each bucket, one for what lies above, one for the sum.
_GAP_SUM, _PHASE_SUM, _PLUGIN_SUM = len(_GAPS) + 1, len(_PHASES) + 1, len(_PLUGINS) + 1
_REQUEST_SUM, _TTFT_SUM, _LAG_SUM = len(_REQUESTS) + 1, len(_TTFTS) + 1, len(_LAGS) + 1

_RUN_OUTCOMES = frozenset({"ran", "skipped", "failed", "timed_out"})
_DIRECTIONS = frozenset({"request", "answer"})
_ACTIONS = frozenset({"block", "mask", "replace", "tag", "allow", "fallback", "cache"})
_TICK_S = 0.5


class _Slots(NamedTuple):
    """Where the numbers of one (route, model, outcome) lie."""

    requests: int
    seconds: int
    prompt: int
    completion: int


def _number(digits: str) -> float:
    """Return hexadecimal digits as a number that a double holds exactly; no number of what is none."""
    try:
        return int(digits, 16) % 2**53
    except ValueError:
        return nan


class Metrics:
    """The numbers of this worker, and at a scrape those of all. To be called on the event loop.

    A count is an addition to a slot found once (a dict's entry): nothing on the way of a request makes text, takes a
    lock or calls a library. Names that are not ``known`` count as ``other``, so no caller makes a series.
    """

    def __init__(self, table: Table, *, version: str = "") -> None:
        self._table = table
        self._view = table.view
        self._models: frozenset[str] = frozenset()
        self._engines: frozenset[str] = frozenset()
        self._plugins: frozenset[str] = frozenset()
        self._keys: frozenset[str] = frozenset()
        self._charged: dict[tuple[str | None, str | None], tuple[int, int]] = {}
        self._lists: frozenset[tuple[str, str]] = frozenset()
        self._series: dict[str, int] = {}
        self._take_over()
        self._exchanges: dict[tuple[str, str | None, str], _Slots] = {}
        self._runs: dict[tuple[str, str], tuple[int, int]] = {}
        self._flights: dict[str, int] = {}
        self._phases = {phase: self._slot(catalogue.PHASE_SECONDS, phase) for phase in catalogue.PHASES}
        self._firsts = {
            (sampling, stream): self._slot(catalogue.ENGINE_FIRST, sampling, "yes" if stream else "no")
            for sampling in catalogue.SAMPLINGS
            for stream in (False, True)
        }
        self._gap = self._slot(catalogue.CHUNK_GAP)
        self._ttft = self._slot(catalogue.TTFT)
        self._lag = self._slot(catalogue.LOOP_LAG)
        self._dropped = self._slot(catalogue.LOG_LINES_DROPPED)
        self._view[self._slot(catalogue.BUILD_INFO, version)] = 1.0

    def _take_over(self) -> None:
        """Of a dead worker whose place this one takes, counters go on; what it gauged is gone with it."""
        gauges = {metric.name for metric in catalogue.CATALOGUE if metric.kind is catalogue.Kind.GAUGE}
        for key in self._table.keys():  # noqa: SIM118 - a table, not a dict
            self._series[key.name] = self._series.get(key.name, 0) + 1
            if key.name in gauges:
                self._view[self._table.slot(key)] = nan

    def known(
        self,
        *,
        models: Collection[str],
        plugins: Collection[str] = (),
        keys: Collection[str] = (),
    ) -> None:
        """Say which names labels may take; after a reload again."""
        for model in self._models.difference(models):  # nobody will tell what waits there any more
            for metric in (catalogue.QUEUE_DEPTH, catalogue.RESERVED, catalogue.CAPACITY):
                self._view[self._slot(metric, model)] = nan
        self._models, self._plugins = frozenset(models), frozenset(plugins)
        self._keys = frozenset(keys)
        self._exchanges.clear()
        self._runs.clear()
        self._charged.clear()
        for model in self._models:  # series that are there from the start show a rate from the first request on
            self.in_flight(model, 0)
            self.queue_depth(model, 0)

    def engines(self, names: Collection[str]) -> None:
        """Say which engines there are; those that are gone lose their series."""
        for engine in self._engines.difference(names):
            for metric in (catalogue.ENGINE_UP, catalogue.ENGINE_IN_FLIGHT):
                self._view[self._slot(metric, engine)] = nan
        self._engines = frozenset(names)

    def finished(self, record: Record) -> None:
        """Count a request that has ended."""
        view = self._view
        route, model, outcome = record.route, record.model, record.outcome
        slots = self._exchanges.get((route, model, outcome)) or self._exchange(route, model, outcome)
        view[slots.requests] += 1.0
        seconds = record.total_s
        view[slots.seconds + bisect_left(_REQUESTS, seconds)] += 1.0
        view[slots.seconds + _REQUEST_SUM] += seconds
        if record.prompt_tokens:
            view[slots.prompt] += record.prompt_tokens
        if record.completion_tokens:
            view[slots.completion] += record.completion_tokens
        if record.key is not None and (record.prompt_tokens or record.completion_tokens):
            prompt, completion = self._charged.get((record.key, model)) or self._charge(record.key, model)
            view[prompt] += record.prompt_tokens
            view[completion] += record.completion_tokens
        if record.first_text_s is not None:
            view[self._ttft + bisect_left(_TTFTS, record.first_text_s)] += 1.0
            view[self._ttft + _TTFT_SUM] += record.first_text_s
        phases = self._phases
        for phase, seconds in record.phases.items():
            if (base := phases.get(phase)) is not None:
                view[base + bisect_left(_PHASES, seconds)] += 1.0
                view[base + _PHASE_SUM] += seconds
        if (first := record.phases.get("first_token")) is not None:
            base = self._firsts[record.sampling, record.stream]
            view[base + bisect_left(_PHASES, first)] += 1.0
            view[base + _PHASE_SUM] += first
        runs = self._runs
        for plugin, run in record.runs.items():
            count, base = runs.get((plugin, run.outcome)) or self._run(plugin, run.outcome)
            view[count] += 1.0
            view[base + bisect_left(_PLUGINS, run.seconds)] += 1.0
            view[base + _PLUGIN_SUM] += run.seconds
        if record.hits:
            self._hits(record.hits)

    def chunk_gap(self, seconds: float) -> None:
        """Count the time between two pieces of a stream."""
        view, base = self._view, self._gap
        view[base + bisect_left(_GAPS, seconds)] += 1.0
        view[base + _GAP_SUM] += seconds

    def in_flight(self, model: str, change: int) -> None:
        """Count a request that begins (+1) or ends (-1) at a model."""
        slot = self._flights.get(model)
        if slot is None:
            slot = self._gauge(catalogue.IN_FLIGHT, self._model(model))
            if model in self._models:
                self._flights[model] = slot  # for good: a request may end after a reload has dropped its model
        self._view[slot] += change

    def queue_depth(self, model: str, waiting: int) -> None:
        """Say how many requests wait for a place at a model."""
        self._view[self._slot(catalogue.QUEUE_DEPTH, self._model(model))] = waiting

    def reserved(self, model: str, tokens: int, capacity: int | None) -> None:
        """Say how many KV tokens are reserved at a model, of how many."""
        name = self._model(model)
        self._view[self._slot(catalogue.RESERVED, name)] = tokens
        self._view[self._slot(catalogue.CAPACITY, name)] = capacity or 0

    def limits_shared(self, shared: bool) -> None:
        """Say whether limits are counted in Redis, where they are to be."""
        self._view[self._slot(catalogue.LIMITS_AWAY)] = not shared

    def engine_up(self, name: str, up: bool) -> None:
        """Say whether an engine is in use."""
        self._view[self._slot(catalogue.ENGINE_UP, name if name in self._engines else OTHER)] = up

    def engine_in_flight(self, name: str, requests: int) -> None:
        """Say how many requests are at an engine."""
        self._view[self._slot(catalogue.ENGINE_IN_FLIGHT, name if name in self._engines else OTHER)] = requests

    def mirrored(self, engine: str, side: str, outcome: str, seconds: float, tokens: int) -> None:
        """Count a copy at a mirror (side ``copy``) or the request it is one of (``original``), when it has ended."""
        name = engine if engine in self._engines else OTHER
        self._view[self._slot(catalogue.MIRROR_REQUESTS, name, side, outcome)] += 1.0
        self._view[self._slot(catalogue.MIRROR_SECONDS, name, side)] += seconds
        self._view[self._slot(catalogue.MIRROR_TOKENS, name, side)] += tokens

    def engines_in_flight(self) -> dict[str, int]:
        """Return how many requests are at each engine, from all workers together. Reads files."""
        total: dict[str, int] = {}
        for worker in self._table.snapshots():
            for key, (value, *_) in worker.series.items():
                if worker.alive and key.name == catalogue.ENGINE_IN_FLIGHT.name and value == value:  # noqa: PLR0124 - not NaN
                    total[key.labels[0]] = total.get(key.labels[0], 0) + int(value)
        return total

    def reload(self, outcome: str, version: int) -> None:
        """Count an attempt to put a configuration into force (``ok``, ``refused``); ``version`` is the one in force."""
        self._view[self._slot(catalogue.RELOADS, outcome if outcome in {"ok", "refused"} else OTHER)] += 1.0
        self.config_version(version)

    def config_version(self, version: int) -> None:
        """Say which configuration is in force."""
        self._view[self._slot(catalogue.CONFIG_VERSION)] = version

    def lists(self, lists: Mapping[tuple[str, str], Listing]) -> None:
        """Say which lists are in force, by plugin and name; those that are gone lose their series."""
        for labels in self._lists.difference(lists):
            self._view[self._slot(catalogue.LIST_ENTRIES, *labels)] = nan
            self._view[self._slot(catalogue.LIST_VERSION, *labels)] = nan
        self._lists = frozenset(lists)
        for labels, listing in lists.items():
            self._view[self._slot(catalogue.LIST_ENTRIES, *labels)] = listing.entries
            self._view[self._slot(catalogue.LIST_VERSION, *labels)] = _number(listing.version)

    def log_line_dropped(self) -> None:
        """Count a log line that nobody was there to read."""
        self._view[self._dropped] += 1.0

    async def watch_loop(self) -> None:
        """Measure how late the event loop wakes up, until cancelled."""
        now = asyncio.get_running_loop().time
        while True:
            due = now() + _TICK_S
            await asyncio.sleep(_TICK_S)
            lag = max(0.0, now() - due)
            self._view[self._lag + bisect_left(_LAGS, lag)] += 1.0
            self._view[self._lag + _LAG_SUM] += lag

    def render(self) -> bytes:
        """Write the sum over all workers as Prometheus text. Takes milliseconds; may be called from a thread."""
        return exposition(self._table.snapshots())

    def _model(self, model: str | None) -> str:
        return NONE if not model else model if model in self._models else OTHER

    def _charge(self, key: str, model: str | None) -> tuple[int, int]:
        names = key if key in self._keys else OTHER, self._model(model)
        slots = (
            self._slot(catalogue.KEY_TOKENS, *names, "prompt"),
            self._slot(catalogue.KEY_TOKENS, *names, "completion"),
        )
        if names == (key, model):
            self._charged[key, model] = slots
        return slots

    def _exchange(self, route: str, model: str | None, outcome: str) -> _Slots:
        names = (
            route if route in catalogue.ROUTES else OTHER,
            self._model(model),
            outcome if outcome in catalogue.OUTCOMES else OTHER,
        )
        slots = _Slots(
            self._slot(catalogue.REQUESTS, *names),
            self._slot(catalogue.REQUEST_SECONDS, *names[:2]),
            self._slot(catalogue.TOKENS, names[1], "prompt"),
            self._slot(catalogue.TOKENS, names[1], "completion"),
        )
        if names == (route, model or NONE, outcome):  # a name made up by a caller must not stay in memory either
            self._exchanges[route, model, outcome] = slots
        return slots

    def _run(self, plugin: str, outcome: str) -> tuple[int, int]:
        name = plugin if plugin in self._plugins else OTHER
        run = outcome if outcome in _RUN_OUTCOMES else OTHER
        slots = self._slot(catalogue.PLUGIN_RUNS, name, run), self._slot(catalogue.PLUGIN_SECONDS, name)
        self._runs[plugin, outcome] = slots
        return slots

    def _hits(self, hits: list[Hit]) -> None:
        for hit in hits:
            plugin = hit.plugin if hit.plugin in self._plugins else OTHER
            direction = hit.direction if hit.direction in _DIRECTIONS else OTHER
            action = hit.action if hit.action in _ACTIONS else OTHER
            mode = "shadow" if hit.shadow else "enforce"
            self._view[self._slot(catalogue.HITS, plugin, direction, action, hit.tag or NONE, mode)] += 1.0
        blocks = {(hit.plugin, hit.direction, hit.tag) for hit in hits if hit.action == "block" and not hit.shadow}
        for name, where, tag in blocks:  # several rules may have hit one text: it was blocked once
            plugin = name if name in self._plugins else OTHER
            self._view[self._slot(catalogue.BLOCKS, plugin, where if where in _DIRECTIONS else OTHER, tag or NONE)] += (
                1.0
            )

    def _gauge(self, metric: Metric, *labels: str) -> int:
        slot = self._slot(metric, *labels)
        if self._view[slot] != self._view[slot]:  # not a number: of an engine or a worker that was gone
            self._view[slot] = 0.0
        return slot

    def _slot(self, metric: Metric, *labels: str) -> int:
        """Find a series' slot. A metric that has its ``limit`` of series puts further ones under ``other``."""
        key = Key(metric.name, labels)
        if not self._table.has(key):
            made = self._series.get(metric.name, 0)
            if made < metric.limit:
                self._series[metric.name] = made + 1
            else:
                key = Key(metric.name, (OTHER,) * len(labels))
        return self._table.slot(key, len(metric.buckets) + 2 if metric.buckets else 1)
