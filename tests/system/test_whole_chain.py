"""All plugins at once in front of the real engine: one English and one Chinese request walk through everything."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.engine_fixture import RealEngine, default_model
from tests.harness import CHAT, TEAM, Gateway, configuration, key, model, running_gateway, until

CRM = "sk-crm"
RULES = "You are the assistant of Acme Tools. Answer in one short sentence and never name a competitor."

#: From top to bottom for requests, from bottom to top for answers.
CHAIN: list[dict[str, Any]] = [
    {"plugin": "envelope", "options": {"profile": "code_data"}, "keys": ["crm"]},
    {"plugin": "fallback", "options": {"texts": {"en": "Later.", "zh": "稍后"}, "on": ["no_engine_available"]}},
    {"plugin": "normalize"},
    {"plugin": "clean_text"},
    {
        "plugin": "sensitive_words",
        "options": {
            "words": [
                {"word": "gambling", "action": "block"},
                {"word": "赌博", "action": "block"},
                {"word": "weather", "action": "mask"},
                {"word": "天气", "action": "mask"},
                {"word": "refund", "action": "tag", "tag": "money"},
                {"word": "退款", "action": "tag", "tag": "money"},
            ]
        },
    },
    {"plugin": "pii"},
    {"plugin": "presets", "options": {"default": "deterministic", "ceilings": {"max_tokens": 24, "top_logprobs": 2}}},
    {"plugin": "cache"},
    {"plugin": "system_prompt", "options": {"text": RULES, "recital_run": 24}},
    {"plugin": "length", "options": {"strategy": "semantic", "max_prompt_tokens": 170}},
    {"plugin": "confidence", "options": {"detail": True}},
    {"plugin": "json_answer"},
    {"plugin": "answer_sanity", "options": {"garbled_marks": 1}},
    {"plugin": "stop_phrases", "options": {"phrases": ["\nUser:"]}},
    # the last of all: so it tells what the engine gets
    {"plugin": "audit_log", "options": {"path": "audit.jsonl", "text": "full"}},
]


class Walk(NamedTuple):
    """A request, and what the engine has to get of it."""

    said: str
    asked: str  # of the question, what the engine has to see
    language: str


WALKS = [
    Walk(
        "Ｈｅｌｌｏ！ My phone is 13800138000.\x1b[31m Is the weather fine today? I want a refund<|im_end|>.",
        "Hello! My phone is 138****8000. Is the ******* fine today? I want a refund<",
        "en",
    ),
    Walk(
        "你好！我的电话是１３８００１３８０００。\x1b[0m今天天气怎么样？我要退款<|im_end|>。",
        "你好!我的电话是138****8000。今天**怎么样?我要退款<",
        "zh",
    ),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("chain")


@pytest.fixture(scope="module")
def gateway(real_engine: RealEngine, folder: Path) -> Iterator[Gateway]:
    served = {"url": real_engine.url, "served_model": real_engine.model}
    entry = {**model("smollm2", real_engine.url, tokenizer=str(default_model())), "engines": [served]}
    config = configuration(
        [entry, model("away", "http://127.0.0.1:9")], keys=[key("team", TEAM), key("crm", CRM)], chain=CHAIN
    )
    with running_gateway(config, folder) as started:
        yield started


def ask(gateway: Gateway, walk: Walk, *, stream: bool, secret: str = TEAM, **more: Any) -> Any:
    turns = [{"role": "user", "content": "x " * 150}, {"role": "assistant", "content": "y"}]  # too long: they go
    body = {
        "model": "smollm2",
        "messages": [*turns, {"role": "user", "content": walk.said}],
        "max_tokens": 100,
        "stream": stream,
        "user": walk.language,
        **more,
    }
    return gateway.post(CHAT, body, secret)


def told(answer: Any, *, stream: bool) -> tuple[str, dict[str, Any]]:
    """Return the text of an answer, and what is said of it."""
    if not stream:
        body = answer.json()
        return body["choices"][0]["message"]["content"], body["sluice"]
    chunks = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")]
    text = "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"])
    return text, next(chunk["sluice"] for chunk in chunks if "sluice" in chunk)


def audited(folder: Path, request_id: str) -> dict[str, Any]:
    """Return the audit's line of a request: what the engine got, and what each plugin did. It is written beside it."""
    found: list[dict[str, Any]] = []

    def written() -> bool:
        lines = map(json.loads, (folder / "audit.jsonl").read_text("utf-8").splitlines())
        found[:] = [line for line in lines if line["request_id"] == request_id]
        return bool(found)

    until(written, 5, "the audit log has no line of this request")
    return found[0]


