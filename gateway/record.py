"""The facts of one request: what log line, metrics and audit are made of. No text, no key, no address.

And how they are told to a caller together with the answer: a Shape.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol


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


class Listing(NamedTuple):
    """A list that a plugin goes by. ``version`` are hexadecimal digits that only its content decides."""

    name: str
    entries: int
    version: str


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
    client: str = ""  # the caller's address
    key: str | None = None
    model: str | None = None
    engine: str | None = None
    stream: bool = False
    sampling: str = "plain"  # or structured, logprobs: what the engine has to do for each token
    status: int = 0
    outcome: str = "ok"  # ok, client_left, or the code of the failure
    started: float = 0.0  # time.perf_counter()
    phases: dict[str, float] = field(default_factory=dict)  # seconds
    first_text_s: float | None = None
    total_s: float = 0.0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    prompt_chars: int = 0  # as a plugin has counted them (audit_log)
    answer_chars: int = 0
    finish_reasons: list[str] = field(default_factory=list)
    tries: int = 0  # how often it was sent to an engine
    asks: int = 0  # further requests that plugins sent for it
    plugin: str | None = None  # the plugin and the rule of a block
    rule: str | None = None
    worded: bool = False  # the caller reads of it in words that are configured
    config_version: int = 0
    lists: Mapping[str, str] = field(default_factory=dict)  # the version of each list in force, by plugin/list
    limits: list[tuple[bytes, bytes]] = field(default_factory=list)  # headers: how the key stands
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


class Shape(Protocol):
    """How all that a caller hears is told, in place of OpenAI's form: a plugin has it as ``shape``.

    It speaks last, after the chain, and also for failures that never came to the chain (a wrong key, a body that is no
    JSON). It is asked for where its plugin's entry names the caller's key, and under ``/b/<name>/``.
    """

    name: str
    done: bool  # a stream ends with [DONE]

    def answer(self, body: dict[str, Any], record: Record) -> dict[str, Any]:
        """Tell a whole answer."""

    def event(self, chunk: dict[str, Any], record: Record) -> Sequence[dict[str, Any]]:
        """Tell a chunk of a stream, as any number of events."""

    def last(self, body: dict[str, Any], record: Record) -> dict[str, Any] | None:
        """Tell the end of a stream; ``body`` is the answer put together."""

    def failure(self, error: dict[str, Any], status: int, record: Record) -> tuple[int, dict[str, Any]]:
        """Tell a failure, given what OpenAI's form has under "error": the HTTP status, and the body."""
