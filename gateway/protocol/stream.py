"""A streamed answer without I/O: bytes of the engine in, bytes for the caller out, every text through its channel's filter.

A frame whose text did not change leaves byte for byte as it came; in one that did, only the text is replaced. The last
frame of the answer is kept back until ``close``, so that what is said about the whole (tags, confidence) can go into it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec

from gateway.errors import EngineError, Failure
from gateway.protocol import failures, sse
from gateway.protocol.arguments import ArgumentsFilter
from gateway.protocol.logprobs import CONSTANTS, LogprobQueue, trimmed

NONSENSE = "The model's server sent an answer that could not be understood."
BROKE_OFF = "The model's server ended the answer before it was complete."

#: Reasons with which an engine says that it did not finish (vLLM: a drain, a lost KV transfer).
ABORTED = frozenset({"abort", "error"})
TEXT_KINDS = ("content", "reasoning", "reasoning_content", "refusal")


class Filter(Protocol):
    """What the pipeline gives for a channel: positions are code points of the channel's original text."""

    blocked: Any
    fed: int
    told: int

    def feed(self, text: str) -> tuple[str, Sequence[Any]]:
        """Take a piece, return what may be shown and the edits made."""

    def finish(self) -> tuple[str, Sequence[Any]]:
        """Return what was held back."""

    def whole(self, text: str) -> tuple[str, Sequence[Any]]:
        """Take a text that is all there is."""


MakeFilter = Callable[[int, str, int], Filter | None]
"""Makes the filter of a channel from choice, kind and tool call; None where nothing watches it."""


class Function(msgspec.Struct, gc=False):
    """The function of a tool call, or a piece of it."""

    arguments: str | None = None


class ToolCall(msgspec.Struct, gc=False):
    """A tool call, or a piece of it."""

    index: int = 0
    function: Function | None = None


class Texts(msgspec.Struct, gc=False):
    """The text-bearing fields of a delta or a message."""

    content: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    refusal: str | None = None
    tool_calls: list[ToolCall] | None = None
    function_call: Function | None = None


class Usage(msgspec.Struct, gc=False):
    """Tokens, as the engine counted them."""

    prompt_tokens: int = 0
    completion_tokens: int | None = 0


class Choice(msgspec.Struct, gc=False):
    """What we read of one choice; chat has a delta (a message, where it is whole), completions a text."""

    index: int = 0
    delta: Texts | None = None
    message: Texts | None = None
    text: str | None = None
    finish_reason: str | None = None
    logprobs: msgspec.Raw = msgspec.Raw(b"null")
    token_ids: msgspec.Raw = msgspec.Raw(b"null")


class Chunk(msgspec.Struct, gc=False):
    """What we read of one event, or of a whole answer; all other fields pass unseen."""

    choices: list[Choice] | None = None
    model: str | None = None
    usage: Usage | None = None
    error: msgspec.Raw | None = None


decode_chunk = msgspec.json.Decoder(Chunk).decode
NULL = b"null"
_UNMADE: Any = object()


class _ChoiceState:
    """Where one choice of the answer stands."""

    __slots__ = ("content", "ended", "finished", "index", "logprobs", "others", "tools")

    def __init__(self, index: int) -> None:
        self.index = index
        self.content: Filter | None = _UNMADE
        self.others: dict[str, Filter | None] = {}
        self.tools: dict[int, ArgumentsFilter | None] = {}
        self.logprobs: LogprobQueue | None = None
        self.finished = False
        self.ended = False  # blocked: what the engine still sends of it is dropped


class _Patch:
    """What has to change in one choice of one chunk."""

    __slots__ = ("drop", "finish_reason", "logprobs", "tails", "texts", "tools")

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.tools: dict[int, str] = {}  # position in the chunk's tool_calls -> arguments
        self.tails: list[tuple[str, int, str]] = []  # kind, tool, held text that found no place in this chunk
        self.logprobs: tuple[Any, Any] | None = None  # logprobs and token_ids to show
        self.finish_reason: str | None = None
        self.drop = False


