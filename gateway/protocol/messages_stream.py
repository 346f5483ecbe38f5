"""A streamed answer of ``/v1/messages`` without I/O: bytes of the engine in, bytes for the caller out.

An event in which nothing changed leaves byte for byte as it came. The end of the message is kept back until ``close``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from gateway.errors import EngineError, Failure
from gateway.protocol import messages, sse
from gateway.protocol.editing import BROKE_OFF, NONSENSE, NamedEditor
from gateway.protocol.filtering import MakeFilter, reason_of
from gateway.protocol.messages_places import block_places
from gateway.protocol.messages_whole import KNOWN, REASONS, Counted, ended_by
from gateway.protocol.named import event as written
from gateway.protocol.named import payload_of
from gateway.protocol.parts import ArgumentsChannel, TextChannel, channel_for
from gateway.protocol.patches import with_extra
from gateway.protocol.rest_texts import filtered

#: A delta's type -> kind of channel, the field with its text, and the type of block that it belongs to.
_DELTAS = {
    "text_delta": ("content", "text", "text"),
    "thinking_delta": ("reasoning", "thinking", "thinking"),
    "input_json_delta": ("arguments", "partial_json", "tool_use"),
}
_TEXT_OF = {"text": "text_delta", "thinking": "thinking_delta"}
_NULL = msgspec.Raw(b"null")


class _Delta(msgspec.Struct, gc=False):
    type: str | None = None
    text: str | None = None
    thinking: str | None = None
    partial_json: str | None = None
    signature: str | None = None
    stop_reason: str | None = None


class _Event(msgspec.Struct, gc=False):
    type: str = ""
    index: int = 0
    delta: _Delta | None = None
    usage: Counted | None = None
    message: msgspec.Raw = _NULL
    content_block: msgspec.Raw = _NULL


class _PlainDelta(_Delta, gc=False, forbid_unknown_fields=True):
    stop_sequence: str | None = None


class _PlainEvent(_Event, gc=False, forbid_unknown_fields=True):
    """An event that holds what events of this route hold, and no more."""

    delta: _PlainDelta | None = None


class _Message(msgspec.Struct, gc=False):
    model: str | None = None
    content: list[msgspec.Raw] | None = None
    usage: Counted | None = None


class _Open(NamedTuple):
    """The block that goes on: its index, its type, and the channel of its text."""

    at: int
    kind: str
    channel: TextChannel | ArgumentsChannel


_decode, _decode_plain = msgspec.json.Decoder(_Event).decode, msgspec.json.Decoder(_PlainEvent).decode
_MEMBERS = (
    ("", frozenset((*_PlainEvent.__struct_fields__, "sluice"))),
    ("delta", frozenset(_PlainDelta.__struct_fields__)),
)
_KNOWN = frozenset({"content_block_delta", "content_block_start", "content_block_stop", "message_start"})
_KNOWN |= {"message_delta", "message_stop", "ping"}


class MessagesEditor(NamedEditor):
    """Edits one streamed answer."""

    def __init__(
        self,
        make_filter: MakeFilter,
        *,
        model: str,
        choices: int = 1,
        want_usage: bool = True,
        merge: bool = False,
        show_logprobs: int | None = None,
    ) -> None:
        del choices, want_usage, show_logprobs  # there is one choice, it is always counted, and it has no logprobs
        super().__init__(make_filter)
        self._model = model
        self._message: dict[str, Any] = {}
        self._blocks: dict[int, dict[str, Any]] | None = {} if merge else None
        self._open: _Open | None = None
        self._waiting = b""  # the end of a block that holds text, until it is known what follows
        self._tools = 0
        self._last = self._stop = b""
        self._ended: dict[str, Any] = {}

    def close(self, extra: dict[str, Any] | None) -> bytes:
        """Return the end of the stream, with ``extra`` under "sluice" in its ``message_delta``."""
        last = self._last
        if self.abort:
            extra = {**(extra or {}), "usage": "estimate"}
            used = self.used()
            usage = {"input_tokens": used.prompt_tokens, "output_tokens": used.completion_tokens}
            last = written({"type": "message_delta", "delta": self._ended, "usage": usage, "sluice": extra})
        elif extra:
            body = msgspec.json.decode(payload_of(last) or b"{}")
            last = written({**body, "sluice": with_extra(body, extra)})
        return self._unended + last + (self._stop or written({"type": "message_stop"}))

    def merged(self) -> dict[str, Any]:
        """Return the answer as it was shown, as one whole."""
        content = [block for _, block in sorted((self._blocks or {}).items())]
        for block in content:
            if block.get("type") == "tool_use" and isinstance(block.get("input"), str):
                block["input"] = _object(block["input"])
        usage = {**(self._message.get("usage") or {})}
        if self.usage is not None:
            usage["output_tokens"] = self.usage.completion_tokens
        return {**self._message, "content": content, **self._ended, "usage": usage, "model": self._model}

    def broken(self, failure: Failure) -> bytes:
        """Return the event that ends a stream which has begun and has failed."""
        return messages.failure_event(failure)

    # ---- one frame ----

    def _payload(self, frame: bytes, payload: bytes) -> bytes:
        try:
            event = self._decoded(payload)
            if type(event) is _Event and event.type in _KNOWN and (read := self._read(payload, *_MEMBERS)) != payload:
                frame, payload = sse.encode(read, event.type.encode()), read
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
            self.failure = messages.error_event(payload) or EngineError(NONSENSE)
            return b""
        return self._seen(self._event(frame, payload, event))

    @staticmethod
    def _decoded(payload: bytes) -> _Event:
        try:
            return _decode_plain(payload)
        except msgspec.ValidationError:
            return _decode(payload)

    def _seen(self, shown: bytes) -> bytes:
        if self.failure is not None:
            return b""
        self.events += 1
        return shown

    def _event(self, frame: bytes, payload: bytes, event: _Event) -> bytes:
        kind, delta = event.type, event.delta
        if kind == "content_block_delta" and delta is not None:
            shown = self._delta(frame, payload, event, delta)
        elif kind == "content_block_start":
            shown = self._block_start(frame, payload, event)
        elif kind == "content_block_stop":
            shown = self._block_stop(frame)
        elif kind == "message_start":
            shown = self._message_start(frame, payload, event)
        elif kind == "message_delta" and delta is not None:
            shown = self._message_delta(frame, payload, event, delta)
        elif kind == "message_stop":
            shown, self._stop = b"", frame
            self._set_done()
        else:
            shown = self._other(frame, payload, kind)
        return shown

    def _other(self, frame: bytes, payload: bytes, kind: str) -> bytes:
        if kind == "ping":
            return frame
        self.failure = messages.error_event(payload)
        if self.failure is None and not kind:
            self.failure = EngineError(NONSENSE)
        return b"" if self._is_watched() else frame  # of a kind that we do not know: nobody has looked at it

    def _message_start(self, frame: bytes, payload: bytes, event: _Event) -> bytes:
        try:
            told = msgspec.json.decode(event.message, type=_Message)
        except msgspec.MsgspecError:
            self.failure = EngineError(NONSENSE)
            return b""
        if told.usage is not None:
            self.usage = told.usage.usage()
        body = msgspec.json.decode(payload)
        self._message = body["message"]
        members = {name: value for name, value in self._message.items() if name not in KNOWN}
        texts = filtered(members, self._make_filter)
        self._message |= members
        if texts.blocked is not None:
            self._blocked(reason_of(texts.blocked))
        if told.model in {None, self._model} and not told.content and not texts.changed:
            return frame
        body["message"] |= {"model": self._model, "content": []}
        return written(body)

    def _message_delta(self, frame: bytes, payload: bytes, event: _Event, delta: _Delta) -> bytes:
        before = self._settle("")
        if self.abort:
            return before
        if event.usage is not None:
            self.usage = event.usage.usage(self.usage)
        if delta.stop_reason is None:  # vLLM has no word for an answer that it did not finish
            self.failure = EngineError(BROKE_OFF)
            return b""
        if not self.chars and self.usage is not None and not self.usage.completion_tokens and not self._tools:
            self.failure = EngineError(BROKE_OFF)  # a vLLM that is being shut down: an end without one token
            return b""
        self._ended = msgspec.json.decode(payload)["delta"]
        self.finish_reasons = [REASONS.get(delta.stop_reason, delta.stop_reason)]
        self.complete = True
        self._last = frame
        return before

    # ---- blocks ----

    def _block_start(self, frame: bytes, payload: bytes, event: _Event) -> bytes:
        block, told = msgspec.json.decode(event.content_block), msgspec.json.decode(event.content_block)
        if not isinstance(block, dict):
            self.failure = EngineError(NONSENSE)
            return b""
        kind = str(block.get("type"))
        before = self._settle(kind)
        if self.abort:
            return before
        if kind == "tool_use" and (why := self._judged(block)):
            self._blocked(why)  # a call by that name is not told at all
            return before
        cut = self._begin(kind, event.index, block)
        if self._blocks is not None:
            self._blocks[event.index] = {**block}
        if block != told:
            frame = written({**msgspec.json.decode(payload), "content_block": block})
        return before + frame + (self._block(event.index, cut) if cut else b"")

    def _judged(self, block: dict[str, Any]) -> str:
        """Return why a call's name ends the answer; "" where it does not."""
        channel = channel_for("name", self._make_filter, self._tools)
        channel.whole(str(block.get("name") or ""))
        return channel.reason if channel.blocked else ""

    def _begin(self, kind: str, index: int, block: dict[str, Any]) -> str:
        """Open the block's channel and feed what the block holds already; returns why a filter ended the answer."""
        going_on = self._open
        if (
            going_on is not None and going_on.kind == kind and kind in _TEXT_OF
        ):  # nothing between them: they are read as one text
            self._open = _Open(index, kind, going_on.channel)
        else:
            delta = _TEXT_OF.get(kind, "input_json_delta" if kind == "tool_use" else "")
            self._open = None
            if delta:
                self._open = _Open(index, kind, channel_for(_DELTAS[delta][0], self._make_filter, self._tools))
        self._tools += kind == "tool_use"
        if kind == "tool_use" and isinstance(block.get("input"), dict):
            if block["input"]:  # all at once
                return self._whole_input(block)
            return ""
        for place in block_places(block):
            if not place.text or place.kind == "name":
                continue
            self.chars += len(place.text)
            if self._open is None or place.kind not in {"content", "reasoning"}:
                channel = channel_for("rest", self._make_filter, 0)
                shown = channel.whole(place.text)
            else:
                channel = self._open.channel
                shown, _ = channel.feed(place.text)
            place.holder[place.field] = shown
            if channel.blocked:
                return channel.reason
        return ""

    def _whole_input(self, block: dict[str, Any]) -> str:
        raw = msgspec.json.encode(block["input"]).decode()
        self.chars += len(raw)
        channel = channel_for("arguments", self._make_filter, self._tools - 1)
        shown = channel.whole(raw)
        if channel.blocked:
            block["input"] = {}
        elif shown != raw:
            block["input"] = msgspec.json.decode(shown)
        return channel.reason if channel.blocked else ""

    def _delta(self, frame: bytes, payload: bytes, event: _Event, delta: _Delta) -> bytes:
        where = _DELTAS.get(delta.type or "")
        block = self._open
        if where is None:  # a signature, or of a kind that we do not know
            if delta.type == "signature_delta":
                if self._blocks is not None:
                    self._blocks.setdefault(event.index, {"type": "thinking"})["signature"] = delta.signature
                if block is not None and block.channel.holds:
                    self._waiting += frame
                    return b""
                return frame
            return b"" if self._is_watched() else frame
        before = b""
        if block is None or block.at != event.index or block.kind != where[2]:
            before = self._settle(where[2])
            if not self.abort:
                self._begin(where[2], event.index, {})
            block = self._open
        text = getattr(delta, where[1]) or ""
        if not text or self.abort or block is None:
            return before if self.abort else before + frame
        self.chunks += 1
        self.chars += len(text)
        shown, _ = block.channel.feed(text)
        if shown:
            self._note(event.index, where[1], shown)
            if shown == text:
                before += frame
            else:
                body = msgspec.json.decode(payload)
                body["delta"][where[1]] = shown
                before += written(body)
        return before + (self._block(event.index, block.channel.reason) if block.channel.blocked else b"")

    def _block_stop(self, frame: bytes) -> bytes:
        block = self._open
        if block is None:
            return frame
        if block.channel.holds and block.kind in _TEXT_OF:
            self._waiting += frame
            return b""
        if block.kind in _TEXT_OF:
            return frame
        before = self._finish(block)
        self._open = None
        return before if self.abort else before + frame

    def _settle(self, kind: str) -> bytes:
        """A block of another kind begins, or the message ends: show what was held back of the text before it."""
        block, waiting = self._open, self._waiting
        self._waiting = b""
        if block is None or (block.kind == kind and kind in _TEXT_OF):
            return waiting
        self._open = None
        tail = self._finish(block)
        return tail if self.abort else tail + waiting

    def _finish(self, block: _Open) -> bytes:
        tail, _ = block.channel.finish()
        shown = b""
        if tail:
            kind = _TEXT_OF.get(block.kind, "input_json_delta")
            field = _DELTAS[kind][1]
            self._note(block.at, field, tail)
            delta = {"type": kind, field: tail}
            shown = written({"type": "content_block_delta", "index": block.at, "delta": delta})
        return shown + (self._block(block.at, block.channel.reason) if block.channel.blocked else b"")

    def _note(self, index: int, field: str, shown: str) -> None:
        if self._blocks is None:
            return
        if field != "partial_json":
            block = self._blocks.setdefault(index, {"type": field, field: ""})
            block[field] = (block.get(field) or "") + shown
            return
        block = self._blocks.setdefault(index, {"type": "tool_use"})
        said = block.get("input")
        block["input"] = (said if isinstance(said, str) else "") + shown

    def _block(self, index: int, why: str) -> bytes:
        """A filter ended the answer: its block ends here; the message does in ``close``."""
        self._blocked(why)
        return written({"type": "content_block_stop", "index": index})

    def _blocked(self, why: str) -> None:
        self.abort = self.complete = True
        self.finish_reasons, self._ended = [why], ended_by(why)


def _object(raw: str) -> Any:
    try:
        return msgspec.json.decode(raw)
    except msgspec.MsgspecError:
        return {}
