"""How much of what it may have a prompt takes: counted by the model's tokenizer, or known at a glance to be little."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gateway.sdk import Exchange, Refused
from plugins.length.conversation import Message, characters
from plugins.length.forms import plain

#: What a chat template adds, at most: once (the usual system prompt, dates), and for each message.
_TEMPLATE = 256
_MESSAGE = 16
#: Requests with one of these have a prompt that only the engine can measure.
_UNSEEN = frozenset(
    {"tools", "functions", "documents", "chat_template_kwargs", "mm_processor_kwargs", "previous_response_id"}
)

Prompt = str | Sequence[Message]


@dataclass(frozen=True, slots=True)
class Limits:
    """What a prompt may have. ``window`` is the model's, for prompt and answer together."""

    tokens: int | None
    characters: int | None
    window: int | None


@dataclass(slots=True)
class Gauge:
    """Measures the prompts of one exchange; its numbers are those of the last one measured."""

    exchange: Exchange
    limits: Limits
    tools: Sequence[Any] | None = None  # beside the prompt, where its route has them in another form than a chat
    tokens: int = 0
    characters: int = 0
    size: float = 0.0

    async def measure(self, prompt: Prompt) -> float:
        """Return how much of what it may have a prompt takes: over 1 is too long. Raises Failure."""
        limits = self.limits
        self.characters = len(prompt) if isinstance(prompt, str) else characters(prompt)
        self.size = 0.0 if limits.characters is None else self.characters / limits.characters
        if limits.tokens is not None:
            counted = prompt if isinstance(prompt, str) else plain(prompt)
            self.tokens = await self.exchange.count_tokens(counted, self.tools)
            self.size = max(self.size, self.tokens / limits.tokens)
        return self.size

    def refusal(self, param: str) -> Refused:
        """Say by how much the prompt measured last is too long."""
        limits = self.limits
        if limits.tokens is not None and self.tokens > limits.tokens:
            window = f" The model's maximum context length is {limits.window} tokens." if limits.window else ""
            return _refusal(param, self.tokens, limits.tokens, "tokens", window)
        return _refusal(param, self.characters, limits.characters or 0, "characters")


def check_ids(ids: Sequence[int], limits: Limits, param: str) -> None:
    """Refuse a prompt of too many token ids: what they say cannot be cut by its meaning. Raises Refused."""
    if limits.tokens is not None and len(ids) > limits.tokens:
        raise _refusal(param, len(ids), limits.tokens, "tokens")


def _refusal(param: str, found: int, limit: int, unit: str, more: str = "") -> Refused:
    said = f"The prompt is too long: {found} {unit}, {found - limit} more than the {limit} that it may have.{more}"
    return Refused(said, param=param, rule="length:too_long")


def at_most(request: Mapping[str, Any], prompt: Prompt) -> int | None:
    """Return a number of tokens that a prompt cannot exceed, without counting; None where that cannot be told.

    A token is a byte at least, in every tokenizer that spells texts by bytes or falls back to them.
    """
    if isinstance(prompt, str):
        return len(prompt.encode()) + _MESSAGE
    if not _UNSEEN.isdisjoint(request):
        return None
    found = _TEMPLATE
    for message in prompt:
        if len(message) - ("_at" in message) != 2 or not isinstance(content := message.get("content"), str):
            return None
        found += len(content.encode()) + _MESSAGE
    return found