class StreamEditor:
    """Edits one streamed answer of ``choices`` choices.

    ``failure`` is set when the stream is none (an error event, nonsense, no end); what came before it may be shown.
    ``complete`` says that every choice has ended; ``abort`` that the engine need not go on, for all was blocked.
    """

    def __init__(self, make_filter: MakeFilter, *, model: str, choices: int, want_usage: bool, merge: bool,
                 show_logprobs: int | None = None) -> None:
        self._make_filter = make_filter
        self._splitter = sse.Splitter()
        self._states: dict[int, _ChoiceState] = {}
        self._model, self._choices, self._want_usage = model, choices, want_usage
        self._merged: dict[str, Any] | None = {} if merge else None
        self._show_logprobs = show_logprobs
        self._open = choices
        self._last = b""  # the frame in which the last choice ended
        self._usage_frame = b""
        self._sample = self._unended = b""
        self.usage: Usage | None = None
        self.failure: Failure | None = None
        self.done = self.complete = self.abort = False
        self.events = self.chars = self.chunks = 0
        self.finish_reasons: list[str] = []

    def feed(self, data: bytes) -> bytes:
        """Take the engine's bytes; return what the caller may see now."""
        try:
            frames = self._splitter.feed(data)
        except ValueError:
            self.failure = EngineError(NONSENSE)
            return b""
        if len(frames) == 1:
            return self._guarded(frames[0])
        return b"".join([self._guarded(frame) for frame in frames])

    def end(self) -> None:
        """The engine's body has ended: sets ``failure`` if the answer had not."""
        rest = self._splitter.rest
        if rest:  # an event that nobody ended, or that ends in a lone CR
            self._unended = self._guarded(rest.rstrip(b"\r\n") + b"\n\n")
        self._set_done()

    def _set_done(self) -> None:
        if not self.complete and self.failure is None:
            self.failure = EngineError(BROKE_OFF)
        self.done = True

    def close(self, extra: dict[str, Any] | None) -> bytes:
        """Return the end of the stream, with ``extra`` under "sluice" in its last chunk."""
        if self._want_usage and not self._usage_frame:  # the engine was stopped, or fell silent, before it told
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

    def _guarded(self, frame: bytes) -> bytes:
        if self.done or self.failure is not None or self.abort:
            return b""
        payload = sse.payload(frame)
        if payload is None:
            return frame if frame.startswith(b":") else b""
        if payload == b"[DONE]":
            self._set_done()
            return b""
        try:
            chunk = decode_chunk(payload)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
            if (mended := _finite(payload)) is None:
                self.failure = failures.from_event(payload) or EngineError(NONSENSE)
                return b""
            frame, payload, chunk = sse.encode(mended), mended, decode_chunk(mended)
        if chunk.choices is None:
            self.failure = failures.from_event(payload) or EngineError(NONSENSE)
            return b""
        self.events += 1
        return self._chunk(frame, payload, chunk)

    def _chunk(self, frame: bytes, payload: bytes, chunk: Chunk) -> bytes:
        choices = chunk.choices or ()
        if chunk.usage is not None:
            self.usage = chunk.usage
        patches: dict[int, _Patch] | None = None
        was_open = self._open
        for position, choice in enumerate(choices):
            patch = self._choice(choice)
            if self.failure is not None:
                return b""
            if patch is not None:
                patches = patches or {}
                patches[position] = patch
        if not choices:
            if chunk.usage is not None:
                self._usage_frame = self._named(frame, chunk.model) if self._want_usage else b""
                return b""
            return self._named(frame, chunk.model)
        self._sample = payload
        if patches is None:
            shown = self._named(frame, chunk.model)
        else:
            shown = self._patched(payload, patches)
        if self._merged is not None:
            for part in self._frames(shown):
                merge_chunk(self._merged, msgspec.json.decode(sse.payload(part) or b"{}"))
        if self._show_logprobs is not None:
            shown = self._without_logprobs(shown, self._show_logprobs)
        if was_open and not self._open:
            self.complete = True
            self.abort = any(state.ended for state in self._states.values())
            *before, self._last = self._frames(shown)
            return b"".join(before)
        return shown

    def _without_logprobs(self, shown: bytes, kept: int) -> bytes:
        frames = []
        for frame in self._frames(shown):
            body = msgspec.json.decode(sse.payload(frame) or b"{}")
            for choice in body["choices"]:
                if choice.get("logprobs") is not None:
                    choice["logprobs"] = trimmed(choice["logprobs"], kept)
            frames.append(sse.encode(msgspec.json.encode(body)))
        return b"".join(frames)

    @staticmethod
    def _frames(shown: bytes) -> list[bytes]:
        return (
            [part + b"\n\n" for part in shown.split(b"\n\n")[:-1]] if b"\r" not in shown else sse.Splitter().feed(shown)
        )

    def _choice(self, choice: Choice) -> _Patch | None:
        """Send one choice's texts through their filters; None where nothing has to change."""
        state = self._states.get(choice.index)
        if state is None:
            state = self._states[choice.index] = _ChoiceState(choice.index)
        if state.ended:
            patch = _Patch()
            patch.drop = True
            return patch
        delta, patch = choice.delta, None
        text = choice.text if delta is None else delta.content
        if text:
            self.chunks += 1
            self.chars += len(text)
            patch = self._content(state, choice, text)
        if delta is not None and (delta.reasoning or delta.reasoning_content or delta.refusal):
            patch = self._other_texts(state, delta, patch)
        if delta is not None and delta.tool_calls:
            patch = self._tool_calls(state, delta.tool_calls, patch)
        if delta is not None and delta.function_call is not None and delta.function_call.arguments:
            patch = self._tool_calls(state, [ToolCall(-1, delta.function_call)], patch)
        if patch is not None and patch.finish_reason is not None:
            return self._blocked(state, patch)
        if choice.finish_reason is not None:
            return self._finished(state, choice, patch)
        return patch

    def _content(self, state: _ChoiceState, choice: Choice, text: str) -> _Patch | None:
        channel = state.content
        if channel is _UNMADE:
            channel = state.content = self._make_filter(state.index, "content", 0)
        if channel is None:
            return None
        shown, edits = channel.feed(text)
        if shown == text and not edits and channel.told == channel.fed and state.logprobs is None:
            return None
        patch = _Patch()
        patch.texts["content"] = shown
        if choice.logprobs != NULL or choice.token_ids != NULL or state.logprobs is not None:
            if state.logprobs is None:
                state.logprobs = LogprobQueue()
            patch.logprobs = state.logprobs.feed(
                choice.logprobs, choice.token_ids, text, channel.fed, channel.told, edits
            )
            if state.logprobs.empty and shown == text and not edits:
                state.logprobs = None
        if channel.blocked is not None:
            patch.finish_reason = reason_of(channel.blocked)
        return patch

    def _other_texts(self, state: _ChoiceState, delta: Texts, patch: _Patch | None) -> _Patch | None:
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
            shown, _ = channel.feed(text)
            if shown != text or channel.blocked is not None:
                patch = patch or _Patch()
                patch.texts[kind] = shown
                if channel.blocked is not None:
                    patch.finish_reason = reason_of(channel.blocked)
        return patch

    def _tool_calls(self, state: _ChoiceState, calls: Sequence[ToolCall], patch: _Patch | None) -> _Patch | None:
        for position, call in enumerate(calls):
            raw = call.function.arguments if call.function is not None else None
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
                patch = patch or _Patch()
                patch.tools[position if call.index >= 0 else -1] = shown
                if channel.blocked is not None:
                    patch.finish_reason = reason_of(channel.blocked)
        return patch

    def _arguments_filter(self, choice: int, tool: int) -> ArgumentsFilter | None:
        if self._make_filter(choice, "arguments", tool) is None:
            return None
        return ArgumentsFilter(lambda: self._make_filter(choice, "arguments", tool))

    def _finished(self, state: _ChoiceState, choice: Choice, patch: _Patch | None) -> _Patch | None:
        """The choice has ended by itself: what its filters still hold goes out before its finish reason."""
        if choice.finish_reason in ABORTED:
            self.failure = EngineError(BROKE_OFF)
            return None
        if not state.finished:
            state.finished = True
            self._open -= 1
        patch = self._flushed(state, choice, patch)
        if patch is not None and patch.finish_reason is not None:
            state.ended = True
        self.finish_reasons.append(patch.finish_reason if patch and patch.finish_reason else str(choice.finish_reason))
        return patch

    def _flushed(self, state: _ChoiceState, choice: Choice | None, patch: _Patch | None) -> _Patch | None:
        channel = state.content
        if channel is not None and channel is not _UNMADE and channel.blocked is None:
            tail, edits = channel.finish()
            patch = self._tail(patch, "content", 0, tail, blocked=channel.blocked)
            if state.logprobs is not None:
                patch = patch or _Patch()
                before = patch.logprobs
                patch.logprobs = state.logprobs.release(channel.told, edits, before)
        for kind, other in state.others.items():
            if other is not None and other.blocked is None:
                patch = self._tail(patch, kind, 0, other.finish()[0], blocked=other.blocked)
        for tool, arguments in state.tools.items():
            if arguments is not None and arguments.blocked is None:
                patch = self._tail(patch, "arguments", tool, arguments.finish(), blocked=arguments.blocked)
        return patch

    @staticmethod
    def _tail(patch: _Patch | None, kind: str, tool: int, tail: str, *, blocked: Any) -> _Patch | None:
        if not tail and blocked is None:
            return patch
        patch = patch or _Patch()
        if patch.texts.get(kind):
            patch.texts[kind] += tail
        elif tail:
            patch.tails.append((kind, tool, tail))
        if blocked is not None:
            patch.finish_reason = reason_of(blocked)
        return patch

    def _blocked(self, state: _ChoiceState, patch: _Patch) -> _Patch:
        """A filter ended the choice: its other channels are clean so far and give back what they hold."""
        self._flushed(state, None, patch)
        state.ended = True
        if not state.finished:
            state.finished = True
            self._open -= 1
        self.finish_reasons.append(patch.finish_reason or "")
        return patch

    def _named(self, frame: bytes, model: str | None) -> bytes:
        """Give the frame the model's name that the caller used."""
        if model == self._model or model is None:
            return frame
        mine = msgspec.json.encode(model)
        for colon in (b'"model":', b'"model": '):
            if colon + mine in frame:  # unescaped quotes: never inside a text
                return frame.replace(colon + mine, colon + msgspec.json.encode(self._model), 1)
        body = msgspec.json.decode(sse.payload(frame) or b"{}")
        return sse.encode(msgspec.json.encode({**body, "model": self._model}))

    def _patched(self, payload: bytes, patches: dict[int, _Patch]) -> bytes:
        """Write the chunk anew with its patches; held text without a place of its own gets a frame before it."""
        body = msgspec.json.decode(payload)
        if "model" in body:
            body["model"] = self._model
        frames: list[bytes] = []
        kept = []
        for position, choice in enumerate(body["choices"]):
            patch = patches.get(position)
            if patch is None:
                kept.append(choice)
                continue
            for kind, tool, tail in patch.tails:
                frames.append(
                    sse.encode(msgspec.json.encode({**body, "choices": [_tail_choice(choice, kind, tool, tail)]}))
                )
            if not patch.drop and _apply(choice, patch):
                kept.append(choice)
        if kept or not body["choices"]:
            frames.append(sse.encode(msgspec.json.encode({**body, "choices": kept})))
        return b"".join(frames)

    def _invented_usage(self) -> bytes:
        """The engine was stopped before it could count: chunks shown stand for tokens."""
        body = msgspec.json.decode(self._sample or b"{}")
        prompt = self.usage.prompt_tokens if self.usage else 0
        head = {key: body[key] for key in ("id", "object", "created") if key in body}
        used = {"prompt_tokens": prompt, "completion_tokens": self.chunks, "total_tokens": prompt + self.chunks}
        return sse.encode(msgspec.json.encode({**head, "model": self._model, "choices": [], "usage": used}))


