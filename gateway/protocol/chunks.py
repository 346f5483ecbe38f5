"""What is read of an engine's events and answers: the fields that carry text, an end or a count."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec

from gateway.protocol.logprobs import CONSTANTS

#: Reasons with which an engine says that it did not finish (vLLM: a drain, a lost KV transfer).
ABORTED = frozenset({"abort", "error"})
NULL = msgspec.Raw(b"null")  # a Raw is equal to no bytes
TEXT_KINDS = ("content", "reasoning", "reasoning_content", "refusal")


class Function(msgspec.Struct, gc=False):
    """The function of a tool call, or a piece of it."""

    arguments: str | None = None
    name: str | None = None


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
    tool_calls: Sequence[ToolCall] | None = None
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
    logprobs: msgspec.Raw = NULL
    token_ids: msgspec.Raw = NULL


class Chunk(msgspec.Struct, gc=False):
    """What we read of one event, or of a whole answer; all other fields pass unseen."""

    choices: Sequence[Choice] | None = None
    model: str | None = None
    usage: Usage | None = None
    error: msgspec.Raw | None = None


decode_chunk = msgspec.json.Decoder(Chunk).decode


class _PlainFunction(Function, gc=False, forbid_unknown_fields=True):
    pass


class _PlainCall(ToolCall, gc=False, forbid_unknown_fields=True):
    function: _PlainFunction | None = None
    id: Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9_.:-]{0,128}\Z")] | None = None
    type: Literal["function"] | None = None


class _PlainTexts(Texts, gc=False, forbid_unknown_fields=True):
    tool_calls: Sequence[_PlainCall] | None = None
    function_call: _PlainFunction | None = None
    role: Literal["assistant"] | None = None
    annotations: None = None
    audio: None = None


class _PlainUsage(Usage, gc=False, forbid_unknown_fields=True):
    total_tokens: int | None = 0
    prompt_tokens_details: dict[str, int | None] | None = None
    completion_tokens_details: dict[str, int | None] | None = None


class _PlainChoice(Choice, gc=False, forbid_unknown_fields=True):
    delta: _PlainTexts | None = None
    message: _PlainTexts | None = None
    stop_reason: int | str | None = None
    matched_stop: int | str | None = None
    prompt_token_ids: msgspec.Raw = NULL
    prompt_logprobs: msgspec.Raw = NULL
    routed_experts: str | None = None


class _Plain(Chunk, gc=False, forbid_unknown_fields=True):
    """What the engines that we know tell, and no more: null is all that may stand where they could tell a text."""

    choices: Sequence[_PlainChoice] | None = None
    usage: _PlainUsage | None = None
    error: None = None
    id: str | None = None
    object: str | None = None
    created: int | None = None
    system_fingerprint: str | None = None
    service_tier: str | None = None
    prompt_token_ids: msgspec.Raw = NULL
    prompt_logprobs: msgspec.Raw = NULL
    prompt_text: None = None
    metrics: None = None
    kv_transfer_params: None = None
    ec_transfer_params: None = None


_decode_plain = msgspec.json.Decoder(_Plain).decode


def plain(payload: bytes, *, streams: bool) -> Chunk | None:
    """Read an event (``streams``) or a whole answer in which each text is in a field of its own form that we read.

    None: it may hold others, or is none. A message in an event is no field of its form, nor a delta in a whole answer.
    Raises msgspec.DecodeError and UnicodeDecodeError where it is no JSON.
    """
    try:
        chunk = _decode_plain(payload)
    except msgspec.ValidationError:
        return None
    for choice in chunk.choices or ():
        if choice.text is not None and (choice.delta is not None or choice.message is not None):
            return None
        if (choice.message if streams else choice.delta) is not None:
            return None
    return chunk


def finite(payload: bytes) -> bytes | None:
    """Write -Infinity and NaN in logprobs as numbers that JSON has; None where that does not make a chunk of it."""
    if b"Infinity" not in payload and b"NaN" not in payload:
        return None
    try:
        mended = msgspec.json.encode(json.loads(payload, parse_constant=CONSTANTS.__getitem__))
        decode_chunk(mended)
    except (ValueError, RecursionError):
        return None
    return mended
