"""Exchanges for plugins under test, without a gateway around them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gateway.record import Record
from gateway.sdk import Exchange, Prompt


class _NoHost:
    """An exchange that cannot ask the gateway for anything."""

    async def ask(self, exchange: Exchange, request: dict[str, Any]) -> dict[str, Any]:
        raise AssertionError(f"no plugin under test asks: {exchange.id}")

    async def embed(self, exchange: Exchange, model: str, texts: Sequence[str]) -> list[list[float]]:
        raise AssertionError(f"no plugin under test asks: {exchange.id}")

    async def count_tokens(self, exchange: Exchange, text: Prompt, tools: Sequence[Any] | None = None) -> int:
        raise AssertionError(f"no plugin under test asks: {exchange.id}")

    def window(self, exchange: Exchange) -> int | None:
        raise AssertionError(f"no plugin under test asks: {exchange.id}")


def chat(*contents: Any, key: str | None = None, **record: Any) -> Exchange:
    """Make a chat request of one user message for each content."""
    body = {"model": "m", "messages": [{"role": "user", "content": content} for content in contents]}
    given = Record(request_id="req-1", method="POST", route="/v1/chat/completions", model="m", key=key, **record)
    return Exchange(given, body, {}, _NoHost())


def contents(exchange: Exchange) -> list[Any]:
    """Return what the messages say now."""
    return [message["content"] for message in exchange.request["messages"]]