def _finite(payload: bytes) -> bytes | None:
    """Write -Infinity and NaN in logprobs as numbers that JSON has; None where that does not make a chunk of it."""
    if b"Infinity" not in payload and b"NaN" not in payload:
        return None
    try:
        mended = msgspec.json.encode(json.loads(payload, parse_constant=CONSTANTS.__getitem__))
        decode_chunk(mended)
    except (ValueError, RecursionError):
        return None
    return mended


def reason_of(blocked: Any) -> str:
    """Return the finish_reason that a filter's block gives: its own, or the content filter's."""
    return getattr(blocked, "finish_reason", "content_filter")


def with_extra(body: dict[str, Any], extra: dict[str, Any]) -> dict[str, Any]:
    """Return what stands under "sluice" with ``extra`` added; an engine may have put anything there."""
    said = body.get("sluice")
    return {**said, **extra} if isinstance(said, dict) else extra


def _with_extra(frame: bytes, extra: dict[str, Any]) -> bytes:
    body = msgspec.json.decode(sse.payload(frame) or b"{}")
    return sse.encode(msgspec.json.encode({**body, "sluice": with_extra(body, extra)}))


def _tail_choice(choice: dict[str, Any], kind: str, tool: int, tail: str) -> dict[str, Any]:
    head = {"index": choice.get("index", 0)}
    if "delta" not in choice:
        return {**head, "text": tail, "logprobs": None, "finish_reason": None}
    delta: dict[str, Any] = {kind: tail}
    if kind == "arguments":
        call = {"function": {"arguments": tail}}
        delta = {"function_call": call["function"]} if tool < 0 else {"tool_calls": [{"index": tool, **call}]}
    return {**head, "delta": delta, "logprobs": None, "finish_reason": None}


