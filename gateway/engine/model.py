"""A model's directory: is it whole, how large is it, and what of its shape matters to whoever starts it."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from gateway.engine.failure import CannotStart
from gateway.engine.quantised import quantisation_of

#: Any one of these is a tokenizer: the fast one, SentencePiece, BPE in two files, tiktoken, Mistral's.
TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "tiktoken.model", "qwen.tiktoken", "tekken.json")
INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
#: A Git LFS pointer is a small text file in the place of a large one.
LFS = b"version https://git-lfs"
#: No header of a safetensors file is longer; the format's own bound.
HEADER_BYTES = 100_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """What is to be served: vLLM's ``--model``, the name clients see, and what is known beforehand (else 0).

    ``weights`` and ``kv_per_token`` (of the whole model, in the cache's usual 2-byte type) are in bytes, ``context``
    in tokens; ``quantisation`` is the checkpoint's own (``awq``, ``compressed-tensors``), empty for plain weights.
    """

    source: str
    name: str
    weights: int = 0
    heads: int = 0
    kv_heads: int = 0
    kv_per_token: int = 0
    context: int = 0
    quantisation: str = ""


def read(directory: Path, name: str) -> Model:
    """Describe the model in ``directory``. Raises ``CannotStart`` naming every file that is missing or broken."""
    if found := faults(directory):
        raise CannotStart(f"{directory} is not a whole model: {'; '.join(found)}")
    config = msgspec.json.decode((directory / "config.json").read_bytes())
    part = config.get("text_config")  # of a multimodal model, the language model's part
    text = part if isinstance(part, dict) and part else config
    heads = _number(text, "num_attention_heads", "n_head")
    kv_heads = _number(text, "num_key_value_heads") or heads
    head = _number(text, "head_dim") or (_number(text, "hidden_size", "n_embd") // heads if heads else 0)
    return Model(
        source=str(directory),
        name=name,
        weights=sum(path.stat().st_size for path in weight_files(directory)),
        heads=heads,
        kv_heads=kv_heads,
        kv_per_token=_number(text, "num_hidden_layers", "n_layer") * kv_heads * head * 2 * 2,
        context=_number(text, "max_position_embeddings", "n_positions"),
        quantisation=quantisation_of(config),
    )


def faults(directory: Path) -> list[str]:
    """Return one line for each file that is missing or broken; nothing for a whole model."""
    if not directory.is_dir():
        return ["no such directory"]
    found = [_json_fault(directory / "config.json")]
    if not any((directory / name).is_file() for name in TOKENIZERS):
        found.append(f"no tokenizer (one of {', '.join(TOKENIZERS)})")
    found += [_json_fault(directory / name) for name in ("tokenizer.json",) if (directory / name).is_file()]
    found += _weight_faults(directory)
    return [fault for fault in found if fault]


def weight_files(directory: Path) -> list[Path]:
    """Return the files that vLLM reads: safetensors, and pickles only where there are none."""
    for pattern in ("*.safetensors", "*.bin", "*.pt"):
        # A consolidated file is the same weights in the maker's own layout.
        files = [path for path in directory.glob(pattern) if not path.name.startswith("consolidated")]
        if files:
            return sorted(files)
    return sorted(directory.glob("consolidated*.safetensors"))


def _weight_faults(directory: Path) -> Iterable[str]:
    files = weight_files(directory)
    indexes = [directory / name for name in INDEXES if (directory / name).is_file()]
    if not files and not indexes:
        return ["no weights (*.safetensors)"]
    found = [_weight_fault(path) for path in files]
    for index in indexes[:1]:
        if fault := _json_fault(index):
            return [fault, *found]
        shards = set(msgspec.json.decode(index.read_bytes()).get("weight_map", {}).values())
        missing = sorted(name for name in shards if not (directory / str(name)).is_file())
        found += [f"{name} is missing (named in {index.name})" for name in missing]
    return found


def _weight_fault(path: Path) -> str:
    """Check the size, and of a safetensors file that its header's last offset is the file's end."""
    size = path.stat().st_size
    with path.open("rb") as file:
        start = file.read(64)
        if not start:
            return f"{path.name} is empty"
        if start.startswith(LFS):
            return f"{path.name} is a Git LFS pointer, not the weights (git lfs pull fetches them)"
        if path.suffix != ".safetensors":
            return ""
        length = struct.unpack("<Q", start[:8].ljust(8, b"\0"))[0]
        if length > min(HEADER_BYTES, size):
            return f"{path.name} is cut off or no safetensors file"
        file.seek(8)
        try:
            header = msgspec.json.decode(file.read(length), type=dict[str, dict[str, Any]])
            end = max((entry["data_offsets"][1] for key, entry in header.items() if key != "__metadata__"), default=0)
        except (msgspec.MsgspecError, LookupError, TypeError):
            return f"{path.name} is cut off or no safetensors file"
    expected = 8 + length + end
    return "" if size == expected else f"{path.name} has {size:,} of {expected:,} bytes"


def _json_fault(path: Path) -> str:
    try:
        raw = path.read_bytes()
        if raw.startswith(LFS):
            return f"{path.name} is a Git LFS pointer (git lfs pull fetches the file)"
        msgspec.json.decode(raw, type=dict[str, Any])
    except FileNotFoundError:
        return f"{path.name} is missing"
    except OSError as failure:
        return f"{path.name} cannot be read ({failure.strerror})"
    except msgspec.MsgspecError:
        return f"{path.name} is empty" if not raw else f"{path.name} is no JSON object"
    return ""


def _number(config: dict[str, Any], *names: str) -> int:
    values = (config.get(name) for name in names)
    return next((math.floor(value) for value in values if isinstance(value, int | float)), 0)
