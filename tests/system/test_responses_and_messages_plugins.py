"""Plugins on /v1/responses and /v1/messages: what each does to a chat it does there too, whole and streamed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.fakes.script import answers, says
from tests.fakes.vllm import FakeVLLM
from tests.harness import Gateway, configuration, model, running_gateway
from tests.system.conftest import StartGateway

RESPONSES, MESSAGES = "/v1/responses", "/v1/messages"
BODIES: dict[str, dict[str, Any]] = {
    RESPONSES: {"input": "hi"},
    MESSAGES: {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 50},
}
both = pytest.mark.parametrize("route", [RESPONSES, MESSAGES])
ways = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])


def ask(gateway: Gateway, route: str, *, stream: bool, **fields: Any) -> httpx.Response:
    return gateway.post(route, {"model": "smollm2", "stream": stream, **BODIES[route], **fields})


def said(answer: httpx.Response) -> str:
    """Return the answer's text, however it was told."""
    if answer.headers["content-type"] == "application/json":
        body = answer.json()
        if "content" in body:
            return "".join(block.get("text", "") for block in body["content"])
        return "".join(part["text"] for item in body["output"] for part in item.get("content") or ())
    events = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: ")]
    deltas = [
        event["delta"] for event in events if event["type"] in {"response.output_text.delta", "content_block_delta"}
    ]
    return "".join(delta if isinstance(delta, str) else delta.get("text", "") for delta in deltas)


CHAIN: list[dict[str, Any]] = [
    {"plugin": "pii"},
    {"plugin": "clean_text"},
    {"plugin": "stop_phrases", "options": {"phrases": ["[stop]"]}},
    {"plugin": "system_prompt", "options": {"text": "You are Sluice's own."}},
    {"plugin": "answer_sanity", "options": {"action": "tag"}},
    {"plugin": "fallback", "options": {"text": "Come back later.", "on": ["engine_error", "no_engine_available"]}},
]


@pytest.fixture(scope="module")
def plugins(_engine: FakeVLLM, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    models = [model("smollm2", _engine.url), *(model(f"fragile-{at}", _engine.url) for at in range(4))]
    with running_gateway(configuration(models, chain=CHAIN), tmp_path_factory.mktemp("plugins")) as started:
        yield started


@both
@ways
def test_personal_data_is_masked_both_ways(fake: FakeVLLM, plugins: Gateway, route: str, stream: bool) -> None:
    fake.script(says("call ", "1380013", "8000", " now"))
    field = "input" if route == RESPONSES else "system"
    answer = ask(plugins, route, stream=stream, **{field: "mine is 13900139000"})
    assert said(answer) == "call 138****8000 now"
    assert "13900139000" not in str(fake.requests(route)[0].body)


@both
@ways
def test_a_stop_phrase_ends_the_answer_as_its_own_end(
    fake: FakeVLLM, plugins: Gateway, route: str, stream: bool
) -> None:
    fake.script(says("one two ", "[st", "op]", " three", finish="length"))
    answer = ask(plugins, route, stream=stream)
    assert said(answer) == "one two "
    assert ('"status":"completed"' if route == RESPONSES else '"stop_reason":"end_turn"') in answer.text


@both
@ways
def test_a_system_prompt_reaches_the_engine_and_not_the_caller(
    fake: FakeVLLM, plugins: Gateway, route: str, stream: bool
) -> None:
    fake.script(says("fine"))
    answer = ask(plugins, route, stream=stream)
    assert "Sluice's own" in str(fake.requests(route)[0].body)
    assert "Sluice's own" not in answer.text


@both
@ways
def test_a_fallback_speaks_the_routes_own_form(fake: FakeVLLM, plugins: Gateway, route: str, stream: bool) -> None:
    fake.script(answers(b"<html>", 500), route=route)
    answer = ask(plugins, route, stream=stream, model=f"fragile-{2 * stream + (route == RESPONSES)}")
    assert answer.status_code == 200
    assert said(answer) == "Come back later."
    assert answer.json()["type" if route == MESSAGES else "object"] if not stream else answer.text.startswith("event: ")


@both
@ways
def test_an_empty_answer_is_tagged(fake: FakeVLLM, plugins: Gateway, route: str, stream: bool) -> None:
    fake.script(says("ha " * 200))
    answer = ask(plugins, route, stream=stream)
    assert "looping" in answer.text or "looping" in answer.headers.get("x-sluice-tags", "")


@both
def test_a_cached_answer_is_told_whole_and_streamed(fake: FakeVLLM, start_gateway: StartGateway, route: str) -> None:
    gateway = start_gateway(configuration([model("smollm2", fake.url)], chain=[{"plugin": "cache"}]))
    fake.always(says("Hello ", "there"))
    fields = {"temperature": 0} if route == MESSAGES else {"temperature": 0, "store": False}
    first = ask(gateway, route, stream=False, **fields)
    again = [ask(gateway, route, stream=stream, **fields) for stream in (False, True)]
    assert [said(answer) for answer in (first, *again)] == ["Hello there"] * 3
    assert len(fake.requests(route)) == 1
