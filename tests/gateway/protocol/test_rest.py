"""Every string of an answer is a text, unless it is a label, bytes, or in a field that is read elsewhere."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.protocol.chunks import plain
from gateway.protocol.rest import Rest, tail_chunk

HEAD = {"id": "c-1", "object": "chat.completion.chunk", "created": 1, "model": "a model", "system_fingerprint": "f p"}


def found(body: dict[str, Any], main: str = "delta") -> list[tuple[tuple[str | int, ...], str]]:
    rest = Rest(body, main)
    return [(leaf.path, leaf.text) for leaf in (*rest.top, *(leaf for each in rest.choices.values() for leaf in each))]


def choice(**fields: Any) -> dict[str, Any]:
    return {**HEAD, "choices": [{"index": 2, "finish_reason": "stop", "stop_reason": "any text", **fields}]}


def test_what_is_read_elsewhere_and_labels_and_bytes_are_no_such_texts() -> None:
    call = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "a b", "arguments": "a b"}}
    delta = {
        **dict.fromkeys(("content", "reasoning", "reasoning_content", "refusal"), "a text"),
        "role": "assistant",
        "tool_calls": [call],
        "function_call": {"name": "a b", "arguments": "a b"},
        "audio": {"id": "audio_1", "data": "UklGRg==", "expires_at": 1},
        "reasoning_details": [{"type": "reasoning.encrypted", "id": None, "format": "v1", "data": "AA+/="}],
    }
    assert found(choice(delta=delta, logprobs={"content": [{"token": "a b"}]}, routed_experts="AA==")) == []
    assert found({**HEAD, "choices": [{"index": 0, "text": "a text"}], "usage": {"prompt_tokens": 1}}) == []


@pytest.mark.parametrize("main", ["delta", "message"])
def test_all_else_is_with_its_path(main: str) -> None:
    said = {
        "audio": {"transcript": "1", "data": "no bytes, a text"},
        "thinking": "2",
        "reasoning_details": [{"index": 5, "text": "3"}, {"summary": "4", "type": "a text"}],
        "tool_calls": [{"index": 1, "custom": {"name": "5", "input": "6"}, "function": {"more": "7"}}],
        "odd": ["8", [{"content": "9"}]],
    }
    body = choice(**{main: said}, text="x", prompt={"content": "y"}) | {"prompt_text": "z"}
    at = ("choices", 2, main)
    assert found(body, main) == [
        (("prompt_text",), "z"),
        ((*at, "audio", "transcript"), "1"),
        ((*at, "audio", "data"), "no bytes, a text"),
        ((*at, "thinking"), "2"),
        ((*at, "reasoning_details", 5, "text"), "3"),
        ((*at, "reasoning_details", 1, "summary"), "4"),
        ((*at, "reasoning_details", 1, "type"), "a text"),
        ((*at, "tool_calls", 1, "custom", "name"), "5"),
        ((*at, "tool_calls", 1, "custom", "input"), "6"),
        ((*at, "tool_calls", 1, "function", "more"), "7"),
        ((*at, "odd", 0), "8"),
        ((*at, "odd", 1, 0, "content"), "9"),
        (("choices", 2, "text"), "x"),
        (("choices", 2, "prompt", "content"), "y"),
    ]


def test_what_is_told_of_the_other_kind_of_answer_is_read_by_nobody_else() -> None:
    body = choice(delta={"content": "1"}, message={"content": "2", "tool_calls": [{"function": {"arguments": "3"}}]})
    assert [text for _, text in found(body)] == ["2", "3"]
    assert [text for _, text in found(body, "message")] == ["1"]


def test_a_tail_stands_where_its_text_stood() -> None:
    path = ("choices", 2, "delta", "reasoning_details", 5, "text")
    told = tail_chunk({"id": "c"}, {"delta": {}}, path, "tail")
    assert told == {
        "id": "c",
        "choices": [
            {
                "index": 2,
                "delta": {"reasoning_details": [{"index": 5, "text": "tail"}]},
                "logprobs": None,
                "finish_reason": None,
            }
        ],
    }
    assert tail_chunk({"id": "c"}, {}, ("prompt_text",), "x") == {"id": "c", "choices": [], "prompt_text": "x"}


_values = st.recursive(
    st.none() | st.integers(-9, 9) | st.just("a text"),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["thinking", "x", "id"]), inner),
    max_leaves=6,
)


@given(
    st.dictionaries(st.sampled_from(["content", "role", "audio", "thinking", "annotations"]), _values),
    st.dictionaries(st.sampled_from(["text", "stop_reason", "message", "x", "logprobs"]), _values),
    st.dictionaries(st.sampled_from(["prompt_text", "metrics", "x", "error", "usage"]), _values),
)
def test_no_plain_chunk_holds_such_a_text(delta: Any, beside: Any, top: Any) -> None:
    """The quick look and the thorough one agree."""
    body = {**top, "choices": [{**beside, "index": 0, "delta": delta}]}
    if plain(msgspec.json.encode(body), streams=True) is not None:
        assert found(body) == []
