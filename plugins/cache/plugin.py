"""The plugin: its options, what is answered from memory, and what is kept."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from importlib.util import find_spec
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec
from pydantic import Field, SecretStr, field_validator, model_validator

from gateway.sdk import Answer, Exchange, Hit, Options, Plugin, Reply
from plugins.cache.canonical import is_deterministic, name
from plugins.cache.memory import Kept, Memory

if TYPE_CHECKING:  # 20 MB that a cache in memory has no use for
    from plugins.cache.shared import Shared

_RESPONSES = "/v1/responses"
_ROUTES = frozenset({"/v1/chat/completions", "/v1/completions", "/v1/messages", _RESPONSES})
#: How an answer ends by itself, or at a limit that is part of the request.
_WHOLE = frozenset({"stop", "length", "tool_calls", "function_call"})


class CacheOptions(Options):
    """Where answers are kept, how many, and for whom."""

    store: Literal["memory", "redis"] = Field(
        default="memory", description="in the worker's memory, or in Redis for all workers and gateways"
    )
    redis: SecretStr | None = Field(
        default=None, description="redis://[:password@]host:port/0, rediss:// or unix://; with store: redis"
    )
    max_mb: float = Field(default=64, gt=0, description="what all answers together may take; old ones go first")
    ttl_s: float = Field(default=3600, gt=0, description="how long an answer is kept")
    shared: bool = Field(default=False, description="one key's answers are given to others too")
    generation: str = Field(default="", description="with Redis: another value forgets everything that was kept")

    @field_validator("redis")
    @classmethod
    def _is_redis(cls, url: SecretStr | None) -> SecretStr | None:
        if url is not None and not url.get_secret_value().startswith(("redis://", "rediss://", "unix://")):
            raise ValueError("has to be redis://host:port/0, rediss://… or unix:///path")
        return url

    @model_validator(mode="after")
    def _says_where(self) -> CacheOptions:
        if (self.store == "redis") is not (self.redis is not None):
            raise ValueError("store: redis and redis: redis://… go together")
        return self


class _Kept(msgspec.Struct):
    body: dict[str, Any]
    tags: list[str]
    extra: dict[str, Any]


class _Answered(NamedTuple):
    """What was asked, and the answer on its way to the caller."""

    asked: bytes
    answer: Answer


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Kept).decode


class Cache(Plugin):
    """Answers a deterministic request (temperature 0, or a seed) from memory when it comes again."""

    Options = CacheOptions
    options: CacheOptions

    def __init__(self, options: CacheOptions) -> None:
        super().__init__(options)
        self._memory = Memory(int(options.max_mb * 1024 * 1024), options.ttl_s)
        self._shared: Shared | None = None
        if options.redis is not None and find_spec("redis") is None:
            raise ValueError("store: redis needs its client: install sluice-gateway[redis]")

    def start(self) -> None:
        """Make the way to Redis, if it is there that answers are kept."""
        if self.options.redis is not None:
            from plugins.cache.shared import Shared  # noqa: PLC0415 - see above

            limit = int(self.options.max_mb * 1024 * 1024)
            self._shared = Shared(
                self.options.redis.get_secret_value(), limit, self.options.ttl_s, f"sluice:{self.name}"
            )

    def stop(self) -> Awaitable[None] | None:
        """Forget everything; what is in Redis stays, for others."""
        self._memory.clear()
        return None if self._shared is None else self._shared.close()

    def on_request(self, exchange: Exchange) -> Awaitable[None] | None:
        """Answer, if this was answered before."""
        request, options = exchange.body, self.options
        if exchange.route not in _ROUTES or not is_deterministic(request):
            return None
        if exchange.route == _RESPONSES and request.get("store") is not False:
            return None  # the engine is to keep this one, under a name of its own
        owner = None if options.shared else exchange.key
        more = [] if exchange.shape is None else [exchange.shape.name]  # an envelope below may ask for more
        if self._shared is not None:  # it outlives this configuration: other lists make other answers
            more += [options.generation, *(f"{name} {version}" for name, version in exchange.record.lists.items())]
            return self._look(exchange, self._shared, name(exchange.route, exchange.model, owner, request, more))
        asked = name(exchange.route, exchange.model, owner, request, more)
        now = monotonic()
        self._answer(exchange, asked, self._memory.get(asked, now), now)
        return None

    async def _look(self, exchange: Exchange, shared: Shared, asked: bytes) -> None:
        now = monotonic()
        self._answer(exchange, asked, await shared.get(asked, now), now)

    def _answer(self, exchange: Exchange, asked: bytes, kept: Kept | None, now: float) -> None:
        """Answer with what was kept; else remember to keep what will be answered."""
        if kept is None:
            exchange.state[self.name] = asked
            return
        answer = _decode(kept.value)
        for tag in answer.tags:
            exchange.tag(tag)
        for key, value in answer.extra.items():
            exchange.extra.setdefault(key, value)
        exchange.hit(Hit(self.name, "cache:hit", "cache", "request"))
        body = {**answer.body, "model": exchange.body.get("model", exchange.model)}
        exchange.reply = Reply(body, headers=(("age", str(int(now - kept.since))),))

    def on_answer(self, exchange: Exchange, answer: Answer) -> None:
        """Remember what is answered: those above may still change it, refuse it, or say something about it."""
        asked = exchange.state.get(self.name)
        if isinstance(asked, bytes):
            exchange.state[self.name] = _Answered(asked, answer)

    def on_complete(self, exchange: Exchange) -> Awaitable[None] | None:
        """Keep the answer as the caller was shown it, if it was whole and nobody's substitute."""
        held, record = exchange.state.get(self.name), exchange.record
        was_shown = record.status == 200 and record.outcome == "ok"
        if not isinstance(held, _Answered) or not was_shown or not _is_worth_keeping(held.answer, exchange):
            return None
        body, shown = held.answer.body, exchange.show_logprobs
        if shown is not None and shown >= 0:  # there are more in it than the caller is to see
            return None
        kept = _encode(
            _Kept(
                _counted(body if shown is None else _without_logprobs(body)),
                list(record.tags),
                dict(exchange.extra),
            )
        )
        if self._shared is not None:
            return self._shared.put(held.asked, kept)
        self._memory.put(held.asked, kept, monotonic())
        return None


def _without_logprobs(body: dict[str, Any]) -> dict[str, Any]:
    if "choices" in body:
        return {**body, "choices": [{**choice, "logprobs": None} for choice in body["choices"]]}
    output = [
        {**item, "content": [{**part, "logprobs": []} if "logprobs" in part else part for part in item["content"]]}
        if item.get("type") == "message"
        else item
        for item in body.get("output") or ()
    ]
    return {**body, "output": output} if output else body


def _counted(body: dict[str, Any]) -> dict[str, Any]:
    """Return the answer with the sum of its tokens, which one put together of a stream is without."""
    used = body.get("usage")
    if not isinstance(used, Mapping) or "total_tokens" in used or "choices" not in body:
        return body
    total = (used.get("prompt_tokens") or 0) + (used.get("completion_tokens") or 0)
    return {**body, "usage": {**used, "total_tokens": total}}


def _is_worth_keeping(answer: Answer, exchange: Exchange) -> bool:
    said = exchange.extra.get("json")  # of one choice, or of each
    each = said if isinstance(said, list) else [said]
    if "fallback" in exchange.extra or any(isinstance(one, Mapping) and one.get("valid") is False for one in each):
        return False
    choices = answer.choices()
    return bool(choices) and all(choice.get("finish_reason") in _WHOLE for choice in choices)
