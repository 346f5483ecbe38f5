"""THE SECOND HALF OF THE DATA PATH: what the engine answers, on its way through the chain to the caller.

It comes as calls from the engine's socket and is filtered and written in place; a task exists only where something
really has to wait: a plugin, a new connection, a second engine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from time import perf_counter
from typing import Any

from gateway.accounting import Meters, ended, named
from gateway.attempt import Attempt
from gateway.caller import Caller, extra
from gateway.clock import Clock
from gateway.errors import EngineError, EngineTimeout, Failure, NoEngineAvailable
from gateway.letter import Letter, stop
from gateway.live import Live
from gateway.protocol import body as bodies
from gateway.protocol import failures
from gateway.protocol.answer import Whole
from gateway.protocol.chunks import Usage
from gateway.protocol.editing import BROKE_OFF, NONSENSE, Editor
from gateway.protocol.filtering import Filter
from gateway.protocol.openai import Asked
from gateway.protocol.surface import Surface
from gateway.sdk import Answer, Channel, Exchange
from gateway.upstream.client import Broken
from gateway.upstream.engine import Engine
from gateway.upstream.fleet import Fleet
from gateway.upstream.want import Want


class Answering:
    """Sends a letter to one of ``engines`` and tells ``caller`` what it answers; ``fail`` tells why there is no answer.

    ``own`` is what the route's editor and whole answer have to know beside the rest; ``prompt`` how many tokens it most
    likely has. ``marked`` is when the last phase of the request ended (``perf_counter``). All other times are the event
    loop's.
    """

    __slots__ = (
        *("_asked", "_asked_at", "_begun", "_caller", "_chain", "_chunk_at", "_clock", "_editor", "_exchange"),
        *("_fail", "_heard", "_letter", "_live", "_loop", "_marked", "_meters", "_own", "_parts", "_prompt", "_record"),
        *("_retry_after", "_status", "_surface", "_task", "_unsaid", "_whole", "_wrote_at"),
        *("attempt", "due", "over", "seen"),
    )

    def __init__(
        self,
        exchange: Exchange,
        asked: Asked,
        surface: Surface,
        live: Live,
        engines: Fleet,
        letter: Letter,
        own: Mapping[str, Any],
        caller: Caller,
        fail: Callable[[Failure], Coroutine[Any, Any, None]],
        meters: Meters,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        marked: float,
        want: Want,
        *,
        whole: bool,
        prompt: int,
    ) -> None:
        self._exchange, self._record, self._asked, self._live = exchange, exchange.record, asked, live
        self._caller, self._fail, self._meters, self._clock, self._loop = caller, fail, meters, clock, loop
        self._surface, self._letter, self._own, self._marked = surface, letter, own, marked
        self._chain = live.chain
        self._whole, self._prompt = whole, prompt
        self._editor: Editor | None = None
        self._task: asyncio.Task[None] | None = None
        self._begun = False  # the first event has been seen: no other engine will be asked
        self._unsaid = b""  # events before the first token, where a plugin waits for that
        self.seen = False  # some of a stream was shown; heartbeats are none of it
        self.over = False  # the response is complete, or will be without the engine
        self._asked_at = self._chunk_at = 0.0
        self.due = 0.0  # when the clock is to look at us
        self.attempt = Attempt(engines, self, loop, want)
        caller.listener = self

    # ---- the engine is asked ----

    def request_for(self, engine: Engine) -> tuple[bytes, bytes]:
        """Write what one engine gets. Raises InvalidRequest."""
        self._record.tries += 1
        return self._letter.to(engine)

    def sent(self, engine: Engine) -> None:
        """The request is on its way to this engine."""
        self._record.engine = engine.name
        self._status, self._parts = 0, list[bytes]()
        self._marked = ended(self._record, "connect", self._marked)
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
            asked, exchange = self._asked, self._exchange
            self._editor = self._surface.editor(
                self._filter_for,
                model=asked.model,
                choices=asked.choices,
                want_usage=asked.want_usage,
                merge=self._chain.watches_answers(exchange),
                show_logprobs=exchange.show_logprobs,
                **self._own,
            )
            self._editor.prompt_estimate = self._prompt

    def on_data(self, data: bytes) -> None:
        """The next bytes of the engine's answer. THE HOT PATH of a stream."""
        editor = self._editor
        if editor is None or self.over:
            self._parts.append(data)
            return
        now = perf_counter()
        try:
            shown = editor.feed(data)
        except Exception as fault:  # noqa: BLE001 - a filter that fails closed, or a bug
            editor.failure, shown = named(fault, self._record), b""
        self._heard = self._loop.time()
        if self._begun:
            self._meters.chunk_gap(now - self._chunk_at)
        elif editor.events and (self._exchange.first_token_s is None or editor.chars or editor.complete):
            shown = self._unsaid + shown
            self._first_event(now)
        else:
            self._unsaid += shown if editor.events else b""
            if editor.failure is not None or editor.done:
                self._stream_ended(editor)
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
        self.seen = True
        self.due = min(self.due, self._heard + self._live.timeouts.idle)
        if not self._caller.started:
            self._caller.start_stream()
        if self._editor is not None:
            self._caller.broken = self._editor.broken

    def _first_answer(self, now: float) -> None:
        self._begun = True
        self.attempt.answered()
        self._record.phases["first_token"] = now - self._marked
        self._marked = now

    def on_end(self) -> None:
        """The engine's answer is complete."""
        if self.over:
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
                self._refused(self._surface.refusal(self._status, b"".join(self._parts), self._retry_after))
        except Exception as fault:  # noqa: BLE001 - a filter that fails closed, or a bug
            self._engine_failed(named(fault, self._record))

    def on_failure(self, broken: Broken) -> None:
        """The connection broke, or spoke nonsense."""
        if self.over:
            return
        if self._editor is not None and self._editor.complete:  # every choice had ended; only [DONE] is missing
            self.on_end()
        elif not broken.answer_begun and not self._begun and broken.kind in {"refused", "broke_off"}:
            self.attempt.broke_off(broken)
            self._in_background(self._ask_again(EngineError(BROKE_OFF)))
        else:
            self.attempt.failed()
            self._engine_failed(EngineError(BROKE_OFF if broken.kind == "broke_off" else NONSENSE))

    # ---- a stream ----

    def _stream_ended(self, editor: Editor) -> None:
        """The stream is complete, blocked, or none: end the response in the form that fits."""
        if isinstance(editor.failure, failures.Busy) and not self._begun:
            self.attempt.stop()
            self._editor = None
            self._refused(editor.failure)
            return
        if editor.failure is not None or not self._begun:  # or [DONE] and nothing before it
            self._engine_failed(editor.failure or EngineError(BROKE_OFF))
            return
        self.over = True
        if editor.abort and not editor.done:
            self._stop_background()
            self.attempt.end()
        else:
            self.attempt.linger()
        self._finished(editor.finish_reasons)
        if self._chain.watches_answers(self._exchange):
            answer = Answer(self._exchange.route, editor.merged(), shown=True)
            waiting = self._chain.on_answer(self._exchange, answer)
            if waiting is not None:
                self._in_background(self._end_stream_after(waiting, editor))
                return
        self._caller.end(editor.close(extra(self._exchange)))

    async def _end_stream_after(self, waiting: Awaitable[None], editor: Editor) -> None:
        await waiting
        self._caller.end(editor.close(extra(self._exchange)))

    # ---- a whole answer ----

    def _whole_answer(self, raw: bytes) -> None:
        self._first_answer(perf_counter())
        exchange, answer = self._exchange, self._surface.whole(raw, **self._own)
        answer.filter(self._filter_for)
        self._record.answer_chars = answer.chars
        self._finished(answer.finish_reasons)
        self._count(answer.usage)
        if self._record.outcome == "content_filter":
            self._stop_background()
        if not answer.is_over and self._letter.counts:  # nobody will tell us: it is charged with the most it may take
            self._count(Usage(self._prompt, self._asked.output_tokens))
        if answer.is_over and self._chain.watches_answers(exchange):
            seen = Answer(exchange.route, answer.body)
            waiting = self._chain.on_answer(exchange, seen)
            if waiting is not None:
                self._in_background(self._show_after(waiting, answer, seen))
                return
            answer.body = seen.body
        self._show(answer)

    async def _show_after(self, waiting: Awaitable[None], answer: Whole, seen: Answer) -> None:
        await waiting
        answer.body = seen.body
        self._show(answer)

    def _show(self, answer: Whole) -> None:
        self._marked = ended(self._record, "chain_answer", self._marked)
        raw = answer.close(self._asked.model, extra(self._exchange), self._exchange.show_logprobs)
        self.over = True
        if not self._asked.stream:
            self._caller.answer_json(raw)
            return
        if not self._caller.started:
            self._caller.start_stream()
        self._caller.end(self._surface.as_stream(bodies.decode(raw), want_usage=self._asked.want_usage))

    # ---- what goes wrong ----

    def _refused(self, failure: Failure) -> None:
        """The engine answered, but not with an answer: busy ones are passed over, its own verdicts go to the caller."""
        if isinstance(failure, failures.Busy):
            self.attempt.busy()
            self._in_background(self._ask_again(failure))
            return
        if failure.status >= 500:
            self.attempt.failed()
        self._engine_failed(failure)

    async def _ask_again(self, failure: Failure) -> None:
        """Nothing of an answer was seen: ask another engine, or tell the caller what the last one said."""
        self.attempt.end()
        try:
            waiting = self.attempt.ask()
            if waiting is not None:
                await waiting
        except NoEngineAvailable:
            raise failure from None

    def _engine_failed(self, failure: Failure) -> None:
        """The engine's answer ends here without an end."""
        if self.over:
            return
        self.stop()
        self._in_background(self._fail(failure))

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        self._task = self._loop.create_task(self._guarded(work))

    async def _guarded(self, work: Awaitable[None]) -> None:
        try:
            await work
        except Exception as fault:  # noqa: BLE001 - whatever happens, the caller gets an answer of our form
            await self._fail(named(fault, self._record))

    # ---- time ----

    def overdue(self, now: float) -> None:
        """Look at every deadline and say when to look again; called seldom, whatever the pace of the stream."""
        times, blocked_since = self._live.timeouts, self._caller.blocked_since
        due = self._asked_at + times.total
        if blocked_since is not None:
            due = min(due, blocked_since + times.idle)
        elif not self._whole:
            due = min(due, self._heard + (times.idle if self._begun else times.first_token))
            if not self._begun and self._exchange.first_token_s is not None:
                due = min(due, self._asked_at + self._exchange.first_token_s)
        if due <= now:
            self._clock.forget(self)
            if not self.over:
                self._timed_out(slow_caller=blocked_since is not None)
            return
        if self._asked.stream:
            if self._wrote_at + self._live.heartbeat_s <= now:
                self._wrote_at = now
                self._caller.heartbeat()
            due = min(due, self._wrote_at + self._live.heartbeat_s)
        self.due = due

    def _timed_out(self, *, slow_caller: bool) -> None:
        if slow_caller:
            self.over = True
            self._caller.cut_off()
            return
        if self._editor is not None and self._editor.complete:  # every choice had ended: as where the connection breaks
            self.on_end()
            return
        self.attempt.failed()
        self._engine_failed(EngineTimeout("The model did not answer in time."))

    def slow(self) -> None:
        """The caller takes nothing more for now: neither do we."""
        self.due = min(self.due, self._loop.time() + self._live.timeouts.idle)
        self.attempt.pause()

    def ready(self) -> None:
        """The caller has taken what there was."""
        self._heard = self._loop.time()
        self.attempt.resume()

    def _filter_for(self, choice: int, kind: str, tool: int) -> Filter | None:
        return self._chain.filter_for(self._exchange, Channel(choice, kind, tool))

    def _stop_background(self) -> None:
        """What was blocked need not go on, whether or not somebody listens."""
        engine = self.attempt.engine
        if engine is not None and self._letter.stop_at is not None:
            stop(engine, self._letter.stop_at)

    def _finished(self, reasons: list[str]) -> None:
        record = self._record
        record.finish_reasons = reasons
        if record.rule is not None and "content_filter" in reasons:
            record.outcome = "content_filter"

    def _count(self, usage: Any) -> None:
        if usage is not None and self._letter.counts:
            self._record.prompt_tokens = usage.prompt_tokens
            self._record.completion_tokens = usage.completion_tokens or 0

    # ---- the end ----

    def stop(self) -> None:
        """Stop the engine, if it is still at work for us; the response will be complete without it."""
        self.over = True
        self.attempt.end()

    def give_back(self) -> None:
        """Let go of everything, and of each other: nothing of an exchange waits for the garbage collector."""
        self._clock.forget(self)
        if self._task is not None and not self._task.done():
            self._task.cancel()
        self.stop()
        record, editor = self._record, self._editor
        if editor is not None:
            if editor.usage is not None or editor.chunks:
                self._count(editor.used())
            record.answer_chars = editor.chars
            record.phases["decode"] = perf_counter() - self._marked
            self._editor = None
        self.attempt.over(record.outcome, record.completion_tokens)
        del self._fail, self.attempt
