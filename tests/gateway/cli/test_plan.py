"""sluice plan: what it prints, and its exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from gateway.cli import main
from tests.gateway.engine.test_shape import LLAMA_8B

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def model(tmp_path: Path) -> str:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_8B))
    return str(tmp_path)


def test_a_model_that_fits_comes_with_its_flags_and_values(model: str, capsys: Captured) -> None:
    assert main(["plan", model, "--gpu", "H100"]) == 0
    told = capsys.readouterr().out
    assert "32 layers, GQA, context 8192" in told
    assert f"sluice up --model {model} -- --max-model-len 8192" in told
    helm = yaml.safe_load(told.partition("Helm values:\n")[2])
    assert helm["models"][0]["engines"][0]["tensorParallelSize"] == 1


def test_one_that_does_not_fit_comes_with_what_would_help(model: str, capsys: Captured) -> None:
    assert main(["plan", model, "--gpu", "T4"]) == 2
    told = capsys.readouterr().out
    assert "it does not fit" in told
    assert "it fits with a checkpoint with 4-bit weights (AWQ)" in told
    assert "awq" not in told  # no flag makes one


def test_the_same_for_machines(model: str, capsys: Captured) -> None:
    assert main(["plan", model, "--gpu", "H100", "-tp", "2", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["fits"] is True
    assert told["token_bytes"] == 65536
    assert told["flags"] == ["--max-model-len", "8192", "--tensor-parallel-size", "2"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--gpu", "H1000"], "no card 'H1000'"),
        (["--gpu", ""], "no card ''"),
        (["--gpu", "H100", "-tp", "3"], "tensor parallel 3: 32 attention heads cannot be split over 3"),
        (["--gpu", "H100", "--kv-cache-dtype", "int3"], "--kv-cache-dtype 'int3' is none of auto, fp8"),
        (["--gpu", "H100", "--gpu-memory-utilization", "90"], "over 0, at most 1"),
        (["--gpu", "H100", "--max-model-len", "0"], "--max-model-len has to be more than 0"),
        (["--cpu", "-4"], "--cpu has to be more than 0"),
        (["--cpu", "inf"], "--cpu has to be more than 0, and a number"),
        (["--cpu", "1e300"], "--cpu has to be more than 0, and a number"),
        (["--cpu", "nan"], "--cpu has to be more than 0"),
        (["--gpu", "H100", "--gpus", "2", "-tp", "8"], "that takes 8 cards, there are 2"),
        (["--gpu", "H100", "--max-model-len", "999999"], "the model's context is 8192"),
    ],
)
def test_wrong_wishes_are_one_line(model: str, capsys: Captured, words: list[str], told: str) -> None:
    assert main(["plan", model, *words]) == 2
    err = capsys.readouterr().err
    assert err.startswith("sluice plan: ")
    assert told in err
    assert err.count("\n") == 1


def test_cards_are_as_many_as_the_split_takes_where_nobody_says(model: str, capsys: Captured) -> None:
    assert main(["plan", model, "--gpu", "H100", "-tp", "2", "-pp", "2"]) == 0
    assert "on 4 x H100" in capsys.readouterr().out


def test_a_bare_config_is_no_model_that_an_engine_could_load(model: str, capsys: Captured) -> None:
    assert main(["plan", f"{model}/config.json", "--gpu", "H100"]) == 0
    told = capsys.readouterr().out
    assert "sluice up --model MODEL -- " in told
    assert "model: MODEL" in told
    assert "note: MODEL stands for the folder or the hub's name" in told


def test_what_vllm_loads_otherwise_than_the_checkpoint_says_is_told(tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_8B | {"torch_dtype": "float32", "vision_config": {"a": 1}}))
    assert main(["plan", str(tmp_path), "--gpu", "H100", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["token_bytes"] == 131072
    assert told["notes"] == [
        "weights beside the language model's are not counted (vision_config)",
        "the checkpoint is in float32; vLLM loads it in bfloat16",
    ]


@pytest.mark.parametrize("name", ["x" * 5000, "a/" * 300, "", " "])
def test_a_name_that_no_model_has_is_one_line(name: str, capsys: Captured) -> None:
    assert main(["plan", name, "--cpu", "8"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[1]", "not a JSON object"),
        ("{}", "config.json has no num_attention_heads"),
        ('{"text_config": [1]}', "text_config is no object"),
        ('{"num_attention_heads": 8, "hidden_size": -4096}', "hidden_size -4096 is no number of a model"),
    ],
)
def test_a_config_that_is_none_is_one_line(tmp_path: Path, capsys: Captured, text: str, told: str) -> None:
    file = tmp_path / "config.json"
    file.write_text(text)
    assert main(["plan", str(file), "--cpu", "8"]) == 2
    assert told in capsys.readouterr().err


def test_a_hubs_name_is_looked_for_in_its_cache(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    assert main(["plan", "org/model", "--cpu", "64"]) == 2
    assert "not in the hub's cache" in capsys.readouterr().err
    folder = tmp_path / "models--org--model" / "snapshots" / "abc"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(LLAMA_8B))
    assert main(["plan", "org/model", "--cpu", "64"]) == 0
