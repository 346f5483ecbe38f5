from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from gateway.engine.failure import CannotStart
from gateway.engine.model import faults, read, weight_files

CONFIG = {
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "hidden_size": 128,
    "num_hidden_layers": 3,
    "max_position_embeddings": 512,
}


def safetensors(size: int = 64, **_: Any) -> bytes:
    header = json.dumps(
        {"__metadata__": {"format": "pt"}, "w": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}
    )
    return struct.pack("<Q", len(header)) + header.encode() + bytes(size)


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    (tmp_path / "tokenizer.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(safetensors())
    return tmp_path


def test_a_whole_model_is_read(whole: Path) -> None:
    model = read(whole, "m")
    assert (model.source, model.name) == (str(whole), "m")
    assert (model.heads, model.kv_heads, model.context) == (4, 2, 512)
    assert model.kv_per_token == 3 * 2 * 32 * 2 * 2
    assert model.weights == len(safetensors())


def test_a_multimodal_models_language_part_counts(whole: Path) -> None:
    (whole / "config.json").write_text(
        json.dumps({"num_attention_heads": 99, "text_config": CONFIG | {"head_dim": 64}})
    )
    model = read(whole, "m")
    assert (model.heads, model.kv_per_token) == (4, 3 * 2 * 64 * 2 * 2)


def test_an_unknown_architecture_is_no_fault(whole: Path) -> None:
    (whole / "config.json").write_text('{"architectures": ["Mamba2ForCausalLM"]}')
    assert (read(whole, "m").heads, read(whole, "m").kv_per_token) == (0, 0)


def test_every_fault_is_named_file_by_file(whole: Path) -> None:
    (whole / "config.json").unlink()
    (whole / "tokenizer.json").unlink()
    (whole / "model.safetensors").write_bytes(b"")
    with pytest.raises(CannotStart) as failure:
        read(whole, "m")
    said = str(failure.value)
    assert "\n" not in said
    for part in ("config.json is missing", "no tokenizer (one of tokenizer.json", "model.safetensors is empty"):
        assert part in said


LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:aa\nsize 269060552\n"


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("config.json", b"", "config.json is empty"),
        ("config.json", b"[1]", "config.json is no JSON object"),
        ("config.json", b'{"a": ', "config.json is no JSON object"),
        ("tokenizer.json", LFS, "tokenizer.json is a Git LFS pointer (git lfs pull fetches the file)"),
        (
            "model.safetensors",
            LFS,
            "model.safetensors is a Git LFS pointer, not the weights (git lfs pull fetches them)",
        ),
        ("model.safetensors", b"abc", "model.safetensors is cut off or no safetensors file"),
        ("model.safetensors", b"<!doctype html><p>not found", "model.safetensors is cut off or no safetensors file"),
        ("model.safetensors", safetensors()[:40], "model.safetensors is cut off or no safetensors file"),
        (
            "model.safetensors",
            safetensors()[:-1],
            f"model.safetensors has {len(safetensors()) - 1} of {len(safetensors())} bytes",
        ),
        ("model.safetensors", struct.pack("<Q", 2) + b"[]", "model.safetensors is cut off or no safetensors file"),
        (
            "model.safetensors",
            struct.pack("<Q", 11) + b'{"w": {}}  ',
            "model.safetensors is cut off or no safetensors file",
        ),
    ],
)
def test_a_broken_file_is_named_with_what_is_wrong(whole: Path, file: str, content: bytes, said: str) -> None:
    (whole / file).write_bytes(content)
    assert faults(whole) == [said]


def test_missing_shards_are_named_by_the_index(whole: Path) -> None:
    (whole / "model.safetensors").rename(whole / "model-00001-of-00003.safetensors")
    shards = [f"model-0000{number}-of-00003.safetensors" for number in (1, 2, 3)]
    index = {"weight_map": {f"layer.{number}": shard for number, shard in enumerate(shards)}}
    (whole / "model.safetensors.index.json").write_text(json.dumps(index))
    assert faults(whole) == [f"{shard} is missing (named in model.safetensors.index.json)" for shard in shards[1:]]
    for shard in shards[1:]:
        (whole / shard).write_bytes(safetensors())
    assert faults(whole) == []


def test_no_weights_and_no_directory_are_said(whole: Path) -> None:
    (whole / "model.safetensors").unlink()
    assert faults(whole) == ["no weights (*.safetensors)"]
    assert faults(whole / "nowhere") == ["no such directory"]


def test_pickles_count_only_where_there_are_no_safetensors(whole: Path) -> None:
    (whole / "pytorch_model.bin").write_bytes(b"pickle")
    (whole / "consolidated.safetensors").write_bytes(safetensors())
    assert [path.name for path in weight_files(whole)] == ["model.safetensors"]
    (whole / "model.safetensors").unlink()
    assert [path.name for path in weight_files(whole)] == ["pytorch_model.bin"]
    (whole / "pytorch_model.bin").unlink()
    assert [path.name for path in weight_files(whole)] == ["consolidated.safetensors"]
