"""An answer that an engine keeps: asked for again, or stopped. It goes through the filters as when it was new."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any
from urllib.parse import parse_qs

from starlette.types import Scope

from gateway.accounting import Meters
from gateway.clock import Clock
from gateway.errors import InvalidRequest
from gateway.letter import Again, keeper_name
from gateway.live import Model
from gateway.protocol.openai import Asked
from gateway.protocol.responses import not_found
from gateway.protocol.surface import CANCELLED, Surface
from gateway.relay import Relay


class Stored(Relay):
    """One exchange about the answer with this id. No plugin sees a request: there is none. It counts in no limit."""

    __slots__ = ("_after", "_id", "_method", "_query")

    def __init__(
        self, scope: Scope, surface: Surface, meters: Meters, clock: Clock, loop: asyncio.AbstractEventLoop, answer: str
    ) -> None:
        scope["sluice.body"] = b""
        super().__init__(scope, surface, meters, clock, loop)
        self._id, self._method, self._after = answer, scope["method"], -1
        self._query = parse_qs(scope.get("query_string", b"").decode("latin-1"))

    def _begin(self) -> Awaitable[None] | None:
        """Ask the engine that has it. Raises Failure."""
        exchange, streamed = self._admit(), self._asked.stream
        if streamed and self._chain.needs_whole_answer(exchange):
            raise InvalidRequest("This answer is checked as a whole: ask for it without stream.", param="stream")
        path, stop_at = (surface.route.replace("{id}", self._id) for surface in (self._surface, CANCELLED))
        letter = Again(self._method, path + ("?stream=true" if streamed else ""), exchange.id, stop_at)
        own: dict[str, Any] = {"echo": {"instructions": None}}  # they may be a plugin's: nobody can tell any more
        if streamed:
            own["after"] = self._after
        connecting = self._send(exchange, letter, own, whole=not streamed)
        return None if connecting is None else self._unless_left(connecting)

    def _read(self) -> dict[str, Any]:
        """Find the model and the engine that the answer is of. Raises NotFound and InvalidRequest."""
        stream, after = (self._query.get(name, [""])[-1] for name in ("stream", "starting_after"))
        if stream.lower() not in _FLAGS:
            raise InvalidRequest("stream must be true or false.", param="stream")
        if after and not (after.isascii() and after.isdigit() and len(after) < 10):
            raise InvalidRequest("starting_after must be the number of an event.", param="starting_after")
        self._after = int(after or -1)
        self._model = self._find_model()
        self._asked = Asked(self._model.name, _FLAGS[stream.lower()], want_usage=True)
        return {"stream": self._asked.stream}

    def _find_model(self) -> Model:
        keeping, engines = self._surface.keeping, dict[str, tuple[Model, str]]()
        for model in self._live.models.values():
            if self._principal.may_use(model.name):
                engines |= {keeper_name(model.name, engine): (model, engine.name) for engine in model.engines}
        keeper = None if keeping is None else keeping.keeper(self._id, engines, self._principal.digest)
        if keeper is None:
            raise not_found(self._id)
        model, self._keeper = engines[keeper]
        return model


_FLAGS = {"": False, "false": False, "0": False, "true": True, "1": True}
