"""Fetches a model from a hub into the hub's own cache, and prints the directory as its last line.

A script for the engine's interpreter (`python fetch_model.py NAME`), which has the hub's client. The client's own
variables hold: `HF_ENDPOINT` (a mirror), `HF_HUB_OFFLINE`, `HF_TOKEN`, `HF_HOME`; `VLLM_USE_MODELSCOPE=True` asks
ModelScope instead. Where the model has safetensors, pickles are not even downloaded.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

#: Formats that vLLM does not read from here; they may be many times the model.
OTHER = [
    "*.gguf",
    "*.onnx",
    "*.h5",
    "*.msgpack",
    "*.ot",
    "*.tflite",
    "*.mlmodel",
    "original/*",
    "coreml/*",
    "openvino/*",
]
PICKLES = ["*.bin", "*.pt", "*.pth", "*.ckpt"]


def fetch_huggingface(name: str) -> str:
    """Return the directory; without a network, the one fetched before."""
    hub: Any = importlib.import_module("huggingface_hub")
    errors: Any = importlib.import_module("huggingface_hub.errors")
    try:
        # The one call that says no at once where there is no network, instead of trying for half a minute.
        files = [entry.rfilename for entry in hub.HfApi().model_info(name, timeout=15).siblings]
    except errors.GatedRepoError:
        sys.exit(f"{name} asks for consent: accept its terms on the hub and set HF_TOKEN")
    except errors.RepositoryNotFoundError:
        sys.exit(f"the hub has no model {name}, or it is private (HF_TOKEN)")
    except Exception as failure:  # noqa: BLE001 -- offline mode and a missing network have many types, by version
        return fetched_before(hub, name, failure)
    pickles = PICKLES if any(file.endswith(".safetensors") for file in files) else []
    return str(hub.snapshot_download(name, ignore_patterns=OTHER + pickles))


def fetched_before(hub: Any, name: str, failure: Exception) -> str:
    """Return the directory of an earlier download, or end with why there is none."""
    try:
        return str(hub.snapshot_download(name, local_files_only=True, ignore_patterns=OTHER + PICKLES))
    except Exception:  # noqa: BLE001 -- whatever is wrong with the cache, the hub is what is missing
        sys.exit(
            f"cannot reach the hub for {name} and it was not fetched before ({type(failure).__name__}); "
            "HF_ENDPOINT names a mirror, --model takes a directory"
        )


def fetch_modelscope(name: str) -> str:
    """Return the directory, from ModelScope."""
    try:
        hub: Any = importlib.import_module("modelscope.hub.snapshot_download")
    except ImportError:
        sys.exit(f"VLLM_USE_MODELSCOPE is set: first run {sys.executable} -m pip install modelscope")
    return str(hub.snapshot_download(name, ignore_file_pattern=[r".*\.gguf$", r".*\.onnx$"]))


if __name__ == "__main__":
    # The engine's own flag, read as the engine reads it.
    modelscope = os.environ.get("VLLM_USE_MODELSCOPE", "").lower() in {"1", "true"}  # noqa: TID251 -- not our settings
    print((fetch_modelscope if modelscope else fetch_huggingface)(sys.argv[1]))
