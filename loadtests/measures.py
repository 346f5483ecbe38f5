"""What is measured of an answer, and what it is held against; nothing here opens a socket.

Times are seconds from ``time.perf_counter``, thresholds are what people write: ``ttft_p95=300ms``.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any


@dataclass(slots=True)
class Stream:
    """One streamed answer as its caller sees it; ``began`` is when the request was sent."""

    began: float
    first_text: float | None = None
    last_text: float | None = None
    gaps: list[float] = field(default_factory=list)  # between pieces with text in them
    text: list[str] = field(default_factory=list)
    tokens: int | None = None  # as the engine counts them
    finish: str | None = None
    error: str | None = None
    done: bool = False

    def line(self, line: bytes, now: float) -> None:
        """Take one line of the body; only ``data:`` lines say anything."""
        if not line.startswith(b"data:"):
            return
        payload = line[5:].strip()
        if payload == b"[DONE]":
            self.done = True
            return
        event = json.loads(payload)
        if "error" in event:
            self.error = str(event["error"].get("code"))
            return
        if event.get("usage"):
            self.tokens = event["usage"].get("completion_tokens")
        for choice in event.get("choices", ()):
            delta = choice.get("delta", {})
            if piece := (delta.get("content") or delta.get("reasoning") or choice.get("text")):
                self._piece(piece, now)
            self.finish = choice.get("finish_reason") or self.finish

    def _piece(self, piece: str, now: float) -> None:
        self.text.append(piece)
        if self.last_text is None:
            self.first_text = now
        else:
            self.gaps.append(now - self.last_text)
        self.last_text = now

    @property
    def ttft(self) -> float | None:
        """Seconds to the first text."""
        return None if self.first_text is None else self.first_text - self.began

    @property
    def pace(self) -> float | None:
        """Tokens a second after the first; None where there was only one."""
        if self.first_text is None or self.last_text is None or self.last_text == self.first_text:
            return None
        return len(self.gaps) / (self.last_text - self.first_text)

    def fault(self) -> str | None:
        """Name what is wrong with the answer, by kind; None where nothing is."""
        if self.error is not None:
            return f"event:{self.error}"
        if not self.done:
            return "cut"
        if self.finish is None:
            return "no_finish_reason"
        return None


#: What Locust's statistics call it, whether more is worse, and the unit people may write.
KINDS: Mapping[str, tuple[str, bool, str]] = {
    "ttft": ("TTFT", True, "ms"),
    "itl": ("ITL", True, "ms"),
    "e2e": ("POST", True, "ms"),
    "pace": ("tokens/s", False, ""),
    "goodput": ("goodput", False, "%"),
    "errors": ("POST", True, "%"),
}

_TERM = re.compile(
    r"(?:(?P<name>[\w-]+)\.)?(?P<kind>[a-z0-9]+?)(?:_p(?P<share>\d{1,2}(?:\.\d+)?))?=(?P<value>[\d.]+)(?P<unit>ms|s|%|)"
)


@dataclass(frozen=True, slots=True)
class Objective:
    """A promise to hold: ``chat.ttft_p95=300ms``, ``itl_p99=80``, ``errors=1%``, ``goodput=95%``, ``pace_p5=20``.

    ``limit`` is in ms, in tokens a second, or a share from 0 to 1.
    """

    said: str
    kind: str
    limit: float
    share: float | None = None  # of the answers, from 0 to 1; None: of all together (goodput, errors)
    name: str | None = None  # of one scenario only

    @classmethod
    def parse(cls, said: str) -> Objective:
        """Read one. Raises ValueError, saying what can be written."""
        found = _TERM.fullmatch(said.strip())
        usual = "an objective looks like ttft_p95=300ms, itl_p99=80ms, e2e_p99=5s, pace_p5=20, errors=1% or goodput=95%"
        if found is None or found["kind"] not in KINDS:
            raise ValueError(f"{said!r}: {usual}; chat. before it is for one scenario")
        kind, unit = found["kind"], found["unit"]
        _, _, own = KINDS[kind]
        if (found["share"] is None) != (own == "%") or (unit == "%") != (own == "%") or (unit == "s" and own != "ms"):
            raise ValueError(f"{said!r}: {usual}")
        value = float(found["value"]) * (1000 if unit == "s" else 0.01 if unit == "%" else 1)
        share = None if found["share"] is None else float(found["share"]) / 100
        return cls(said.strip(), kind, value, share, found["name"])

    def verdict(self, measured: float | None) -> tuple[bool, str]:
        """Say whether it holds, in one line."""
        _, more_is_worse, unit = KINDS[self.kind]
        if measured is None:
            return False, f"{self.said}: missed: nothing was measured"
        held = measured <= self.limit if more_is_worse else measured >= self.limit
        told = f"{measured * 100:.1f}%" if unit == "%" else f"{measured:.1f}{unit}"
        return held, f"{self.said}: {'held' if held else 'missed'}: {told}"


def percentile(times: Mapping[float, int], share: float) -> float | None:
    """Return the smallest value that ``share`` of all counted values do not pass (nearest rank); None of nothing."""
    wanted = max(1, -(-sum(times.values()) * share // 1))
    for value in sorted(times):
        wanted -= times[value]
        if wanted <= 0:
            return value
    return None


def since(now: Mapping[float, int], before: Mapping[float, int]) -> Counter[float]:
    """Return what was counted after ``before``."""
    return Counter({value: more for value, count in now.items() if (more := count - before.get(value, 0))})


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a ramp: so many callers at once, and what they got."""

    users: int
    ttft_ms: float | None  # at the objective's percentile
    tokens_s: float
    errors: float  # share, 0 to 1


def knee(steps: Sequence[Step], target_ms: float, *, gain: float = 0.05, errors: float = 0.01) -> Step | None:
    """Return the last good step if the newest one has passed the knee; None while it is still worth going on.

    Past the knee: TTFT over the target, more than ``errors`` of the requests failed, or the throughput grew by less
    than ``gain`` twice running.
    """
    newest = steps[-1]
    if newest.ttft_ms is None or newest.ttft_ms > target_ms or newest.errors > errors:
        return steps[-2] if len(steps) > 1 else newest
    grew = [after.tokens_s > before.tokens_s * (1 + gain) for before, after in pairwise(steps)]
    if len(grew) > 1 and not any(grew[-2:]):
        return steps[-3]
    return None


def recommended(step: Step, headroom: float = 0.2) -> int:
    """Return the ``max_in_flight`` to set: the largest batch within the latency target, less the headroom."""
    return max(1, int(step.users * (1 - headroom)))


def told(statistics: Any, objective: Objective) -> float | None:
    """Measure an objective on Locust's statistics; all scenarios together unless it names one."""
    method, _, _ = KINDS[objective.kind]
    entries = [
        entry for (name, its), entry in statistics.entries.items() if its == method and objective.name in {None, name}
    ]
    asked = sum(entry.num_requests for entry in entries)
    if not asked:
        return None
    if objective.share is None:
        failed = sum(entry.num_failures for entry in entries) / asked
        return failed if objective.kind == "errors" else 1 - failed
    times: Counter[float] = Counter()
    for entry in entries:
        times.update(entry.response_times)
    return percentile(times, objective.share)
