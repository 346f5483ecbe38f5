"""A whole answer of ``/v1/responses`` without I/O: the same filters as for its stream; and one told as a stream."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from gateway.errors import EngineError
from gateway.protocol import failures
from gateway.protocol.answer import Whole
from gateway.protocol.chunks import Usage
from gateway.protocol.editing import BROKE_OFF, NONSENSE
from gateway.protocol.filtering import MakeFilter, reason_of
from gateway.protocol.logprobs import CONSTANTS, trimmed
from gateway.protocol.parts import Place, chars_of, fed, write
from gateway.protocol.responses_places import item_places

#: What the record calls the end of an answer, by its status and the reason why it is incomplete.
REASONS = {"max_output_tokens": "length", "content_filter": "content_filter"}
_GOES_ON = frozenset({"queued", "in_progress"})
UNFINISHED = frozenset({"failed", "cancelled"})
#: They repeat prompt and answer as the engine sees them, token ids and all: past every filter.
RAW_MESSAGES = ("input_messages", "output_messages")
#: Of a response, what names and counts it, and what repeats the request; all else may be text.
KNOWN = frozenset(
    {"id", "object", "created_at", "completed_at", "status", "model", "output", "usage", "incomplete_details"}
    | {"background", "conversation", "frequency_penalty", "instructions", "kv_transfer_params", "max_output_tokens"}
    | {"max_tool_calls", "metadata", "parallel_tool_calls", "presence_penalty", "previous_response_id", "prompt"}
    | {"prompt_cache_key", "prompt_cache_retention", "safety_identifier", "service_tier", "store", "temperature"}
    | {"text", "tool_choice", "tools", "top_logprobs", "top_p", "truncation", "user", *RAW_MESSAGES}
)
TOOLS = frozenset({"function_call", "custom_tool_call", "mcp_call", "code_interpreter_call"})


class Counted(msgspec.Struct, gc=False):
    """Tokens, as the engine counted them."""

    input_tokens: int = 0
    output_tokens: int | None = 0


class Head(msgspec.Struct, gc=False):
    """What we read of a response itself."""

    output: list[msgspec.Raw]
    model: str | None = None
    status: str | None = None
    usage: Counted | None = None
    incomplete_details: dict[str, Any] | None = None
    input_messages: msgspec.Raw = msgspec.Raw(b"null")
    output_messages: msgspec.Raw = msgspec.Raw(b"null")


decode_head = msgspec.json.Decoder(Head).decode


def reason(head: Head) -> str | None:
    """Return why the answer ended, in the words that the record uses for every route; None where it has not."""
    if head.status == "incomplete":
        said = (head.incomplete_details or {}).get("reason")
        return REASONS.get(said, "length") if isinstance(said, str) else "length"
    return "stop" if head.status in {"completed", None} else None


def tokens(head: Head) -> Usage | None:
    """Return what the engine counted."""
    return None if head.usage is None else Usage(head.usage.input_tokens, head.usage.output_tokens or 0)


def is_broken_off(head: Head) -> bool:
    """Tell whether the engine did not finish. A vLLM that is being shut down calls it completed, without one token."""
    if head.status in UNFINISHED:
        return True
    if head.status != "completed" or head.usage is None or head.usage.output_tokens != 0:
        return False
    return not any(place.text for _, place, _ in places(msgspec.json.decode(msgspec.json.encode(head.output))))


class WholeResponse(Whole):
    """One whole answer. ``stored``: one that was asked for again (GET, cancel), which need not have come to its end.
    ``echo`` holds request fields as the caller sent them.

    Raises EngineError where it is no answer.
    """

    __slots__ = ("_echo", "head")

    def __init__(self, raw: bytes, *, stored: bool = False, echo: Mapping[str, Any] | None = None) -> None:
        super().__init__(raw)
        self._echo = echo or {}
        try:
            self.head = decode_head(raw)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
            self.head = self._lenient(raw)
        ended = reason(self.head)
        self.finish_reasons = [] if ended is None else [ended]
        if not stored and is_broken_off(self.head):
            raise EngineError(BROKE_OFF)

    def _lenient(self, raw: bytes) -> Head:
        """Some engines write -Infinity and NaN, which are not JSON; and an error may come as a 200."""
        try:
            self._body = json.loads(raw, parse_constant=CONSTANTS.__getitem__)
            return decode_head(msgspec.json.encode(self._body))
        except (ValueError, RecursionError, msgspec.MsgspecError) as fault:
            raise failures.from_event(raw) or EngineError(NONSENSE) from fault

    @property
    def usage(self) -> Usage | None:
        """What the engine counted."""
        return tokens(self.head)

    @property
    def is_over(self) -> bool:
        """Is it the last word, or is the engine still at work on it?"""
        return self.head.status not in _GOES_ON

    def filter(self, make_filter: MakeFilter) -> None:
        """Send every text of every item, and beside the items, through its channel's filter.

        Raises whatever a filter that failed raises.
        """
        self._cover_alternatives(make_filter)
        self._output(make_filter)
        if (blocked := self._beside(KNOWN, make_filter)) is not None:
            self.finish_reasons = [reason_of(blocked)]
            end_by(self.body, self.finish_reasons[0])

    def _output(self, make_filter: MakeFilter) -> None:
        said = self.head.output if self._body is None else self._body["output"]
        output = msgspec.json.decode(msgspec.json.encode(said))
        found = list(places(output))
        parts = fed(found, make_filter)
        self.chars += chars_of(found, parts)
        blocked = bool(parts) and parts[-1].channel.blocked
        if not blocked and not any(part.changed for part in parts):
            return
        for (_, place, _), part in zip(found, parts, strict=False):
            write(place, part)
        if blocked:
            last = found[len(parts) - 1][0]
            for index, place, _ in found[len(parts) :]:
                if index == last:  # behind the hit, in the same item
                    place.holder[place.field] = ""
            del output[last + 1 :]
            why = parts[-1].channel.reason
            status = end_by(self.body, why)
            output[last]["status"] = status if found[len(parts) - 1][1].group != "call" else "incomplete"
            self.finish_reasons = [why]
        self.body["output"] = output

    def _retell(self, model: str, show_logprobs: int | None) -> None:
        if show_logprobs is not None:
            without_logprobs(self.body.get("output"), show_logprobs)
        if self._retells(model):
            retold(self.body, model, self._echo)

    def _retells(self, model: str) -> bool:
        named = self.head.model is not None and self.head.model != model
        raw = {bytes(self.head.input_messages), bytes(self.head.output_messages)}
        return named or bool(self._echo) or raw != {b"null"}


def places(output: list[Any]) -> Iterator[tuple[int, Place, int]]:
    """Yield each text of an answer's items with the item's position and the ordinal of the tool call."""
    tool = 0
    for index, item in enumerate(output):
        if not isinstance(item, dict):
            continue
        for place in item_places(item):
            yield index, place, tool
        tool += str(item.get("type")) in TOOLS


def end_by(response: dict[str, Any], why: str) -> str:
    """Say in a response that a filter ended it, and why; return its status."""
    details = {"stop": None, "length": "max_output_tokens"}.get(why, "content_filter")
    response["status"] = "completed" if details is None else "incomplete"
    response["incomplete_details"] = None if details is None else {"reason": details}
    return str(response["status"])


def without_logprobs(value: Any, kept: int) -> None:
    """Leave at most ``kept`` alternatives for a token wherever logprobs stand, in place; below 0 no logprobs at all."""
    if isinstance(value, dict):
        if isinstance(value.get("logprobs"), list):
            trimmed_list = trimmed({"content": value["logprobs"]}, kept)
            value["logprobs"] = [] if trimmed_list is None else trimmed_list["content"]
        for member in value.values():
            without_logprobs(member, kept)
    elif isinstance(value, list):
        for member in value:
            without_logprobs(member, kept)


def retold(response: dict[str, Any], model: str, echo: Mapping[str, Any]) -> bool:
    """Tell the caller the model's name that it used, and its own fields as it sent them: what the gateway added to them
    (a system prompt) is not for it to see. Returns whether that changed anything.
    """
    mine = {**echo, "model": model, **dict.fromkeys(RAW_MESSAGES)}
    changed = {field: value for field, value in mine.items() if field in response and response[field] != value}
    response |= changed
    return bool(changed)
