"""What is read of an engine's events and answers: the fields that carry text, an end or a count."""

from __future__ import annotations

import json

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
    logprobs: msgspec.Raw = NULL
    token_ids: msgspec.Raw = NULL


class Chunk(msgspec.Struct, gc=False):
    """What we read of one event, or of a whole answer; all other fields pass unseen."""

    choices: list[Choice] | None = None
    model: str | None = None
    usage: Usage | None = None
    error: msgspec.Raw | None = None


decode_chunk = msgspec.json.Decoder(Chunk).decode


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
