"""The facts of one request: what log line, metrics and audit are made of. No text, no key, no address."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


class Hit(NamedTuple):
    """A rule fired. ``where`` is a place in the request or a channel; ``start``/``end`` are code points there."""

    plugin: str
    rule: str
    action: str
    direction: str
    tag: str | None = None
    where: str = ""
    start: int = 0
    end: int = 0
    shadow: bool = False


@dataclass(slots=True)
class Run:
    """How one plugin fared in one exchange, over all its hooks: ran, skipped, failed or timed_out; seconds taken."""

    outcome: str = "ran"
    seconds: float = 0.0


@dataclass(slots=True)
class Record:
    """What became of a request: the facts that log line, metrics and audit are made of. It holds no text and no key."""

    request_id: str = ""
    method: str = ""
    route: str = ""
    key: str | None = None
    model: str | None = None
    engine: str | None = None
    stream: bool = False
    status: int = 0
    outcome: str = "ok"  # ok, client_left, or the code of the failure
    started: float = 0.0  # time.perf_counter()
    phases: dict[str, float] = field(default_factory=dict)  # seconds
    first_text_s: float | None = None
    total_s: float = 0.0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    prompt_chars: int = 0
    answer_chars: int = 0
    finish_reasons: list[str] = field(default_factory=list)
    plugin: str | None = None  # the plugin and the rule of a block
    rule: str | None = None
    config_version: int = 0
    hits: list[Hit] = field(default_factory=list)
    runs: dict[str, Run] = field(default_factory=dict)
    tags: list[str] = field(default_factory=list)

    def ran(self, plugin: str, seconds: float) -> None:
        """Note that a hook of a plugin took so long."""
        run = self.runs.get(plugin)
        if run is None:
            self.runs[plugin] = Run("ran", seconds)
        else:
            run.seconds += seconds
