"""Schemas that no engine is to see, and slots that every end of a request gives back."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.fakes.script import RESET, SILENCE, answers, says
from tests.fakes.vllm import FakeVLLM
from tests.harness import (
    CHAT,
    HI,
    OPERATOR,
    TEAM,
    WORDS,
    Gateway,
    RawCaller,
    configuration,
    hear,
    key,
    model,
    running_gateway,
    until,
)

EASY = "sk-test-easy"
BODY: dict[str, Any] = {"model": "smollm2", "messages": HI}
SLOTS = {"max_in_flight": 1}


@pytest.fixture(scope="module")
def narrow(_engine: FakeVLLM, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """One request in flight for the team, one a minute for ``once``, engines that are hurried, and JSON checked."""
    keys = [
        key("team", TEAM, **SLOTS),
        key("once", "sk-test-once", rpm=1),
        key("retrying", "sk-test-retrying", rpm=1),
        key("easy", EASY),
        key("ops", OPERATOR, role="operator"),
    ]
    timeouts = {"first_token_s": 0.5, "idle_s": 0.5, "total_s": 2.0}
    config = configuration(
        [model("smollm2", _engine.url), model("json", _engine.url)],
        keys=keys,
        chain=[{"plugin": "json_answer", "options": {"invalid": "error"}}, WORDS],
        timeouts=timeouts,
    )
    with running_gateway(config, tmp_path_factory.mktemp("narrow")) as started:
        yield started


def schema(inner: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "x", "schema": inner}}


REMOTE = {"$ref": "http://169.254.169.254/x.json"}
BAD = [
    {"type": "json_schema", "schema": {"type": "object"}},
    schema({"type": "object", "properties": {"foo": "bar"}}),
    schema(REMOTE),
    schema({"type": "object", "properties": {"a": {"items": REMOTE}}}),
    schema({"$ref": "file:///etc/passwd"}),
    schema({"$ref": "//169.254.169.254/x.json"}),
    schema({"$ref": "https://127.0.0.1:9/x.json#/$defs/a"}),
    schema({"$ref": "#/$defs/nowhere"}),
    schema({"$schema": "http://169.254.169.254/draft", "type": "object"}),
    schema({"$id": "http://169.254.169.254/", "$ref": "x.json"}),
    schema({"$dynamicRef": "http://169.254.169.254/x.json"}),
    schema({"type": "objekt"}),
    schema({"type": "string", "pattern": "("}),
    schema({"type": "string", "minLength": -1}),
    schema({"required": "a"}),
    schema({"enum": "a"}),
    schema("object"),
    schema(None),
    schema([]),
    {"type": "json_schema", "json_schema": "x"},
    {"type": "json_schema", "json_schema": {"schema": {}}},
    {"type": "json_schema"},
    {"type": "xml"},
    {},
    "json",
    ["json_object"],
]


@pytest.mark.parametrize("form", BAD, ids=str)
def test_a_bad_form_is_a_400_that_names_it_and_no_engine_is_asked(fake: FakeVLLM, narrow: Gateway, form: Any) -> None:
    """TS-03."""
    answer = narrow.post(CHAT, BODY | {"response_format": form}, EASY)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (400, "invalid_request"), error
    assert error["param"].startswith("response_format")
    assert fake.requests() == []


@pytest.mark.parametrize("place", ["structured_outputs.json", "guided_json"])
def test_a_bad_schema_in_vllm_s_own_fields_reaches_no_engine_either(
    fake: FakeVLLM, narrow: Gateway, place: str
) -> None:
    """TS-03: the same by another name."""
    for inner in (REMOTE, {"type": "object", "properties": {"foo": "bar"}}):
        held = {place: inner} if place == "guided_json" else {"structured_outputs": {"json": inner}}
        answer = narrow.post(CHAT, BODY | held, EASY)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, place)
    assert fake.requests() == []


def test_references_inside_a_schema_work(fake: FakeVLLM, narrow: Gateway) -> None:
    """TS-03: a local reference is nobody's address."""
    inner = {
        "$ref": "#/$defs/a",
        "$defs": {"a": {"type": "object", "properties": {"b": {"$ref": "#/$defs/b"}}}, "b": {}},
    }
    fake.script(says('{"b":1}'))
    answer = narrow.post(CHAT, BODY | {"response_format": schema(inner)}, EASY)
    assert (answer.status_code, answer.json()["sluice"]["json"]["valid"]) == (200, True)
    assert fake.requests()[0].body["response_format"]["json_schema"]["schema"] == inner


