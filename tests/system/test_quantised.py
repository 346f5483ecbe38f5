"""Quantised models on the real CPU engine: W8A8 and W4A16, made here, answer as the full one, by our own comparison."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from gateway.cli import main
from gateway.engine.shape import shape
from gateway.engine.up import Wishes
from tests.engine_fixture import ENGINE_PYTHON, RealEngine, default_model, running_engine
from tests.harness import ROOT, free_port

Captured = pytest.CaptureFixture[str]
CASES = """
defaults: {max_tokens: 10}
cases:
  - {name: capital, user: "What is the capital of France?", checks: [{contains: Paris}]}
  - {name: japan, user: "What is the capital of Japan?", checks: [{contains: Tokyo}]}
  - {name: water, user: "What is the chemical formula of water?", checks: [{regex: 'H2O|hydrogen|H.O'}]}
"""


def quantised(folder: Path, scheme: str) -> Path:
    target = folder / scheme
    command = [ENGINE_PYTHON, ROOT / "tests" / "engine_quantised.py", default_model(), target, scheme]
    subprocess.run([str(word) for word in command], check=True, timeout=120)
    return target


@pytest.mark.engine
@pytest.mark.parametrize(("scheme", "bits"), [("w8a8", 8), ("w4a16", 4)])
def test_a_quantised_model_runs_and_is_compared_with_the_full_one(
    real_engine: RealEngine, tmp_path: Path, capsys: Captured, scheme: str, bits: int
) -> None:
    model = quantised(tmp_path, scheme)
    planned = shape(json.loads((model / "config.json").read_text()))
    assert planned.quantisation is not None
    assert planned.quantisation.bits == bits
    kept = (model / "model.safetensors").stat().st_size
    assert abs(planned.weight_bytes() - kept) < 0.02 * kept
    (tmp_path / "cases.yaml").write_text(CASES)
    wishes = Wishes(model=str(model), max_model_len=512, args=("--quantization", "compressed-tensors"))
    with running_engine(wishes) as engine:
        given = [
            real_engine.url,
            f"{engine.url}#{scheme}",
            "--cases",
            str(tmp_path / "cases.yaml"),
            "--concurrency",
            "1",
        ]
        code = main(["compare", *given, "--max-drop", "34%", "--same-prompts"])
        told = capsys.readouterr().out
        assert code == 0, told
        assert "prompts of other length 0 cases" in " ".join(told.split())


@pytest.mark.engine
def test_what_the_checkpoint_is_not_is_told_before_the_engine_starts(capsys: Captured) -> None:
    """In a second or two, where vLLM would take half a minute to a traceback."""
    words = ["up", "--model", str(default_model()), "--quantization", "awq", "--port", str(free_port())]
    assert main(words) == 3
    assert "sluice: --quantization awq: the checkpoint's weights are plain" in capsys.readouterr().err
