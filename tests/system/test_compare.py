"""sluice compare over sockets: two presets of a real engine, and a planted wrong tokenizer and template."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.cli import main
from tests.engine_fixture import RealEngine
from tests.fakes.connection import Received
from tests.fakes.script import Reply, answers, delayed, paced, says
from tests.fakes.vllm import FakeVLLM
from tests.harness import TEAM, configuration, model
from tests.system.conftest import StartGateway

Captured = pytest.CaptureFixture[str]
CASES = """
defaults: {max_tokens: 10}
cases:
  - {name: capital, user: "What is the capital of France?", checks: [{contains: Paris}]}
  - {name: japan, user: "What is the capital of Japan?", checks: [{contains: Tokyo}]}
  - {name: water, user: "What is the chemical formula of water?", checks: [{regex: 'H2O|hydrogen|H.O'}]}
"""


@pytest.fixture
def cases(tmp_path: Path) -> str:
    (tmp_path / "cases.yaml").write_text(CASES)
    return str(tmp_path / "cases.yaml")


@pytest.mark.engine
def test_two_presets_of_a_real_engine(
    real_engine: RealEngine, start_gateway: StartGateway, cases: str, tmp_path: Path, capsys: Captured
) -> None:
    presets = {"calm": {"temperature": 0}, "short": {"max_tokens": 2}}
    chain = [{"plugin": "presets", "options": {"presets": presets}}]
    gateway = start_gateway(configuration([model("smollm2", real_engine.url)], chain=chain))
    usual = ["--url", gateway.url, "--key", TEAM, "--cases", cases, "--concurrency", "2"]
    page = tmp_path / "page.html"
    assert main(["compare", "smollm2", "smollm2,preset=calm", *usual, "--json", "--same-prompts"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [side["success"] for side in told["sides"]] == [1, 1], told["cases"]
    assert told["changed"] == []
    assert told["sides"][0]["prompt_tokens"] == told["sides"][1]["prompt_tokens"] > 90

    (tmp_path / "free.yaml").write_text(CASES.replace("defaults: {max_tokens: 10}", "defaults: {max_tokens: null}"))
    usual[usual.index(cases)] = str(tmp_path / "free.yaml")
    given = [
        "smollm2,preset=short,price=1/1",
        "smollm2,preset=short,price=2/1",
        "--max-dearer",
        "10%",
        "--html",
        str(page),
    ]
    assert main(["compare", *given, *usual]) == 1
    assert "not good enough: the cost rises" in capsys.readouterr().out
    assert "smollm2,preset=short,price=1/1" in page.read_text()


def planted(real: RealEngine, prompt: Callable[[list[int], str], Any]) -> Callable[[Received], Reply]:
    """Answer chats as this model does when it is given something else than its own tokens."""

    def script(received: Received) -> Reply:
        assert isinstance(received.body, dict)
        body = received.body
        tokens = httpx.post(f"{real.url}/tokenize", json={"messages": body["messages"]}, timeout=30).json()["tokens"]
        given = prompt(tokens, body["messages"][-1]["content"])
        asked = {"model": real.model, "prompt": given, "temperature": 0, "max_tokens": body["max_tokens"]}
        said = httpx.post(f"{real.url}/v1/completions", json=asked, timeout=60).json()
        return says(said["choices"][0]["text"])(received)

    return script


@pytest.mark.engine
@pytest.mark.parametrize(
    "prompt",
    [
        pytest.param(lambda tokens, _: [17 + token for token in tokens if token < 49_000], id="another vocabulary"),
        pytest.param(lambda tokens, _: list(reversed(tokens)), id="another template"),
    ],
)
def test_a_wrong_tokenizer_is_caught(
    real_engine: RealEngine, cases: str, prompt: Callable[[list[int], str], Any], capsys: Captured
) -> None:
    with FakeVLLM() as wrong:
        wrong.always(planted(real_engine, prompt))
        given = [f"{real_engine.url}#smollm2", f"{wrong.url}#smollm2", "--cases", cases, "--concurrency", "1"]
        assert main(["compare", *given, "--max-changed", "50%", "--same-prompts"]) == 1
    told = capsys.readouterr().out
    assert "not good enough: task success falls from 100% to 0%" in told
    assert "not good enough: 3 of 3 answers are others, more than 50%" in told
    assert "prompts have other numbers of tokens" in told


@pytest.fixture
def other() -> Iterator[FakeVLLM]:
    with FakeVLLM() as fake:
        yield fake


def test_one_that_is_slower_is_told_by_its_quantiles(
    fake: FakeVLLM, other: FakeVLLM, cases: str, capsys: Captured
) -> None:
    fake.always(says("Paris Tokyo H2O"))
    other.always(delayed(says(*paced("Paris Tokyo H2O", 2, 0.05)), 0.1))
    given = [fake.url, other.url, "--cases", cases, "--repeats", "4"]
    assert main(["compare", *given, "--max-slower", "50%"]) == 1
    told = capsys.readouterr().out
    assert "not good enough: first text, p90" in told
    assert main(["compare", *given]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "good enough"


def test_a_target_that_does_not_answer_fails_every_case(fake: FakeVLLM, cases: str, capsys: Captured) -> None:
    fake.always(answers({"error": {"message": "out of order"}}, 500))
    with FakeVLLM() as well:
        well.always(says("Paris Tokyo H2O"))
        assert main(["compare", well.url, fake.url, "--cases", cases]) == 1
        assert "no answer 0 3" in " ".join(capsys.readouterr().out.split())
        assert main(["compare", fake.url, well.url, "--cases", cases, "--max-drop", "100%"]) == 1
        assert "not good enough: no answer from A" in capsys.readouterr().out
    assert main(["compare", fake.url, fake.url, "--cases", cases]) == 3
    assert "neither answers: 500: out of order" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["m", "n", "--cases", "nowhere.yaml"], "nowhere.yaml: No such file"),
        (["m", "n", "--max-drop", "much"], "--max-drop much: has to be a share"),
        (["m", "n", "--max-drop", "nan"], "--max-drop nan: has to be a share"),
        (["m", "n", "--max-slower", "inf"], "--max-slower inf: has to be a share"),
        (["m,price=1/1", "n", "--max-dearer", "0"], "both targets need a price"),
        (["m", "n", "--repeats", "0"], "--repeats has to be more than 0"),
        (["m,x=1", "n"], "'x=1': preset="),
        (["http://127.0.0.1:9", "n"], "http://127.0.0.1:9: "),
    ],
)
def test_what_cannot_be_compared_is_one_line(words: list[str], told: str, capsys: Captured) -> None:
    assert main(["compare", *words]) == 2
    err = capsys.readouterr().err
    assert err.startswith("sluice compare: ")
    assert told in err
    assert err.count("\n") == 1
