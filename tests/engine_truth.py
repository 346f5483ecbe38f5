"""Runs in the engine's environment: start vLLM on each case and print what came of it, a JSON line each.

A case has ``config`` (a config.json, or null; the weights are made up) and ``arguments`` for the engine.
"""

import json
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

from vllm import LLM  # type: ignore[import-not-found] # it is in the engine's environment only

USUAL = {"load_format": "dummy", "skip_tokenizer_init": True, "enforce_eager": True}


def main() -> None:
    """Read the cases from the file named."""
    for case in json.loads(Path(sys.argv[1]).read_text()):
        with tempfile.TemporaryDirectory() as folder:
            if case["config"] is not None:
                (Path(folder) / "config.json").write_text(json.dumps(case["config"]))
            print("TRUTH", json.dumps(start(folder, case["arguments"])), flush=True)


def start(folder: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Start an engine and return what its cache came to, or what it said instead."""
    try:
        engine = LLM(model=folder, **(USUAL | arguments))
    except BaseException as fault:  # noqa: BLE001 - whatever it is, it is told
        return {"fault": "".join(traceback.format_exception_only(fault))}
    its = engine.llm_engine.vllm_config  # the engine has to live while it is read
    return {
        "blocks": its.cache_config.num_gpu_blocks,
        "block": its.cache_config.block_size,
        "tokens": its.cache_config.kv_cache_size_tokens,
        "concurrency": its.cache_config.kv_cache_max_concurrency,
        "in_flight": its.max_in_flight_tokens,
    }


if __name__ == "__main__":  # its workers import this file anew
    main()
