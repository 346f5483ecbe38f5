"""Envelopes, fallbacks and cached answers as their callers meet them, through a real gateway."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.fakes.forms import error_event
from tests.fakes.script import CLOSE, answers, delayed, says, streams
from tests.fakes.vllm import FakeVLLM
from tests.harness import CHAT, HI, TEAM, WORDS, Gateway, configuration, hear, key, model, running_gateway

CRM, SHOP = "sk-crm", "sk-shop"
CHAIN: list[dict[str, Any]] = [
    {"plugin": "envelope", "options": {"profile": "code_data"}, "keys": ["crm"]},
    {"plugin": "envelope", "options": {"profile": "result_meta", "always_200": True}},
    {"plugin": "envelope", "options": {"profile": "code_data"}},
    {
        "plugin": "fallback",
        "models": ["covered", "buffered"],
        "options": {
            "texts": {"en": "Later.", "zh": "稍后"},
            "on": ["engine_error", "no_engine_available", "first_token_late"],
            "first_token_s": 0.6,
        },
    },
    {"plugin": "fallback", "models": ["buffered"], "options": {"text": "Withheld.", "on": ["content_filter"]}},
    {
        "plugin": "fallback",
        "models": ["spared"],
        "options": {"model": "smollm2", "text": "Neither.", "on": ["engine_error"]},
    },
    {"plugin": "cache", "models": ["cached"]},
    WORDS,
]


@pytest.fixture(scope="module")
def shaped(_engine: FakeVLLM, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    names = ("smollm2", "covered", "buffered", "spared", "cached")
    keys = [key("team", TEAM), key("crm", CRM), key("shop", SHOP), key("ops", "sk-test-operator", role="operator")]
    made = configuration([model(name, _engine.url) for name in names], keys=keys, chain=CHAIN, heartbeat_s=0.3)
    with running_gateway(made, tmp_path_factory.mktemp("shaped")) as started:
        yield started


def ask(gateway: Gateway, path: str = CHAT, secret: str | None = TEAM, content: str = "hi", **more: Any) -> Any:
    body = {"model": "smollm2", "messages": [{"role": "user", "content": content}], **more}
    return gateway.post(path, body, secret)


# ---- envelopes ----


def test_v1_is_openais_form_unless_the_key_says_otherwise(fake: FakeVLLM, shaped: Gateway) -> None:
    fake.script(says("你好"), says("你好"))
    assert ask(shaped).json()["object"] == "chat.completion"
    told = ask(shaped, secret=CRM)
    body = told.json()
    assert body["meta"].pop("latency_ms") > 0
    assert body == {
        "code": 0,
        "data": {"text": "你好", "confidence": None, "tokens": body["data"]["tokens"], "warning_tags": []},
        "meta": {"model": "smollm2"},
    }
    assert int(told.headers["content-length"]) == len(told.content)
    assert fake.requests()[-1].body["logprobs"] is True


def test_the_path_names_a_profile(fake: FakeVLLM, shaped: Gateway) -> None:
    fake.script(says("hi"))
    body = ask(shaped, "/b/result_meta" + CHAT).json()
    assert body["result"] == "hi"
    assert body["meta"]["finish_reason"] == "stop"
    assert shaped.wait_record(body["meta"]["request_id"])["route"] == CHAT


@pytest.mark.parametrize("path", ["/b/nobody/v1/chat/completions", "/b/code_data/metrics", "/b/", "/b/code_data"])
def test_other_paths_do_not_exist(shaped: Gateway, path: str) -> None:
    told = ask(shaped, path)
    assert (told.status_code, told.json()["error"]["code"]) == (404, "not_found")


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"secret": "wrong"}, 401),
        ({"secret": None}, 401),
        ({"content": "forbiddenzebra"}, 400),
        ({"model": "x"}, 404),
        ({"n": 0}, 400),
    ],
)
def test_every_failure_comes_in_the_envelope(shaped: Gateway, options: dict[str, Any], code: int) -> None:
    told = ask(shaped, "/b/code_data" + CHAT, **options)
    assert (told.status_code, told.json()["code"]) == (code, code)
    assert told.json()["msg"]
    told = ask(shaped, "/b/result_meta" + CHAT, **options)
    assert (told.status_code, told.json()["error"]["code"]) == (200, code)
    assert shaped.wait_record(told.headers["x-request-id"])["status"] == code, "the log says what happened"


def test_a_body_that_is_no_json_too(shaped: Gateway) -> None:
    told = shaped.post("/b/code_data" + CHAT, content=b"{", secret=TEAM)
    assert (told.status_code, told.json()["code"]) == (400, 400)
    assert shaped.post("/b/code_data/v1/nothing", {}).json()["code"] == 404


def test_a_stream_is_told_piece_by_piece(fake: FakeVLLM, shaped: Gateway) -> None:
    fake.script(says("Hel", "lo ", "softkiwi"))
    heard = hear(shaped, {"messages": HI}, "/b/code_data" + CHAT)
    *pieces, last = heard.events
    assert "".join(event["data"]["text"] for event in pieces) == "Hello softkiwi"
    assert last["data"]["warning_tags"] == ["soft"]
    assert last["meta"]["latency_ms"] > 0
    assert heard.done


def test_a_stream_that_breaks_off_says_so_in_the_envelope(fake: FakeVLLM, shaped: Gateway) -> None:
    chunk = {"model": "smollm2", "choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": None}]}
    fake.script(streams(chunk, CLOSE, done=False))
    body = {"model": "smollm2", "messages": HI}
    heard = hear(shaped, body, "/b/code_data" + CHAT)
    assert heard.events[0]["data"]["text"] == "a"
    assert heard.events[-1]["code"] == 502
    assert not heard.done


def test_models_and_embeddings_are_wrapped(fake: FakeVLLM, shaped: Gateway) -> None:
    assert shaped.get("/b/code_data/v1/models").json()["data"]["object"] == "list"
    fake.script(answers({"object": "list", "model": "smollm2", "data": [{"embedding": [1.0]}]}))
    told = shaped.post("/b/result_meta/v1/embeddings", {"model": "smollm2", "input": "a"}).json()
    assert told["result"]["data"] == [{"embedding": [1.0]}]


# ---- fallbacks ----

BROKEN = answers({"error": {"message": "CUDA", "type": "x", "code": 500}}, 500)


@pytest.mark.parametrize("stream", [False, True])
def test_a_text_stands_in_for_a_broken_engine(fake: FakeVLLM, shaped: Gateway, stream: bool) -> None:
    fake.script(BROKEN)
    body = {"model": "covered", "messages": [{"role": "user", "content": "你好"}]}
    if stream:
        heard = hear(shaped, body)
        assert heard.text() == "稍后"
        assert heard.done
        assert heard.headers.get_list("cache-control") == ["no-store"]
        extra, request_id = heard.events[-1]["sluice"], heard.headers["x-request-id"]
    else:
        told = shaped.post(CHAT, body)
        assert told.json()["choices"][0]["message"]["content"] == "稍后"
        assert told.headers["cache-control"] == "no-store"
        extra, request_id = told.json()["sluice"], told.headers["x-request-id"]
    assert extra["fallback"] == {"reason": "engine_error"}
    line = shaped.wait_log(lambda line: line.get("event") == "fallback" and line["request_id"] == request_id)
    assert line["reason"] == "engine_error"
    assert shaped.metric("sluice_rule_hits_total", plugin="fallback", action="fallback") > 0


def test_an_envelope_tells_a_fallback_like_any_answer(fake: FakeVLLM, shaped: Gateway) -> None:
    fake.script(BROKEN)
    told = ask(shaped, "/b/code_data" + CHAT, model="covered").json()
    assert (told["code"], told["data"]["text"], told["data"]["warning_tags"]) == (0, "Later.", ["fallback"])


def test_another_model_is_asked_and_filtered(fake: FakeVLLM, shaped: Gateway) -> None:
    fake.script(BROKEN, says("by maskpapaya"))
    heard = hear(shaped, {"model": "spared", "stream_options": {"include_usage": True}})
    assert heard.text() == "by **********"
    assert heard.events[-1]["sluice"]["fallback"] == {"reason": "engine_error", "model": "smollm2"}


def test_an_answer_seen_in_part_has_no_fallback(fake: FakeVLLM, shaped: Gateway) -> None:
    chunk = {"model": "covered", "choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": None}]}
    fake.script(streams(chunk, 0.05, error_event(500, "broke"), CLOSE, done=False))
    heard = hear(shaped, {"model": "covered"})
    assert heard.text() == "a"
    assert len(heard.errors) == 1
    assert not heard.done


def test_a_late_first_token_has_one_also_after_heartbeats(fake: FakeVLLM, shaped: Gateway) -> None:
    fake.script(delayed(says("late"), 5.0))
    heard = hear(shaped, {"model": "covered"})
    assert b": keep-alive" in heard.raw
    assert heard.text() == "Later."
    assert heard.events[-1]["sluice"]["fallback"] == {"reason": "first_token_late"}


ROLE = {"role": "assistant", "content": ""}


def role_first(*rest: Any) -> Any:
    """Answer with the role at once, as some engines do before they have begun to think."""
    chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "covered"}
    end = {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    said = [
        {**chunk, "choices": [{"index": 0, "delta": {"content": each}, "finish_reason": None}]}
        if isinstance(each, str)
        else each
        for each in rest
    ]
    return streams({**chunk, "choices": [{"index": 0, "delta": ROLE, "finish_reason": None}]}, *said, end)


def test_a_role_a_start_and_keep_alives_are_no_first_token(fake: FakeVLLM, shaped: Gateway) -> None:
    fake.script(role_first(*[b": keep-alive\n\n", 0.2] * 8, "late"))
    assert hear(shaped, {"model": "covered"}).text() == "Later."
    fake.script(says(5.0, "late"))
    assert b"Later." in hear(shaped, {"model": "covered", "input": "q"}, "/v1/responses").raw
    fake.script(says(5.0, "late"))
    body = {"model": "covered", "max_tokens": 9, "messages": HI}
    assert b"Later." in hear(shaped, body, "/v1/messages").raw


def test_what_waited_for_the_first_token_comes_with_it(fake: FakeVLLM, shaped: Gateway) -> None:
    fake.script(role_first(0.1, "in ", "time"))
    heard = hear(shaped, {"model": "covered"})
    assert (heard.text(), heard.events[0]["choices"][0]["delta"]) == ("in time", ROLE)
    fake.script(role_first(0.1))
    heard = hear(shaped, {"model": "covered"})
    assert (heard.text(), heard.finishes()) == ("", ["stop"])


@pytest.mark.parametrize("stream", [False, True])
def test_a_blocked_answer_is_replaced_whole(fake: FakeVLLM, shaped: Gateway, stream: bool) -> None:
    fake.script(says("part ", 0.7, "forbiddenzebra"))
    body = {"model": "buffered", "messages": HI, "stream": stream}
    told = shaped.post(CHAT, body)
    assert b"part" not in told.content
    assert b"Withheld." in told.content
    assert b"content_filter" in told.content


# ---- cache ----


def test_a_deterministic_request_is_answered_once(fake: FakeVLLM, shaped: Gateway) -> None:
    fake.script(says("on", "ce"))
    body = {"model": "cached", "messages": [{"role": "user", "content": "count"}], "temperature": 0}
    first = hear(shaped, body)
    assert "age" not in first.headers
    again = hear(shaped, body)
    assert (again.text(), again.finishes(), again.done) == ("once", ["stop"], True)
    assert int(again.headers["age"]) >= 0
    whole = shaped.post(CHAT, {**body, "stream": False})
    assert whole.json()["choices"][0]["message"]["content"] == "once"
    assert json.loads(whole.content)["usage"]["total_tokens"] > 0
    assert len(fake.requests()) == 1
    fake.script(says("mine"))
    assert hear(shaped, body, secret=SHOP).text() == "mine"


def test_a_blocked_answer_is_not_kept(fake: FakeVLLM, shaped: Gateway) -> None:
    fake.script(says("a forbiddenzebra"), says("fine"))
    body = {"model": "cached", "messages": [{"role": "user", "content": "block"}], "seed": 1}
    assert hear(shaped, body).finishes() == ["content_filter"]
    assert hear(shaped, body).text() == "fine"
