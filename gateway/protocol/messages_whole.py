"""A whole answer of ``/v1/messages`` without I/O: the same filters as for its stream; and one told as a stream."""

from __future__ import annotations

from typing import Any

import msgspec

from gateway.errors import EngineError
from gateway.protocol import failures
from gateway.protocol.answer import Whole
from gateway.protocol.chunks import Usage
from gateway.protocol.editing import BROKE_OFF, NONSENSE
from gateway.protocol.filtering import MakeFilter, reason_of
from gateway.protocol.messages_places import block_places
from gateway.protocol.named import event
from gateway.protocol.parts import chars_of, fed, write

#: What the record calls the end of an answer.
REASONS = {
    "end_turn": "stop",
    "max_tokens": "length",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
    "pause_turn": "stop",
    "model_context_window_exceeded": "length",
}
#: Of a message, what names, counts and ends it; all else may be text.
KNOWN = frozenset(
    {"id", "type", "role", "model", "content", "stop_reason", "stop_sequence", "usage", "kv_transfer_params"}
)
_ENDS = {"stop": "end_turn", "length": "max_tokens"}


class Counted(msgspec.Struct, gc=False):
    """Tokens, as the engine counted them; what came from its cache is counted apart from ``input_tokens``."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None

    def usage(self, before: Usage | None = None) -> Usage:
        """Return them in the words of every route; what is not told now stands as it was told ``before``."""
        told = (self.input_tokens, self.cache_creation_input_tokens, self.cache_read_input_tokens)
        prompt = sum(count or 0 for count in told) if self.input_tokens is not None else None
        if prompt is None:
            prompt = before.prompt_tokens if before is not None else 0
        return Usage(prompt, self.output_tokens or 0)


class Head(msgspec.Struct, gc=False):
    """What we read of a message itself."""

    content: list[msgspec.Raw]
    model: str | None = None
    stop_reason: str | None = None
    usage: Counted | None = None


_decode = msgspec.json.Decoder(Head).decode


def ended_by(why: str) -> dict[str, Any]:
    """Return how a message ends that a filter has ended."""
    return {"stop_reason": _ENDS.get(why, "refusal"), "stop_sequence": None}


class WholeMessage(Whole):
    """One whole answer. Raises EngineError where it is none."""

    __slots__ = ("head",)

    def __init__(self, raw: bytes) -> None:
        super().__init__(raw)
        try:
            self.head = _decode(raw)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as fault:
            raise failures.from_event(raw) or EngineError(NONSENSE) from fault
        if self.head.stop_reason is None:  # vLLM has no word for an answer that it did not finish
            raise EngineError(BROKE_OFF)
        self.finish_reasons = [REASONS.get(self.head.stop_reason, self.head.stop_reason)]

    @property
    def usage(self) -> Usage | None:
        """What the engine counted."""
        return None if self.head.usage is None else self.head.usage.usage()

    def filter(self, make_filter: MakeFilter) -> None:
        """Send every text of every block, and beside the blocks, through its channel's filter.

        Raises whatever a filter that failed raises.
        """
        self._blocks(make_filter)
        if (blocked := self._beside(KNOWN, make_filter)) is not None:
            self.finish_reasons = [reason_of(blocked)]
            self.body.update(ended_by(self.finish_reasons[0]))

    def _blocks(self, make_filter: MakeFilter) -> None:
        """Filter the blocks.

        A tool call in which a filter ended the answer is not told at all: half an input is no object.
        """
        content = msgspec.json.decode(msgspec.json.encode(self.head.content))
        calls = [block for block in content if isinstance(block, dict) and isinstance(block.get("input"), dict)]
        for block in calls:
            block["input"] = msgspec.json.encode(block["input"]).decode()
        found = [
            (index, place, sum(1 for block in content[:index] if any(block is call for call in calls)))
            for index, block in enumerate(content)
            if isinstance(block, dict)
            for place in block_places(block)
        ]
        parts = fed(found, make_filter)
        self.chars += chars_of(found, parts)
        blocked = bool(parts) and parts[-1].channel.blocked
        if not blocked and not any(part.changed for part in parts):
            return
        for (_, place, _), part in zip(found, parts, strict=False):
            write(place, part)
        if blocked:
            index, place, _ = found[len(parts) - 1]
            del content[index + (place.kind not in {"arguments", "name"}) :]
            self.finish_reasons = [parts[-1].channel.reason]
            self.body.update(ended_by(self.finish_reasons[0]))
        for block in calls:
            if any(block is kept for kept in content):
                block["input"] = msgspec.json.decode(block["input"])
        self.body["content"] = content or [{"type": "text", "text": ""}]  # clients look at the first block

    def _retell(self, model: str, show_logprobs: int | None) -> None:
        del show_logprobs  # this API has none
        if self.head.model is not None and self.head.model != model:
            self.body["model"] = model


def as_stream(message: dict[str, Any], *, want_usage: bool = True) -> bytes:
    """Tell a whole answer as the stream that the caller asked for: each text of it in one piece."""
    del want_usage  # it is always told
    usage = message.get("usage") or {}
    begun = {**message, "content": [], **dict.fromkeys(("stop_reason", "stop_sequence"))}
    begun["usage"] = {**usage, "output_tokens": 0}
    extra = {"sluice": begun.pop("sluice")} if "sluice" in begun else {}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": begun}]
    for index, block in enumerate(message.get("content") or ()):
        events += _block_in_pieces(index, block)
    ended = {"stop_reason": message.get("stop_reason"), "stop_sequence": message.get("stop_sequence")}
    events += [{"type": "message_delta", "delta": ended, "usage": usage, **extra}, {"type": "message_stop"}]
    return b"".join(map(event, events))


def _block_in_pieces(index: int, block: dict[str, Any]) -> list[dict[str, Any]]:
    kind, deltas, begun = block.get("type"), [], dict(block)
    if kind == "text":
        deltas.append({"type": "text_delta", "text": block.get("text", "")})
        begun["text"] = ""
    elif kind == "thinking":
        deltas.append({"type": "thinking_delta", "thinking": block.get("thinking", "")})
        begun["thinking"] = ""
        if begun.pop("signature", None):
            deltas.append({"type": "signature_delta", "signature": block["signature"]})
    elif kind == "tool_use":
        told = msgspec.json.encode(block.get("input", {})).decode()
        deltas.append({"type": "input_json_delta", "partial_json": told})
        begun["input"] = {}
    return [
        {"type": "content_block_start", "index": index, "content_block": begun},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]
