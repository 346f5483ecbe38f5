"""What ``sluice check`` says of tokenizer files and, asked to, of engines."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import structlog
import yaml

from gateway.cli import COULD_NOT_START, WRONG, main
from gateway.engine.tokenizer import Tokenizer
from tests.engine_fixture import default_model
from tests.fakes.connection import Received
from tests.fakes.script import Reply, answers
from tests.fakes.vllm import FakeVLLM
from tests.harness import free_port

Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.settings.environment", dict)
    monkeypatch.setattr(structlog, "configure", lambda **_: None)


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    folder = tmp_path / "tokenizer"
    folder.mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(default_model() / name, folder)
    return folder


def configured(tmp_path: Path, url: str, tokenizer: Path | None, served: str = "smollm2") -> str:
    entry = {
        "name": "smollm2",
        "engines": [{"url": url, "served_model": served}],
        "tokenizer": str(tokenizer) if tokenizer else None,
    }
    file = tmp_path / "sluice.yaml"
    file.write_text(yaml.safe_dump({"models": [entry]}))
    return str(file)


def test_files_that_cannot_be_used_are_a_fault_of_their_model(
    tmp_path: Path, tokenizer: Path, capsys: Captured
) -> None:
    (tokenizer / "tokenizer.json").write_text("{")
    assert main(["check", "-c", configured(tmp_path, "http://127.0.0.1:1", tokenizer)]) == WRONG
    (line,) = capsys.readouterr().err.splitlines()
    assert f"models[0].tokenizer: {tokenizer / 'tokenizer.json'} cannot be used: " in line


def test_suspicious_files_are_a_warning(tmp_path: Path, tokenizer: Path, capsys: Captured) -> None:
    template = tokenizer / "chat_template.jinja"
    template.write_text("{{ bos_token }}" + template.read_text())
    assert main(["check", "-c", configured(tmp_path, "http://127.0.0.1:1", tokenizer)]) == 0
    told = capsys.readouterr()
    assert "stray double BOS" in told.err
    assert ": fine: 1 model, " in told.out


def test_an_engine_that_makes_other_prompts_is_told_line_by_line(
    tmp_path: Path, tokenizer: Path, capsys: Captured
) -> None:
    with FakeVLLM() as fake:  # its tokens are characters
        assert main(["check", "--engine", "-c", configured(tmp_path, fake.url, tokenizer)]) == WRONG
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("smollm2-0: tokenizer: for a plain prompt the engine has 23 tokens, the files ")
    assert len(lines) == 5


def test_an_engine_that_makes_the_same_prompts_is_fine(tmp_path: Path, tokenizer: Path, capsys: Captured) -> None:
    own = Tokenizer(tokenizer)

    def tokens(received: Received) -> Reply:
        asked = {name: value for name, value in received.body.items() if name != "model"}
        return answers({"tokens": list(own.ids(asked))})(received)

    with FakeVLLM() as fake:
        fake.always(tokens, route="/tokenize")
        assert main(["check", "--engine", "-c", configured(tmp_path, fake.url, tokenizer)]) == 0
        assert {each.body["model"] for each in fake.requests("/tokenize")} == {"smollm2"}
    assert capsys.readouterr().err == ""


def test_an_engine_that_serves_another_model_is_told(tmp_path: Path, capsys: Captured) -> None:
    with FakeVLLM() as fake:
        assert main(["check", "--engine", "-c", configured(tmp_path, fake.url, None, "big")]) == WRONG
    assert capsys.readouterr().err == "smollm2-0: serves no model 'big', but smollm2\n"


def test_an_engine_without_tokens_is_told(tmp_path: Path, tokenizer: Path, capsys: Captured) -> None:
    with FakeVLLM() as fake:
        fake.always(answers({"detail": "Not Found"}, 404), route="/tokenize")
        assert main(["check", "--engine", "-c", configured(tmp_path, fake.url, tokenizer)]) == WRONG
    assert capsys.readouterr().err.startswith("smollm2-0: does not tell the tokens of a prompt: ")


def test_an_engine_that_is_away_is_told_and_is_no_fault_of_the_file(tmp_path: Path, capsys: Captured) -> None:
    away = f"http://127.0.0.1:{free_port()}"
    assert main(["check", "--engine", "-c", configured(tmp_path, away, None)]) == COULD_NOT_START
    assert capsys.readouterr().err == "smollm2-0: does not answer\n"
    assert main(["check", "-c", configured(tmp_path, away, None)]) == 0, "no socket, unless asked for"
