"""Engines' errors: every shape is understood, the caller's are told whole, of the engine's own only that they are."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import EngineError, Refused
from gateway.protocol.failures import Busy, from_engine, from_event


def told(status: int, body: Any, retry_after: str | None = None) -> dict[str, Any]:
    error: dict[str, Any] = from_engine(status, json.dumps(body).encode(), retry_after).body()["error"]
    return error


@pytest.mark.parametrize(
    ("body", "message", "error_type", "param", "code"),
    [
        (
            {"object": "error", "message": "too long", "type": "BadRequestError", "param": None, "code": 400},
            "too long",
            "BadRequestError",
            None,
            400,
        ),
        (
            {"error": {"message": "too long", "type": "BadRequestError", "param": "max_tokens", "code": 400}},
            "too long",
            "BadRequestError",
            "max_tokens",
            400,
        ),
        (
            {"error": {"message": "too long", "type": "Bad Request", "param": "body.temperature", "code": "400"}},
            "too long",
            "Bad Request",
            "body.temperature",
            "400",
        ),
        (
            {"error": {"message": "too long", "param": "body.messages.0.content"}},
            "too long",
            "invalid_request_error",
            "body.messages.0.content",
            "invalid_request",
        ),
        ({"error": "too long"}, "too long", "invalid_request_error", None, "invalid_request"),
        ({"error": "too long", "error_type": "validation"}, "too long", "validation", None, "invalid_request"),
        ({"detail": "too long"}, "too long", "invalid_request_error", None, "invalid_request"),
        (
            {"detail": [{"loc": ["body", "messages", 0, "content"], "msg": "Field required", "input": {"secret": 1}}]},
            "messages[0].content: Field required",
            "invalid_request_error",
            "messages[0].content",
            "invalid_request",
        ),
        (
            {"type": "error", "error": {"type": "invalid_request_error", "message": "too long"}},
            "too long",
            "invalid_request_error",
            None,
            "invalid_request",
        ),
    ],
)
@pytest.mark.parametrize("status", [400, 413, 422])
def test_what_the_caller_can_mend_is_told_whole(
    status: int, body: Any, message: str, error_type: str, param: str | None, code: Any
) -> None:
    failure = from_engine(status, json.dumps(body).encode(), None)
    assert isinstance(failure, Refused)
    assert failure.status == status
    assert failure.body() == {"error": {"message": message, "type": error_type, "param": param, "code": code}}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>nginx</html>",
        b"Bad Request",
        b"[]",
        b"null",
        b'{"error":null}',
        b'{"error":{"message":{}}}',
        b'{"detail":{}}',
        b"[" * 9999,
    ],
)
def test_a_refusal_without_words_gets_ours(body: bytes) -> None:
    error = from_engine(400, body, None).body()["error"]
    assert error == {
        "message": "The model's server refused the request.",
        "type": "invalid_request_error",
        "param": None,
        "code": "invalid_request",
    }


@pytest.mark.parametrize("status", [401, 402, 403, 404, 405, 408, 424, 499, 500, 501, 502, 504, 599, 302, 204])
def test_everything_else_is_a_bad_gateway_and_tells_nothing_of_the_engine(status: int) -> None:
    failure = from_engine(status, b'{"error":{"message":"EngineCore at 10.0.0.1","param":"model"}}', None)
    assert isinstance(failure, EngineError)
    assert (failure.status, failure.param, failure.code) == (502, None, "engine_error")
    assert "EngineCore" not in failure.message


@pytest.mark.parametrize(
    ("status", "retry_after", "expected", "code"),
    [
        (429, "7", (429, b"7"), "rate_limit_exceeded"),
        (429, "1.2", (429, b"2"), "rate_limit_exceeded"),
        (429, None, (429, b"1"), "rate_limit_exceeded"),
        (503, "0", (503, b"1"), "no_engine_available"),
        (503, "-5", (503, b"1"), "no_engine_available"),
        (503, "inf", (503, b"1"), "no_engine_available"),
        (503, "soon", (503, b"1"), "no_engine_available"),
        (503, "1e300", (503, b"86400"), "no_engine_available"),
        (529, "3", (503, b"3"), "no_engine_available"),
    ],
)
def test_an_engine_without_room_is_busy_and_says_for_how_long(
    status: int, retry_after: str | None, expected: tuple[int, bytes], code: str
) -> None:
    failure = from_engine(status, b'{"error":"The model is currently scaling."}', retry_after)
    assert isinstance(failure, Busy)
    assert (failure.status, dict(failure.headers())[b"retry-after"]) == expected
    assert failure.code == code


def test_pydantics_own_words_become_a_sentence() -> None:
    said = (
        "1 validation error:\n  {'type': 'missing', 'loc': 'body.messages', 'msg': 'Field required', "
        "'input': '<dict of 1 items>'}"
    )
    assert told(400, {"error": {"message": said}})["message"] == "messages: Field required"
    said = (
        "1 validation error for ChatCompletionRequest\ntemperature\n  Input should be a valid number "
        "[type=float_parsing, input_value='a', input_type=str]\n"
        "    For further information visit https://errors.pydantic.dev/2/v/float_parsing"
    )
    assert told(400, {"error": {"message": said}})["message"] == "temperature\n  Input should be a valid number"


@pytest.mark.parametrize(
    "said",
    [
        "max_tokens=5000 cannot be greater than max_model_len=2048. (parameter=max_tokens, value=5000)",
        "This model's maximum context length is 2048 tokens. However, your prompt contains at least 2049 input tokens.",
        "data_parallel_rank 5 is out of range [0, 1).",
        "Use /v1/completions and/or `tools`, since 0.32.0: 12:30 is fine; {'top_k'} at 3.5/4.",
        "1 validation error: x"[20:],
    ],
)
def test_the_engines_messages_are_kept_word_for_word(said: str) -> None:
    assert told(400, {"error": {"message": said}})["message"] == said


@pytest.mark.parametrize(
    "secret",
    [
        "http://vllm-0:8100/v1",
        "10.1.2.3:8100",
        "10.1.2.3",
        "[::1]:8100",
        "fe80:0:0:1::1",
        "localhost:8100",
        "vllm-0.models.svc.cluster.local",
        "engine.example.com:8100",
        "/usr/lib/python3.11/site-packages/vllm/engine.py",
        "/models/SmolLM2",
        "~/models/a/b",
        "vllm/entrypoints/openai/serving.py:33",
        "C:\\models\\a",
        "Traceback (most recent call last):\n  File x, line 3",
        "<vllm.engine.Engine object at 0x7f00aa>",
        "<class 'ValueError'>",
    ],
)
def test_where_an_engine_runs_and_how_it_is_made_is_not_told(secret: str) -> None:
    message = told(400, {"error": {"message": f"It failed: {secret}"}})["message"]
    assert message.startswith("It failed:")
    assert secret not in message
    assert not any(
        part in message
        for part in ("8100", "10.1", "fe80", "cluster", "example", "usr", "models", "serving", "0x7f", "File")
    )


@pytest.mark.parametrize(
    ("event", "status"),
    [
        ({"error": {"message": "m", "type": "BadRequestError", "param": None, "code": 400}}, 400),
        ({"error": {"object": "error", "message": "m", "type": "SERVICE_UNAVAILABLE", "code": 503}}, 503),
        ({"object": "error", "message": "m", "type": "X", "code": "422"}, 422),
        ({"error": "m", "error_type": "overloaded"}, 429),
        ({"error": "m", "error_type": "validation"}, 422),
        ({"error": {"message": "m", "type": "InternalServerError", "code": 500}}, 502),
        ({"type": "error", "error": {"type": "overloaded_error", "message": "m"}}, 503),
        ({"error": "m"}, 502),
        ({"error": 1}, 502),
        ({"error": {"code": 200}}, 502),
        ({"error": {"code": True}}, 502),
        ({"detail": "m"}, 502),
    ],
)
def test_an_error_event_has_the_status_it_would_have_had(event: dict[str, Any], status: int) -> None:
    for failure in (from_event(event), from_event(json.dumps(event).encode())):
        assert failure is not None
        assert failure.status == status


@pytest.mark.parametrize(
    "event", [{"choices": []}, {"choices": [], "error": None}, {"object": "chat.completion.chunk"}]
)
def test_an_ordinary_event_is_no_error(event: dict[str, Any]) -> None:
    assert from_event(event) is None


@pytest.mark.parametrize("payload", [b"[DONE]", b"", b"not json", b"[1]", b"null"])
def test_rubbish_is_not_taken_for_an_error_event(payload: bytes) -> None:
    assert from_event(payload) is None


@pytest.mark.parametrize(
    "piece",
    [
        "a.",
        "a/",
        "'loc': '",
        "1:",
        "[type=a, input_value=",
        "\\",
        " ",
        "\n",
        "a-",
        "-.-.",
        "a.py",
        "'loc': x, 'msg': '\\'",
    ],
)
def test_no_message_takes_long_to_clean(piece: str) -> None:
    began = time.perf_counter()
    told(400, {"error": {"message": piece * 50_000}})
    assert time.perf_counter() - began < 0.2


fields = st.sampled_from(["error", "message", "detail", "loc", "msg", "type", "code", "param", "object"])
bodies = st.recursive(
    st.none() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(fields, inner)
).map(lambda body: json.dumps(body).encode())


@given(st.integers(200, 599), st.binary() | bodies, st.none() | st.text())
def test_whatever_an_engine_says_is_a_failure_in_our_shape(status: int, body: bytes, retry_after: str | None) -> None:
    failure = from_engine(status, body, retry_after)
    error = failure.body()["error"]
    assert 400 <= failure.status < 600
    assert error["message"]
    assert error["type"]
    assert isinstance(error["param"], str | None)
    json.dumps(error).encode()
    from_event(body)
