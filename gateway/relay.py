"""THE DATA PATH of one request, from the parsed body to the last byte. Read it from top to bottom.

    admit -> chain.on_request -> an engine -> its answer through the chain -> the caller -> chain.on_complete

The relay is the ASGI response. It waits in one place only: for the caller to leave or the answer to be over. What comes
from the engine arrives as calls from its socket (the relay is the connection's sink) and is filtered and written in
place; a task exists only where something really has to wait: a plugin, a new connection, a second engine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from time import perf_counter
from typing import Any, Protocol
from urllib.parse import quote

import structlog
from starlette.types import Receive, Scope, Send

from gateway.admission.keys import Principal
from gateway.admission.limits import Ticket
from gateway.clock import Clock
from gateway.caller import EVENT_STREAM, JSON_HEADERS, Caller, CallerHeaders, Headers
from gateway.errors import (
    ContentFiltered,
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
from gateway.live import ANY_MODEL, Live, Model
from gateway.pipeline import Chain
from gateway.protocol import body as bodies
from gateway.protocol import failures, openai, places, sse, unread
from gateway.protocol.stream import BROKE_OFF, NONSENSE, Filter, StreamEditor
from gateway.protocol.whole import WholeAnswer, as_stream
from gateway.record import Record
from gateway.sdk import Answer, Channel, Exchange, Reply
from gateway.upstream import asking
from gateway.upstream.choice import choose
from gateway.upstream.client import Broken, Connection
from gateway.upstream.engine import Engine

log = structlog.get_logger()

#: After [DONE] an engine has this long to end its body, so that its connection can be used again.
LINGER_S = 1.0
BUG = "Something went wrong in the gateway; the operator's log has the request id."


class Meters(Protocol):
    """What the relay counts while it runs; all else is in the record when it is over."""

    def in_flight(self, model: str, change: int) -> None:
        """One more, or one less."""

    def chunk_gap(self, seconds: float) -> None:
        """The time between two pieces of a stream."""


class _Gone:
    """The host of an exchange that is over."""

    def window(self, exchange: Exchange) -> int | None:  # noqa: ARG002 - a host's signature
        """Know nothing more."""
        return None

    async def ask(self, exchange: Exchange, request: dict[str, Any]) -> dict[str, Any]:
        """Refuse."""
        raise NoEngineAvailable("The exchange is over.")

    async def count_tokens(self, exchange: Exchange, text: str | Sequence[Mapping[str, Any]]) -> int:
        """Refuse."""
        raise NoEngineAvailable("The exchange is over.")


GONE = _Gone()


class CallerLeft(Exception):  # noqa: N818 - not an error: there is nobody left to tell
    """The caller left while something was waited for."""


class Relay:
    """One exchange. ``raw`` is the request's body, read and unpacked."""

    # What is not set yet; on the class, so that a request pays only for what it uses.
    due = 0.0  # when the clock is to look at us
    _model: Model | None = None
    _ticket: Ticket | None = None
    _engine: Engine | None = None  # the one now at work for us
    _connection: Connection | None = None
    _tried: frozenset[Engine] = frozenset()
    _status = 0  # the engine's
    _retry_after: str | None = None
    _editor: StreamEditor | None = None
    _answering = False  # the first event has been seen: no other engine will be asked
    _over = False  # the response is complete, or will be without the engine
    _task: asyncio.Task[None] | None = None
    _leaving: asyncio.Task[Any] | None = None
    _asked_at = _wrote_at = 0.0
    _exchange = None  # type: ignore[assignment] # it is there as soon as the request has been read

    def __init__(self, live: Live, route: str, principal: Principal, record: Record, raw: bytes, meters: Meters,
                 clock: Clock, loop: asyncio.AbstractEventLoop) -> None:
        self._live, self._route, self._principal, self._raw = live, route, principal, raw
        self._meters, self._clock, self._record = meters, clock, record
        self._chain: Chain = live.chain
        self._parts: list[bytes] = []  # of an answer that is read whole
        self._loop = loop

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, however it ends; everything is given back before it returns."""
        self._receive = receive
        self._drop_caller: Callable[[], None] = scope.get("sluice.drop", lambda: None)
        self._caller = Caller(send, self._pause, self._resume)
        try:
            try:
                await self._begin(scope)
            except CallerLeft:
                raise
            except Exception as fault:  # noqa: BLE001 - whatever happens, the caller gets an answer of our form
                await self._loop.create_task(self._fail(self._named(fault)))
            await self._until_over()
        except CallerLeft:
            self._record.outcome = "client_left"
        finally:
            await self._give_back()

    async def _begin(self, scope: Scope) -> None:
        """Bring the request to an engine. Raises Failure and CallerLeft."""
        self._admit(scope)
        waiting = self._chain.on_request(self._exchange)
        if waiting is not None:
            await self._unless_left(waiting)
        self._mark("chain_request")
        if self._exchange.reply is not None:
            self._reply(self._exchange.reply)
            return
        self._shape()
        waiting = self._ask_an_engine()
        if waiting is not None:
            await self._unless_left(waiting)

    # ---- the request ----

    def _admit(self, scope: Scope) -> None:
        """Read the request, find its model, take its place in the limits. Raises Failure."""
        self._marked = perf_counter()
        record, body = self._record, bodies.decode(self._raw)
        asked = openai.ask(self._route, body, self._live.media_hosts)
        model = self._live.models.get(asked.model) or self._live.models.get(ANY_MODEL)
        if model is None:
            raise ModelNotFound(f"The model `{asked.model[:200]}` does not exist.", param="model")
        self._model, record.model, record.stream = model, model.name, asked.stream
        if not self._principal.may_use(model.name):
            raise ModelNotAllowed(f"This key may not use the model `{model.name}`.", param="model")
        self._asked = openai.clamp(self._route, body, asked, model.ceilings)
        self._exchange = Exchange(record, body, CallerHeaders(scope["sluice.headers"]), self)
        self._exchange.filled = self._asked.filled
        if self._asked.clamped:
            self._exchange.tag("max_tokens_clamped")
        if not asked.plain and self._chain.blocks_requests(self._exchange) and (at := unread.has_token_ids(self._route, body)) is not None:
            raise InvalidRequest("Token ids carry no text that could be checked: send text.", param=at)
        estimate = len(self._raw) // 4 + self._asked.output_tokens
        self._ticket = self._principal.limits.enter(self._loop.time(), estimate)
        if model.load.in_flight >= model.max_in_flight:
            self._ticket.leave()
            self._ticket = None
            raise QueueFull("The model is busy with as many requests as it may hold; try again.", retry_after=1)
        model.load.in_flight += 1
        self._meters.in_flight(model.name, 1)
        self._mark("queue")

    def _shape(self) -> None:
        """Write the request that the engine gets."""
        exchange, asked = self._exchange, self._asked
        self._whole = not asked.stream or self._chain.needs_whole_answer(exchange)
        self._salt = self._principal.digest[:32] if self._model.isolate_prefix_cache and self._principal.digest else None
        exchange.record.prompt_chars = len(self._raw)

    def _request_for(self, engine: Engine) -> tuple[bytes, bytes]:
        request = openai.for_engine(self._route, self._exchange.request, model=engine.served_model, stream=not self._whole,
                                    cache_salt=self._salt)
        body = bodies.encode(request)
        return engine.head(self._route, self._record.request_id, len(body), self._exchange.headers), body

    def _ask_an_engine(self) -> Awaitable[None] | None:
        """Send the request to the best engine not yet tried; something to await only where a connection must be made.

        Raises NoEngineAvailable.
        """
        engine = choose(self._model.engines, self._tried, self._loop.time())
        if engine is None:
            raise NoEngineAvailable("No engine can take the request now; try again soon.", retry_after=2)
        connection = engine.pool.idle()
        if connection is None:
            return self._connect(engine)
        self._send(engine, connection)
        return None

    async def _connect(self, engine: Engine) -> None:
        try:
            connection = await engine.pool.connect()
        except Broken:
            engine.failed(self._loop.time())
            self._tried |= {engine}
            waiting = self._ask_an_engine()
            if waiting is not None:
                await waiting
            return
        self._send(engine, connection)

    def _send(self, engine: Engine, connection: Connection) -> None:
        head, body = self._request_for(engine)
        self._engine, self._connection = engine, connection
        self._record.engine = engine.name
        self._status, self._retry_after, self._parts = 0, None, []
        engine.begin()
        connection.send(head, body, self)
        self._mark("connect")
        self._heard = self._loop.time()
        if not self._asked_at:
            self._asked_at = self._wrote_at = self._heard
            self.overdue(self._heard)
            self._clock.watch(self)

    # ---- the engine's answer: called from its socket ----

    def on_head(self, status: int, headers: Sequence[tuple[bytes, bytes]]) -> None:
        """The engine has begun to answer."""
        self._status = status
        kind = b""
        for name, value in headers:
            lower = name.lower()
            if lower == b"content-type":
                kind = value.lower()
            elif lower == b"retry-after":
                self._retry_after = value.decode("latin-1")
        if status == 200 and not self._whole:
            if not kind.startswith(b"text/event-stream"):
                self._engine_failed(EngineError(NONSENSE))
                return
            self._editor = StreamEditor(self._filter_for, model=self._asked.model, choices=self._asked.choices,
                                        want_usage=self._asked.want_usage,
                                        merge=self._chain.watches_answers(self._exchange),
                                        show_logprobs=self._exchange.show_logprobs)

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
        if not self._answering:
            if not editor.events:
                if editor.failure is not None or editor.done:
                    self._stream_ended()
                return
            self._first_event(now)
        else:
            self._meters.chunk_gap(now - self._chunk_at)
        self._chunk_at = now
        if editor.chars and self._record.first_text_s is None:
            self._record.first_text_s = now - self._record.started
        if shown:
            self._wrote_at = self._heard
            self._caller.write(shown)
        if editor.done or editor.abort or editor.failure is not None:
            self._stream_ended()

    def _first_event(self, now: float) -> None:
        self._answering = True
        self._engine.answered()
        self._record.phases["first_token"] = now - self._marked
        self._marked = now
        self.due = min(self.due, self._heard + self._live.timeouts.idle)
        if not self._caller.started:
            self._start_stream()

    def on_end(self) -> None:
        """The engine's answer is complete."""
        if self._over:
            return
        try:
            if self._editor is not None:
                if not self._editor.done:
                    self._editor.end()
                self._stream_ended()
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
        self._connection = None
        if self._editor is not None and self._editor.complete:  # every choice had ended; only [DONE] is missing
            self.on_end()
            return
        if not broken.answer_begun and not self._answering and broken.kind in {"refused", "broke_off"}:
            if not broken.reused:  # a kept connection that the engine had closed says nothing about the engine
                self._engine.failed(self._loop.time())
                self._tried |= {self._engine}
            self._in_background(self._ask_again(EngineError(BROKE_OFF)))
            return
        self._engine.failed(self._loop.time())
        self._engine_failed(EngineError(BROKE_OFF if broken.kind == "broke_off" else NONSENSE))

    # ---- a stream ----

    def _start_stream(self) -> None:
        self._caller.start(200, [*EVENT_STREAM, *self._tag_header()])

    def _stream_ended(self) -> None:
        """The stream is complete, blocked, or none: end the response in the form that fits."""
        editor = self._editor
        if editor.failure is not None:
            if isinstance(editor.failure, failures.Busy) and not self._answering:
                connection, self._connection = self._connection, None
                connection.cancel()
                self._editor = None
                self._refused_by_engine(editor.failure)
            else:
                self._engine_failed(editor.failure)
            return
        if not self._answering:  # [DONE] and nothing before it
            self._engine_failed(EngineError(BROKE_OFF))
            return
        self._over = True
        if editor.abort and not editor.done:
            self._hang_up()
        else:
            self._linger()
        self._record.finish_reasons = editor.finish_reasons
        if "content_filter" in editor.finish_reasons and self._record.rule is not None:
            self._record.outcome = "content_filter"
        waiting = None
        if self._chain.watches_answers(self._exchange):
            waiting = self._chain.on_answer(self._exchange, Answer(self._route, editor.merged(), shown=True))
        if waiting is None:
            self._caller.end(editor.close(self._extra()))
        else:
            self._in_background(self._end_stream_after(waiting))

    def _linger(self) -> None:
        """The answer is complete: the engine may end its body, so that its connection can be used again."""
        connection, self._connection = self._connection, None
        if connection is not None:
            self._loop.call_later(LINGER_S, connection.cancel)

    async def _end_stream_after(self, waiting: Awaitable[None]) -> None:
        await waiting
        self._caller.end(self._editor.close(self._extra()))

    # ---- a whole answer ----

    def _whole_answer(self, raw: bytes) -> None:
        self._answering = True
        self._engine.answered()
        now = perf_counter()
        self._record.phases["first_token"] = now - self._marked
        self._marked = now
        answer = WholeAnswer(raw)
        if self._route in openai.GENERATES:
            if answer.chunk.choices is None:
                raise EngineError(NONSENSE)
            answer.filter(self._filter_for)
        elif self._route == "/detokenize":
            self._check_texts(answer)
        self._record.answer_chars, self._record.finish_reasons = answer.chars, answer.finish_reasons
        if "content_filter" in answer.finish_reasons and self._record.rule is not None:
            self._record.outcome = "content_filter"
        self._count(answer.usage)
        waiting = None
        if self._chain.watches_answers(self._exchange):
            waiting = self._chain.on_answer(self._exchange, Answer(self._route, answer.body))
        self._mark("chain_answer")
        if waiting is None:
            self._show_whole(answer)
        else:
            self._in_background(self._show_whole_after(waiting, answer))

    async def _show_whole_after(self, waiting: Awaitable[None], answer: WholeAnswer) -> None:
        await waiting
        self._mark("chain_answer")
        self._show_whole(answer)

    def _show_whole(self, answer: WholeAnswer) -> None:
        raw = answer.close(self._asked.model, self._extra(), self._exchange.show_logprobs)
        self._over = True
        if not self._asked.stream:
            self._caller.answer(200, [*JSON_HEADERS, *self._tag_header()], raw)
            return
        if not self._caller.started:
            self._start_stream()
        self._caller.end(as_stream(bodies.decode(raw), want_usage=self._asked.want_usage))

    def _check_texts(self, answer: WholeAnswer) -> None:
        """An answer that is text itself and cannot end early: what would be blocked in it refuses it."""
        for text in places.answer_texts(self._route, answer.body):
            channel = self._filter_for(0, "content", 0)
            if channel is None:
                return
            shown, _ = channel.feed(text.text)
            shown += channel.finish()[0]
            if channel.blocked is not None:
                raise ContentFiltered("The answer was withheld by the content filter.")
            if shown != text.text:
                text.replace(shown)

    # ---- what goes wrong ----

    def _refused_by_engine(self, failure: Failure) -> None:
        """The engine answered, but not with an answer: busy ones are passed over, its own verdicts go to the caller."""
        if isinstance(failure, failures.Busy):
            self._engine.busy(self._loop.time())
            self._tried |= {self._engine}
            self._in_background(self._ask_again(failure))
            return
        if failure.status >= 500:
            self._engine.failed(self._loop.time())
        self._engine_failed(failure)

    async def _ask_again(self, failure: Failure) -> None:
        """Nothing of an answer was seen: ask another engine, or tell the caller what the last one said."""
        self._engine_done()
        try:
            waiting = self._ask_an_engine()
            if waiting is not None:
                await waiting
        except NoEngineAvailable:
            raise failure from None

    def _engine_failed(self, failure: Failure) -> None:
        """The engine's answer ends here without an end."""
        if self._over:
            return
        self._hang_up()
        self._over = True
        if self._answering and self._caller.started:
            self._break_off(failure)
        else:
            self._in_background(self._fail(failure))

    def _break_off(self, failure: Failure) -> None:
        """End a stream that has begun: one error event, no [DONE], no invented finish_reason."""
        self._note(failure)
        self._caller.end(sse.encode(bodies.encode(failure.body())))

    async def _fail(self, failure: Failure) -> None:
        """Answer with the failure, or with what a plugin says instead."""
        self._over = True
        self._hang_up()
        self._note(failure)
        reply = None
        if self._exchange is not None:
            reply = await self._chain.on_failure(self._exchange, failure)
        if reply is not None and not self._caller.started:
            self._reply(reply)
        elif self._caller.started:
            if not self._caller.finished:
                self._break_off(failure)
        else:
            headers = [*JSON_HEADERS, *failure.headers(), *self._tag_header()]
            self._caller.answer(failure.status, headers, bodies.encode(failure.body()))

    def _reply(self, reply: Reply) -> None:
        """A plugin answers itself."""
        self._over = True
        headers = [*JSON_HEADERS, *self._tag_header()]
        headers += [(name.encode("latin-1"), value.encode("latin-1")) for name, value in reply.headers]
        body = dict(reply.body)
        if reply.status == 200 and (extra := self._extra()):
            body["sluice"] = {**body.get("sluice", {}), **extra}
        if self._asked.stream and reply.status == 200:
            self._caller.start(200, [*EVENT_STREAM, *headers[1:]])
            self._caller.end(as_stream(body, want_usage=self._asked.want_usage))
        else:
            self._caller.answer(reply.status, headers, bodies.encode(body))

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
        phases[phase] = phases.get(phase, 0.0) + now - self._marked
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
                self._heartbeat(now)
            due = min(due, self._wrote_at + self._live.heartbeat_s)
        self.due = due

    def _heartbeat(self, now: float) -> None:
        self._wrote_at = now
        if self._caller.blocked_since is not None:
            return
        if not self._caller.started:
            self._start_stream()
        self._caller.write(sse.HEARTBEAT)

    def _timed_out(self, *, slow_caller: bool) -> None:
        if slow_caller:
            self._record.outcome = "client_left"
            self._over = True
            self._drop_caller()
            return
        if self._engine is not None:
            self._engine.failed(self._loop.time())
        self._engine_failed(EngineTimeout("The model did not answer in time."))

    # ---- the caller ----

    async def _unless_left(self, waiting: Awaitable[None]) -> None:
        """Wait, but not longer than the caller does. Raises CallerLeft."""
        work = asyncio.ensure_future(waiting)
        if self._leaving is None:
            self._leaving = asyncio.ensure_future(self._receive())
        try:
            await asyncio.wait({work, self._leaving}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                raise CallerLeft
            work.result()
        finally:
            if not work.done():
                work.cancel()
                await asyncio.gather(work, return_exceptions=True)

    async def _until_over(self) -> None:
        """Wait for the caller to leave; a server says so too when the response is complete. Raises CallerLeft."""
        if self._leaving is not None:
            await self._leaving
        else:
            while (await self._receive())["type"] != "http.disconnect":
                pass  # a server has nothing else to say once the body has been read
        if not self._caller.finished:
            raise CallerLeft

    def _pause(self) -> None:
        self.due = min(self.due, self._loop.time() + self._live.timeouts.idle)
        if self._connection is not None:
            self._connection.pause()

    def _resume(self) -> None:
        self._heard = self._loop.time()
        if self._connection is not None:
            self._connection.resume()

    # ---- bits ----

    def _filter_for(self, choice: int, kind: str, tool: int) -> Filter | None:
        return self._chain.filter_for(self._exchange, Channel(choice, kind, tool))

    def _in_background(self, work: Any) -> None:
        self._task = self._loop.create_task(self._guarded(work))

    async def _guarded(self, work: Awaitable[None]) -> None:
        try:
            await work
        except Exception as fault:  # noqa: BLE001 - whatever happens, the caller gets an answer of our form
            await self._fail(self._named(fault))

    def _extra(self) -> dict[str, Any] | None:
        """What is told under "sluice"."""
        tags = self._record.tags
        extra = self._exchange.extra
        return {**extra, **({"tags": list(tags)} if tags else {})} if extra or tags else None

    def _tag_header(self) -> Headers:
        tags = self._record.tags
        return [(b"x-sluice-tags", ",".join(quote(tag, safe="") for tag in tags).encode())] if tags else []

    def _count(self, usage: Any) -> None:
        if usage is not None:
            self._record.prompt_tokens = usage.prompt_tokens
            self._record.completion_tokens = usage.completion_tokens or 0

    # ---- giving back ----

    def _hang_up(self) -> None:
        """Stop the engine, if it is still at work for us."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.cancel()
        self._engine_done()

    def _engine_done(self) -> None:
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.end()

    async def _give_back(self) -> None:
        """Everything acquired is given back here, however the exchange ended."""
        self._clock.forget(self)
        for task in (self._task, self._leaving):
            if task is not None and not task.done():
                task.cancel()
        if self._over and self._editor is not None and self._editor.done:
            self._engine_done()  # its connection goes back to the pool by itself
        else:
            self._hang_up()
        self._caller.drop()
        record, editor = self._record, self._editor
        if editor is not None:
            self._count(editor.usage)
            record.answer_chars = editor.chars
            record.completion_tokens = record.completion_tokens or editor.chunks
            record.phases["decode"] = perf_counter() - self._marked
        if self._ticket is not None:
            if record.completion_tokens or record.prompt_tokens:
                self._ticket.settle(self._loop.time(), record.prompt_tokens + record.completion_tokens)
            self._ticket.leave()
            self._model.load.in_flight -= 1
            self._meters.in_flight(self._model.name, -1)
        if self._exchange is not None:
            waiting = self._chain.on_complete(self._exchange)
            if waiting is not None:
                await asyncio.shield(asyncio.ensure_future(waiting))
            self._exchange.host = GONE  # nothing of an exchange waits for the garbage collector
        del self._caller, self._drop_caller, self._receive
        self._editor = self._exchange = None

    # ---- what a plugin can ask for ----

    async def ask(self, exchange: Exchange, request: dict[str, Any]) -> dict[str, Any]:
        """Send a request to its model and return the whole answer, its texts filtered as the first's. Raises Failure."""
        model = self._live.models.get(str(request.get("model")), self._model)
        left = self._live.timeouts.total - (self._loop.time() - self._asked_at)
        body = await asking.ask(model.engines, self._route, {**request, "stream": False}, model.name, exchange.id, left)
        answer = WholeAnswer(bodies.encode(body))
        if answer.chunk.choices is None:
            raise EngineError(NONSENSE)
        answer.filter(self._filter_for)
        if answer.usage is not None:  # tokens of every answer count, also of one that nobody saw
            self._record.prompt_tokens += answer.usage.prompt_tokens
            self._record.completion_tokens += answer.usage.completion_tokens or 0
        return answer.body

    async def count_tokens(self, exchange: Exchange, text: str | Sequence[Mapping[str, Any]]) -> int:
        """Count with the engine's tokenizer, and the template's part of the request. Raises Failure."""
        if isinstance(text, str):
            part: dict[str, Any] = {"prompt": text}
        else:
            part = {name: exchange.request[name] for name in openai.TEMPLATED if name in exchange.request}
            part["messages"] = list(text)
        body = await asking.ask(self._model.engines, "/tokenize", part, self._model.name, exchange.id,
                                self._live.timeouts.connect + self._live.timeouts.idle)
        return int(body["count"])

    def window(self, exchange: Exchange) -> int | None:  # noqa: ARG002 - a host's signature
        """Return the shortest window of the model's engines, in tokens; None where none has told it."""
        return min((engine.max_model_len for engine in self._model.engines if engine.max_model_len), default=None)
