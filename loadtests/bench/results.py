"""What was measured, and the table made of it."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from gateways import Gateway
from procs import Process

BASELINES = ("vllm-router", "nginx")
MEDIANS = (
    "cpu_us",
    "requests_s",
    "latency_ms.p50",
    "latency_ms.p99",
    "ttft_ms.p50",
    "ttft_ms.p99",
    "gap_ms.p50",
    "gap_ms.p99",
    "stream_ms.max",
    "engine_calls",
)


@dataclass(frozen=True)
class Scenario:
    title: str
    unit: str  # what the CPU time is divided by: "request" or "chunk" (tokens that the engine sent)
    stream: bool = False
    concurrency: int = 32
    tokens: int = 64
    itl_ms: float = 0
    prompt_bytes: int = 0
    one_wave: bool = False  # each connection sends one request, whatever --seconds says
    ramp_s: float = 0
    most_rounds: int = 99


SCENARIOS = {
    "whole": Scenario("whole answers of 64 tokens, 32 connections", "request"),
    "burst": Scenario("streams of 64 chunks as fast as possible, 32 connections", "request", stream=True),
    "stream": Scenario(
        "streams of 100 chunks, 10 ms a token, 32 connections",
        "chunk",
        stream=True,
        tokens=100,
        itl_ms=10,
        one_wave=True,
        ramp_s=0.3,
    ),
    "pace": Scenario(
        "256 streams of 60 chunks, 50 ms a token",
        "chunk",
        stream=True,
        concurrency=256,
        tokens=60,
        itl_ms=50,
        one_wave=True,
        ramp_s=1,
        most_rounds=3,
    ),
    "prompt": Scenario(
        "Chinese prompts of 8 KB, whole answers of 64 tokens, 32 connections", "request", prompt_bytes=8192
    ),
}


@dataclass
class Contestant:
    """A gateway and what was found out about it."""

    name: str
    version: str = ""
    failed: str = ""
    text: str = ""  # "same" as the engine's, or what differed
    starts_s: list[float] = field(default_factory=list)
    rss_idle: int = 0
    rss_peak: int = 0
    rss_open: int = 0
    open_streams: int = 0
    rounds: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    gateway: Gateway | None = field(default=None, repr=False)
    process: Process | None = field(default=None, repr=False)

    @property
    def cpu_counts(self) -> bool:
        return self.gateway is not None and bool(self.gateway.command)

    def median(self, scenario: str, key: str) -> float | None:
        values = [value for one in self.rounds.get(scenario, []) if (value := figure(one, key)) is not None]
        return statistics.median(values) if values else None

    @property
    def start_s(self) -> float | None:
        return statistics.median(self.starts_s) if self.starts_s else None

    @property
    def rss_per_stream(self) -> float | None:
        return (self.rss_open - self.rss_idle) / self.open_streams if self.open_streams else None

    def report(self) -> dict[str, Any]:
        found = {key: value for key, value in self.__dict__.items() if key not in ("gateway", "process", "rounds")}
        if self.gateway:
            found |= {"command": self.gateway.command, "env": self.gateway.env}
        found |= {"start_s": self.start_s, "rss_per_stream": self.rss_per_stream}
        medians = {name: {key: self.median(name, key) for key in MEDIANS} for name in self.rounds}
        return found | {"errors": self.errors, "median": medians, "rounds": self.rounds}

    @property
    def engine_calls(self) -> float | None:
        """The most, of all scenarios."""
        return max((self.median(name, "engine_calls") or 0 for name in self.rounds), default=None)

    @property
    def errors(self) -> int:
        return sum(one["errors"] + one["unfinished"] for rounds in self.rounds.values() for one in rounds)


def figure(measured: dict[str, Any], key: str) -> float | None:
    """measured["a"]["b"] for "a.b"; None where there is none."""
    value: Any = measured
    for part in key.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return None if value is None else float(value)


def ratio(one: Contestant, other: Contestant, scenario: str, key: str = "cpu_us") -> float | None:
    """The median of the ratios within each round."""
    pairs = zip(one.rounds.get(scenario, []), other.rounds.get(scenario, []), strict=False)
    ratios = [a / b for first, second in pairs if (a := figure(first, key)) and (b := figure(second, key))]
    return statistics.median(ratios) if ratios else None


def added(one: Contestant, floor: Contestant | None, scenario: str, key: str) -> float | None:
    """The median of what it adds to the direct figure of the same round."""
    if floor is None or one is floor:
        return None
    pairs = zip(one.rounds.get(scenario, []), floor.rounds.get(scenario, []), strict=False)
    extra = [
        a - b
        for first, second in pairs
        if (a := figure(first, key)) is not None and (b := figure(second, key)) is not None
    ]
    return statistics.median(extra) if extra else None


def shown(value: float | None, digits: int | None = None, unit: str = "") -> str:
    if value is None:
        return "-"
    if digits is None:
        digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:,.{digits}f}{unit}"


class Table:
    """Rows of one cell for each gateway."""

    def __init__(self, contestants: list[Contestant]) -> None:
        self.all = contestants
        self.shown = [c for c in contestants if not c.failed or c.rounds]
        self.by_name = {c.name: c for c in self.shown}
        self.bases = [self.by_name[name] for name in BASELINES if name in self.by_name]
        self.rows: list[tuple[str, list[str]]] = []

    def row(self, title: str, cell: Callable[[Contestant], str]) -> None:
        self.rows.append((title, [cell(c) for c in self.shown]))

    def general(self) -> None:
        self.row("", lambda c: c.name)
        self.row("version", lambda c: c.version or "-")
        self.row("start-up, s", lambda c: shown(c.start_s, 2))
        self.row("RSS idle, MB", lambda c: shown(c.rss_idle / 2**20 or None, 0))
        self.row("RSS peak under load, MB", lambda c: shown(c.rss_peak / 2**20 or None, 0))
        self.row("RSS an open stream, KB", lambda c: shown(c.rss_per_stream and c.rss_per_stream / 1024))

    def scenario(self, name: str, scenario: Scenario) -> None:
        floor = self.by_name.get("direct")

        def pair(key: str) -> Callable[[Contestant], str]:
            return lambda c: f"{shown(c.median(name, f'{key}.p50'), 1)} / {shown(c.median(name, f'{key}.p99'), 1)}"

        def times(base: Contestant) -> Callable[[Contestant], str]:
            return lambda c: shown(ratio(c, base, name), 2)

        self.rows.append((f"{name}: {scenario.title}", []))
        self.row(f"  µs CPU a {scenario.unit}", lambda c: shown(c.median(name, "cpu_us")))
        for base in self.bases:
            self.row(f"    × {base.name}", times(base))
        if scenario.itl_ms:  # paced: what does the gateway add?
            self.row("  first text p50, ms added", lambda c: shown(added(c, floor, name, "ttft_ms.p50"), 1))
            self.row("  gap between chunks p99, ms added", lambda c: shown(added(c, floor, name, "gap_ms.p99"), 1))
            self.row("  slowest stream, ms added", lambda c: shown(added(c, floor, name, "stream_ms.max"), 0))
            return
        self.row("  requests/s", lambda c: shown(c.median(name, "requests_s"), 0))
        self.row("  latency p50 / p99, ms", pair("latency_ms"))
        if scenario.stream:
            self.row("  first text p50 / p99, ms", pair("ttft_ms"))

    def checks(self) -> None:
        self.row("engine calls a request", lambda c: shown(c.engine_calls, 2))
        self.row("errors", lambda c: str(c.errors))
        self.row("text unchanged", lambda c: "yes" if c.text == "same" else "NO")

    def text(self) -> str:
        first = max(len(title) for title, cells in self.rows if cells)
        widths = [max(len(cells[i]) for _, cells in self.rows if cells) for i in range(len(self.shown))]
        lines = []
        for title, cells in self.rows:
            filled = "  ".join(cell.rjust(width) for cell, width in zip(cells, widths, strict=False))
            lines.append(f"{title.ljust(first)}  {filled}".rstrip())
        lines += [f"{c.name}: out: {c.failed}" for c in self.all if c.failed]
        lines += [f"{c.name}: text differs: {c.text}" for c in self.all if c.text not in ("", "same")]
        return "\n".join(lines)


def table(contestants: list[Contestant], scenarios: Iterable[str]) -> str:
    made = Table(contestants)
    made.general()
    for name in scenarios:
        made.scenario(name, SCENARIOS[name])
    made.checks()
    return made.text()
