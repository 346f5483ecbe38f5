"""Of a chunk the fields that carry text are read; numbers that JSON does not have are mended."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gateway.protocol.chunks import NULL, decode_chunk, finite, plain
from tests.fakes.forms import CHAT, COMPLETIONS, Delta, Form, tool_call


def test_what_carries_text_is_read_and_the_rest_passes_unseen() -> None:
    chunk = decode_chunk(b'{"choices":[{"index":1,"delta":{"content":"a","x":[]},"logprobs":null,"y":1}],"z":{}}')
    assert chunk.choices is not None
    (choice,) = chunk.choices
    assert (choice.index, choice.delta and choice.delta.content) == (1, "a")
    assert choice.logprobs == choice.token_ids == NULL
    assert decode_chunk(b'{"choices":[{"logprobs":{}}]}').choices[0].logprobs != NULL  # type: ignore[index] # it is there


def test_a_field_of_another_type_is_no_chunk() -> None:
    with pytest.raises(msgspec.ValidationError):
        decode_chunk(b'{"choices":[{"delta":{"content":1}}]}')


def test_numbers_that_json_does_not_have_are_mended() -> None:
    mended = finite(b'{"choices":[{"logprobs":{"content":[{"logprob":-Infinity}]}}]}')
    assert mended is not None
    assert b"-9999" in mended
    assert finite(b'{"choices":') is None
    assert finite(b'{"choices": 3, "x": NaN}') is None


@pytest.mark.parametrize("route", [CHAT, COMPLETIONS])
def test_what_vllm_tells_is_plain(route: str) -> None:
    form = Form.of(route, {"logprobs": 1, "stream_options": {"include_usage": True}}, 1)
    deltas = [Delta(0, {"content": "x"}), Delta(0, tool_call(0, "call_1", "f", "{}"))][: 2 if route == CHAT else 1]
    chunks = [*form.roles(), *(form.piece(delta, "stop", 1) for delta in deltas), *form.ending(1)]
    for told in chunks:
        assert plain(told[6:], streams=True) is not None, told
    assert plain(form.whole(deltas, "stop"), streams=False) is not None


@pytest.mark.parametrize(
    "more",
    [
        {"prompt_text": "x"},
        {"choices": [{"delta": {"thinking": "x"}}]},
        {"choices": [{"delta": {"audio": {}}}]},
        {"choices": [{"delta": {}, "text": "x"}]},
        {"choices": [{"delta": {}, "message": {}}]},
        {"choices": [{"delta": {"tool_calls": [{"id": "no label"}]}}]},
        {"choices": [{"delta": {"tool_calls": [{"custom": {}}]}}]},
        {"usage": {"note": "x"}},
    ],
    ids=str,
)
def test_a_chunk_is_plain_while_it_holds_only_what_we_read(more: dict[str, Any]) -> None:
    delta = {"role": "assistant", "content": "x", "reasoning": None, "tool_calls": [{"index": 0, "id": "call-1"}]}
    body = {
        "id": "c",
        "choices": [{"index": 0, "delta": delta, "stop_reason": "x", "token_ids": [1]}],
        "usage": {"prompt_tokens": 1, "total_tokens": 2, "prompt_tokens_details": {"cached_tokens": None}},
        "prompt_text": None,
    }
    assert plain(msgspec.json.encode(body), streams=True) is not None
    assert plain(msgspec.json.encode(body | more), streams=True) is None


@pytest.mark.parametrize(("streams", "form", "other"), [(True, "delta", "message"), (False, "message", "delta")])
def test_the_form_of_the_other_kind_of_answer_is_not_plain(streams: bool, form: str, other: str) -> None:
    for field, fits in ((form, True), (other, False)):
        body = {"choices": [{"index": 0, field: {"role": "assistant", "content": "x"}, "finish_reason": "stop"}]}
        assert (plain(msgspec.json.encode(body), streams=streams) is not None) is fits
