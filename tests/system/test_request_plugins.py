"""Plugins of the request over real sockets: what the engine is asked, and what the caller is told."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.engine_fixture import RealEngine
from tests.fakes.script import says
from tests.fakes.vllm import FakeVLLM
from tests.harness import CHAT, HI, WORDS, Gateway, configuration, model, running_gateway
from tests.system.conftest import StartGateway

RULES = "You answer for Acme, in three sentences at most, and never name a competitor."
CHAIN: list[dict[str, Any]] = [
    WORDS,
    {"plugin": "presets", "options": {"ceilings": {"n": 2}}},
    {"plugin": "system_prompt", "options": {"text": RULES}},
    {"plugin": "length", "options": {"strategy": "tail"}},
]


@pytest.fixture(scope="module")
def plugins(_engine: FakeVLLM, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    config = configuration([model("smollm2", _engine.url, max_output_tokens=1500)], chain=CHAIN)
    with running_gateway(config, tmp_path_factory.mktemp("plugins")) as started:
        yield started


def post(gateway: Gateway, **fields: Any) -> httpx.Response:
    return gateway.post(CHAT, {"model": "smollm2", "messages": HI, **fields})


@pytest.mark.parametrize(("wishes", "tokens"), [({}, 512), ({"max_tokens": 900}, 900), ({"max_tokens": 1500}, 1500)])
def test_a_preset_stands_in_for_the_ceiling_and_not_for_a_wish(
    plugins: Gateway, fake: FakeVLLM, wishes: dict[str, Any], tokens: int
) -> None:
    answer = post(plugins, sluice={"preset": "chat"}, **wishes)
    assert answer.json()["sluice"]["preset"] == "chat"
    (asked,) = fake.requests(CHAT)
    assert (asked.body["max_tokens"], asked.body["temperature"]) == (tokens, 0.7)
    assert "sluice" not in asked.body


@pytest.mark.parametrize("stream", [True, False])
def test_a_plugin_is_held_to_the_ceiling_too(fake: FakeVLLM, start_gateway: StartGateway, stream: bool) -> None:
    greedy = {"plugin": "presets", "options": {"presets": {"all": {"max_tokens": 9000}}, "default": "all"}}
    gateway = start_gateway(configuration([model("smollm2", fake.url, max_output_tokens=1500)], chain=[greedy]))
    for route, body in (
        ("/v1/completions", {"prompt": "hi"}),
        ("/v1/responses", {"input": "hi"}),
        (CHAT, {"messages": HI}),
    ):
        answer = gateway.post(route, {"model": "smollm2", "stream": stream, **body})
        assert answer.status_code == 200, answer.text
        (asked,) = fake.requests(route)
        field = "max_output_tokens" if route == "/v1/responses" else "max_tokens"
        assert asked.body[field] == 1500
        told = answer.headers.get("x-sluice-tags")
        assert told == ("max_tokens_clamped" if route == "/v1/completions" else None), "others had none but the ceiling"


def test_a_recital_never_reaches_the_caller(plugins: Gateway, fake: FakeVLLM) -> None:
    fake.script(says(f"My rules: {RULES}"))
    answer = post(plugins).json()
    assert fake.requests(CHAT)[0].body["messages"] == [{"role": "system", "content": RULES}, *HI]
    assert answer["choices"][0]["message"]["content"] == (
        "My rules: *** ****** *** ****, ** ***** ********* ** ****, *** ***** **** * **********."
    )


def test_a_prompt_over_the_engine_s_window_is_cut_and_the_answer_fits_beside_it(
    plugins: Gateway, fake: FakeVLLM
) -> None:
    answer = post(plugins, messages=[{"role": "user", "content": "word " * 1000}], n=2)
    assert answer.headers["x-sluice-tags"] == "prompt_cut"
    (asked,) = fake.requests(CHAT)
    system, user = asked.body["messages"]
    assert system["content"] == RULES
    assert user["content"].startswith("[…] ")
    assert 1500 < len(user["content"]) < 2048 - 256 - len(RULES)
    assert 256 <= asked.body["max_tokens"] < 500, "what the window leaves"


def test_an_answer_beyond_the_window_is_lowered_and_said(plugins: Gateway, fake: FakeVLLM) -> None:
    answer = post(plugins, messages=[{"role": "user", "content": "w" * 1000}], max_tokens=65535)
    assert answer.headers["x-sluice-tags"] == "max_tokens_clamped"
    assert fake.requests(CHAT)[0].body["max_tokens"] < 1048


@pytest.mark.engine
@pytest.mark.parametrize("strategy", ["refuse", "semantic"])
def test_a_real_engine_takes_what_the_plugin_made_of_a_prompt(
    real_engine: RealEngine, tmp_path_factory: pytest.TempPathFactory, strategy: str
) -> None:
    chain = [{"plugin": "length", "options": {"strategy": strategy}}]
    config = configuration([{**model("smollm2", real_engine.url), "max_output_tokens": 16}], chain=chain)
    text = "".join(f"The train of day {number} was late again. " for number in range(1200)) + "Which train was late?"
    with running_gateway(config, tmp_path_factory.mktemp("real")) as gateway:
        answer = post(gateway, messages=[{"role": "user", "content": text}], max_tokens=8)
        short = post(gateway, max_tokens=10_000_000)
    assert short.headers.get("x-sluice-tags") == "max_tokens_clamped"
    assert short.status_code == 200
    if strategy == "refuse":
        assert answer.status_code == 400
        assert "maximum context length" in answer.json()["error"]["message"]
    else:
        assert answer.status_code == 200
        assert answer.json()["usage"]["prompt_tokens"] > 0
        assert answer.headers["x-sluice-tags"] == "prompt_cut"


@pytest.mark.parametrize(("embedder", "asked"), [("e5", 1), ("away", 0)])
def test_another_model_tells_which_sentences_are_alike(
    fake: FakeVLLM, start_gateway: StartGateway, embedder: str, asked: int
) -> None:
    cut = {"strategy": "semantic", "max_characters": 60, "embeddings": embedder}
    models = [model("smollm2", fake.url), model("e5", fake.url), model("away", "http://127.0.0.1:1")]
    gateway = start_gateway(configuration(models, chain=[{"plugin": "length", "options": cut}]))
    text = "It rained on Monday. It rained on Tuesday. The key is under the mat. It rained on Friday. It stopped."
    answer = post(gateway, messages=[{"role": "user", "content": text}])
    assert answer.status_code == 200, answer.text
    assert answer.headers["x-sluice-tags"] == "prompt_cut"
    requests = fake.requests("/v1/embeddings")
    assert len(requests) == asked
    assert all(request.body["model"] == "e5" and len(request.body["input"]) == 5 for request in requests)
    if not asked:
        told = gateway.wait_log(lambda line: line.get("event") == "length")
        assert told["said"].startswith("no embeddings of away: ")
