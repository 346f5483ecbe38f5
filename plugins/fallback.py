"""Answers when the engine cannot, or must not: with a fixed text, in the caller's language, or by another model."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, ClassVar, Literal

import structlog
from pydantic import Field, field_validator, model_validator

from gateway.sdk import Answer, Exchange, Failure, Hit, ModelName, Options, Plugin, Refused, Reply

_log = structlog.get_logger()

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
_ROUTES = frozenset({CHAT, COMPLETIONS, "/v1/messages", "/v1/responses"})

Trigger = Literal[
    "engine_error", "engine_timeout", "no_engine_available", "queue_full", "content_filter", "invalid_json",
    "low_confidence", "first_token_late",
]  # fmt: skip
#: What is seen only in an answer that is whole: a stream then has to wait for its end.
_SEEN_IN_ANSWERS: frozenset[str] = frozenset({"content_filter", "invalid_json", "low_confidence"})

_ASKED = frozenset({"prompt", "input"})  # places of what is asked where nobody is said to ask it

_is_language = re.compile(r"[A-Za-z]{2,8}(?:-[A-Za-z0-9]{1,8})*").fullmatch
_range = re.compile(r"\s*([A-Za-z0-9*-]+)\s*(?:;\s*[qQ]\s*=\s*([0-9.]{1,5})\s*)?").fullmatch
#: Who writes so. Kana comes before Han: Japanese has both.
_SCRIPTS = {
    "ja": re.compile("[\u3040-\u30ff]"),
    "ko": re.compile("[\uac00-\ud7a3\u1100-\u11ff]"),
    "zh": re.compile("[\u4e00-\u9fff\u3400-\u4dbf]"),
    "ru": re.compile("[\u0400-\u04ff]"),
    "ar": re.compile("[\u0600-\u06ff]"),
    "he": re.compile("[\u0590-\u05ff]"),
    "el": re.compile("[\u0370-\u03ff]"),
    "hi": re.compile("[\u0900-\u097f]"),
    "th": re.compile("[\u0e00-\u0e7f]"),
    "en": re.compile("[A-Za-z]"),
}


class FallbackOptions(Options):
    """When, and with what."""

    on: frozenset[Trigger] = Field(
        default=frozenset(("engine_error", "engine_timeout", "no_engine_available")),
        description="`engine_error`, `engine_timeout`, `no_engine_available`, `queue_full`, `content_filter`, "
        "`invalid_json`, `low_confidence`, `first_token_late`",
    )
    text: str | None = Field(default=None, description="the answer")
    texts: Mapping[str, str] = Field(
        default={}, description="language: the answer in it; the first one where the caller's is not there"
    )
    model: ModelName | None = Field(
        default=None, description="asked first, if given; a text follows where it fails too"
    )
    model_s: float = Field(
        default=30.0, gt=0, description="how long that model may take; the entry's timeout_s has to be longer"
    )
    first_token_s: float = Field(default=10.0, gt=0, description="what `first_token_late` calls late, in a stream")

    @field_validator("texts")
    @classmethod
    def _languages(cls, texts: Mapping[str, str]) -> Mapping[str, str]:
        for language in texts:
            if not _is_language(language):
                raise ValueError(f"{language!r} is no language; zh, en and zh-TW are some")
        return texts

    @model_validator(mode="after")
    def _has_an_answer(self) -> FallbackOptions:
        if self.text is None and not self.texts and self.model is None:
            raise ValueError("give a text, texts by language, or a model")
        if self.text is not None and self.texts:
            raise ValueError("give text or texts, not both")
        return self


class Fallback(Plugin):
    """Answers with a text or by another model where the engine failed or its answer will not do."""

    Options = FallbackOptions
    options: FallbackOptions
    timeout_s: ClassVar[float] = 60.0

    def __init__(self, options: FallbackOptions) -> None:
        super().__init__(options)
        self.needs_whole_answer = not _SEEN_IN_ANSWERS.isdisjoint(options.on)
        idle = {"on_request": "first_token_late" not in options.on, "on_answer": not self.needs_whole_answer}
        self.idle = [hook for hook, is_idle in idle.items() if is_idle]

    def on_request(self, exchange: Exchange) -> None:
        """Say how long the first token may take."""
        late = self.options.first_token_s
        exchange.first_token_s = min(late, exchange.first_token_s or late)

    def on_answer(self, exchange: Exchange, answer: Answer) -> Awaitable[None] | None:
        """Look for what makes an answer unfit; one that was seen is never taken back."""
        if answer.shown or exchange.route not in _ROUTES:
            return None
        reason = self._unfit(answer, exchange.record.tags, exchange.extra)
        return None if reason is None else self._put_aside(exchange, reason)

    def _unfit(self, answer: Answer, tags: Collection[str], extra: Mapping[str, Any]) -> Trigger | None:
        on = self.options.on
        if "content_filter" in on and _was_filtered(answer):
            return "content_filter"
        if "invalid_json" in on and ("invalid_json" in tags or _is_invalid(extra.get("json"))):
            return "invalid_json"
        if "low_confidence" in on and "low_confidence" in tags:
            return "low_confidence"
        return None

    async def _put_aside(self, exchange: Exchange, reason: Trigger) -> None:
        """Answer with something else, if there is anything: raised here, the failure comes back in ``on_failure``."""
        reply = await self._instead(exchange, reason)
        if reply is not None:
            exchange.state[self.name] = reply
            raise Refused("The answer was put aside for a fallback.", status=502, code=reason, rule=_rule(reason))

    async def on_failure(self, exchange: Exchange, failure: Failure) -> Reply | None:
        """Answer instead of the failures that are listed."""
        if exchange.route not in _ROUTES:
            return None
        made = exchange.state.pop(self.name, None)
        if isinstance(made, Reply):
            return made
        reason = next((trigger for trigger in self.options.on if trigger == failure.code), None)
        if reason is None and failure.code == "engine_timeout" and "first_token_late" in self.options.on:
            reason = "first_token_late"
        return None if reason is None else await self._instead(exchange, reason)

    async def _instead(self, exchange: Exchange, reason: Trigger) -> Reply | None:
        body, model = await self._asked(exchange), self.options.model
        if body is None:
            model = None
            text = self.options.text if self.options.text is not None else self._in_their_language(exchange)
            if text is None:
                return None
            body = _answer(exchange, text)
        exchange.extra["fallback"] = {"reason": reason, **({"model": model} if model else {})}
        exchange.hit(Hit(self.name, _rule(reason), "fallback", "answer"))
        _log.warning("fallback", plugin=self.name, reason=reason, by="model" if model else "text", model=model,
                     request_id=exchange.id, key=exchange.key)  # fmt: skip
        return Reply(body, headers=(("cache-control", "no-store"),))

    async def _asked(self, exchange: Exchange) -> dict[str, Any] | None:
        """Ask the other model. Never with a request that the rest of the chain has not seen, or has refused."""
        if self.options.model is None or "chain_request" not in exchange.record.phases:
            return None
        try:
            async with asyncio.timeout(self.options.model_s):
                body = await exchange.ask({**exchange.body, "model": self.options.model})
        except (Failure, TimeoutError) as fault:
            code = fault.code if isinstance(fault, Failure) else "engine_timeout"
            _log.warning("fallback_failed", plugin=self.name, model=self.options.model, outcome=code,
                         request_id=exchange.id)  # fmt: skip
            return None
        if _was_filtered(Answer(exchange.route, body)):
            return None
        return {**body, "model": self.options.model}

    def _in_their_language(self, exchange: Exchange) -> str | None:
        texts = self.options.texts
        if not texts:
            return None
        wanted = languages(exchange.headers.get("accept-language", "")) or _written(exchange)
        return texts[best(wanted, list(texts))]


def languages(header: str) -> list[str]:
    """Return the language ranges of an Accept-Language header, the most wanted first (RFC 9110, 12.5.4)."""
    found: list[tuple[float, str]] = []
    for part in header[:1000].split(","):
        if (read := _range(part)) is None:
            continue
        try:
            weight = float(read[2] or 1)
        except ValueError:
            continue
        if 0 < weight <= 1:
            found.append((weight, read[1]))
    return [language for _, language in sorted(found, key=lambda one: -one[0])]


def best(wanted: Sequence[str], there: Sequence[str]) -> str:
    """Return the language that is there and fits best: itself, a shorter form, a relative; else the first one."""
    known = {language.lower(): language for language in reversed(there)}
    for each in wanted:
        parts = each.lower().split("-")
        for length in range(len(parts), 0, -1):
            if (found := known.get("-".join(parts[:length]))) is not None:
                return found
        for language in there:
            if language.lower().startswith(f"{parts[0]}-"):
                return language
    return there[0]


def _written(exchange: Exchange) -> list[str]:
    """Guess the language of what the user said last."""
    said = [text.text for text in exchange.texts() if text.role == "user" or text.path.partition("[")[0] in _ASKED]
    last = said[-1][-2000:] if said else ""
    return [language for language, script in _SCRIPTS.items() if script.search(last)][:1]


def _answer(exchange: Exchange, text: str) -> dict[str, Any]:
    """Write a text as an answer; on the newer routes as a chat's, which the gateway tells in their own form."""
    chat = exchange.route != COMPLETIONS
    said: dict[str, Any] = {"message": {"role": "assistant", "content": text}} if chat else {"text": text}
    return {
        "id": f"{'chatcmpl' if chat else 'cmpl'}-{exchange.id}",
        "object": "chat.completion" if chat else "text_completion",
        "created": int(datetime.now(UTC).timestamp()),
        "model": exchange.body.get("model", exchange.model),
        "choices": [{"index": 0, **said, "logprobs": None, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
    }


def _was_filtered(answer: Answer) -> bool:
    return any(choice.get("finish_reason") == "content_filter" for choice in answer.choices())


def _is_invalid(said: Any) -> bool:
    """Read what is told of an answer's JSON: of one choice, or of each."""
    each_choice = said if isinstance(said, list) else [said]
    return any(isinstance(each, Mapping) and each.get("valid") is False for each in each_choice)


def _rule(reason: str) -> str:
    return f"fallback:{reason}"