@pytest.mark.engine
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("walk", WALKS, ids=[walk.language for walk in WALKS])
def test_a_request_shows_what_every_plugin_does(gateway: Gateway, folder: Path, walk: Walk, stream: bool) -> None:
    answer = ask(gateway, walk, stream=stream, seed=1 + stream)  # the cache knows neither
    assert answer.status_code == 200, answer.text
    text, said = told(answer, stream=stream)
    print(walk.language, stream, repr(text), said)

    # presets: the default's temperature and the ceiling; length: earlier turns went; sensitive_words: a soft tag
    assert said["preset"] == "deterministic"
    assert {"max_tokens_clamped", "prompt_cut", "money"} <= set(said["tags"])
    assert {"max_tokens_clamped", "prompt_cut", "money"} <= set(answer.headers["x-sluice-tags"].split(","))

    # confidence: measured, and its log probabilities taken out again
    assert 0 <= said["confidence"] <= 1
    assert len(said["confidence_detail"]["least_certain"]) <= 3
    assert "top_logprobs" not in answer.text

    # what the engine got: normalised, cleaned, masked, with the operator's text before it
    record = gateway.wait_record(answer.headers["x-request-id"])
    assert record["outcome"] == "ok"
    line = audited(folder, answer.headers["x-request-id"])
    sent = json.dumps(line, ensure_ascii=False)
    assert walk.asked in sent
    assert RULES in sent
    assert "x x x x" not in sent
    assert "<|im_end|>" not in sent
    rules = {hit["plugin"] for hit in line["hits"]}
    assert {"sensitive_words", "pii", "length"} <= rules
    assert RULES[:40] not in text


@pytest.mark.engine
@pytest.mark.parametrize("walk", WALKS, ids=[walk.language for walk in WALKS])
def test_the_same_request_is_answered_by_the_cache_the_other_way(gateway: Gateway, walk: Walk) -> None:
    first = ask(gateway, walk, stream=False)
    assert "age" not in first.headers
    again = ask(gateway, walk, stream=True)
    assert again.headers["age"].isdigit()
    assert told(again, stream=True)[0] == told(first, stream=False)[0]


@pytest.mark.engine
@pytest.mark.parametrize("stream", [True, False])
def test_a_blocked_word_meets_no_engine(gateway: Gateway, real_engine: RealEngine, stream: bool) -> None:
    before = real_engine.metric("vllm:prompt_tokens_total")
    for text in ("Tell me of g-a-m-b-l-i-n-g", "说说赌*博"):
        answer = gateway.post(
            CHAT, {"model": "smollm2", "stream": stream, "messages": [{"role": "user", "content": text}]}
        )
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "content_filter")
    assert real_engine.metric("vllm:prompt_tokens_total") == before


@pytest.mark.engine
@pytest.mark.parametrize("stream", [True, False])
def test_json_is_held_to_its_schema(gateway: Gateway, stream: bool) -> None:
    schema = {"type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}}, "required": ["city"]}
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": {**schema, "additionalProperties": False}}}
    walk = Walk("Name the capital of France as JSON.", "", "en")
    answer = ask(gateway, walk, stream=stream, response_format=form, seed=7 + stream)
    text, said = told(answer, stream=stream)
    assert said["json"] == {"valid": True, "repaired": False, "attempts": 1}
    assert json.loads(text)["city"] in {"Paris", "Rome"}


@pytest.mark.engine
def test_a_business_system_hears_it_in_its_own_envelope(gateway: Gateway) -> None:
    body = ask(gateway, WALKS[1], stream=False, secret=CRM).json()
    assert body["code"] == 0
    assert {"text", "confidence", "tokens", "warning_tags"} <= body["data"].keys()
    assert "money" in body["data"]["warning_tags"]
    assert body["meta"]["model"] == "smollm2"
    blocked = gateway.post(CHAT, {"model": "smollm2", "messages": [{"role": "user", "content": "赌博"}]}, CRM)
    assert (blocked.status_code, blocked.json()["code"]) == (400, 400)


@pytest.mark.engine
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(("walk", "text"), [(WALKS[0], "Later."), (WALKS[1], "稍后")], ids=["en", "zh"])
def test_an_engine_that_is_away_is_stood_in_for(gateway: Gateway, walk: Walk, text: str, stream: bool) -> None:
    answer = ask(gateway, walk, stream=stream, model="away", seed=20)
    assert told(answer, stream=stream)[0] == text
    assert told(answer, stream=stream)[1]["fallback"]["reason"] == "no_engine_available"
    assert "no-store" in answer.headers["cache-control"]


@pytest.mark.engine
@pytest.mark.parametrize(
    ("route", "body"),
    [
        ("/v1/responses", {"input": WALKS[0].said, "max_output_tokens": 100, "store": False}),
        ("/v1/messages", {"messages": [{"role": "user", "content": WALKS[0].said}], "max_tokens": 100}),
    ],
)
@pytest.mark.parametrize("stream", [True, False])
def test_the_newer_routes_walk_the_same_way(
    gateway: Gateway, folder: Path, route: str, body: dict[str, Any], stream: bool
) -> None:
    body = {**body, "top_p": 0.5 + stream / 4}  # the cache knows neither
    answer = gateway.post(route, {"model": "smollm2", "stream": stream, **body})
    assert answer.status_code == 200, answer.text
    assert {"max_tokens_clamped", "money"} <= set(answer.headers["x-sluice-tags"].split(","))
    sent = json.dumps(audited(folder, answer.headers["x-request-id"]), ensure_ascii=False)
    assert WALKS[0].asked in sent
    assert RULES in sent
    assert '"preset": "deterministic"' in answer.text.replace('":"', '": "')
    again = gateway.post(route, {"model": "smollm2", "stream": not stream, **body})
    assert again.headers["age"].isdigit()
