"""A whole answer without I/O: the same filters as for a stream, fed with one piece; and told as a stream if asked."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec

from gateway.errors import ContentFiltered, EngineError
from gateway.protocol import sse
from gateway.protocol.answer import Whole
from gateway.protocol.arguments import ArgumentsFilter
from gateway.protocol.chunks import ABORTED, Chunk, Function, Texts, Usage, decode_chunk, plain
from gateway.protocol.editing import BROKE_OFF, NONSENSE
from gateway.protocol.filtering import MakeFilter, judged, reason_of
from gateway.protocol.logprobs import CONSTANTS, END, all_masked, masked, none_left, trimmed
from gateway.protocol.numbers import decoded
from gateway.protocol.places import Table, values_in
from gateway.protocol.rest import Rest
from gateway.protocol.rest_texts import RestTexts

#: vLLM's own floor of a log probability; JSON has no -Infinity.
FLOOR = -9999.0
#: A message's texts in the order in which a model speaks them.
_SPOKEN = ("reasoning", "reasoning_content", "content", "refusal")


class WholeAnswer(Whole):
    """One whole answer of choices. Raises EngineError where it is no answer."""

    __slots__ = ("_is_plain", "head")

    def __init__(self, raw: bytes) -> None:
        super().__init__(raw)
        try:
            head = plain(raw, streams=False)
            self._is_plain = head is not None
            self.head: Chunk = head or decode_chunk(raw)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
            self.head, self._is_plain = self._lenient(raw), False
        self.finish_reasons = [choice.finish_reason or "" for choice in self.head.choices or ()]
        if not ABORTED.isdisjoint(self.finish_reasons):
            raise EngineError(BROKE_OFF)

    def _lenient(self, raw: bytes) -> Chunk:
        """Some engines write -Infinity and NaN, which are not JSON."""
        try:
            self._body = json.loads(raw, parse_constant=CONSTANTS.__getitem__)
            head = decode_chunk(msgspec.json.encode(self._body))  # its parts are kept as JSON
        except (ValueError, RecursionError, msgspec.MsgspecError) as fault:
            raise EngineError(NONSENSE) from fault
        if any(choice.finish_reason is None for choice in head.choices or ()):
            raise EngineError(BROKE_OFF)  # no JSON, and no end: what a stream would be told of it
        return head

    @property
    def usage(self) -> Usage | None:
        """What the engine counted."""
        return self.head.usage

    def filter(self, make_filter: MakeFilter) -> None:
        """Send every text of every choice through its channel's filter.

        Raises EngineError where there are no choices, and whatever a filter that failed raises.
        """
        if not self.head.choices:
            raise EngineError(NONSENSE)
        self._cover_alternatives(make_filter)
        for position, choice in enumerate(self.head.choices):
            message = choice.message
            if message is None:  # completions
                if choice.text:
                    self._text(position, choice.index, "content", choice.text, make_filter)
                continue
            self._message(position, choice.index, message, make_filter)
        if not self._is_plain:
            self._rest(Rest(decoded(self.raw) if self._body is None else self._body, "message"), make_filter)

    def _rest(self, rest: Rest, make_filter: MakeFilter) -> None:
        """Send the texts that no field of ours names through their filters: of each choice, then those beside them."""
        told: list[tuple[int | None, RestTexts]] = []
        for position, leaves in (*rest.choices.items(), (None, rest.top)):
            index = self.head.choices[position].index if self.head.choices and position is not None else 0
            texts = RestTexts(partial(make_filter, index))
            texts.feed(leaves)
            texts.finish()
            self.chars += texts.chars
            if texts.changed or texts.blocked is not None:
                told.append((position, texts))
        if told:
            self._body = rest.body
        for position, texts in told:
            for each in rest.choices if position is None else (position,):
                self._hide_all(each, ended=texts.blocked is not None)
                if texts.blocked is not None:
                    self._end(each, texts.blocked)

    def _message(self, position: int, index: int, message: Texts, make_filter: MakeFilter) -> None:
        """Send a message's texts through their filters, in the order in which a stream would bring them.

        Where one is blocked the choice ends: what a stream would not have brought any more is taken out.
        """
        for at, kind in enumerate(_SPOKEN):
            text = getattr(message, kind)
            if text and self._text(position, index, kind, text, make_filter):
                self._take_out(position, _SPOKEN[at + 1 :], 0)
                return
        for tool, call in enumerate(message.tool_calls or ()):
            if call.function is not None and self._call(position, index, tool, call.function, make_filter):
                self._take_out(position, (), tool)
                return
        function = message.function_call
        if function is not None and self._call(position, index, -1, function, make_filter):
            self._take_out(position, (), 0)

    def _take_out(self, position: int, kinds: Sequence[str], calls: int) -> None:
        """Take the later texts out of a blocked choice, and all calls but the first ``calls``: none is half a call."""
        message = self.body["choices"][position]["message"]
        for kind in kinds:
            if message.get(kind):
                message[kind] = None
        if message.get("tool_calls"):
            message["tool_calls"] = message["tool_calls"][:calls]
        if message.get("function_call"):
            message["function_call"] = None

    def _text(self, position: int, index: int, kind: str, text: str, make_filter: MakeFilter) -> bool:
        """Filter one text; return True if that ended the choice."""
        self.chars += len(text)
        channel = make_filter(index, "content" if kind == "content" else kind.removesuffix("_content"), 0)
        if channel is None:
            return False
        shown, edits = channel.whole(text)
        blocked = channel.blocked is not None
        if shown == text and not blocked:
            return False
        choice = self.body["choices"][position]
        choice.get("message", choice)[kind if "message" in choice else "text"] = shown
        self._hide(choice, masked(choice.get("logprobs"), text, edits, channel.told if blocked else END))
        if channel.blocked is not None:
            self._end(position, channel.blocked)
        return blocked

    @staticmethod
    def _hide(choice: dict[str, Any], logprobs: Any) -> None:
        """Take out of a choice what repeats its texts, which are not shown as they were said."""
        choice["logprobs"] = logprobs
        for repeats in ("token_ids", "routed_experts"):
            if choice.get(repeats) is not None:
                choice[repeats] = None

    def _call(self, position: int, index: int, tool: int, function: Function, make_filter: MakeFilter) -> bool:
        """Filter a call's name, which a caller's program goes by and so is not masked, and its arguments."""
        raw, first = function.arguments or "", make_filter(index, "arguments", tool)
        if first is None:
            return False
        if function.name and (blocked := judged(function.name, first)) is not None:
            self._hide_all(position, ended=True)
            self._end(position, blocked)
            return True
        self.chars += len(raw)
        channel = ArgumentsFilter(lambda: make_filter(index, "arguments", tool))
        shown = channel.feed(raw) + channel.finish()
        if shown != raw or channel.blocked is not None:
            message = self.body["choices"][position]["message"]
            call = message["function_call"] if tool < 0 else message["tool_calls"][tool]["function"]
            call["arguments"] = shown
            self._hide_all(position, ended=channel.blocked is not None)
        if channel.blocked is not None:
            self._end(position, channel.blocked)
        return channel.blocked is not None

    def _hide_all(self, position: int, *, ended: bool) -> None:
        choice = self.body["choices"][position]
        self._hide(choice, (none_left if ended else all_masked)(choice.get("logprobs")))

    def _end(self, position: int, blocked: Any) -> None:
        choice = self.body["choices"][position]
        choice["finish_reason"] = self.finish_reasons[position] = reason_of(blocked)
        if "stop_reason" in choice:
            choice["stop_reason"] = None

    def _retell(self, model: str, show_logprobs: int | None) -> None:
        if show_logprobs is not None:
            for choice in self.body.get("choices") or ():
                if choice.get("logprobs") is not None:
                    choice["logprobs"] = trimmed(choice["logprobs"], show_logprobs)
        if self.head.model is not None and self.head.model != model:
            self.body["model"] = model


class WholeTexts(WholeAnswer):
    """One whole answer that is no model's speech: numbers, or texts of the request that come back in it."""

    __slots__ = ("_readers",)

    def __init__(self, raw: bytes, readers: Table) -> None:
        super().__init__(raw)
        self._readers = readers

    def filter(self, make_filter: MakeFilter) -> None:
        """Send every text through a filter. Such an answer cannot end early: what would be blocked in it refuses it.

        Raises ContentFiltered, and whatever a filter that failed raises.
        """
        for text in values_in(self._readers, self.body) if self._readers else ():
            channel = make_filter(0, "content", 0)
            if channel is None:
                return
            shown, _ = channel.whole(text.text)
            if channel.blocked is not None:
                raise ContentFiltered("The answer was withheld by the content filter.")
            if shown != text.text:
                text.replace(shown)


