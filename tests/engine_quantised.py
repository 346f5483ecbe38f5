"""Runs in the engine's environment: write a model's weights anew, quantised by rounding, in compressed-tensors' form.

``python engine_quantised.py SOURCE TARGET w8a8|w4a16``. Without calibration: what llm-compressor does better, this does
in a second, and the format is the same.
"""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import torch  # type: ignore[import-not-found] # it is in the engine's environment only
from compressed_tensors.compressors.pack_quantized.helpers import pack_to_int32  # type: ignore[import-not-found]
from safetensors.torch import load_file, save_file  # type: ignore[import-not-found]

GROUP = 32
WEIGHTS: dict[str, dict[str, Any]] = {
    "w8a8": {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel", "dynamic": False},
    "w4a16": {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": GROUP},
}
ACTIVATIONS = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "token", "dynamic": True}


def main() -> None:
    """Quantise every linear layer but the head."""
    source, target, scheme = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    target.mkdir(parents=True)
    for path in source.iterdir():
        if path.suffix != ".safetensors":
            shutil.copy(path, target)
    weights: dict[str, Any] = {}
    for path in source.glob("*.safetensors"):
        for name, tensor in load_file(path).items():
            weights |= quantised(name, tensor, scheme) if name.endswith("_proj.weight") else {name: tensor}
    save_file(weights, target / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((target / "config.json").read_text())
    group: dict[str, Any] = {"targets": ["Linear"], "weights": WEIGHTS[scheme]}
    if scheme == "w8a8":
        group["input_activations"] = ACTIVATIONS
    config["quantization_config"] = {
        "quant_method": "compressed-tensors",
        "format": "int-quantized" if scheme == "w8a8" else "pack-quantized",
        "quantization_status": "compressed",
        "config_groups": {"group_0": group},
        "ignore": ["lm_head"],
    }
    (target / "config.json").write_text(json.dumps(config))


def quantised(name: str, weight: Any, scheme: str) -> dict[str, Any]:
    """Round a matrix (out, in) to integers, with a scale for each row or for each group of a row."""
    most = 127 if scheme == "w8a8" else 7
    rows, columns = weight.shape
    groups = weight.float().reshape(rows, 1 if scheme == "w8a8" else columns // GROUP, -1)
    scale = (groups.abs().amax(dim=-1, keepdim=True) / most).clamp(min=1e-8)
    whole = (groups / scale).round().clamp(-most - 1, most).to(torch.int8).reshape(rows, columns)
    scale = scale.squeeze(-1).to(weight.dtype)
    if scheme == "w8a8":
        return {name: whole, f"{name}_scale": scale}
    return {
        f"{name}_packed": pack_to_int32(whole, 4),
        f"{name}_scale": scale,
        f"{name}_shape": torch.tensor([rows, columns]),
    }


if __name__ == "__main__":
    main()
