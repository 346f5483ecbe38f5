"""/v1/messages over sockets, as an Anthropic client sees it: answers, streams, blocks, and every error in its shape."""

from __future__ import annotations

import json
from typing import Any

import anthropic
import httpx
import pytest

from tests.fakes.forms import tool_call
from tests.fakes.script import CLOSE, answers, delayed, says
from tests.fakes.vllm import FakeVLLM
from tests.harness import HI, TEAM, Gateway, Heard, configuration, free_port, hear, key, model
from tests.system.conftest import StartGateway

MESSAGES, COUNT = "/v1/messages", "/v1/messages/count_tokens"
BODY: dict[str, Any] = {"model": "smollm2", "max_tokens": 50, "messages": HI}


def ask(gateway: Gateway, path: str = MESSAGES, **fields: Any) -> httpx.Response:
    return gateway.post(path, {**BODY, **fields})


def streamed(gateway: Gateway, **fields: Any) -> Heard:
    return hear(gateway, {**BODY, **fields}, MESSAGES)


def events(heard: Heard) -> list[dict[str, Any]]:
    """Return the events, having seen that each is told under its own name."""
    found = []
    for frame in heard.raw.decode().split("\n\n")[:-1]:
        if not frame.startswith(":"):
            name, data = frame.split("\n")
            found.append(json.loads(data.removeprefix("data: ")))
            assert name == f"event: {found[-1]['type']}"
    return found


def said(heard: Heard) -> str:
    return "".join(event["delta"].get("text", "") for event in events(heard) if event["type"] == "content_block_delta")


def test_a_key_comes_as_anthropics_clients_send_it(fake: FakeVLLM, gateway: Gateway) -> None:
    for path in (MESSAGES, COUNT, f"{MESSAGES}/"):
        headers = {"x-api-key": TEAM, "anthropic-version": "2023-06-01"}
        assert gateway.post(path, BODY, None, headers=headers).status_code == 200
    for request in fake.everything():
        assert request.header("x-api-key") is None
        assert request.header("authorization") is None
    assert gateway.post("/v1/chat/completions", BODY, None, headers={"x-api-key": TEAM}).status_code == 401


def client(gateway: Gateway, secret: str = TEAM) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=gateway.url, api_key=secret, max_retries=0, timeout=20)


def test_anthropics_client_hears_messages_and_raises_its_own_exceptions(
    fake: FakeVLLM, gateway: Gateway, fragile: str
) -> None:
    fake.always(says("Hel", "lo ", "maskpapaya", tool_call(0, "c", "f", '{"to": "me"}')))
    hi: list[Any] = [{"role": "user", "content": "hi"}]
    with client(gateway) as claude:
        whole = claude.messages.create(model="smollm2", max_tokens=9, messages=hi)
        assert [block.type for block in whole.content] == ["text", "tool_use"]
        with claude.messages.stream(model="smollm2", max_tokens=9, messages=hi) as stream:
            text, final = "".join(stream.text_stream), stream.get_final_message()
        assert text == "Hello **********"
        assert [block.model_dump() for block in final.content] == [block.model_dump() for block in whole.content]
        assert claude.messages.count_tokens(model="smollm2", messages=hi).input_tokens == 37
        with pytest.raises(anthropic.NotFoundError):
            claude.messages.create(model="nobody", max_tokens=9, messages=hi)
        with pytest.raises(anthropic.BadRequestError):
            claude.messages.create(
                model="smollm2", max_tokens=9, messages=[{"role": "user", "content": "forbiddenzebra"}]
            )
        fake.always(says("Hel", "lo", CLOSE, "x"))
        with pytest.raises(anthropic.APIStatusError):
            list(claude.messages.create(model=fragile, max_tokens=9, messages=hi, stream=True))
    with client(gateway, "wrong") as claude, pytest.raises(anthropic.AuthenticationError):
        claude.messages.create(model="smollm2", max_tokens=9, messages=hi)


def test_a_whole_message_is_the_engines_under_the_callers_name(fake: FakeVLLM, gateway: Gateway) -> None:
    fake.always(
        says({"reasoning": "hm"}, "a ", "maskpapaya", tool_call(0, "c", "f", '{"to": "me"}'), finish="tool_calls")
    )
    told = ask(gateway, model="gpt-4o-mini").json()
    assert told["model"] == "gpt-4o-mini"
    assert [block["type"] for block in told["content"]] == ["thinking", "text", "tool_use"]
    assert told["content"][1]["text"] == "a **********"
    assert told["content"][2]["input"] == {"to": "me"}
    assert told["stop_reason"] == "tool_use"
    assert fake.requests(MESSAGES)[0].body["model"] == "smollm2"


def test_a_stream_is_told_event_by_event(fake: FakeVLLM, gateway: Gateway) -> None:
    fake.script(says("Hel", "lo ", "maskpa", "paya", " you"))
    heard = streamed(gateway)
    assert said(heard) == "Hello ********** you"
    assert events(heard)[-1] == {"type": "message_stop"}
    assert events(heard)[-2]["usage"]["output_tokens"] == 5
    record = gateway.wait_record(heard.headers["x-request-id"])
    assert (record["route"], record["outcome"], record["completion_tokens"]) == (MESSAGES, "ok", 5)


