"""What we say of an engine is what the real vLLM says of itself: blocks of the KV cache, and why it does not start."""

from __future__ import annotations

import json
import os
import re
import subprocess
from typing import Any

import httpx
import pytest

from gateway.engine import kv
from gateway.engine.diagnosis import diagnose
from gateway.engine.kv import Cache
from gateway.engine.shape import shape
from tests.engine_fixture import ENGINE_PYTHON, RealEngine, default_model
from tests.harness import ROOT

MIB = 2**20
GQA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "vocab_size": 512,
    "max_position_embeddings": 4096,
    "torch_dtype": "bfloat16",
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
    "bos_token_id": 1,
    "eos_token_id": 2,
}
MHA = GQA | {"num_key_value_heads": 8}
WINDOWS = GQA | {
    "architectures": ["Gemma3ForCausalLM"],
    "model_type": "gemma3_text",
    "head_dim": 32,
    "num_hidden_layers": 6,
    "sliding_window": 512,
    "layer_types": ["sliding_attention"] * 5 + ["full_attention"],
    "query_pre_attn_scalar": 32,
    "hidden_activation": "gelu_pytorch_tanh",
}
MLA = GQA | {
    "architectures": ["DeepseekV2ForCausalLM"],
    "model_type": "deepseek_v2",
    "num_hidden_layers": 3,
    "num_key_value_heads": 8,
    "kv_lora_rank": 512,
    "q_lora_rank": None,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128,
    "v_head_dim": 128,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_shared_experts": 1,
    "moe_intermediate_size": 64,
    "first_k_dense_replace": 3,
    "n_group": 1,
    "topk_group": 1,
    "topk_method": "greedy",
    "scoring_func": "softmax",
    "norm_topk_prob": False,
    "rope_theta": 10000,
}
AWQ = GQA | {"quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True}}
OWN_CODE = GQA | {"model_type": "xx", "architectures": ["XX"], "auto_map": {"AutoConfig": "configuration_xx.XX"}}
#: Name, config, tensor parallel, length, block of the engine.
CASES = [
    ("multi-head", MHA, 1, 4096, 128),
    ("sliding windows beside full attention", WINDOWS, 1, 4096, 128),
    ("latent attention", MLA, 1, 2048, 16),
    ("grouped heads split over two", GQA, 2, 2048, 128),
]


#: Each a config (None: no file), what the engine is given beside the usual, the cause, and parts of what is told.
FAILURES: list[tuple[str, dict[str, Any] | None, dict[str, Any], str, list[str]]] = [
    ("too little cache", GQA, {"kv_cache_memory_bytes": 2 * MIB}, "KV cache", ["2048 tokens", "--max-model-len 1920"]),
    ("no share left", GQA, {"gpu_memory_utilization": 0.001}, "weights", ["--gpu-memory-utilization"]),
    (
        "memory held by others",
        GQA,
        {"gpu_memory_utilization": 1.0},
        "other processes",
        ["sluice doctor", "--gpu-memory-utilization 0."],
    ),
    (
        "more cache than memory",
        GQA,
        {"kv_cache_memory_bytes": 2**40},
        "other processes",
        ["1024.0", "--kv-cache-memory"],
    ),
    ("too long a context", GQA, {"max_model_len": 100_000}, "context", ["100000", "4096", "max_position_embeddings"]),
    ("heads that do not divide", GQA, {"tensor_parallel_size": 3}, "split", ["8 attention heads", "1, 2, 4, 8"]),
    ("no weights", GQA, {"load_format": "auto"}, "missing files", ["no weights in"]),
    ("no config.json", None, {}, "missing files", ["sluice doctor"]),
    ("no such dtype", GQA, {"dtype": "int3"}, "dtype", ["--dtype auto, bfloat16"]),
    ("a dtype that AWQ has not", AWQ, {"dtype": "float32"}, "dtype", ["awq", "--dtype float16"]),
    ("an unknown model", GQA | {"model_type": "foo"}, {}, "architecture", ["foo"]),
    ("an unknown architecture", GQA | {"architectures": ["FooForCausalLM"]}, {}, "architecture", ["FooForCausalLM"]),
    ("code of its own", OWN_CODE, {}, "own code", ["--trust-remote-code"]),
    ("no tokenizer", GQA, {"skip_tokenizer_init": False}, "missing files", ["tokenizer"]),
]


@pytest.fixture(scope="module")
def truth(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What vLLM makes of every case: one process for all of them."""
    folder = tmp_path_factory.mktemp("truth")
    usual = {"kv_cache_memory_bytes": 64 * MIB, "max_model_len": 2048}
    cases: dict[str, dict[str, Any]] = {
        name: {"config": config, "arguments": usual | {"tensor_parallel_size": tp, "max_model_len": length}}
        for name, config, tp, length, _ in CASES
    }
    for name, config, arguments, _, _ in FAILURES:
        given = usual | arguments
        if "gpu_memory_utilization" in arguments:
            del given["kv_cache_memory_bytes"]
        cases[name] = {"config": config, "arguments": given}
    (folder / "cases.json").write_text(json.dumps([*cases.values()]))
    environ = os.environ | {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
        "TORCHDYNAMO_DISABLE": "1",
    }
    command = [ENGINE_PYTHON, ROOT / "tests/engine_truth.py", folder / "cases.json"]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=300, check=False)
    told = [json.loads(line[6:]) for line in done.stdout.splitlines() if line.startswith("TRUTH ")]
    assert len(told) == len(cases), done.stdout[-3000:] + done.stderr[-3000:]
    return dict(zip(cases, told, strict=True))


@pytest.mark.engine
@pytest.mark.parametrize(("name", "config", "tp", "length", "block"), CASES, ids=[name for name, *_ in CASES])
def test_the_planned_blocks_are_the_engines(
    truth: dict[str, dict[str, Any]], name: str, config: dict[str, Any], tp: int, length: int, block: int
) -> None:
    its = truth[name]
    assert "fault" not in its
    cache = Cache(tensor_parallel=tp, block=block, in_flight=its["in_flight"])
    planned = kv.capacity(shape(config), cache, 64 * MIB, length)
    assert its["block"] == block
    assert planned.blocks == its["blocks"]
    assert planned.concurrency == pytest.approx(its["concurrency"])
    assert planned.tokens == its["tokens"]


@pytest.mark.engine
@pytest.mark.parametrize(
    ("name", "cause", "parts"),
    [(name, cause, parts) for name, _, _, cause, parts in FAILURES],
    ids=[name for name, *_ in FAILURES],
)
def test_why_an_engine_does_not_start_is_named(
    truth: dict[str, dict[str, Any]], name: str, cause: str, parts: list[str]
) -> None:
    found = diagnose(truth[name]["fault"].splitlines())
    assert found is not None, truth[name]
    assert found.cause == cause
    assert [part for part in parts if part not in str(found)] == [], found


@pytest.mark.engine
def test_the_served_model_has_the_planned_blocks(real_engine: RealEngine) -> None:
    """Of the engine that all tests share, as its metrics tell it."""
    metrics = httpx.get(f"{real_engine.url}/metrics", timeout=20).text
    (line,) = re.findall(r"^vllm:cache_config_info\{(.*)\}", metrics, re.MULTILINE)
    told = dict(re.findall(r'(\w+)="([^"]*)"', line))
    made = shape(json.loads((default_model() / "config.json").read_text()))
    cache = Cache(block=int(told["block_size"]))
    planned = kv.capacity(made, cache, int(told["kv_cache_memory_bytes"]), 2048)
    assert planned.blocks == int(told["num_gpu_blocks"])
    assert planned.tokens == int(told["kv_cache_size_tokens"])
    assert kv.token_bytes(made, cache) == 23_040
