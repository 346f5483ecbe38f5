"""Plugins of the answer over real sockets: what the engine is asked, what the caller hears, when the engine stops."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.fakes.script import SILENCE, answers, says, streams
from tests.fakes.vllm import FakeVLLM
from tests.harness import CHAT, HI, WORDS, Gateway, configuration, hear, model, running_gateway, until

SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
FORM = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}
CHAIN: list[dict[str, Any]] = [
    {"plugin": "confidence", "options": {"threshold": 0.1}},
    {"plugin": "json_answer"},
    {"plugin": "answer_sanity", "options": {"action": "stop"}},
    {"plugin": "stop_phrases", "options": {"phrases": ["\nUser:"]}},
    WORDS,
]


@pytest.fixture(scope="module")
def plugins(_engine: FakeVLLM, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    config = configuration([model("smollm2", _engine.url)], chain=CHAIN)
    with running_gateway(config, tmp_path_factory.mktemp("plugins")) as started:
        yield started


def post(gateway: Gateway, **fields: Any) -> dict[str, Any]:
    answer = gateway.post(CHAT, {"model": "smollm2", "messages": HI, **fields})
    body: dict[str, Any] = json.loads(answer.content, parse_constant=pytest.fail)
    return body


@pytest.mark.parametrize(
    "form",
    [
        {"type": "json_schema", "schema": {"type": "object"}},
        {"type": "json_schema", "json_schema": {"name": "x", "schema": {"properties": {"foo": "bar"}}}},
        {"type": "json_schema", "json_schema": {"name": "x", "schema": {"$ref": "http://169.254.169.254/x.json"}}},
    ],
)
def test_a_bad_schema_never_reaches_an_engine(fake: FakeVLLM, plugins: Gateway, form: dict[str, Any]) -> None:
    """TS-03."""
    error = post(plugins, response_format=form)["error"]
    assert (error["code"], error["param"]) == ("invalid_request", "response_format")
    assert fake.requests() == []


def test_an_answer_asked_for_again_passes_the_same_filters(fake: FakeVLLM, plugins: Gateway) -> None:
    fake.script(says("No JSON."), says('{"a": "maskpapaya"}'))
    body = post(plugins, response_format=FORM)
    assert body["choices"][0]["message"]["content"] == '{"a": "**********"}'
    assert body["sluice"]["json"] == {"valid": True, "repaired": False, "attempts": 2}
    first, second = fake.requests()
    assert second.body["messages"][:1] == first.body["messages"]
    assert second.body["messages"][1] == {"role": "assistant", "content": "No JSON."}
    assert body["usage"]["completion_tokens"] > 1


def test_a_stream_that_is_held_to_its_schema_flows(fake: FakeVLLM, plugins: Gateway) -> None:
    fake.script(says('{"a"', ': "b"}'))
    heard = hear(plugins, {"response_format": FORM})
    assert [choice["delta"].get("content") for choice in heard.choices()][1:3] == ['{"a"', ': "b"}']
    assert heard.events[-1]["sluice"]["json"]["valid"] is True


def test_confidence_is_told_and_the_logprobs_behind_it_are_not(fake: FakeVLLM, plugins: Gateway) -> None:
    fake.always(says("Good ", "day."))
    heard = hear(plugins, {})
    assert all(choice.get("logprobs") is None for choice in heard.choices())
    assert 0 <= heard.events[-1]["sluice"]["confidence"] <= 1
    whole = post(plugins)
    assert whole["choices"][0]["logprobs"] is None
    assert 0 <= whole["sluice"]["confidence"] <= 1
    asked = fake.requests()[0].body
    assert (asked["logprobs"], asked["top_logprobs"]) == (True, 3)


def test_who_asks_for_logprobs_gets_them(fake: FakeVLLM, plugins: Gateway) -> None:
    fake.script(says("Good ", "day."))
    heard = hear(plugins, {"logprobs": True})
    tokens = [entry for choice in heard.choices() for entry in (choice.get("logprobs") or {}).get("content") or ()]
    assert "".join(entry["token"] for entry in tokens) == "Good day."
    assert all(entry["top_logprobs"] == [] for entry in tokens)


def test_infinities_in_logprobs_are_neither_passed_on_nor_counted(fake: FakeVLLM, plugins: Gateway) -> None:
    """JR-06."""
    entry = b'{"token":"a","logprob":-Infinity,"bytes":[97],"top_logprobs":[]}'
    choice = b'{"index":0,"message":{"content":"a"},"logprobs":{"content":[%s]},"finish_reason":"stop"}' % entry
    fake.script(answers(b'{"object":"chat.completion","choices":[%s]}' % choice))
    assert post(plugins, logprobs=True)["sluice"]["confidence"] is None
    piece = (
        b'data: {"choices":[{"index":0,"delta":{"content":"a"},"logprobs":{"content":[%s]},"finish_reason":"stop"}]}'
    )
    fake.script(streams(piece % entry + b"\n\n"))
    heard = hear(plugins, {"logprobs": True})
    assert heard.text() == "a"
    assert heard.events[-1]["sluice"]["confidence"] is None


def test_a_stop_phrase_ends_the_answer_and_the_engine(fake: FakeVLLM, plugins: Gateway) -> None:
    fake.script(says("Paris.\nUs", "er: and", SILENCE))
    heard = hear(plugins, {})
    assert (heard.text(), heard.finishes(), heard.done) == ("Paris.", ["stop"], True)
    until(lambda: not fake.running, 2, "the engine was not stopped")
    record = plugins.wait_record(heard.headers["x-request-id"])
    assert (record["outcome"], record["plugin"]) == ("ok", "stop_phrases")


def test_a_loop_ends_the_answer_and_the_engine(fake: FakeVLLM, plugins: Gateway) -> None:
    fake.script(says(*["I am happy to help. "] * 60, SILENCE))
    heard = hear(plugins, {})
    assert heard.finishes() == ["length"]
    assert heard.events[-1]["sluice"]["tags"] == ["looping"]
    until(lambda: not fake.running, 2, "the engine was not stopped")
