"""A model's folder, with each thing that can be wrong with one planted."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from gateway.engine.doctor import look_at_model
from gateway.engine.shape import shape

CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 100,
    "max_position_embeddings": 256,
    "torch_dtype": "bfloat16",
    "tie_word_embeddings": True,
}


def safetensors(size: int) -> bytes:
    header = json.dumps({"w": {"dtype": "BF16", "shape": [size // 2], "data_offsets": [0, size]}}).encode()
    return struct.pack("<Q", len(header)) + header + bytes(size)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    (tmp_path / "model.safetensors").write_bytes(safetensors(shape(CONFIG).weight_bytes()))
    (tmp_path / "tokenizer.json").write_text("{}")
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({"eos_token": "</s>", "chat_template": "{{ messages }}"})
    )
    return tmp_path


def levels(folder: Path) -> dict[str, tuple[str, str]]:
    return {each.check: (each.level, each.told) for each in look_at_model(folder)}


def change(file: Path, **fields: Any) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | fields))


def test_a_whole_model_is_fine(folder: Path) -> None:
    assert {level for level, _ in levels(folder).values()} == {"fine"}


def test_a_missing_shard_is_wrong(folder: Path) -> None:
    index = {"weight_map": {"a": "model.safetensors", "b": "model-2.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert levels(folder)["model"] == (
        "wrong",
        f"{folder}: model-2.safetensors is missing (named in {'model.safetensors.index.json'})",
    )


def test_weights_that_do_not_belong_to_the_config_are_odd(folder: Path) -> None:
    change(folder / "config.json", num_hidden_layers=8)
    level, told = levels(folder)["weights"]
    assert (level, "it should be" in told) == ("odd", True)


@pytest.mark.parametrize("more", [{"mamba_d_state": 16}, {"quantization_config": {"quant_method": "quark"}}])
def test_a_model_whose_size_nobody_counts_is_odd_and_the_rest_is_told(folder: Path, more: dict[str, Any]) -> None:
    change(folder / "config.json", **more)
    found = levels(folder)
    assert found.pop("weights")[0] == "odd"
    assert {level for level, _ in found.values()} == {"fine"}


def test_pickles_are_odd(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    assert levels(folder)["weights"][0] == "odd"


@pytest.mark.parametrize(
    ("file", "fields", "check", "told"),
    [
        ("config.json", {"torch_dtype": "float32"}, "dtype", "float32"),
        ("config.json", {"auto_map": {"AutoModel": "modeling.X"}}, "remote code", "AutoModel"),
        ("tokenizer_config.json", {"chat_template": None}, "chat template", "none"),
        ("tokenizer_config.json", {"eos_token": None}, "tokenizer", "no eos_token"),
        ("generation_config.json", {"repetition_penalty": 1.5}, "generation defaults", "repetition_penalty 1.5"),
    ],
)
def test_what_works_but_makes_people_wonder_is_odd(
    folder: Path, file: str, fields: dict[str, Any], check: str, told: str
) -> None:
    path = folder / file
    if not path.exists():
        path.write_text("{}")
    change(path, **fields)
    if "torch_dtype" in fields:
        (folder / "model.safetensors").write_bytes(safetensors(shape(CONFIG | fields).weight_bytes()))
    level, said = levels(folder)[check]
    assert (level, told in said) == ("odd", True), said


def test_without_a_fast_tokenizer_the_gateway_cannot_count(folder: Path) -> None:
    (folder / "tokenizer.json").rename(folder / "tokenizer.model")
    assert levels(folder)["tokenizer"] == ("odd", "only tokenizer.model, no tokenizer.json")


def test_a_quantisation_that_vllm_has_not_is_wrong(folder: Path) -> None:
    change(folder / "config.json", quantization_config={"quant_method": "bitsandbytes"})
    level, told = levels(folder)["model"]
    assert (level, "bitsandbytes" in told) == ("wrong", True)


def test_defaults_that_the_engine_will_sample_with_are_told(folder: Path) -> None:
    (folder / "generation_config.json").write_text(json.dumps({"temperature": 0.6, "do_sample": True}))
    assert "temperature 0.6" in levels(folder)["generation defaults"][1]
