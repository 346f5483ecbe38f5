"""A model's own tokenizer files: prompts are counted without the engine, and an engine that makes others is told of."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.engine_fixture import RealEngine, default_model
from tests.fakes.vllm import FakeVLLM
from tests.harness import CHAT, Gateway, configuration, model, until
from tests.system.conftest import StartGateway

LENGTH = {"plugin": "length", "options": {"max_prompt_tokens": 100}}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(default_model() / name, tmp_path)
    return tmp_path


def ask(gateway: Gateway, text: str, **more: object) -> httpx.Response:
    body = {"model": "smollm2", "messages": [{"role": "user", "content": text}], "max_tokens": 1, **more}
    return gateway.post(CHAT, body)


def test_a_prompt_is_counted_without_the_engine(fake: FakeVLLM, start_gateway: StartGateway, folder: Path) -> None:
    gateway = start_gateway(configuration([model("smollm2", fake.url, tokenizer=str(folder))], chain=[LENGTH]))
    differs = gateway.wait_log(lambda line: line.get("event") == "prompts_differ")
    assert differs["said"].startswith("tokenizer: for a plain prompt the engine has "), "the fake counts characters"
    assert (differs["engine"], differs["model"], differs["level"]) == ("smollm2-0", "smollm2", "warning")
    before = len(fake.requests("/tokenize"))
    refused = ask(gateway, "一个 " * 200).json()["error"]
    assert refused["message"].startswith("The prompt is too long: 430 tokens, 330 more than the 100 ")
    assert ask(gateway, "one " * 60).status_code == 200
    assert len(fake.requests("/tokenize")) == before


def test_a_changed_template_counts_from_the_next_request_on(
    fake: FakeVLLM, start_gateway: StartGateway, folder: Path
) -> None:
    gateway = start_gateway(configuration([model("smollm2", fake.url, tokenizer=str(folder))], chain=[LENGTH]))
    assert ask(gateway, "one " * 60).status_code == 200
    template = folder / "chat_template.jinja"
    good = template.read_text()
    template.write_text("{% if %}")
    gateway.wait_log(lambda line: line.get("event") == "reload_refused", within=10)
    assert (told := ask(gateway, "one " * 60)).status_code == 200, told.text
    template.write_text(good + "and " * 100)
    until(lambda: ask(gateway, "one " * 60).status_code == 400, 10, "the template never came into force")


@pytest.mark.engine
def test_a_real_engine_bills_what_was_counted_to_the_token(
    real_engine: RealEngine, start_gateway: StartGateway
) -> None:
    entry = model(real_engine.model, real_engine.url, tokenizer=str(default_model()))
    text = "Tell me 你好 of the fox. " * 12
    used = httpx.post(
        f"{real_engine.url}{CHAT}",
        json={"model": real_engine.model, "messages": [{"role": "user", "content": text}], "max_tokens": 1},
        timeout=60,
    ).json()["usage"]["prompt_tokens"]
    chain = [{"plugin": "length", "options": {"max_prompt_tokens": used - 1}}]
    gateway = start_gateway(configuration([{**entry, "name": "smollm2"}], chain=chain))
    refused = ask(gateway, text).json()["error"]["message"]
    assert refused.startswith(f"The prompt is too long: {used} tokens, 1 more than the {used - 1} ")
    chain = [{"plugin": "length", "options": {"max_prompt_tokens": used}}]
    gateway = start_gateway(configuration([{**entry, "name": "smollm2"}], chain=chain))
    assert ask(gateway, text).json()["usage"]["prompt_tokens"] == used
    assert not [line for line in gateway.records() if line.get("event") == "prompts_differ"]


TURNS: list[dict[str, Any]] = [
    {"role": "user", "content": "Hello, 你好."},
    {"role": "assistant", "content": "Hello! How can I help?"},
]
ROUTES: list[tuple[str, dict[str, Any]]] = [
    (CHAT, {"messages": [{"role": "system", "content": "Be brief."}, *TURNS, {"role": "user", "content": "再见"}]}),
    ("/v1/completions", {"prompt": "Once upon a time, 从前"}),
    (
        "/v1/responses",
        {
            "instructions": "Be brief.",
            "input": [*TURNS, {"role": "user", "content": [{"type": "input_text", "text": "What is 2 + 2? 谢谢"}]}],
            "max_output_tokens": 1,
            "store": False,
        },
    ),
    ("/v1/responses", {"input": "What is 2 + 2?", "max_output_tokens": 1, "store": False}),
    (
        "/v1/messages",
        {
            "system": [{"type": "text", "text": "Be brief."}],
            "messages": [*TURNS, {"role": "user", "content": [{"type": "text", "text": "What is 2 + 2? 谢谢"}]}],
        },
    ),
]


@pytest.mark.engine
def test_every_route_is_counted_as_the_engine_bills_it(real_engine: RealEngine, start_gateway: StartGateway) -> None:
    entry = {**model(real_engine.model, real_engine.url, tokenizer=str(default_model())), "name": "smollm2"}
    chain = [{"plugin": "length", "options": {"max_prompt_tokens": 3}}]
    gateway = start_gateway(configuration([entry], chain=chain))
    for route, body in ROUTES:
        asked = {"max_tokens": 1, **body} if route != "/v1/responses" else body
        told = httpx.post(f"{real_engine.url}{route}", json={"model": real_engine.model, **asked}, timeout=60).json()
        used = told["usage"].get("prompt_tokens") or told["usage"]["input_tokens"]
        refused = gateway.post(route, {"model": "smollm2", **asked}).json()["error"]["message"]
        assert refused.startswith(f"The prompt is too long: {used} tokens, "), (route, used, refused)