def _apply(choice: dict[str, Any], patch: _Patch) -> bool:
    """Write a patch into a choice; False if nothing is left to tell."""
    delta = choice.get("delta")
    for kind, text in patch.texts.items():
        if delta is None:
            choice["text"] = text
        else:
            delta[kind] = text
    if delta is not None:
        for position, text in patch.tools.items():
            call = delta["function_call"] if position < 0 else delta["tool_calls"][position]["function"]
            call["arguments"] = text
    if patch.logprobs is not None:
        choice["logprobs"], ids = patch.logprobs
        if "token_ids" in choice:
            choice["token_ids"] = ids
    if patch.finish_reason is not None:
        choice["finish_reason"] = patch.finish_reason
        if "stop_reason" in choice:
            choice["stop_reason"] = None
    return _tells(choice, patch)


def _tells(choice: dict[str, Any], patch: _Patch) -> bool:
    if choice.get("finish_reason") is not None or choice.get("logprobs"):
        return True
    delta = choice.get("delta")
    if delta is None:
        return bool(choice.get("text"))
    calls = delta.get("tool_calls") or []
    if any(call.get("id") or (call.get("function") or {}).get("name") for call in calls):
        return True
    if any((call.get("function") or {}).get("arguments") for call in calls):
        return True
    rest = {key: value for key, value in delta.items() if key not in {*patch.texts, "tool_calls"}}
    return any(rest.values()) or any(delta.get(kind) for kind in patch.texts)


