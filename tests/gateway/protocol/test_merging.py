"""Chunks put together again are the whole answer that they came from."""

from __future__ import annotations

from typing import Any

from gateway.protocol.chunks import Usage
from gateway.protocol.merging import finish_merge, merge_chunk


def merged(*chunks: dict[str, Any], usage: Usage | None = None) -> dict[str, Any]:
    whole: dict[str, Any] = {}
    for chunk in chunks:
        merge_chunk(whole, chunk)
    return finish_merge(whole, usage)


def test_texts_calls_and_logprobs_are_joined_choice_by_choice() -> None:
    whole = merged(
        {"id": "c", "choices": [{"index": 1, "delta": {"content": "b"}}]},
        {"choices": [{"index": 0, "delta": {"role": "assistant", "content": "a"}, "logprobs": {"content": [1]}}]},
        {"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "id": "t", "function": {"name": "f"}}]}}]},
        {"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]}}]},
        {"choices": [{"index": 0, "delta": {"content": "c"}, "logprobs": {"content": [2]}, "finish_reason": "stop"}]},
        usage=Usage(1, 2),
    )
    first, second = whole["choices"]
    assert (first["message"]["content"], second["message"]["content"]) == ("ac", "b")
    call = {"type": "function", "function": {"name": "f", "arguments": "{}"}, "id": "t"}
    assert first["message"]["tool_calls"] == [call]
    assert (first["logprobs"], first["finish_reason"]) == ({"content": [1, 2]}, "stop")
    assert (whole["id"], whole["object"]) == ("c", "chat.completion")
    assert whole["usage"] == {"prompt_tokens": 1, "completion_tokens": 2}


def test_completions_have_a_text() -> None:
    whole = merged({"choices": [{"index": 0, "text": "a"}]}, {"choices": [{"index": 0, "text": "b"}]})
    assert (whole["object"], whole["choices"][0]["text"]) == ("text_completion", "ab")
