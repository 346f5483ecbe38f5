"""THE DATA PATH of one request, from the parsed body to the last byte. Read it from top to bottom.

    admit -> chain.on_request -> an engine -> its answer through the chain -> the caller -> chain.on_complete

The relay is the ASGI response. It waits in one place only: for the caller to leave or the answer to be over. What comes
from the engine arrives as calls from its socket (the relay is the connection's sink) and is filtered and written in
place; a task exists only where something really has to wait: a plugin, a new connection, a second engine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Sequence
from time import perf_counter
from typing import Any, Protocol
from urllib.parse import quote

import structlog
from starlette.types import Receive, Scope, Send

from gateway.admission.keys import Principal
from gateway.admission.limits import Ticket
from gateway.attempt import Attempt
from gateway.caller import Caller, CallerHeaders, Port
from gateway.clock import Clock
from gateway.errors import (
    EngineError,
    EngineTimeout,
    Failure,
    InternalError,
    InvalidRequest,
    ModelNotAllowed,
    ModelNotFound,
    NoEngineAvailable,
    QueueFull,
)
from gateway.host import GONE, Host
from gateway.live import ANY_MODEL, Live
from gateway.protocol import body as bodies
from gateway.protocol import failures, openai, unread
from gateway.protocol.stream import BROKE_OFF, NONSENSE, Filter, StreamEditor
from gateway.protocol.whole import WholeAnswer, as_stream
from gateway.record import Record
from gateway.sdk import Answer, Channel, Exchange, Reply
from gateway.upstream.client import Broken
from gateway.upstream.engine import Engine

log = structlog.get_logger()

BUG = "Something went wrong in the gateway; the operator's log has the request id."


class Meters(Protocol):
    """What the relay counts while it runs; all else is in the record when it is over."""

    def in_flight(self, model: str, change: int) -> None:
        """One more, or one less."""

    def chunk_gap(self, seconds: float) -> None:
        """The time between two pieces of a stream."""


class CallerLeft(Exception):
    """The caller left while something was waited for."""


class Relay:
    """One exchange; ``scope`` is a request's that went through the middleware."""

    __slots__ = (
        "_answering",
        "_asked",
        "_asked_at",
        "_attempt",
        "_caller",
        "_chain",
        "_chunk_at",
        "_clock",
        "_editor",
        "_exchange",
        "_headers",
        "_heard",
        "_leaving",
        "_live",
        "_loop",
        "_marked",
        "_meters",
        "_model",
        "_over",
        "_parts",
        "_port",
        "_principal",
        "_raw",
        "_receive",
        "_record",
        "_retry_after",
        "_route",
        "_status",
        "_task",
        "_ticket",
        "_whole",
        "_wrote_at",
        "due",
    )

    def __init__(self, scope: Scope, route: str, meters: Meters, clock: Clock, loop: asyncio.AbstractEventLoop) -> None:
        self._live: Live = scope["sluice.live"]
        self._principal: Principal = scope["sluice.principal"]
        self._record: Record = scope["sluice"]
        self._raw: bytes = scope["sluice.body"]
        self._headers: dict[bytes, bytes] = scope["sluice.headers"]
        self._port: Port | None = scope.get("sluice.port")
        self._route, self._meters, self._clock, self._loop = route, meters, clock, loop
        self._chain = self._live.chain
        self._exchange: Exchange = None  # type: ignore[assignment] # it is there as soon as the request has been read
        self._attempt: Attempt | None = None
        self._editor: StreamEditor | None = None
        self._ticket: Ticket | None = None
        self._task: asyncio.Task[None] | None = None
        self._leaving: asyncio.Task[Any] | None = None
        self._retry_after: str | None = None
        self._answering = False  # the first event has been seen: no other engine will be asked
        self._parts: list[bytes] = []  # of an answer that is read whole
        self._chunk_at = 0.0  # perf_counter's
        self._over = False  # the response is complete, or will be without the engine
        self._asked_at = 0.0  # the event loop's time, as all that are not phases
        self.due = 0.0  # when the clock is to look at us

    async def __call__(self, receive: Receive, send: Send) -> None:
        """Answer, however it ends; everything is given back before it returns."""
        self._receive = receive
        self._caller = Caller(send, self, self._record, self._port)
        try:
            try:
                beginning = self._begin()
                if beginning is not None:
                    await beginning
            except CallerLeft:
                pass
            except Exception as fault:  # noqa: BLE001 - whatever happens, the caller gets an answer of our form
                await self._loop.create_task(self._fail(self._named(fault)))
            if self._leaving is not None:
                await self._leaving
            else:
                while (await receive())["type"] != "http.disconnect":
                    pass  # a server says it too when the response is complete; it has nothing else to say
            if not self._caller.finished:
                self._record.outcome = "client_left"
        finally:
            completing = self._give_back()
            if completing is not None:
                await asyncio.shield(self._loop.create_task(completing))

    # ---- the request ----

    def _begin(self) -> Awaitable[None] | None:
        """Bring the request to an engine; something to await only where something has to wait. Raises Failure."""
        exchange = self._admit()
        thinking = self._chain.on_request(exchange)
        if thinking is not None:
            return self._begin_after(thinking)
        connecting = self._ask()
        return None if connecting is None else self._unless_left(connecting)

    async def _begin_after(self, thinking: Awaitable[None]) -> None:
        await self._unless_left(thinking)
        connecting = self._ask()
        if connecting is not None:
            await self._unless_left(connecting)

    def _admit(self) -> Exchange:
        """Read the request, find its model, take its place in the limits. Raises Failure."""
        self._marked = perf_counter()
        live, route, record, body = self._live, self._route, self._record, bodies.decode(self._raw)
        asked = self._asked = openai.ask(route, body, live.media_hosts)
        model = live.models.get(asked.model) or live.models.get(ANY_MODEL)
        if model is None:
            raise ModelNotFound(f"The model `{asked.model[:200]}` does not exist.", param="model")
        self._model, record.model, record.stream = model, model.name, asked.stream
        if not self._principal.may_use(model.name):
            raise ModelNotAllowed(f"This key may not use the model `{model.name}`.", param="model")
        openai.clamp(route, body, asked, model.ceilings)
        now = self._loop.time()
        exchange = self._exchange = Exchange(record, body, CallerHeaders(self._headers), Host(live, model, route, now))
        exchange.filled = asked.filled
        if asked.clamped:
            exchange.tag("max_tokens_clamped")
        if not asked.plain and self._chain.blocks_requests(exchange):
            at = unread.has_token_ids(route, body)
            if at is not None:
                raise InvalidRequest("Token ids carry no text that could be checked: send text.", param=at)
        size = record.prompt_chars = len(self._raw)
        self._ticket = self._principal.limits.enter(now, size // 4 + asked.output_tokens)
        if model.load.in_flight >= model.max_in_flight:
            self._ticket.leave()
            self._ticket = None
            raise QueueFull("The model is busy with as many requests as it may hold; try again.", retry_after=1)
        model.load.in_flight += 1
        self._meters.in_flight(model.name, 1)
        self._mark("queue")
        return exchange

    def _ask(self) -> Awaitable[None] | None:
        """Send what the plugins have left of the request to an engine, unless one has answered. Raises Failure."""
        self._mark("chain_request")
        exchange, asked = self._exchange, self._asked
        if exchange.reply is not None:
            self._over = True
            self._reply(exchange.reply)
            return None
        self._whole = not asked.stream or self._chain.needs_whole_answer(exchange)
        self._attempt = Attempt(self._model.engines, self, self._loop)
        return self._attempt.ask()

    def request_for(self, engine: Engine) -> tuple[bytes, bytes]:
        """Write what one engine gets. Raises InvalidRequest."""
        salt = self._principal.digest[:32] if self._model.isolate_prefix_cache and self._principal.digest else None
        body = bodies.encode(
            openai.for_engine(
                self._route, self._exchange.request, model=engine.served_model, stream=not self._whole, cache_salt=salt
            )
        )
        return engine.head(self._route, self._record.request_id, len(body), self._headers), body

    def sent(self, engine: Engine) -> None:
        """The request is on its way to this engine."""
        self._record.engine, self._status, self._parts = engine.name, 0, []
        self._mark("connect")
        now = self._heard = self._loop.time()
        if not self._asked_at:
            self._asked_at = self._wrote_at = now
            self.overdue(now)
            self._clock.watch(self)

    # ---- the engine's answer: called from its socket ----

    def on_head(self, status: int, headers: Sequence[tuple[bytes, bytes]]) -> None:
        """The engine has begun to answer."""
        self._status = status
        if status == 200 and self._whole:
            return
        fields = dict(headers)
        if status != 200:
            self._retry_after = fields.get(b"retry-after", b"").decode("latin-1") or None
        elif not fields.get(b"content-type", b"").lower().startswith(b"text/event-stream"):
            self._engine_failed(EngineError(NONSENSE))
        else:
            asked = self._asked
            self._editor = StreamEditor(
                self._filter_for,
                model=asked.model,
                choices=asked.choices,
                want_usage=asked.want_usage,
                merge=self._chain.watches_answers(self._exchange),
                show_logprobs=self._exchange.show_logprobs,
            )

    def on_data(self, data: bytes) -> None:
        """The next bytes of the engine's answer. THE HOT PATH of a stream."""
        editor = self._editor
        if editor is None or self._over:
            self._parts.append(data)
            return
        now = perf_counter()
        try:
            shown = editor.feed(data)
        except Exception as fault:  # noqa: BLE001 - a filter that fails closed, or a bug
            editor.failure, shown = self._named(fault), b""
        self._heard = self._loop.time()
        if self._answering:
            self._meters.chunk_gap(now - self._chunk_at)
        elif editor.events:
            self._first_event(now)
        elif editor.failure is not None or editor.done:
            self._stream_ended(editor)
            return
        else:
            return
        self._chunk_at = now
        record = self._record
        if record.first_text_s is None and editor.chars:
            record.first_text_s = now - record.started
        if shown:
            self._wrote_at = self._heard
            self._caller.write(shown)
        if editor.done or editor.abort or editor.failure is not None:
            self._stream_ended(editor)

    def _first_event(self, now: float) -> None:
        self._first_answer(now)
        self.due = min(self.due, self._heard + self._live.timeouts.idle)
        if not self._caller.started:
            self._caller.start_stream(self._tags())

    def _first_answer(self, now: float) -> None:
        self._answering = True
        if self._attempt is not None:
            self._attempt.answered()
        self._record.phases["first_token"] = now - self._marked
        self._marked = now

    def on_end(self) -> None:
        """The engine's answer is complete."""
        if self._over:
            return
        try:
            editor = self._editor
            if editor is not None:
                if not editor.done:
                    editor.end()
                self._stream_ended(editor)
            elif self._status == 200:
                self._whole_answer(b"".join(self._parts))
            else:
                self._refused_by_engine(failures.from_engine(self._status, b"".join(self._parts), self._retry_after))
        except Exception as fault:  # noqa: BLE001 - a filter that fails closed, or a bug
            self._engine_failed(self._named(fault))

    def on_failure(self, broken: Broken) -> None:
        """The connection broke, or spoke nonsense."""
        if self._over:
            return
        attempt = self._at_work()
        if self._editor is not None and self._editor.complete:  # every choice had ended; only [DONE] is missing
            attempt.linger()
            self.on_end()
        elif not broken.answer_begun and not self._answering and broken.kind in {"refused", "broke_off"}:
            attempt.broke_off(broken)
            self._in_background(self._ask_again(attempt, EngineError(BROKE_OFF)))
        else:
            attempt.failed()
            self._engine_failed(EngineError(BROKE_OFF if broken.kind == "broke_off" else NONSENSE))

    def _at_work(self) -> Attempt:
        if self._attempt is None:
            raise RuntimeError("no engine has been asked")
        return self._attempt

    # ---- a stream ----

    def _stream_ended(self, editor: StreamEditor) -> None:
        """The stream is complete, blocked, or none: end the response in the form that fits."""
        attempt = self._at_work()
        if isinstance(editor.failure, failures.Busy) and not self._answering:
            attempt.stop()
            self._editor = None
            self._refused_by_engine(editor.failure)
            return
        if editor.failure is not None or not self._answering:  # or [DONE] and nothing before it
            self._engine_failed(editor.failure or EngineError(BROKE_OFF))
            return
        self._over = True
        if editor.abort and not editor.done:
            attempt.end()
        else:
            attempt.linger()
        self._finished(editor.finish_reasons)
        if self._chain.watches_answers(self._exchange):
            waiting = self._chain.on_answer(self._exchange, Answer(self._route, editor.merged(), shown=True))
            if waiting is not None:
                self._in_background(self._end_stream_after(waiting, editor))
                return
        self._caller.end(editor.close(self._extra()))

    async def _end_stream_after(self, waiting: Awaitable[None], editor: StreamEditor) -> None:
        await waiting
        self._caller.end(editor.close(self._extra()))

    # ---- a whole answer ----

    def _whole_answer(self, raw: bytes) -> None:
        self._first_answer(perf_counter())
        answer = WholeAnswer(raw)
        answer.screen(self._route, self._filter_for)
        self._record.answer_chars = answer.chars
        self._finished(answer.finish_reasons)
        self._count(answer.usage)
        if self._chain.watches_answers(self._exchange):
            waiting = self._chain.on_answer(self._exchange, Answer(self._route, answer.body))
            if waiting is not None:
                self._in_background(self._show_after(waiting, answer))
                return
        self._show(answer)

    async def _show_after(self, waiting: Awaitable[None], answer: WholeAnswer) -> None:
        await waiting
        self._show(answer)

    def _show(self, answer: WholeAnswer) -> None:
        self._mark("chain_answer")
        raw = answer.close(self._asked.model, self._extra(), self._exchange.show_logprobs)
        self._over = True
        if not self._asked.stream:
            self._caller.answer_json(raw, self._tags())
            return
        if not self._caller.started:
            self._caller.start_stream(self._tags())
        self._caller.end(as_stream(bodies.decode(raw), want_usage=self._asked.want_usage))

    # ---- what goes wrong ----

    def _refused_by_engine(self, failure: Failure) -> None:
        """The engine answered, but not with an answer: busy ones are passed over, its own verdicts go to the caller."""
        attempt = self._at_work()
        if isinstance(failure, failures.Busy):
            attempt.busy()
            self._in_background(self._ask_again(attempt, failure))
            return
        if failure.status >= 500:
            attempt.failed()
        self._engine_failed(failure)

    async def _ask_again(self, attempt: Attempt, failure: Failure) -> None:
        """Nothing of an answer was seen: ask another engine, or tell the caller what the last one said."""
        attempt.end()
        try:
            waiting = attempt.ask()
            if waiting is not None:
                await waiting
        except NoEngineAvailable:
            raise failure from None

    def _engine_failed(self, failure: Failure) -> None:
        """The engine's answer ends here without an end."""
        if self._over:
            return
        self._at_work().end()
        self._over = True
        if self._answering and self._caller.started:
            self._note(failure)
            self._caller.break_off(failure)
        else:
            self._in_background(self._fail(failure))

    async def _fail(self, failure: Failure) -> None:
        """Answer with the failure, or with what a plugin says instead."""
        self._over = True
        if self._attempt is not None:
            self._attempt.end()
        self._note(failure)
        reply, exchange = None, self._exchange
        if exchange is not None:
            reply = await self._chain.on_failure(exchange, failure)
        if self._caller.started:
            if not self._caller.finished:
                self._caller.break_off(failure)
        elif reply is not None:
            self._reply(reply)
        else:
            self._caller.fail(failure, self._tags())

    def _reply(self, reply: Reply) -> None:
        """A plugin answers itself."""
        asked = self._asked
        self._caller.reply(reply, self._extra(), self._tags(), stream=asked.stream, want_usage=asked.want_usage)

    def _named(self, fault: Exception) -> Failure:
        """Turn whatever was raised into one of our failures; a bug is logged by its type and place, never its text."""
        if isinstance(fault, Failure):
            return fault
        trace = fault.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        at = f"{trace.tb_frame.f_code.co_qualname}:{trace.tb_lineno}" if trace is not None else ""
        log.error("internal_error", request_id=self._record.request_id, fault=type(fault).__name__, at=at)
        return InternalError(BUG)

    def _note(self, failure: Failure) -> None:
        self._record.outcome = str(failure.code) if not isinstance(failure.code, int) else "engine_refused"
        if self._record.rule is None:
            self._record.rule = getattr(failure, "rule", None)

    # ---- time ----

    def _mark(self, phase: str) -> None:
        """A phase has ended: its time is what passed since the last one did."""
        now = perf_counter()
        phases = self._record.phases
        taken = now - self._marked
        phases[phase] = taken + phases[phase] if phase in phases else taken
        self._marked = now

    def overdue(self, now: float) -> None:
        """Look at every deadline and say when to look again; called seldom, whatever the pace of the stream."""
        times, blocked_since = self._live.timeouts, self._caller.blocked_since
        due = self._asked_at + times.total
        if blocked_since is not None:
            due = min(due, blocked_since + times.idle)
        elif not self._whole:
            due = min(due, self._heard + (times.idle if self._answering else times.first_token))
        if due <= now:
            self._clock.forget(self)
            if not self._over:
                self._timed_out(slow_caller=blocked_since is not None)
            return
        if self._asked.stream:
            if self._wrote_at + self._live.heartbeat_s <= now:
                self._wrote_at = now
                self._caller.heartbeat(self._tags())
            due = min(due, self._wrote_at + self._live.heartbeat_s)
        self.due = due

    def _timed_out(self, *, slow_caller: bool) -> None:
        if slow_caller:
            self._record.outcome = "client_left"
            self._over = True
            if self._port is not None:
                self._port.drop()
            return
        self._at_work().failed()
        self._engine_failed(EngineTimeout("The model did not answer in time."))

    # ---- the caller ----

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

    def slow(self) -> None:
        """The caller takes nothing more for now: neither do we."""
        self.due = min(self.due, self._loop.time() + self._live.timeouts.idle)
        if self._attempt is not None:
            self._attempt.pause()

    def ready(self) -> None:
        """The caller has taken what there was."""
        self._heard = self._loop.time()
        if self._attempt is not None:
            self._attempt.resume()

    # ---- bits ----

    def _filter_for(self, choice: int, kind: str, tool: int) -> Filter | None:
        made: Filter | None = self._chain.filter_for(self._exchange, Channel(choice, kind, tool))
        return made

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        self._task = self._loop.create_task(self._guarded(work))

    async def _guarded(self, work: Awaitable[None]) -> None:
        try:
            await work
        except Exception as fault:  # noqa: BLE001 - whatever happens, the caller gets an answer of our form
            await self._fail(self._named(fault))

    def _extra(self) -> dict[str, Any] | None:
        """What is told under "sluice"."""
        tags, extra = self._record.tags, self._exchange.extra
        return {**extra, **({"tags": list(tags)} if tags else {})} if extra or tags else None

    def _tags(self) -> bytes:
        tags = self._record.tags
        return ",".join([quote(tag, safe="") for tag in tags]).encode() if tags else b""

    def _finished(self, reasons: list[str]) -> None:
        record = self._record
        record.finish_reasons = reasons
        if record.rule is not None and "content_filter" in reasons:
            record.outcome = "content_filter"

    def _count(self, usage: Any) -> None:
        if usage is not None:
            self._record.prompt_tokens = usage.prompt_tokens
            self._record.completion_tokens = usage.completion_tokens or 0

    # ---- giving back ----

    def _give_back(self) -> Coroutine[Any, Any, None] | None:
        """Everything acquired is given back here, however the exchange ended; plugins may want a moment more."""
        self._clock.forget(self)
        for task in (self._task, self._leaving):
            if task is not None and not task.done():
                task.cancel()
        record, editor = self._record, self._editor
        if self._attempt is not None:
            self._attempt.end()
        self._caller.drop()
        if editor is not None:
            self._count(editor.usage)
            record.answer_chars = editor.chars
            record.completion_tokens = record.completion_tokens or editor.chunks
            record.phases["decode"] = perf_counter() - self._marked
        if self._ticket is not None:
            used = record.prompt_tokens + record.completion_tokens
            if used:
                self._ticket.settle(self._loop.time(), used)
            self._ticket.leave()
            self._model.load.in_flight -= 1
            self._meters.in_flight(self._model.name, -1)
        waiting, exchange = None, self._exchange
        if exchange is not None:
            waiting = self._chain.on_complete(exchange)
            exchange.host = GONE
        # Nothing of an exchange waits for the garbage collector: these know us.
        self._attempt = self._editor = None
        del self._caller, self._receive
        return None if waiting is None else _waited(waiting)


async def _waited(waiting: Awaitable[Any]) -> None:
    await waiting