def test_over_the_limit_is_a_429_with_a_time_and_no_engine_is_asked(fake: FakeVLLM, narrow: Gateway) -> None:
    """AU-04: one request a minute, and two come."""
    assert narrow.post(CHAT, BODY, "sk-test-once").status_code == 200
    refused = narrow.post(CHAT, BODY | {"stream": True}, "sk-test-once")
    assert refused.status_code == 429
    assert set(refused.json()["error"]) == {"message", "type", "param", "code"}
    assert 1 <= int(refused.headers["retry-after"]) <= 60
    assert len(fake.requests()) == 1


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_the_engines_own_429_comes_through_and_clients_wait_as_told(
    fake: FakeVLLM, narrow: Gateway, stream: bool
) -> None:
    """AU-04: its Retry-After is the caller's."""
    busy = {"error": {"message": "busy", "type": "x", "param": None, "code": 429}}
    fake.script(answers(busy, 429, {"retry-after": "7"}))
    answer = narrow.post(CHAT, BODY | {"stream": stream}, EASY)
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "7")
    assert answer.json()["error"]["message"]
    fake.script(answers(busy, 429, {"retry-after": "1"}), says("at last"))
    began = time.monotonic()
    with narrow.client(EASY, max_retries=1) as client:
        client.chat.completions.create(model="smollm2", messages=HI)
    assert time.monotonic() - began >= 0.9


def _aborted(fake: FakeVLLM, gateway: Gateway) -> None:
    fake.script(says("a", SILENCE, "b"))
    with RawCaller(gateway.port) as caller:
        caller.post(CHAT, BODY | {"stream": True}).until(b'"a"')
        assert gateway.post(CHAT, BODY).status_code == 429, "the slot is taken"
        caller.reset()


def _aborted_unheard(fake: FakeVLLM, gateway: Gateway) -> None:
    fake.script(says(SILENCE))
    caller = RawCaller(gateway.port).post(CHAT, BODY)
    fake.wait_for(1)
    caller.close()


def _timed_out(fake: FakeVLLM, gateway: Gateway) -> None:
    fake.script(says(SILENCE))
    assert gateway.post(CHAT, BODY | {"stream": True}).status_code == 504


def _fell_silent(fake: FakeVLLM, gateway: Gateway) -> None:
    fake.script(says("a", SILENCE, "b"))
    assert [error["code"] for error in hear(gateway, {}).errors] == ["engine_timeout"]


def _blocked_request(fake: FakeVLLM, gateway: Gateway) -> None:
    body = BODY | {"messages": [{"role": "user", "content": "forbiddenzebra"}]}
    assert gateway.post(CHAT, body).status_code == 400


def _blocked_answer(fake: FakeVLLM, gateway: Gateway) -> None:
    fake.script(says("forbidden", "zebra.", SILENCE, "b"), says("forbiddenzebra"))
    assert hear(gateway, {}).finishes() == ["content_filter"]
    assert gateway.post(CHAT, BODY).json()["choices"][0]["finish_reason"] == "content_filter"


def _never_json(fake: FakeVLLM, gateway: Gateway) -> None:
    fake.script(says("no"), says("no again"))
    answer = gateway.post(CHAT, BODY | {"response_format": {"type": "json_object"}})
    assert (answer.status_code, answer.json()["error"]["code"], len(fake.requests())) == (502, "invalid_json", 2)


def _engine_failed(fake: FakeVLLM, gateway: Gateway) -> None:
    fake.script(answers({"error": {"message": "no", "code": 500}}, 500), says("a", RESET, "b"))
    assert gateway.post(CHAT, BODY).status_code in {500, 502}
    assert hear(gateway, {}).errors


def _malformed(fake: FakeVLLM, gateway: Gateway) -> None:
    assert gateway.post(CHAT, content=b"{").status_code == 400
    assert gateway.post(CHAT, BODY | {"model": "nope"}).status_code == 404


ENDS: dict[str, Callable[[FakeVLLM, Gateway], None]] = {
    "aborted": _aborted,
    "aborted before a byte came": _aborted_unheard,
    "timed out": _timed_out,
    "fell silent": _fell_silent,
    "request blocked": _blocked_request,
    "answer blocked": _blocked_answer,
    "schema retries failed": _never_json,
    "engine failed": _engine_failed,
    "malformed": _malformed,
}


@pytest.mark.parametrize("end", ENDS)
def test_whatever_becomes_of_a_request_its_slot_is_free_afterwards(fake: FakeVLLM, narrow: Gateway, end: str) -> None:
    """AU-05: one slot, and a normal request after each end."""
    ENDS[end](fake, narrow)
    until(lambda: narrow.metric("sluice_in_flight") == 0, 2, "the gauge does not come back")
    fake.reset()
    until(lambda: narrow.post(CHAT, BODY).status_code != 503, 10)  # the engine's pause after it had failed
    assert narrow.post(CHAT, BODY).status_code == 200
