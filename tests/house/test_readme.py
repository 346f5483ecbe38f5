"""The README's commands, configuration and requests do what they say; the Chinese one has the same (test_docs)."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.vllm import FakeVLLM
from tests.harness import SLUICE, Gateway, configuration, model, running_gateway
from tests.house.test_docs import READMES, blocks, commands
from tests.house.test_layout import ROOT
from tests.tools import needs

README = READMES[0]
SHIPPED = "http://localhost:8080"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with FakeVLLM() as engine:
        config = configuration([model("smollm2", engine.url)], keys=[], chain=[])
        with running_gateway(config, tmp_path_factory.mktemp("readme")) as started:
            yield started


def test_the_python_example_prints_an_answer(gateway: Gateway, capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = (block.text for block in blocks(README) if block.language == "python")
    assert SHIPPED in example
    space: dict[str, object] = {}
    exec(compile(example.replace(SHIPPED, gateway.url) + "\nclient.close()\n", str(README), "exec"), space)
    assert capsys.readouterr().out.strip()


@needs("curl")
def test_the_curl_example_streams_an_answer(gateway: Gateway) -> None:
    (example,) = (words for words in commands(README) if words[0] == "curl")
    words = [word.replace(SHIPPED, gateway.url) for word in example]
    answer = subprocess.run([*words, "-sN"], capture_output=True, text=True, check=True, timeout=30).stdout
    events = [line.removeprefix("data: ") for line in answer.splitlines() if line.startswith("data: ")]
    assert events[-1] == "[DONE]"
    assert any(json.loads(event)["choices"][0]["delta"].get("content") for event in events[:-1])


def test_the_configuration_example_passes_the_check(tmp_path: Path) -> None:
    (example,) = (block.text for block in blocks(README) if block.language == "yaml")
    (tmp_path / "sluice.yaml").write_text(example, encoding="utf-8")
    (tmp_path / "words").symlink_to(ROOT / "words")
    done = subprocess.run(
        [SLUICE, "check", "-c", "sluice.yaml"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("words", [words for words in commands(README) if words[0] == ".venv/bin/sluice"], ids=" ".join)
def test_every_sluice_command_is_understood(words: list[str], tmp_path: Path) -> None:
    """Those that end by themselves are run; of those that serve, the words are known."""
    if words[1] in {"up", "serve"}:
        known = subprocess.run([SLUICE, words[1], "--help"], capture_output=True, text=True, check=True).stdout
        ours = words[2 : words.index("--")] if "--" in words else words[2:]
        assert [word for word in ours if word.startswith("-") and word not in known] == []
    else:
        done = subprocess.run([SLUICE, *words[1:]], cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
