"""The plugin: its options, what a prompt may have, and how one that is too long is made to fit."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

import structlog
from pydantic import Field

from gateway.sdk import Exchange, Failure, Hit, ModelName, Options, Plugin, Refused
from plugins.length.conversation import Conversation, characters
from plugins.length.cutting import Cutter, Way
from plugins.length.forms import CHAT, MESSAGES, RESPONSES, conversed
from plugins.length.gauge import Gauge, Limits, Prompt, at_most, check_ids
from plugins.length.ranking import ranked_by
from plugins.length.search import longest_fit

_log = structlog.get_logger()

_COMPLETIONS = "/v1/completions"
_ROUTES = (CHAT, _COMPLETIONS, RESPONSES, MESSAGES)
_ASKED = ("max_completion_tokens", "max_tokens", "max_output_tokens")
_AT_ONCE = 64  # sentences that an embeddings model is given
_MOST = 512  # of a text; of one that has more, words tell likeness
_LONG = 20_000  # characters; more are cut in a thread
_TAG = "prompt_cut"


class LengthOptions(Options):
    """What a prompt may have, and what becomes of one that has more."""

    max_prompt_tokens: int | None = Field(default=None, ge=1, description="null: what the model's window leaves")
    max_characters: int | None = Field(default=None, ge=1, description="of all messages together, or of one prompt")
    strategy: Literal["refuse", "head", "tail", "semantic"] = Field(
        default="refuse", description="refuse, or keep the beginning, the end, or the sentences unlike the others"
    )
    outliers: int = Field(
        default=3, ge=0, description="semantic: sentences kept first, being the least like the first sentence"
    )
    embeddings: ModelName | None = Field(
        default=None, description="semantic: a model of this gateway whose embeddings tell likeness; null: words do"
    )
    answer_tokens: int = Field(
        default=256,
        ge=1,
        description="left free for the answer where a prompt is cut to the window, if it asks for them",
    )
    mark: str = Field(default=" […] ", max_length=64, description="stands where something was left out")


class Part(NamedTuple):
    """A prompt that is measured on its own, and how the request gets another in its place."""

    param: str
    prompt: Prompt
    put: Callable[[Any], None]
    tools: Sequence[Any] | None = None


class Length(Plugin):
    """Refuses prompts that are too long, or cuts them where the least is lost."""

    Options = LengthOptions
    options: LengthOptions

    def on_request(self, exchange: Exchange) -> Awaitable[None] | None:
        """Let pass at once what is short at a glance; have the rest counted. Raises Refused."""
        if exchange.route not in _ROUTES:
            return None
        request = exchange.request
        limits = self._limits(exchange, request)
        doubtful = [
            part for part in _parts(exchange.route, request, limits) if not _short(request, part.prompt, limits)
        ]
        return self._fit(exchange, request, limits, doubtful) if doubtful else None

    def _limits(self, exchange: Exchange, request: Mapping[str, Any]) -> Limits:
        options, window = self.options, exchange.window
        tokens = options.max_prompt_tokens
        if window is not None:
            free = 1  # what an engine insists on
            if options.strategy != "refuse":
                free = max(1, min(options.answer_tokens, _asked(request) or options.answer_tokens, window // 4))
            tokens = min(tokens or window, max(1, window - free))
        return Limits(tokens, options.max_characters, window)

    async def _fit(self, exchange: Exchange, request: dict[str, Any], limits: Limits, parts: list[Part]) -> None:
        most = 0
        for part in parts:
            gauge = Gauge(exchange, limits, part.tools)
            over = await gauge.measure(part.prompt)
            if over > 1:
                refusal = gauge.refusal(part.param)
                if self.options.strategy == "refuse":
                    raise refusal
                part.put(await self._shortened(gauge, part.prompt, over, self.options.strategy, refusal))
                exchange.tag(_TAG)
                exchange.hit(Hit(self.name, f"length:{self.options.strategy}", "tag", "request", _TAG, part.param))
            most = max(most, gauge.tokens)
        if limits.window is not None:
            _clamp(exchange, request, max(1, limits.window - most))

    async def _shortened(self, gauge: Gauge, prompt: Prompt, over: float, way: Way, refusal: Refused) -> Prompt:
        """Return the longest shortening that fits. Raises the refusal where there is none."""
        mark, outliers = self.options.mark, self.options.outliers
        if isinstance(prompt, str):
            cutter = Cutter(prompt, way, mark, outliers)
            await self._rank(gauge.exchange, [cutter])
            return await _longest(gauge, cutter.cut, (1, len(prompt)), over, long=len(prompt)) or _refuse(refusal)
        conversation = Conversation(prompt, way, mark, outliers)
        steps, long = conversation.steps, characters(prompt)
        if steps:
            whole = await _longest(gauge, lambda kept: conversation.without(steps - kept), (0, steps), over, long=long)
            if whole is not None:
                return whole
            over = gauge.size  # without any of them
        await self._rank(gauge.exchange, conversation.cutters.values())
        lengths = (1, conversation.longest)
        cut = await _longest(gauge, lambda length: conversation.without(steps, length), lengths, over, long=long)
        return cut or _refuse(refusal)

    async def _rank(self, exchange: Exchange, cutters: Iterable[Cutter]) -> None:
        """Have a model say which sentences are alike, if one is named; where it fails words do, and it is told."""
        if (model := self.options.embeddings) is None or self.options.strategy != "semantic":
            return
        for cutter in cutters:
            parts = cutter.parts
            if not 2 < len(parts) <= _MOST:
                continue
            try:
                pieces = [
                    await exchange.embed(model, parts[at : at + _AT_ONCE]) for at in range(0, len(parts), _AT_ONCE)
                ]
            except Failure as failure:
                _log.warning("length", said=f"no embeddings of {model}: {failure}; words tell likeness instead")
                exchange.hit(Hit(self.name, "length:no_embeddings", "tag", "request"))
                return
            vectors = [vector for piece in pieces for vector in piece]
            if len(vectors) == len(parts):
                cutter.order = await asyncio.to_thread(ranked_by, vectors, self.options.outliers)


async def _longest(
    gauge: Gauge, make: Callable[[int], Prompt], between: tuple[int, int], over: float, *, long: int
) -> Prompt | None:
    """Search the numbers of which prompts are made for the largest whose prompt fits; the gauge shows that one."""
    made: dict[int, tuple[Prompt, int]] = {}

    async def measure(number: int) -> float:
        prompt = await asyncio.to_thread(make, number) if long > _LONG else make(number)
        size = await gauge.measure(prompt)
        made[number] = prompt, gauge.tokens
        return size

    found = await longest_fit(measure, *between, over)
    if found is None:
        return None
    prompt, gauge.tokens = made[found]
    return prompt


def _refuse(refusal: Refused) -> Prompt:
    raise refusal


def _parts(route: str, request: dict[str, Any], limits: Limits) -> Iterator[Part]:
    """Go through the prompts of a request. What is malformed is the engine's to refuse."""
    if route != _COMPLETIONS:
        if (found := conversed(route, request)) is not None:
            yield Part(found.param, found.messages, found.put, found.tools)
        return
    prompts = request.get("prompt")
    if isinstance(prompts, str):
        yield Part("prompt", prompts, lambda shorter: request.update(prompt=shorter))
    elif isinstance(prompts, list) and prompts and isinstance(prompts[0], int):
        check_ids(prompts, limits, "prompt")
    elif isinstance(prompts, list):
        for at, prompt in enumerate(prompts):
            if isinstance(prompt, str):
                yield Part(f"prompt[{at}]", prompt, partial(prompts.__setitem__, at))
            elif isinstance(prompt, list):
                check_ids(prompt, limits, f"prompt[{at}]")


def _short(request: Mapping[str, Any], prompt: Prompt, limits: Limits) -> bool:
    """Is it plain at a glance that a prompt fits, together with the answer that is asked for?"""
    if limits.characters is not None:
        found = len(prompt) if isinstance(prompt, str) else characters(prompt)
        if found > limits.characters:
            return False
    if limits.tokens is None:
        return True
    most = at_most(request, prompt)
    if most is None or most > limits.tokens:
        return False
    return limits.window is None or most + (_asked(request) or 0) <= limits.window


def _asked(request: Mapping[str, Any]) -> int | None:
    """Return how many tokens of answer a request asks for, None where it leaves that open."""
    asked = [value for field in _ASKED if type(value := request.get(field)) is int]
    return max(asked, default=None)


def _clamp(exchange: Exchange, request: dict[str, Any], room: int) -> None:
    """Lower what is asked for to what the window leaves: engines refuse the sum, not the prompt."""
    for field in _ASKED:
        value = request.get(field)
        if type(value) is int and value > room:
            request[field] = room
            if field not in exchange.filled:
                exchange.tag("max_tokens_clamped")
