"""A streamed answer without I/O: the engine's bytes in, the caller's out, every text through its channel's filter.

A frame whose text did not change leaves byte for byte as it came; in one that did, only the text is replaced. The last
frame of the answer is kept back until ``close``, so that what is said about the whole (tags, confidence) goes into it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec

from gateway.errors import EngineError, Failure
from gateway.protocol import failures, sse
from gateway.protocol.alternatives import Alternatives
from gateway.protocol.arguments import ArgumentsFilter
from gateway.protocol.chunks import (
    ABORTED,
    NULL,
    TEXT_KINDS,
    Choice,
    Chunk,
    Texts,
    ToolCall,
    decode_chunk,
    finite,
    plain,
)
from gateway.protocol.editing import BROKE_OFF, NONSENSE, Editor
from gateway.protocol.filtering import Filter, MakeFilter, Names, reason_of
from gateway.protocol.form import Form, form_of
from gateway.protocol.logprobs import trimmed
from gateway.protocol.merging import finish_merge, frames_of, merge_chunk, merge_text
from gateway.protocol.numbers import decoded
from gateway.protocol.patches import Patch, named, patched, with_extra, without_usage
from gateway.protocol.repeats import Repeats
from gateway.protocol.rest import Leaf, Rest
from gateway.protocol.rest_texts import StreamRest

__all__ = ["BROKE_OFF", "NONSENSE", "Filter", "MakeFilter", "StreamEditor", "failure_event", "reason_of", "with_extra"]

#: So many changes of the chunks' form are followed; an engine that changes it for ever is read chunk by chunk.
FORMS = 8
_UNMADE: Any = object()


class _ChoiceState:
    """Where one choice of the answer stands."""

    __slots__ = ("content", "ended", "finished", "index", "names", "others", "repeats", "tools")

    def __init__(self, index: int) -> None:
        self.index = index
        self.content: Filter | None = _UNMADE
        self.others: dict[str, Filter | None] = {}
        self.tools: dict[int, ArgumentsFilter | None] = {}
        self.names, self.repeats = Names(), Repeats()
        self.finished = self.ended = False  # ended: blocked, what the engine still sends of it is dropped


class StreamEditor(Editor):
    """Edits one streamed answer of ``choices`` choices; it is complete when every choice has ended."""

    def __init__(
        self,
        make_filter: MakeFilter,
        *,
        model: str,
        choices: int,
        want_usage: bool,
        merge: bool,
        show_logprobs: int | None = None,
    ) -> None:
        super().__init__(make_filter)
        self._states: dict[int, _ChoiceState] = {}
        self._model, self._choices, self._want_usage = model, choices, want_usage
        self._merged: dict[str, Any] | None = {} if merge else None
        self._show_logprobs = show_logprobs
        self._form: Form | None = None
        self._rest, self._alternatives = StreamRest(make_filter), Alternatives(make_filter)
        self._formed = _ChoiceState(0)  # the choice that the form is of
        self._forms = FORMS
        self._open = choices
        self._last = b""  # the frame in which the last choice ended
        self._usage_frame = b""
        self._sample = b""

    def close(self, extra: dict[str, Any] | None) -> bytes:
        """Return the end of the stream, with ``extra`` under "sluice" in its last chunk."""
        if self._want_usage and not self._usage_frame:  # the engine was stopped, or told it with a choice
            if self.usage is None or not self.usage.completion_tokens or self.abort:
                extra = {**(extra or {}), "usage": "estimate"}
            self._usage_frame = self._invented_usage()
        last, usage = self._last, self._usage_frame
        if extra:
            if usage:
                usage = _with_extra(usage, extra)
            else:
                last = _with_extra(last, extra)
        return self._unended + last + usage + sse.DONE

    def merged(self) -> dict[str, Any]:
        """Return the answer as it was shown, put together as one whole."""
        return finish_merge(self._merged or {}, self.usage)

    def broken(self, failure: Failure) -> bytes:
        """Return the event that ends a stream which has begun and has failed."""
        return failure_event(failure)

    def _frame(self, frame: bytes) -> bytes:
        form = self._form
        if form is not None and not self._formed.repeats.queues and (text := form.text_of(frame)) is not None:
            return self._formed_chunk(frame, form, text)
        payload = sse.payload(frame)
        if payload is None:
            return frame if frame.startswith(b":") else b""
        if payload == b"[DONE]":
            self._set_done()
            return b""
        if (covered := self._alternatives.covered(payload)) != payload:
            frame, payload = sse.encode(covered), covered
        rest = None
        try:
            if (chunk := plain(payload, streams=True)) is None:
                chunk, rest = decode_chunk(payload), Rest.of(payload, "delta")
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
            if (mended := finite(payload)) is None:
                self.failure = failures.from_event(payload) or EngineError(NONSENSE)
                return b""
            frame, payload, chunk = sse.encode(mended), mended, decode_chunk(mended)
            rest = Rest.of(payload, "delta")
        if chunk.choices is None:
            self.failure = failures.from_event(payload) or EngineError(NONSENSE)
            return b""
        self.events += 1
        return self._chunk(frame, payload, chunk, rest)

    def _formed_chunk(self, frame: bytes, form: Form, text: str) -> bytes:
        """What ``_chunk`` does, for the chunks that most are: of one choice, with a text and nothing else."""
        self.events += 1
        state = self._formed
        if state.finished:
            return b""
        channel, shown = state.content, text
        if text:
            self.chunks += 1
            self.chars += len(text)
            if channel is not None:
                shown, _ = channel.feed(text)
                if channel.blocked is not None:
                    patch, was_open = Patch(shown), self._open
                    patch.finish_reason = reason_of(channel.blocked)
                    out = self._told(patched(frame[6:-2], {0: self._blocked(state, patch)}, self._model))
                    return self._ended(out) if was_open and not self._open else out
        if self._merged is not None:
            merge_text(self._merged, state.index, shown)
        if shown == text:
            return frame if form.same else form.renamed(frame)
        return form.saying(shown) if shown else b""

    def _chunk(self, frame: bytes, payload: bytes, chunk: Chunk, rest: Rest | None) -> bytes:
        choices = chunk.choices or ()
        if chunk.usage is not None:
            self.usage = chunk.usage
        patches: dict[int, Patch] | None = None
        was_open = self._open
        if rest is not None and self._rest.beside(rest.top, ended=not self._open):
            self._form, self._forms = None, 0
        for position, choice in enumerate(choices):
            patch = self._choice(choice, None if rest is None else rest.choices[position])
            if self.failure is not None:
                return b""
            if patch is not None:
                patches = patches or {}
                patches[position] = patch
        if rest is not None:
            self.chars += self._rest.chars
            frame, payload = self._rest.written(rest, frame, payload)
        if not choices:
            if chunk.usage is not None:
                self._usage_frame = named(frame, chunk.model, self._model) if self._want_usage else b""
                return b""
            return named(frame, chunk.model, self._model)
        self._sample = payload
        shown = named(frame, chunk.model, self._model) if patches is None else patched(payload, patches, self._model)
        if chunk.usage is not None and not self._want_usage:
            shown = without_usage(shown)
        shown = self._told(shown)
        if self._forms and rest is None and len(choices) == 1 and not (state := self._states[choices[0].index]).ended:
            begun = self._merged is None or state.index in self._merged.get("choices", ())  # some of it was shown
            form = form_of(frame, chunk, self._model) if begun else None
            if form is not None:
                self._form, self._formed = form, state
                self._forms -= 1
        return self._ended(shown) if was_open and not self._open else shown

    def _ended(self, shown: bytes) -> bytes:
        """The last choice ends in what is shown now; its last frame waits for ``close``."""
        self.complete = True
        self.abort = any(state.ended for state in self._states.values())
        *before, self._last = frames_of(shown)
        return b"".join(before)

    def _told(self, shown: bytes) -> bytes:
        """Add what is shown to the answer put together; return it without log probabilities that nobody asked for."""
        if self._merged is None and self._show_logprobs is None:
            return shown
        frames = []
        for frame in frames_of(shown):
            body = decoded(sse.payload(frame) or b"{}")
            if self._merged is not None:
                merge_chunk(self._merged, body)
            if self._show_logprobs is not None:
                told = [choice for choice in body.get("choices") or () if choice.get("logprobs") is not None]
                for choice in told:
                    choice["logprobs"] = trimmed(choice["logprobs"], self._show_logprobs)
                frames.append(sse.encode(msgspec.json.encode(body)) if told else frame)
        return shown if self._show_logprobs is None else b"".join(frames)

    def _choice(self, choice: Choice, rest: list[Leaf] | None) -> Patch | None:
        """Send one choice's texts through their filters; None where nothing has to change."""
        state = self._states.get(choice.index)
        if state is None:
            state = self._states[choice.index] = _ChoiceState(choice.index)
        if state.finished:  # of what an engine still says after a choice's end nothing is shown
            return Patch(drop=True)
        delta = choice.delta
        patch: Patch | None = None
        text = choice.text if delta is None else delta.content
        others = delta is not None and (delta.reasoning or delta.reasoning_content or delta.refusal)
        calls = delta is not None and (delta.tool_calls or delta.function_call)
        if text or others or calls:
            self.chunks += 1
            self.chars += len(text or "")
        if text or not (others or calls or rest or choice.logprobs == NULL):
            patch = self._content(state, choice, text or "")
        if delta is not None and others:
            patch = self._other_texts(state, choice, delta, patch)
        if delta is not None and delta.tool_calls:
            patch = self._tool_calls(state, choice, delta.tool_calls, patch)
        if delta is not None and delta.function_call is not None:
            patch = self._tool_calls(state, choice, [ToolCall(-1, delta.function_call)], patch)
        if rest is not None or self._rest.over:
            state.repeats.hidden, patch = self._rest.patch(choice, rest or [], patch, hidden=state.repeats.hidden)
        if patch is not None and patch.finish_reason is not None:
            return self._blocked(state, patch)
        if choice.finish_reason is not None:
            return self._finished(state, choice, patch)
        return patch

    def _content(self, state: _ChoiceState, choice: Choice, text: str) -> Patch | None:
        channel = state.content
        if channel is _UNMADE:
            channel = state.content = self._make_filter(state.index, "content", 0)
        if channel is None:
            return None
        shown, edits = channel.feed(text) if text else ("", ())
        if not state.repeats.change("content", channel, choice, (text, shown, edits)):
            return None
        patch = Patch(shown)
        patch.logprobs = state.repeats.of("content", channel, choice, (text, edits))
        if channel.blocked is not None:
            patch.finish_reason = reason_of(channel.blocked)
        return patch

    def _other_texts(self, state: _ChoiceState, choice: Choice, delta: Texts, patch: Patch | None) -> Patch | None:
        for kind in TEXT_KINDS[1:]:
            text = getattr(delta, kind)
            if not text:
                continue
            self.chars += len(text)
            if kind not in state.others:
                # vLLM's old and new name of the same thing are one text, never two in one chunk
                state.others[kind] = self._make_filter(state.index, kind.removesuffix("_content"), 0)
            channel = state.others[kind]
            if channel is None:
                continue
            shown, edits = channel.feed(text)
            if state.repeats.change(kind, channel, choice, (text, shown, edits)) or channel.blocked is not None:
                alone = patch is None and not delta.content
                patch = patch or Patch()
                patch.texts[kind] = shown
                if alone:
                    patch.logprobs = state.repeats.of(kind, channel, choice, (text, edits))
                else:  # nobody can tell which of the tokens are whose
                    patch.hide(choice.logprobs)
                if channel.blocked is not None:
                    patch.finish_reason = reason_of(channel.blocked)
        return patch

    def _tool_calls(
        self, state: _ChoiceState, choice: Choice, calls: Sequence[ToolCall], patch: Patch | None
    ) -> Patch | None:
        for position, call in enumerate(calls):
            raw, name = (call.function.arguments, call.function.name) if call.function is not None else (None, None)
            if name and (blocked := self._judged(state, call.index, name)) is not None:
                patch = patch or Patch()
                patch.cut, patch.finish_reason, state.repeats.hidden = position, reason_of(blocked), True
                patch.hide(choice.logprobs)
                return patch
            if not raw:
                continue
            if call.index not in state.tools:
                state.tools[call.index] = self._arguments_filter(state.index, call.index)
            channel = state.tools[call.index]
            if channel is None:
                continue
            self.chars += len(raw)
            shown = channel.feed(raw)
            if shown != raw or channel.blocked is not None:
                patch = patch or Patch()
                patch.tools[position if call.index >= 0 else -1] = shown
                state.repeats.hidden = True
                patch.hide(choice.logprobs)
                if channel.blocked is not None:
                    patch.finish_reason = reason_of(channel.blocked)
        return patch

    def _judged(self, state: _ChoiceState, tool: int, name: str) -> Any:
        return state.names.judged(tool, name, partial(self._make_filter, state.index, "arguments", tool))

    def _arguments_filter(self, choice: int, tool: int) -> ArgumentsFilter | None:
        if self._make_filter(choice, "arguments", tool) is None:
            return None
        return ArgumentsFilter(lambda: self._make_filter(choice, "arguments", tool))

    def _finished(self, state: _ChoiceState, choice: Choice, patch: Patch | None) -> Patch | None:
        """The choice has ended by itself: what its filters still hold goes out before its finish reason."""
        if choice.finish_reason in ABORTED:
            self.failure = EngineError(BROKE_OFF)
            return None
        if not state.finished:
            state.finished = True
            self._open -= 1
        patch = self._flushed(state, patch)
        if patch is not None and patch.finish_reason is not None:
            state.ended = True
        self.finish_reasons.append(patch.finish_reason if patch and patch.finish_reason else str(choice.finish_reason))
        return patch

    def _flushed(self, state: _ChoiceState, patch: Patch | None) -> Patch | None:
        channel = state.content
        if channel is not None and channel is not _UNMADE and channel.blocked is None:
            tail, edits = channel.finish()
            patch = self._tail(patch, "content", 0, tail, blocked=channel.blocked)
            patch = state.repeats.late(patch, "content", channel, edits)
        for kind, other in state.others.items():
            if other is not None and other.blocked is None:
                tail, edits = other.finish()
                patch = self._tail(patch, kind, 0, tail, blocked=other.blocked)
                patch = state.repeats.late(patch, kind, other, edits)
        for tool, arguments in state.tools.items():
            if arguments is not None and arguments.blocked is None:
                patch = self._tail(patch, "arguments", tool, arguments.finish(), blocked=arguments.blocked)
        return self._rest.tails(state.index, patch, last=self._open == (0 if state.finished else 1))

    @staticmethod
    def _tail(patch: Patch | None, kind: str, tool: int, tail: str, *, blocked: Any) -> Patch | None:
        if not tail and blocked is None:
            return patch
        patch = patch or Patch()
        if patch.texts.get(kind):
            patch.texts[kind] += tail
        elif tail:
            patch.tails.append((kind, tool, tail))
        if blocked is not None:
            patch.finish_reason = reason_of(blocked)
        return patch

    def _blocked(self, state: _ChoiceState, patch: Patch) -> Patch:
        """A filter ended the choice: its other channels are clean so far and give back what they hold."""
        self._flushed(state, patch)
        state.ended = True
        if not state.finished:
            state.finished = True
            self._open -= 1
        self.finish_reasons.append(patch.finish_reason or "")
        return patch

    def _invented_usage(self) -> bytes:
        body, used = decoded(self._sample or b"{}"), self.used()
        head = {key: body[key] for key in ("id", "object", "created") if key in body}
        told = {**msgspec.structs.asdict(used), "total_tokens": used.prompt_tokens + (used.completion_tokens or 0)}
        return sse.encode(msgspec.json.encode({**head, "model": self._model, "choices": [], "usage": told}))


def _with_extra(frame: bytes, extra: dict[str, Any]) -> bytes:
    body = decoded(sse.payload(frame) or b"{}")
    return sse.encode(msgspec.json.encode({**body, "sluice": with_extra(body, extra)}))


def failure_event(failure: Failure) -> bytes:
    """Write the event that ends a stream which has begun."""
    return sse.encode(msgspec.json.encode(failure.body()))
