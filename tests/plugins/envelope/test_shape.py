"""What a caller hears in each profile: whole, streamed, failed."""

from __future__ import annotations

from time import perf_counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.sdk import Record
from plugins.envelope.plugin import Envelope
from plugins.envelope.shape import Shape

MINE = {
    "name": "crm",
    "answer": {
        "ok": True,
        "reply": {"texts": "$texts", "cost": "$usage.total_tokens", "first": "$body.choices[0].index"},
    },
    "error": {"ok": False, "why": "$error", "no": "$code", "http": "$status", "param": "$param"},
    "event": {"t": "$piece", "think": "$reasoning", "i": "$index"},
    "last": {"end": "$finish_reason"},
    "done": False,
}


def shape(profile: Any, **options: Any) -> Shape:
    return Envelope(Envelope.Options.model_validate({"profile": profile, **options})).shape


def record(**facts: Any) -> Record:
    return Record(request_id="req-1", model="m", started=perf_counter(), **facts)


def chat(text: str | None = "你好", finish: str = "stop", **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": finish}
    return {"id": "c-1", "object": "chat.completion", "model": "m", "choices": [choice], **more}


def chunk(index: int = 0, **delta: Any) -> dict[str, Any]:
    return {"object": "chat.completion.chunk", "model": "m", "choices": [{"index": index, "delta": delta}]}


def told(body: dict[str, Any]) -> dict[str, Any]:
    """Take the time out of what was told, having looked that it is one."""
    assert 0 <= body["meta"].pop("latency_ms") < 60_000
    return body


def test_code_data_tells_an_answer() -> None:
    body = chat(sluice={"confidence": 0.9, "tags": ["soft"]})
    body["choices"][0]["logprobs"] = {"content": [{"token": f"t{number}"} for number in range(12)]}
    assert told(shape("code_data").answer(body, record())) == {
        "code": 0,
        "data": {
            "text": "你好",
            "confidence": 0.9,
            "tokens": [f"t{number}" for number in range(10)],
            "warning_tags": ["soft"],
        },
        "meta": {"model": "m"},
    }


@pytest.mark.parametrize("profile", ["code_data", "result_meta"])
def test_a_stream_that_does_not_say_whose_a_piece_is_tells_the_first_choice_alone(
    profile: str,
) -> None:
    assert len(shape(profile).event(chunk(0, content="a"), record())) == 1
    assert shape(profile).event(chunk(1, content="a"), record()) == []
    assert len(shape(MINE).event(chunk(1, content="a"), record())) == 1


def test_an_answer_without_what_is_told_has_nulls_and_empty_lists() -> None:
    said = told(shape("code_data").answer(chat(None), record()))
    assert said["data"] == {"text": None, "confidence": None, "tokens": [], "warning_tags": []}


def test_a_blocked_answer_and_a_fallback_are_warned_of() -> None:
    body = chat("", "content_filter", sluice={"fallback": {"reason": "content_filter"}})
    assert told(shape("code_data").answer(body, record()))["data"]["warning_tags"] == ["content_filter", "fallback"]


def test_completions_are_told_alike() -> None:
    choice = {"index": 0, "text": "hi", "finish_reason": "length", "logprobs": {"tokens": ["h", "i"]}}
    body = {"object": "text_completion", "model": "m", "choices": [choice]}
    assert told(shape("code_data", tokens=1).answer(body, record()))["data"]["tokens"] == ["h"]
    assert told(shape("result_meta").answer(body, record())) == {
        "result": "hi",
        "meta": {
            "model": "m",
            "request_id": "req-1",
            "finish_reason": "length",
            "confidence": None,
            "warning_tags": [],
            "usage": None,
        },
    }


def test_a_refusal_of_the_model_is_its_text() -> None:
    body = chat(None)
    body["choices"][0]["message"]["refusal"] = "No."
    assert shape("result_meta").answer(body, record())["result"] == "No."


def test_embeddings_are_wrapped_whole() -> None:
    body = {"object": "list", "model": "e", "data": [{"embedding": [1.0]}]}
    assert told(shape("code_data").answer(body, record())) == {"code": 0, "data": body, "meta": {"model": "e"}}


ERROR = {"message": "No.", "type": "invalid_request_error", "param": "messages[0].content", "code": "content_filter"}


def test_a_failure_comes_in_the_same_envelope() -> None:
    status, body = shape("code_data").failure(ERROR, 400, record())
    assert (status, told(body)) == (400, {"code": 400, "msg": "检测到敏感内容", "meta": {"model": "m"}})
    status, body = shape("result_meta").failure(ERROR, 400, record())
    assert status == 400
    assert told(body) == {
        "result": None,
        "error": {"code": 400, "message": "No."},
        "meta": {"model": "m", "request_id": "req-1"},
    }


def test_what_is_configured_for_a_blocked_caller_is_said_in_the_envelope_too() -> None:
    said = {**ERROR, "message": "涉政内容不予处理"}
    assert shape("code_data").failure(said, 400, record(worded=True))[1]["msg"] == "涉政内容不予处理"
    mapped = shape("code_data", messages={"content_filter": "no"})
    assert mapped.failure(said, 400, record(worded=True))[1]["msg"] == "no"


def test_codes_statuses_and_messages_are_mapped_by_error_code_else_by_status() -> None:
    options = {
        "codes": {"content_filter": 1001, 429: "BUSY"},
        "statuses": {"content_filter": 451, 429: 503},
        "messages": {"queue_full": "稍等", "content_filter": "no"},
    }
    profile = {"name": "p", "error": {"c": "$code", "m": "$message", "s": "$status"}}
    mapped = shape(profile, **options)
    assert mapped.failure(ERROR, 400, record()) == (451, {"c": 1001, "m": "no", "s": 451})
    busy = {"message": "busy", "code": "queue_full"}
    assert mapped.failure(busy, 429, record()) == (503, {"c": "BUSY", "m": "稍等", "s": 503})
    assert mapped.failure({"message": "x", "code": 400}, 400, record()) == (400, {"c": 400, "m": "x", "s": 400})


def test_always_200_changes_the_status_and_not_the_code() -> None:
    status, body = shape("code_data", always_200=True).failure(ERROR, 400, record())
    assert (status, body["code"]) == (200, 400)
    assert shape("openai", always_200=True).failure(ERROR, 400, record()) == (200, {"error": ERROR})


def test_the_openai_profile_is_openais_form() -> None:
    openai = shape("openai")
    assert openai.answer(chat(), record()) == chat()
    assert openai.event(chunk(role="assistant"), record()) == [chunk(role="assistant")]
    assert openai.last(chat(), record()) is None
    assert openai.failure(ERROR, 400, record()) == (400, {"error": ERROR})


def test_a_mapping_of_ones_own_says_what_stands_where() -> None:
    mine = shape(MINE)
    assert mine.answer(chat(usage={"total_tokens": 7}), record()) == {
        "ok": True,
        "reply": {"texts": ["你好"], "cost": 7, "first": 0},
    }
    assert mine.failure(ERROR, 400, record())[1] == {
        "ok": False, "why": "content_filter", "no": 400, "http": 400, "param": "messages[0].content",
    }  # fmt: skip
    assert mine.event(chunk(1, reasoning="hm"), record()) == [{"t": None, "think": "hm", "i": 1}]
    assert mine.event(chunk(role="assistant", content=""), record()) == []
    assert mine.last(chat(finish="length"), record()) == {"end": "length"}
    assert not mine.done


def test_without_a_shape_for_pieces_a_stream_is_one_event() -> None:
    mine = shape({"name": "p", "answer": {"t": "$text"}})
    assert mine.event(chunk(content="a"), record()) == []
    assert mine.last(chat("ab"), record()) == {"t": "ab"}


@given(st.lists(st.text(max_size=5), max_size=6))
def test_the_pieces_told_are_the_text(pieces: list[str]) -> None:
    data = shape("code_data")
    events = [event for piece in pieces for event in data.event(chunk(content=piece), record())]
    assert "".join(event["data"]["text"] for event in events) == "".join(pieces)
    assert all(event["data"]["text"] for event in events)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(["choices", "message", "delta", "content", "text", "logprobs", "tokens", "sluice",
                                       "tags", "usage", "finish_reason", "code"]), inner, max_size=4),
    max_leaves=20,
)  # fmt: skip


@given(st.dictionaries(st.sampled_from(["choices", "sluice", "usage", "model", "code", "message"]), JSON),
       st.sampled_from(["code_data", "result_meta", "openai", "crm"]))  # fmt: skip
def test_nothing_that_an_engine_may_say_is_an_error_of_ours(body: dict[str, Any], name: str) -> None:
    any_shape = shape(MINE if name == "crm" else name)
    for kind in ("chat.completion", "list"):
        any_shape.answer({**body, "object": kind}, record())
    any_shape.event(body, record())
    any_shape.last(body, record())
    any_shape.failure(body, 500, record())


@pytest.mark.parametrize("options", [
    {"profile": "code_dat"},
    {"profile": {"name": "a b"}},
    {"profile": {"name": "a", "answer": {"x": "$piece"}}},
    {"profile": {"name": "a", "event": {"x": "$finish_reason"}}},
    {"profile": {"name": "a", "answers": {}}},
    {"statuses": {"queue_full": 99}},
    {"tokens": -1},
])  # fmt: skip
def test_wrong_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        Envelope.Options.model_validate(options)