def merge_chunk(whole: dict[str, Any], chunk: dict[str, Any]) -> None:
    """Add one chunk to the answer that is being put together."""
    for key, value in chunk.items():
        if key not in {"choices", "usage", "object"}:
            whole.setdefault(key, value)
    parts = whole.setdefault("choices", {})
    for choice in chunk.get("choices") or ():
        mine = parts.setdefault(choice.get("index", 0), {"index": choice.get("index", 0), "finish_reason": None})
        if choice.get("finish_reason") is not None:
            mine["finish_reason"] = choice["finish_reason"]
        logprobs = choice.get("logprobs")
        if logprobs:
            into = mine.setdefault("logprobs", {})
            for key, value in logprobs.items():
                if isinstance(value, list):
                    into.setdefault(key, []).extend(value)
        if "text" in choice:
            mine["text"] = mine.get("text", "") + (choice["text"] or "")
        elif isinstance(choice.get("delta"), dict):
            _merge_delta(mine.setdefault("message", {"role": "assistant", "content": None}), choice["delta"])


def _merge_delta(message: dict[str, Any], delta: dict[str, Any]) -> None:
    for key, value in delta.items():
        if key == "tool_calls":
            calls = message.setdefault("tool_calls", {})
            for call in value or ():
                mine = calls.setdefault(
                    call.get("index", 0), {"type": "function", "function": {"name": "", "arguments": ""}}
                )
                for part in ("name", "arguments"):
                    mine["function"][part] += (call.get("function") or {}).get(part) or ""
                mine.update({part: call[part] for part in ("id", "type") if call.get(part)})
        elif key in TEXT_KINDS and isinstance(value, str):
            message[key] = (message.get(key) or "") + value
        elif value is not None:
            message[key] = value


def finish_merge(whole: dict[str, Any], usage: Usage | None) -> dict[str, Any]:
    """Turn what ``merge_chunk`` gathered into the form of a whole answer."""
    choices = [choice for _, choice in sorted(whole.get("choices", {}).items())]
    for choice in choices:
        calls = choice.get("message", {}).get("tool_calls")
        if calls is not None:
            choice["message"]["tool_calls"] = [call for _, call in sorted(calls.items())]
    counted = {"usage": msgspec.to_builtins(usage)} if usage is not None else {}
    kind = "chat.completion" if any("message" in choice for choice in choices) else "text_completion"
    return {**whole, "object": kind, "choices": choices, **counted}
