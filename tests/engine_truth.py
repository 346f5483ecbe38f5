"""Runs in the engine's environment: start vLLM on each case and print what its cache came to, a JSON line each.

A case has ``config`` (a config.json; the weights are made up), ``memory`` (bytes of cache), ``tp`` and ``length``.
"""

import json
import sys
import tempfile
from pathlib import Path

from vllm import LLM  # type: ignore[import-not-found] # it is in the engine's environment only


def main() -> None:
    """Read the cases from the file named."""
    for case in json.loads(Path(sys.argv[1]).read_text()):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "config.json").write_text(json.dumps(case["config"]))
            engine = LLM(
                model=folder,
                load_format="dummy",
                skip_tokenizer_init=True,
                enforce_eager=True,
                kv_cache_memory_bytes=case["memory"],
                tensor_parallel_size=case["tp"],
                max_model_len=case["length"],
            )
            its = engine.llm_engine.vllm_config
            told = {
                "blocks": its.cache_config.num_gpu_blocks,
                "block": its.cache_config.block_size,
                "tokens": its.cache_config.kv_cache_size_tokens,
                "concurrency": its.cache_config.kv_cache_max_concurrency,
                "in_flight": its.max_in_flight_tokens,
            }
            print("TRUTH", json.dumps(told), flush=True)
            del engine


if __name__ == "__main__":  # its workers import this file anew
    main()
