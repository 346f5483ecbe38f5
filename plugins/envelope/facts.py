"""What a template may refer to: the facts of an answer, of a piece of one, of a failure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any, NamedTuple

from gateway.sdk import Record

#: Ends of an answer that its reader has to hear of where no finish_reason is told.
_CUT = frozenset({"content_filter"})


class Told(NamedTuple):
    """An answer (or a chunk of one, with the choice in question) and the request it belongs to."""

    body: Mapping[str, Any]
    choice: Mapping[str, Any]
    record: Record
    tokens: int = 0


Fact = Callable[[Told], Any]


def choices(body: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the choices of an answer or a chunk."""
    found = body.get("choices")
    return [choice for choice in found if isinstance(choice, Mapping)] if isinstance(found, list) else []


def text(choice: Mapping[str, Any]) -> str | None:
    """Return the text of one choice, or its refusal."""
    said = _said(choice)
    for value in (said.get("content"), choice.get("text"), said.get("refusal")):
        if isinstance(value, str):
            return value
    return None


def _said(choice: Mapping[str, Any]) -> Mapping[str, Any]:
    said = choice.get("message", choice.get("delta"))
    return said if isinstance(said, Mapping) else {}


def _reasoning(told: Told) -> Any:
    said = _said(told.choice)
    return said.get("reasoning") or said.get("reasoning_content")


def _tokens(told: Told) -> list[str]:
    logprobs = told.choice.get("logprobs")
    if not isinstance(logprobs, Mapping):
        return []
    found = logprobs.get("content") or logprobs.get("tokens")  # chat; completions
    if not isinstance(found, list):
        return []
    first = [one.get("token") if isinstance(one, Mapping) else one for one in found[: told.tokens]]
    return [token for token in first if isinstance(token, str)]


def _sluice(told: Told) -> Mapping[str, Any]:
    said = told.body.get("sluice")
    return said if isinstance(said, Mapping) else {}


def _warning_tags(told: Told) -> list[Any]:
    said = _sluice(told)
    tags = said.get("tags")
    warnings = list(tags) if isinstance(tags, list) else []
    ends = {str(choice.get("finish_reason")) for choice in choices(told.body)}
    return [*warnings, *sorted(_CUT & ends), *(["fallback"] if said.get("fallback") else [])]


def _usage(told: Told) -> Mapping[str, Any]:
    used = told.body.get("usage")
    return used if isinstance(used, Mapping) else {}


def _latency_ms(told: Told) -> float:
    return round((perf_counter() - told.record.started) * 1e3, 1)


_ALWAYS: dict[str, Fact] = {
    "body": lambda told: told.body,
    "latency_ms": _latency_ms,
    "model": lambda told: told.body.get("model") or told.record.model or None,
    "request_id": lambda told: told.record.request_id,
}

ANSWER: dict[str, Fact] = {
    **_ALWAYS,
    "completion_tokens": lambda told: _usage(told).get("completion_tokens"),
    "confidence": lambda told: _sluice(told).get("confidence"),
    "created": lambda told: told.body.get("created"),
    "fallback": lambda told: _sluice(told).get("fallback"),
    "finish_reason": lambda told: told.choice.get("finish_reason"),
    "id": lambda told: told.body.get("id"),
    "json": lambda told: _sluice(told).get("json"),
    "prompt_tokens": lambda told: _usage(told).get("prompt_tokens"),
    "reasoning": _reasoning,
    "text": lambda told: text(told.choice),
    "texts": lambda told: [text(choice) for choice in choices(told.body)],
    "tokens": _tokens,
    "tool_calls": lambda told: _said(told.choice).get("tool_calls"),
    "total_tokens": lambda told: _usage(told).get("total_tokens"),
    "usage": lambda told: told.body.get("usage"),
    "warning_tags": _warning_tags,
}

#: A piece of a stream is told when one of these is in it that its template refers to.
PIECES = ("piece", "reasoning", "tool_calls")

EVENT: dict[str, Fact] = {
    **_ALWAYS,
    "created": ANSWER["created"],
    "id": ANSWER["id"],
    "index": lambda told: told.choice.get("index", 0),
    "piece": lambda told: text(told.choice),
    "reasoning": _reasoning,
    "tool_calls": ANSWER["tool_calls"],
}

OTHER: dict[str, Fact] = {**_ALWAYS, "usage": ANSWER["usage"]}

#: ``body`` is the error's object. Status, code and message are as the profile maps them; ``error`` is our own code.
ERROR: dict[str, Fact] = {
    **_ALWAYS,
    "param": lambda told: told.body.get("param"),
    "type": lambda told: told.body.get("type"),
    "error": lambda told: told.body.get("code"),
}
MAPPED = frozenset({"status", "code", "message"})
