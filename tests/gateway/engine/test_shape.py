"""What a config.json says of a model's size, held against what its makers publish."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.engine.failure import CannotStart
from gateway.engine.shape import Quantisation, shape

LLAMA_8B: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 8192,
    "torch_dtype": "bfloat16",
    "tie_word_embeddings": False,
}
MIXTRAL: dict[str, Any] = LLAMA_8B | {
    "model_type": "mixtral",
    "vocab_size": 32000,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
}
DEEPSEEK_V3: dict[str, Any] = {
    "model_type": "deepseek_v3",
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "num_hidden_layers": 61,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "vocab_size": 129280,
    "max_position_embeddings": 163840,
    "torch_dtype": "bfloat16",
    "kv_lora_rank": 512,
    "q_lora_rank": 1536,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128,
    "v_head_dim": 128,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "first_k_dense_replace": 3,
    "tie_word_embeddings": False,
    "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
}
GPT2: dict[str, Any] = {
    "model_type": "gpt2",
    "n_embd": 768,
    "n_layer": 12,
    "n_head": 12,
    "vocab_size": 50257,
    "n_positions": 1024,
    "torch_dtype": "float32",
}


@pytest.mark.parametrize(
    ("config", "billions", "attention"),
    [(LLAMA_8B, 8.03, "GQA"), (MIXTRAL, 46.7, "GQA"), (DEEPSEEK_V3, 671, "MLA"), (GPT2, 0.124, "MHA")],
    ids=["llama-3-8b", "mixtral-8x7b", "deepseek-v3", "gpt2"],
)
def test_the_weights_counted_are_those_published(config: dict[str, Any], billions: float, attention: str) -> None:
    found = shape(config)
    assert (found.linear_weights() + found.other_weights()) / 1e9 == pytest.approx(billions, rel=0.015)
    assert found.attention == attention


def test_weights_take_what_their_kind_takes() -> None:
    plain = shape(LLAMA_8B)
    assert plain.weight_bytes() == (plain.linear_weights() + plain.other_weights()) * 2
    fp8 = shape(DEEPSEEK_V3)
    assert fp8.weight_bytes() == fp8.linear_weights() + fp8.other_weights() * 2
    awq = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}
    four = shape(LLAMA_8B | {"quantization_config": awq})
    assert four.weight_bytes() / 2**30 == pytest.approx(5.33, rel=0.03)  # the 8B checkpoint in AWQ has 5.7 GB


@pytest.mark.parametrize(
    ("said", "found"),
    [
        (
            {"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True},
            Quantisation(method="gptq", bits=4, group=128),
        ),
        ({"quant_method": "awq", "w_bit": 4, "q_group_size": 64}, Quantisation(method="awq", bits=4, group=64)),
        ({"quant_method": "gptq", "bits": 4, "group_size": -1}, Quantisation(method="gptq", bits=4)),
        ({"quant_method": "fp8"}, Quantisation(method="fp8", bits=8)),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"group_0": {"weights": {"num_bits": 4, "strategy": "group", "group_size": 128}}},
            },
            Quantisation(method="compressed-tensors", bits=4, group=128),
        ),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"group_0": {"weights": {"num_bits": 8, "strategy": "channel"}}},
            },
            Quantisation(method="compressed-tensors", bits=8),
        ),
    ],
)
def test_quantisation_is_read_as_checkpoints_carry_it(said: dict[str, Any], found: Quantisation) -> None:
    assert shape(LLAMA_8B | {"quantization_config": said}).quantisation == found


@pytest.mark.parametrize("method", ["bitsandbytes", "gguf"])
def test_what_vllm_has_no_more_is_said(method: str) -> None:
    with pytest.raises(CannotStart, match="takes a plugin"):
        shape(LLAMA_8B | {"quantization_config": {"quant_method": method}})


@pytest.mark.parametrize(
    ("more", "windows"),
    [
        ({}, [None] * 4),
        ({"sliding_window": None}, [None] * 4),
        ({"sliding_window": 512}, [512] * 4),
        ({"sliding_window": 512, "use_sliding_window": False}, [None] * 4),
        ({"sliding_window": 512, "use_sliding_window": True, "max_window_layers": 3}, [None, None, None, 512]),
        ({"sliding_window": 512, "sliding_window_pattern": 2}, [512, None, 512, None]),
        ({"sliding_window": 512, "layer_types": ["full_attention"] + ["sliding_attention"] * 3}, [None, 512, 512, 512]),
        ({"sliding_window": 512, "model_type": "gemma2"}, [512, None, 512, None]),
    ],
)
def test_each_layer_has_its_window(more: dict[str, Any], windows: list[int | None]) -> None:
    assert list(shape(LLAMA_8B | {"num_hidden_layers": 4} | more).windows) == windows


def test_of_a_multimodal_model_the_language_models_part_counts() -> None:
    assert shape({"model_type": "llava", "text_config": LLAMA_8B}) == shape(LLAMA_8B)


@pytest.mark.parametrize("name", ["hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size"])
def test_a_field_that_is_missing_is_named(name: str) -> None:
    with pytest.raises(CannotStart, match=name):
        shape({key: value for key, value in LLAMA_8B.items() if key != name})


def test_a_dtype_that_is_none_is_named() -> None:
    with pytest.raises(CannotStart, match="torch_dtype 'int3'"):
        shape(LLAMA_8B | {"torch_dtype": "int3"})
