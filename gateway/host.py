"""What a plugin can ask for beside its exchange: the model itself, a count of tokens, the length of the window."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

from gateway.errors import EngineError, NoEngineAvailable
from gateway.live import Live, Model
from gateway.protocol import body as bodies
from gateway.protocol.surface import Surface
from gateway.sdk import Channel, Exchange
from gateway.upstream import asking


class Host:
    """The gateway, as an exchange with ``model`` knows it.

    ``began``: the event loop's time when it came; ``digest``: its key's.
    """

    __slots__ = ("_began", "_digest", "_live", "_model", "_surface")

    def __init__(self, live: Live, model: Model, surface: Surface, began: float, digest: str) -> None:
        self._live, self._model, self._surface, self._began, self._digest = live, model, surface, began, digest

    async def ask(self, exchange: Exchange, request: dict[str, Any]) -> dict[str, Any]:
        """Send a request to its model and return the whole answer, filtered as the first. Raises Failure."""
        model = self._live.models.get(str(request.get("model")), self._model)
        left = self._live.timeouts.total - (asyncio.get_running_loop().time() - self._began)
        salt = self._digest[:32] if model.isolate_prefix_cache and self._digest else None
        sent = self._surface.for_engine(request, model=None, stream=False, cache_salt=salt)
        sent["stream"] = False
        exchange.record.asks += 1
        body = await asking.ask(model.engines, self._surface.route, sent, model.name, exchange.id, left, model.sampling)
        answer = self._surface.whole(bodies.encode(body))
        answer.filter(lambda *channel: self._live.chain.filter_for(exchange, Channel(*channel)))
        if answer.usage is not None:  # tokens of every answer count, also of one that nobody saw
            exchange.record.prompt_tokens += answer.usage.prompt_tokens
            exchange.record.completion_tokens += answer.usage.completion_tokens or 0
        return answer.body

    async def count_tokens(
        self, exchange: Exchange, text: str | Sequence[Mapping[str, Any]], tools: Sequence[Any] | None = None
    ) -> int:
        """Count with the model's own tokenizer, else the engine's; messages with their template. Raises Failure."""
        if isinstance(text, str):
            part: dict[str, Any] = {"prompt": text}
        else:
            part = {name: exchange.body[name] for name in self._surface.templated if name in exchange.body}
            part |= {"messages": list(text)} if tools is None else {"messages": list(text), "tools": list(tools)}
        tokenizer = self._model.tokenizer
        if tokenizer is not None and (count := await tokenizer.count(part)) is not None:
            return count
        limit = self._live.timeouts.connect + self._live.timeouts.idle
        body = await asking.ask(self._model.engines, "/tokenize", part, self._model.name, exchange.id, limit)
        return int(body["count"])

    async def embed(self, exchange: Exchange, model: str, texts: Sequence[str]) -> list[list[float]]:
        """Have a model make a vector of each text. Raises Failure."""
        if (found := self._live.models.get(model)) is None:
            raise NoEngineAvailable(f"There is no model {model!r} to make embeddings.")
        left = self._live.timeouts.total - (asyncio.get_running_loop().time() - self._began)
        sent = {"input": list(texts)}
        exchange.record.asks += 1
        body = await asking.ask(found.engines, "/v1/embeddings", sent, found.name, exchange.id, left)
        try:
            return [each["embedding"] for each in sorted(body["data"], key=itemgetter("index"))]
        except (KeyError, TypeError):
            raise EngineError("The model's server gave no embeddings.") from None

    def window(self, exchange: Exchange) -> int | None:  # noqa: ARG002 - a host's signature
        """Return the shortest window of the model's engines, in tokens; None where none has told it."""
        return min((engine.max_model_len for engine in self._model.engines if engine.max_model_len), default=None)


class _Gone:
    """The host of an exchange that is over."""

    def window(self, exchange: Exchange) -> int | None:  # noqa: ARG002 - a host's signature
        """Know nothing more."""
        return None

    async def ask(self, exchange: Exchange, request: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG002 - likewise
        """Refuse."""
        raise NoEngineAvailable("The exchange is over.")

    async def count_tokens(
        self,
        exchange: Exchange,  # noqa: ARG002 - likewise
        text: str | Sequence[Mapping[str, Any]],  # noqa: ARG002 - likewise
        tools: Sequence[Any] | None = None,  # noqa: ARG002 - likewise
    ) -> int:
        """Refuse."""
        raise NoEngineAvailable("The exchange is over.")

    async def embed(self, exchange: Exchange, model: str, texts: Sequence[str]) -> list[list[float]]:  # noqa: ARG002
        """Refuse."""
        raise NoEngineAvailable("The exchange is over.")


GONE = _Gone()
