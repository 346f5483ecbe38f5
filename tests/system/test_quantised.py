"""A quantised model on the real CPU engine: W4A16, made here, answers as the full one, by our own comparison."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gateway.cli import main
from gateway.engine.shape import shape
from tests.engine_fixture import RealEngine, default_model
from tests.harness import free_port

Captured = pytest.CaptureFixture[str]
CASES = """
defaults: {max_tokens: 10}
cases:
  - {name: capital, user: "What is the capital of France?", checks: [{contains: Paris}]}
  - {name: japan, user: "What is the capital of Japan?", checks: [{contains: Tokyo}]}
  - {name: water, user: "What is the chemical formula of water?", checks: [{regex: 'H2O|hydrogen|H.O'}]}
"""


@pytest.mark.engine
def test_a_model_in_four_bits_runs_as_planned_and_is_compared_with_the_full_one(
    real_engine: RealEngine, small_engine: RealEngine, tmp_path: Path, capsys: Captured
) -> None:
    model = small_engine.folder / "w4a16"
    planned = shape(json.loads((model / "config.json").read_text()))
    assert planned.quantisation is not None
    assert (planned.quantisation.bits, planned.quantisation.group) == (4, 32)
    kept = (model / "model.safetensors").stat().st_size
    assert abs(planned.weight_bytes() - kept) < 0.01 * kept
    (tmp_path / "cases.yaml").write_text(CASES)
    given = [f"{each.url}#{each.model}" for each in (real_engine, small_engine)]
    limits = ["--max-drop", "34%", "--same-prompts"]
    code = main(["compare", *given, "--cases", str(tmp_path / "cases.yaml"), "--concurrency", "1", *limits])
    told = capsys.readouterr().out
    assert code == 0, told
    assert "prompts of other length 0 cases" in " ".join(told.split())


@pytest.mark.engine
def test_what_the_checkpoint_is_not_is_told_before_the_engine_starts(capsys: Captured) -> None:
    """In a second or two, where vLLM would take half a minute to a traceback."""
    words = ["up", "--model", str(default_model()), "--quantization", "awq", "--port", str(free_port())]
    assert main(words) == 3
    assert "sluice: --quantization awq: the checkpoint's weights are plain" in capsys.readouterr().err
