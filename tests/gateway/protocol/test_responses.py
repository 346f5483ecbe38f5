"""The fields of /v1/responses that the gateway relies on, its responses' ids, and the route's errors."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.errors import EngineError, InvalidRequest, NoEngineAvailable, NotFound
from gateway.protocol.named import Numbers
from gateway.protocol.openai import Ceilings
from gateway.protocol.responses import (
    ask,
    clamp,
    error_event,
    failure_event,
    for_engine,
    from_engine,
    keeper,
    not_found,
    response_id,
    stamp,
)

CEILINGS = Ceilings(max_output_tokens=100, max_choices=8, max_prompts=64)


def asked(**fields: Any) -> Any:
    return ask({"model": "m", "input": "hi", **fields}, frozenset({"pics.example"}))


def test_what_is_asked_for_is_read() -> None:
    assert (asked().stream, asked(stream=True).stream, asked().want_usage) == (False, True, True)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"model": None}, "model"),
        ({"model": ""}, "model"),
        ({"stream": "true"}, "stream"),
        ({"background": 1}, "background"),
        ({"store": []}, "store"),
        ({"previous_response_id": 5}, "previous_response_id"),
        ({"chat_template": "x"}, "chat_template"),
        ({"chat_template_kwargs": {"chat_template": "x"}}, "chat_template_kwargs.chat_template"),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "http://a/"}]}]},
         "input[0].content[0].image_url"),
        ({"input": [{"type": "function_call_output", "output": [{"type": "input_file", "file_url": "file:///etc"}]}]},
         "input[0].output[0].file_url"),
        ({"tools": [{"type": "mcp", "server_url": "http://internal/"}]}, "tools[0].server_url"),
    ],
)  # fmt: skip
def test_what_no_engine_is_to_be_asked_is_refused(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        asked(**fields)
    assert refused.value.param == param


def test_media_of_the_operators_hosts_and_data_urls_pass() -> None:
    for url in ("data:image/png;base64,AA", "https://pics.example/a.png"):
        asked(input=[{"role": "user", "content": [{"type": "input_image", "image_url": url}]}])


@pytest.mark.parametrize(
    ("value", "sent", "clamped"), [(None, 100, False), (50, 50, False), (100, 100, False), (5000, 100, True)]
)
def test_tokens_are_held_to_the_ceiling(value: int | None, sent: int, clamped: bool) -> None:
    body = {"model": "m", "max_output_tokens": value}
    held = asked()
    clamp(body, held, CEILINGS)
    assert (body["max_output_tokens"], held.output_tokens, held.clamped) == (sent, sent, clamped)
    assert held.filled == (("max_output_tokens",) if value is None else ())


def test_without_a_ceiling_nothing_is_set() -> None:
    body: dict[str, Any] = {}
    clamp(body, asked(), Ceilings(None, 8, 64))
    assert body == {}
    with pytest.raises(InvalidRequest):
        clamp({"max_output_tokens": "5"}, asked(), CEILINGS)


def test_the_engine_gets_our_id_and_its_own_name() -> None:
    body = {"model": "gpt", "stream": True, "stream_options": {}, "sluice": {}, "request_id": "theirs",
            "enable_response_messages": True, "guided_choice": ["a"]}  # fmt: skip
    sent = for_engine(body, model="m", stream=False, cache_salt="s")
    assert sent == {"model": "m", "stream": False, "cache_salt": "s", "structured_outputs": {"choice": ["a"]}}
    assert stamp(sent, "model-0", "team-a") is None
    assert keeper(sent["request_id"], ["model-0"], "team-a") == "model-0"
    assert body["request_id"] == "theirs"


def test_what_goes_on_in_the_background_can_be_stopped() -> None:
    sent: dict[str, Any] = {"background": True}
    assert stamp(sent, "model-0", "team-a") == f"/v1/responses/{sent['request_id']}/cancel"


def test_an_id_says_which_engine_keeps_the_response_to_its_owner_only() -> None:
    made = response_id("0123456789abcdef" * 2, "model-1", "team-a")
    assert made.startswith("resp_0123456789abcdef")
    engines = ["model-0", "model-1"]
    assert keeper(made, engines, "team-a") == "model-1"
    assert keeper(made, engines, "team-b") is None
    assert keeper(made, ["model-0"], "team-a") is None
    for other in ("resp_a410b9ce7d29beb1", "", "resp_", made[:-1], made + "0", f"{made[:-1]}z"):
        assert keeper(other, engines, "team-a") is None


def test_an_unknown_response_is_the_callers_404() -> None:
    body = b'{"error":{"message":"Response with id \'resp_x\' not found.","type":"invalid_request_error",'
    failure = from_engine(404, body + b'"param":"response_id","code":404}}', None)
    assert isinstance(failure, NotFound)
    assert failure.param == "response_id"
    assert not_found("resp_x").status == 404
    for raw in (b'{"detail":"Not Found"}', b"x", b"[]", b'{"error":{"message":"no model","param":"model"}}'):
        assert from_engine(404, raw, None).status == 502
    assert from_engine(400, b'{"error":{"message":"m","param":"max_output_tokens","code":400}}', None).status == 400


def test_events_that_say_that_the_engine_failed() -> None:
    failed = {"type": "response.failed", "response": {"error": {"code": "server_error", "message": "secret"}}}
    flat = {"type": "error", "code": "server_error", "message": "secret", "sequence_number": 1}
    for event in (failed, flat, {"type": "response.failed", "response": {"error": None}}):
        failure = error_event(json.dumps(event).encode())
        assert isinstance(failure, EngineError)
        assert "secret" not in failure.message
    assert error_event(b'{"error": {"message": "m", "code": 400}}').status == 400  # type: ignore[union-attr] # it is one
    for none in (b"[1]", b"{", b'{"type":"response.created","response":{}}'):
        assert error_event(none) is None


def test_a_failure_is_told_in_the_routes_own_form() -> None:
    numbers = Numbers()
    numbers.keep(b"", 6)
    raw = failure_event(NoEngineAvailable("none"), {"id": "resp_1", "model": "m"}, [{"type": "message"}], numbers)
    name, data = raw.decode().removesuffix("\n\n").split("\n")
    told = json.loads(data.removeprefix("data: "))
    assert (name, told["sequence_number"]) == ("event: response.failed", 7)
    assert told["response"]["error"] == {"code": "no_engine_available", "message": "none"}
    assert (told["response"]["status"], told["response"]["id"]) == ("failed", "resp_1")
    assert b'"output":[]' in failure_event(NoEngineAvailable("none"))