def test_a_block_in_mid_stream_is_a_refusal_and_the_engine_stops(fake: FakeVLLM, gateway: Gateway) -> None:
    gate = fake.gate()
    fake.script(says("it is ", "forbidden", "zebra", " ", gate, "never"))
    heard = streamed(gateway)
    *_, delta, stop = events(heard)
    assert said(heard) == "it is "
    assert (delta["delta"]["stop_reason"], stop) == ("refusal", {"type": "message_stop"})
    assert delta["sluice"]["usage"] == "estimate"
    assert b"zebra" not in heard.raw
    (asked,) = fake.requests(MESSAGES)
    assert asked.left.wait(5)


def test_a_block_in_a_whole_message_is_a_refusal(fake: FakeVLLM, gateway: Gateway) -> None:
    fake.script(says("it is forbiddenzebra ok"))
    told = ask(gateway).json()
    assert (told["content"], told["stop_reason"]) == ([{"type": "text", "text": "it is "}], "refusal")


def test_an_engine_that_breaks_off_is_an_error_event(fake: FakeVLLM, gateway: Gateway, fragile: str) -> None:
    fake.script(says("Hel", "lo", CLOSE, "x"))
    heard = streamed(gateway, model=fragile)
    assert heard.status == 200
    assert events(heard)[-1]["type"] == "error"
    assert events(heard)[-1]["error"]["type"] == "api_error"
    assert b"message_stop" not in heard.raw


def test_a_failure_after_heartbeats_is_an_error_event(fake: FakeVLLM, start_gateway: StartGateway) -> None:
    slow = start_gateway(configuration([model("smollm2", fake.url)], heartbeat_s=0.1))
    fake.script(delayed(answers({"error": {"message": "no", "code": 400}}, 400), 0.35))
    heard = streamed(slow)
    assert heard.raw.startswith(b": ")
    assert events(heard)[-1] == {"type": "error", "error": {"type": "invalid_request_error", "message": "no"}}


def shape(answer: httpx.Response) -> tuple[int, str]:
    body = answer.json()
    assert body.keys() == {"type", "error"}
    assert body["error"].keys() == {"type", "message"}
    assert body["type"] == "error"
    return answer.status_code, body["error"]["type"]


@pytest.mark.parametrize("path", [MESSAGES, COUNT])
def test_every_error_has_anthropics_shape(fake: FakeVLLM, gateway: Gateway, fragile: str, path: str) -> None:
    invalid = (400, "invalid_request_error")
    assert shape(gateway.post(path, BODY, "wrong")) == (401, "authentication_error")
    assert shape(gateway.post(path, BODY, None)) == (401, "authentication_error")
    assert shape(gateway.post(path, content=b"{")) == invalid
    assert shape(gateway.post(path, content=b"{}", headers={"content-type": "text/plain"})) == invalid
    assert shape(gateway.post(path, content=b"x" * 11_000_000)) == (413, "request_too_large")
    assert shape(gateway.post(path, content=b"x", headers={"content-encoding": "br"})) == (415, "invalid_request_error")
    assert shape(ask(gateway, path, model="nobody")) == (404, "not_found_error")
    assert shape(ask(gateway, path, stream="x")) == invalid
    assert shape(ask(gateway, path, messages=[{"role": "user", "content": "forbiddenzebra"}])) == invalid
    assert shape(gateway.get(path)) == (404, "not_found_error")
    assert shape(gateway.post(f"{MESSAGES}/batches", BODY)) == (404, "not_found_error")
    fake.script(
        answers({"error": {"message": "too many tokens", "type": "BadRequestError", "code": 400}}, 400), route=path
    )
    assert shape(ask(gateway, path)) == invalid
    fake.script(answers({"error": {"message": "full", "code": 429}}, 429, {"retry-after": "7"}), route=path)
    full = ask(gateway, path, model=fragile)
    assert (*shape(full), full.headers["retry-after"]) == (429, "rate_limit_error", "7")
    fake.script(answers(b"<html>", 500), route=path)
    assert shape(ask(gateway, path, model=fragile)) == (502, "api_error")


def test_limits_and_missing_engines_have_the_shape_too(fake: FakeVLLM, start_gateway: StartGateway) -> None:
    keys = [key("team", TEAM, rpm=1, models=["smollm2"])]
    models = [model("smollm2", fake.url), model("other", f"http://127.0.0.1:{free_port()}")]
    gateway = start_gateway(configuration(models, keys=keys), ready="/livez")
    assert ask(gateway).status_code == 200
    limited = ask(gateway)
    assert shape(limited) == (429, "rate_limit_error")
    assert int(limited.headers["retry-after"]) > 0
    assert shape(ask(gateway, model="other")) == (403, "permission_error")
    alone = start_gateway(configuration(models, keys=[]), ready="/livez")
    assert shape(alone.post(MESSAGES, {**BODY, "model": "other"}, None))[0] in {502, 503}


def test_a_ceiling_holds_and_counting_streams_nothing(fake: FakeVLLM, gateway: Gateway) -> None:
    clamped = ask(gateway, max_tokens=9999, thinking={"type": "enabled", "budget_tokens": 5000})
    assert clamped.headers["x-sluice-tags"] == "max_tokens_clamped"
    assert fake.requests(MESSAGES)[0].body["max_tokens"] == 1024
    counted = ask(gateway, COUNT, stream=True)
    assert counted.json() == {"input_tokens": 37}


def test_tags_are_told_in_the_last_event(fake: FakeVLLM, gateway: Gateway) -> None:
    fake.script(says("a ", "softkiwi", " b"))
    heard = streamed(gateway)
    assert next(event for event in events(heard) if event["type"] == "message_delta")["sluice"] == {"tags": ["soft"]}
