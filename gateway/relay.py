"""THE DATA PATH of one request, from the parsed body to the last byte. Read it from top to bottom.

    admit (or wait) -> chain.on_request -> an engine -> its answer through the chain -> the caller -> chain.on_complete

The relay is the ASGI response; what happens between the engine and the caller is ``answering.py``. It waits in one
place only: for the caller to leave or the answer to be over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Mapping
from dataclasses import replace
from time import perf_counter
from typing import Any

from starlette.types import Receive, Scope, Send

from gateway.accounting import Meters, ended, named
from gateway.admission.entry import Entry, rank_of
from gateway.admission.keys import Principal
from gateway.answering import Answering
from gateway.caller import Caller, CallerHeaders, extra
from gateway.clock import Clock
from gateway.errors import (
    Failure,
    InvalidRequest,
    ModelNotAllowed,
    ModelNotFound,
    NoEngineAvailable,
    NotFound,
)
from gateway.host import GONE, Host
from gateway.letter import Letter, Posted, keeper_name
from gateway.live import ANY_MODEL, Live, Model
from gateway.protocol import body as bodies
from gateway.protocol.logprobs import trimmed
from gateway.protocol.sampling import sampling_of
from gateway.protocol.surface import Keeping, Surface, takes_shape
from gateway.record import Record
from gateway.sdk import Exchange, Reply


class CallerLeft(Exception):
    """The caller left while something was waited for."""


class Relay:
    """One exchange; ``scope`` is a request's that went through the middleware."""

    __slots__ = (
        *("_answering", "_asked", "_caller", "_chain", "_clock", "_exchange", "_headers", "_leaving", "_live", "_loop"),
        *("_keeper", "_marked", "_meters", "_model", "_principal", "_profile", "_raw", "_receive", "_record", "_sent"),
        *("_surface", "_entry"),
    )

    def __init__(
        self, scope: Scope, surface: Surface, meters: Meters, clock: Clock, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._live: Live = scope["sluice.live"]
        self._principal: Principal = scope["sluice.principal"]
        self._record: Record = scope["sluice"]
        self._raw: bytes = scope["sluice.body"]
        self._headers: dict[bytes, bytes] = scope["sluice.headers"]
        self._caller = Caller(self._record, surface, scope.get("sluice.port"))
        self._surface, self._meters, self._clock, self._loop = surface, meters, clock, loop
        self._chain = self._live.chain
        if self._chain.shapes:
            self._profile: str | None = scope.get("sluice.profile")
        self._exchange: Exchange | None = None  # until the request has been read
        self._answering: Answering | None = None  # until an engine is asked
        self._entry: Entry | None = None  # from the limits on
        self._marked = 0.0
        self._leaving: asyncio.Task[None] | None = None

    async def __call__(self, receive: Receive, send: Send) -> None:
        """Answer, however it ends; everything is given back before it returns."""
        self._receive = receive
        self._caller.send = send
        try:
            try:
                beginning = self._begin()
                if beginning is not None:
                    await beginning
            except CallerLeft:
                pass
            except Exception as fault:  # noqa: BLE001 - whatever happens, the caller gets an answer of our form
                await self._loop.create_task(self._fail(named(fault, self._record)))
            if self._leaving is not None:
                await self._leaving
            else:
                while (await receive())["type"] != "http.disconnect":
                    pass  # a server says it too when the response is complete; it has nothing else to say
            if not self._caller.finished:
                self._record.outcome = "client_left"
        except asyncio.CancelledError:
            # the server ends, and drain_s has passed: a stream is told, the rest by AccessLog
            if self._caller.started and not self._caller.finished:
                self._caller.break_off(NoEngineAvailable("The gateway is shutting down; send the request again."))
            raise
        finally:
            completing = self._give_back()
            if completing is not None:
                await asyncio.shield(self._loop.create_task(completing))

    def _begin(self) -> Awaitable[None] | None:
        """Bring the request to an engine; something to await only where something has to wait. Raises Failure."""
        exchange = self._exchange = self._admit()
        queueing = self._take_place(exchange, self._model)
        return self._go_on(exchange) if queueing is None else self._begin_in_turn(queueing, exchange)

    async def _begin_in_turn(self, queueing: Awaitable[None], exchange: Exchange) -> None:
        await self._unless_left(queueing)
        rest = self._go_on(exchange)
        if rest is not None:
            await rest

    def _go_on(self, exchange: Exchange) -> Awaitable[None] | None:
        self._marked = ended(self._record, "queue", self._marked)
        thinking = self._chain.on_request(exchange)
        if thinking is not None:
            return self._begin_after(thinking, exchange)
        connecting = self._ask(exchange)
        return None if connecting is None else self._unless_left(connecting)

    async def _begin_after(self, thinking: Awaitable[None], exchange: Exchange) -> None:
        await self._unless_left(thinking)
        connecting = self._ask(exchange)
        if connecting is not None:
            await self._unless_left(connecting)

    def _admit(self) -> Exchange:
        """Read the request and find its model. Raises Failure."""
        self._marked = perf_counter()
        surface, record, body, now = self._surface, self._record, self._read(), self._loop.time()
        asked, model = self._asked, self._model
        record.model, record.stream = model.name, asked.stream
        host = Host(self._live, model, surface, now, self._principal.digest)
        exchange = self._exchange = Exchange(record, body, CallerHeaders(self._headers), host)
        if self._chain.shapes and takes_shape(surface.route):
            self._find_shape(exchange)
        exchange.filled = asked.filled
        if asked.clamped:
            exchange.tag("max_tokens_clamped")
        if not asked.plain and self._chain.blocks_requests(exchange):
            at = surface.has_token_ids(body)
            if at is not None:
                raise InvalidRequest("Token ids carry no text that could be checked: send text.", param=at)
        return exchange

    def _read(self) -> dict[str, Any]:
        """Read the body, and find the model that it names. Raises Failure."""
        live, surface, body = self._live, self._surface, bodies.decode(self._raw)
        asked = self._asked = surface.ask(body, live.media_hosts)
        model = live.models.get(asked.model) or live.models.get(ANY_MODEL)
        if model is None:
            raise ModelNotFound(f"The model `{asked.model[:200]}` does not exist.", param="model")
        if not self._principal.may_use(model.name):
            self._record.model = model.name
            raise ModelNotAllowed(f"This key may not use the model `{model.name}`.", param="model")
        self._model = model
        surface.clamp(body, asked, model.ceilings)
        self._sent = {field: body.get(field) for field in surface.echoes}
        self._keeper = None if surface.keeping is None else self._find_keeper(surface.keeping, body)
        return body

    def _find_keeper(self, keeping: Keeping, body: dict[str, Any]) -> str | None:
        """Return the name of the only engine that can go on from what the request names. Raises NotFound."""
        earlier = keeping.earlier(body)
        if earlier is None:
            return None
        names = {keeper_name(self._model.name, engine): engine.name for engine in self._model.engines}
        keeper = keeping.keeper(earlier, names, self._principal.digest)
        if keeper is None:
            raise keeping.not_found(earlier, "previous_response_id")
        return names[keeper]

    def _find_shape(self, exchange: Exchange) -> None:
        """Say in which form the answer will be told. Raises NotFound."""
        name = self._profile
        exchange.shape = self._chain.shape(name, self._principal.name, self._model.name)
        if name is not None and exchange.shape is None:
            raise NotFound(f"This key has no profile `{name[:64]}`.")

    def _take_place(self, exchange: Exchange, model: Model) -> Awaitable[None] | None:
        """Enter the limits of the key and the model's gate; something to await only where one has to wait.

        Raises InvalidRequest, RateLimited and QueueFull.
        """
        asked, principal, door = self._asked, self._principal, model.door
        self._entry = Entry(
            principal,
            model.name,
            door,
            rank_of(principal, exchange.body, door),
            self._record,
            self._meters,
            self._loop,
            size=len(self._raw),
            most=asked.output_tokens,
            choices=asked.choices,
        )
        return self._entry.begin(self._loop.time())

    def _ask(self, exchange: Exchange) -> Awaitable[None] | None:
        """Send what the plugins have left of the request to an engine, unless one has answered. Raises Failure."""
        self._marked = ended(self._record, "chain_request", self._marked)
        if exchange.reply is not None:
            self._reply(exchange, exchange.reply)
            return None
        self._asked.clamped = False
        self._surface.clamp(exchange.body, self._asked, self._model.ceilings)  # a plugin may have asked for more
        if self._asked.clamped:
            exchange.tag("max_tokens_clamped")
        self._record.sampling = sampling_of(exchange.body)
        whole = not self._asked.stream or self._chain.needs_whole_answer(exchange)
        letter = Posted(
            exchange,
            self._surface,
            self._headers,
            self._model.name,
            self._principal.digest,
            stream=not whole,
            isolated=self._model.isolate_prefix_cache,
            sampling=self._model.sampling,
        )
        return self._send(exchange, letter, self._sent and {"echo": self._changed(exchange)}, whole=whole)

    def _changed(self, exchange: Exchange) -> dict[str, Any]:
        """Return, as the caller sent them, the fields that plugins have written to and the answer repeats."""
        request = exchange.body
        return {field: value for field, value in self._sent.items() if request.get(field) != value}

    def _send(
        self, exchange: Exchange, letter: Letter, own: Mapping[str, Any], *, whole: bool
    ) -> Awaitable[None] | None:
        engines, asked = self._model.engines, self._asked
        want = engines.want(
            exchange.body,
            self._headers,
            work=1 if self._entry is None else self._entry.tokens,
            stream=asked.stream,
            key=self._principal.name or "",
            priority=self._principal.priority,
            only=self._keeper,
        )
        self._answering = Answering(
            exchange,
            asked,
            self._surface,
            self._live,
            engines,
            letter,
            own,
            self._caller,
            self._fail,
            self._meters,
            self._clock,
            self._loop,
            self._marked,
            want,
            whole=whole,
            prompt=0 if self._entry is None else self._entry.prompt,
        )
        return self._answering.attempt.ask()

    async def _unless_left(self, waiting: Awaitable[None]) -> None:
        """Wait, but not longer than the caller does. Raises CallerLeft."""
        work = self._loop.create_task(_waited(waiting))
        if self._leaving is None:
            self._leaving = self._loop.create_task(_waited(self._receive()))
        try:
            await asyncio.wait({work, self._leaving}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                raise CallerLeft
            work.result()
        finally:
            if not work.done():
                work.cancel()
                await asyncio.gather(work, return_exceptions=True)

    # ---- without an engine ----

    async def _fail(self, failure: Failure) -> None:
        """Answer with the failure, or with what a plugin says instead; what was seen in part is never taken back."""
        if self._answering is not None:
            self._answering.stop()
        self._caller.note(failure)
        reply, exchange, caller, answering = None, self._exchange, self._caller, self._answering
        if exchange is not None and not (caller.finished or (answering is not None and answering.seen)):
            reply = await self._chain.on_failure(exchange, failure)
        if exchange is not None and reply is not None and (not caller.started or reply.status == 200):
            self._reply(exchange, reply)
        elif caller.started:
            if not caller.finished:
                caller.break_off(failure)
        else:
            caller.fail(failure)

    def _reply(self, exchange: Exchange, reply: Reply) -> None:
        """A plugin answers itself."""
        kept = exchange.show_logprobs
        if kept is not None and "choices" in reply.body:
            choices = [{**each, "logprobs": trimmed(each.get("logprobs"), kept)} for each in reply.body["choices"]]
            reply = replace(reply, body={**reply.body, "choices": choices})
        self._caller.reply(reply, extra(exchange), stream=self._asked.stream, want_usage=self._asked.want_usage)

    # ---- giving back ----

    def _give_back(self) -> Coroutine[Any, Any, None] | None:
        """Everything acquired is given back here, however the exchange ended; plugins may want a moment more."""
        if self._leaving is not None and not self._leaving.done():
            self._leaving.cancel()
        if self._answering is not None:
            self._answering.give_back()
        self._caller.drop()
        if self._entry is not None:
            self._entry.end(self._loop.time())
        if self._exchange is None:  # refused as it was read: plugins are told of a request that says nothing
            self._exchange = Exchange(self._record, {}, CallerHeaders(self._headers), GONE)
        waiting = self._chain.on_complete(self._exchange)
        self._exchange.host = GONE
        return None if waiting is None else _waited(waiting)


async def _waited(waiting: Awaitable[Any]) -> None:
    await waiting