def as_stream(body: dict[str, Any], *, want_usage: bool) -> bytes:
    """Tell a whole answer as the stream that the caller asked for: a chunk with the text, one with the end, usage."""
    chat = body.get("object") == "chat.completion"
    head: dict[str, Any] = {key: body[key] for key in ("id", "created", "model") if key in body}
    head["object"] = "chat.completion.chunk" if chat else "text_completion"
    frames: list[dict[str, Any]] = []
    for choice in body.get("choices", ()):
        rest = {key: value for key, value in choice.items() if key not in {"message", "finish_reason", "stop_reason"}}
        end = {key: choice[key] for key in ("finish_reason", "stop_reason") if key in choice}
        if chat:
            delta = dict(choice.get("message") or {})
            calls = delta.get("tool_calls")
            if calls:
                delta["tool_calls"] = [{"index": index, **call} for index, call in enumerate(calls)]
            frames.append({**head, "choices": [{**rest, "delta": delta, "finish_reason": None}]})
            frames.append({**head, "choices": [{"index": rest.get("index", 0), "delta": {}, "logprobs": None, **end}]})
        else:
            frames.append({**head, "choices": [{**rest, **end}]})
    if want_usage and body.get("usage") is not None:
        frames.append({**head, "choices": [], "usage": body["usage"]})
    if frames and "sluice" in body:
        frames[-1]["sluice"] = body["sluice"]
    return b"".join(sse.encode(msgspec.json.encode(frame)) for frame in frames) + sse.DONE
