"""The plugin: its options, what is answered from memory, and what is kept."""

from __future__ import annotations

from collections.abc import Mapping
from time import monotonic
from typing import Any, Literal

import msgspec
from pydantic import Field

from gateway.sdk import Answer, Exchange, Hit, Options, Plugin, Reply
from plugins.cache.canonical import is_deterministic, name
from plugins.cache.memory import Memory

_ROUTES = frozenset({"/v1/chat/completions", "/v1/completions"})
#: How an answer ends by itself, or at a limit that is part of the request.
_WHOLE = frozenset({"stop", "length", "tool_calls", "function_call"})


class CacheOptions(Options):
    """Where answers are kept, how many, and for whom."""

    store: Literal["memory"] = Field(default="memory", description="in the worker's memory")
    max_mb: float = Field(
        default=64, gt=0, description="what all answers together may take; the oldest unused go first"
    )
    ttl_s: float = Field(default=3600, gt=0, description="how long an answer is kept")
    shared: bool = Field(default=False, description="one key's answers are given to others too")


class _Kept(msgspec.Struct):
    body: dict[str, Any]
    tags: list[str]
    extra: dict[str, Any]


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Kept).decode


class Cache(Plugin):
    """Answers a deterministic request (temperature 0, or a seed) from memory when it comes again."""

    Options = CacheOptions
    options: CacheOptions

    def __init__(self, options: CacheOptions) -> None:
        super().__init__(options)
        self._memory = Memory(int(options.max_mb * 1024 * 1024), options.ttl_s)

    def stop(self) -> None:
        """Forget everything."""
        self._memory.clear()

    def on_request(self, exchange: Exchange) -> None:
        """Answer, if this was answered before."""
        request = exchange.request
        if exchange.route not in _ROUTES or not is_deterministic(request):
            return
        asked = name(exchange.route, exchange.model, None if self.options.shared else exchange.key, request)
        now = monotonic()
        kept = self._memory.get(asked, now)
        if kept is None:
            exchange.state[self.name] = asked
            return
        answer = _decode(kept.value)
        for tag in answer.tags:
            exchange.tag(tag)
        for key, value in answer.extra.items():
            exchange.extra.setdefault(key, value)
        exchange.hit(Hit(self.name, "cache:hit", "cache", "request"))
        body = {**answer.body, "model": request.get("model", exchange.model)}
        exchange.reply = Reply(body, headers=(("age", str(int(now - kept.since))),))

    def on_answer(self, exchange: Exchange, answer: Answer) -> None:
        """Keep an answer that is whole and nobody's substitute."""
        asked = exchange.state.get(self.name)
        if asked is None or not _is_worth_keeping(answer.body) or "fallback" in exchange.extra:
            return
        shown = exchange.show_logprobs
        if shown is not None and shown >= 0:  # there are more in it than the caller is to see
            return
        said = exchange.extra.get("json")  # of one choice, or of each
        each = said if isinstance(said, list) else [said]
        if any(isinstance(one, Mapping) and one.get("valid") is False for one in each):
            return
        kept = _Kept(
            _counted(answer.body if shown is None else _without_logprobs(answer.body)),
            list(exchange.record.tags),
            dict(exchange.extra),
        )
        self._memory.put(asked, _encode(kept), monotonic())


def _without_logprobs(body: dict[str, Any]) -> dict[str, Any]:
    return {**body, "choices": [{**choice, "logprobs": None} for choice in body["choices"]]}


def _counted(body: dict[str, Any]) -> dict[str, Any]:
    """Return the answer with the sum of its tokens, which one put together of a stream is without."""
    used = body.get("usage")
    if not isinstance(used, Mapping) or "total_tokens" in used:
        return body
    total = (used.get("prompt_tokens") or 0) + (used.get("completion_tokens") or 0)
    return {**body, "usage": {**used, "total_tokens": total}}


def _is_worth_keeping(body: Mapping[str, Any]) -> bool:
    choices = body.get("choices")
    return bool(choices) and all(choice.get("finish_reason") in _WHOLE for choice in choices or ())
