"""What a config.json says of a model's size, held against what its makers publish."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.engine.failure import CannotStart, Uncounted
from gateway.engine.quantised import Quantisation
from gateway.engine.shape import shape

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


GPT_OSS: dict[str, Any] = {
    "model_type": "gpt_oss",
    "hidden_size": 2880,
    "intermediate_size": 2880,
    "num_hidden_layers": 36,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "num_local_experts": 128,
    "sliding_window": 128,
    "vocab_size": 201088,
    "max_position_embeddings": 131072,
    "tie_word_embeddings": False,
    "quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn"]},
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


NVFP4 = Quantisation(method="modelopt", bits=4, group=16, scale=8)
TENSORS = {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16}


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ({"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16}, NVFP4),
        ({"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "nvfp4"}}, NVFP4),
        ({"quant_method": "modelopt_fp4"}, replace(NVFP4, method="modelopt_fp4")),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, Quantisation(method="modelopt", bits=8)),
        ({"quant_method": "mxfp8"}, Quantisation(method="mxfp8", bits=8, group=32, scale=8)),
        ({"quant_method": "mxfp4"}, Quantisation(method="mxfp4", bits=4, group=32, scale=8, experts=True)),
        (
            {"quant_method": "compressed_tensors", "config_groups": {"a": {"weights": TENSORS}}},
            replace(NVFP4, method="compressed-tensors"),
        ),
        ({"quant_method": "compressed-tensors", "config_groups": {}}, None),
        ({"quant_method": "fp8", "modules_to_not_convert": ["lm_head"]}, Quantisation(method="fp8", bits=8)),
        (
            {"quant_method": "fp8", "modules_to_not_convert": ["model.layers.0.mlp.gate_proj"]},
            Quantisation(method="fp8", bits=8, spares=True),
        ),
    ],
)
def test_small_floats_are_what_vllm_reads_them_as(said: dict[str, Any], found: Quantisation | None) -> None:
    """Bits and blocks of layers/quantization/modelopt.py, mxfp4.py and compressed_tensors of vLLM 0.32."""
    assert shape(LLAMA_8B | {"quantization_config": said}).quantisation == found


def test_of_gpt_oss_the_experts_alone_are_small_and_half_of_its_layers_keep_a_window() -> None:
    found = shape(GPT_OSS)
    assert (found.linear_weights() + found.other_weights()) / 1e9 == pytest.approx(116.8, rel=0.015)
    assert found.weight_bytes() / 1e9 == pytest.approx(65.2, rel=0.02)  # as large as its files
    assert Counter(found.windows) == {128: 18, None: 18}
    assert "pads" in found.notes[0]


@pytest.mark.parametrize(
    "said",
    [
        "awq",
        {"quant_method": "zorp"},
        {"bits": 4},
        {"quant_method": "awq"},
        {"quant_method": "gptq", "bits": "4"},
        {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"},
        {"quant_method": "quark", "bits": 4},
        {
            "quant_method": "compressed-tensors",
            "config_groups": {"a": {"weights": TENSORS}, "b": {"weights": TENSORS | {"num_bits": 8}}},
        },
    ],
)
def test_weights_whose_size_nobody_tells_are_no_number(said: Any) -> None:
    with pytest.raises(CannotStart, match="quant"):
        shape(LLAMA_8B | {"quantization_config": said})


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
        ({"sliding_window": 512, "sliding_window_pattern": "LLG"}, [512, 512, None, 512]),
        ({"sliding_window": 512, "model_type": "gemma3_text"}, [512] * 4),
        ({"attention_chunk_size": 512, "model_type": "llama4_text"}, [512, 512, 512, None]),
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


@pytest.mark.parametrize(
    "more",
    [
        {"layer_types": ["linear_attention"] * 24 + ["full_attention"] * 8},
        {"mamba_d_state": 16},
        {"linear_num_value_heads": 32},
        {"hybrid_override_pattern": "M-M*"},
        {"index_topk": 2048},
        {"num_kv_shared_layers": 15},
        {"is_encoder_decoder": True},
        {"num_key_value_heads": [4, 8, 8]},
    ],
)
def test_a_cache_of_another_kind_is_said_and_not_counted(more: dict[str, Any]) -> None:
    with pytest.raises(Uncounted, match="not counted here"):
        shape(LLAMA_8B | more)


def test_state_layers_are_told_by_the_layers_where_a_model_names_them() -> None:
    assert shape(LLAMA_8B | {"mamba_d_state": 16, "layer_types": ["attention"] * 32}).windows == (None,) * 32


@pytest.mark.parametrize(
    ("more", "context"),
    [
        ({}, 8192),
        ({"max_position_embeddings": None}, 2048),
        ({"seq_length": 1024}, 1024),
        ({"model_max_length": 16384}, 16384),
        ({"rope_scaling": {"type": "linear", "factor": 4.0}}, 32768),
        ({"rope_scaling": {"rope_type": "dynamic", "factor": 2}}, 16384),
        ({"rope_scaling": {"type": "yarn", "factor": 4.0}}, 8192),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, 8192),
        ({"rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 2.0}}}, 16384),
        ({"rope_scaling": {"type": "linear", "factor": 8.0}, "model_type": "gemma3_text"}, 8192),
    ],
)
def test_a_context_is_as_long_as_vllm_derives_it(more: dict[str, Any], context: int) -> None:
    """``_get_and_verify_max_len`` and ``derive_max_model_len_and_key`` of vLLM 0.32."""
    assert shape(LLAMA_8B | more).context == context


@pytest.mark.parametrize(
    ("more", "dense"),
    [
        ({"first_k_dense_replace": 3}, 3),
        ({"decoder_sparse_step": 2}, 16),
        ({"interleave_moe_layer_step": 1, "mlp_only_layers": [0, 5]}, 2),
        ({"moe_layer_freq": [0] + [1] * 31}, 1),
    ],
)
def test_layers_without_experts_are_counted_as_vllm_builds_them(more: dict[str, Any], dense: int) -> None:
    assert shape(MIXTRAL | more).dense_layers == dense


FIELDS = [*LLAMA_8B, "head_dim", "sliding_window", "layer_types", "text_config", "quantization_config", "rope_scaling"]
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(FIELDS) | st.text(), inner),
    max_leaves=4,
)


@given(st.dictionaries(st.sampled_from(FIELDS), ANYTHING))
def test_whatever_a_config_says_it_is_a_size_over_nothing_or_one_line(said: dict[str, Any]) -> None:
    try:
        found = shape(LLAMA_8B | said)
    except CannotStart as fault:
        told = str(fault)
    else:
        told = ""
        assert found.weight_bytes() > 0
        assert found.context > 0
    assert "\n" not in told


def test_a_dtype_that_is_none_is_named() -> None:
    with pytest.raises(CannotStart, match="torch_dtype 'int3'"):
        shape(LLAMA_8B | {"torch_dtype": "int3"})
