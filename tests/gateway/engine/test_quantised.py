"""What a checkpoint says of itself, and whether --quantization goes with it."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.engine.failure import CannotStart
from gateway.engine.quantised import check, quantisation_of


@pytest.mark.parametrize(
    ("config", "method"),
    [
        ({}, ""),
        ({"quantization_config": {"quant_method": "AWQ"}}, "awq"),
        ({"text_config": {"quantization_config": {"quant_method": "gptq"}}}, "gptq"),
        ({"quantization_config": None, "text_config": 7}, ""),
    ],
)
def test_a_checkpoint_says_how_it_is_quantised(config: dict[str, Any], method: str) -> None:
    assert quantisation_of(config) == method


@pytest.mark.parametrize(
    ("asked", "checkpoint"),
    [
        *(("", ""), ("", "awq"), ("fp8", ""), ("awq", "awq"), ("awq_marlin", "awq"), ("gptq", "gptq_marlin")),
        *(("moe_wna16", "gptq"), ("int8_per_channel_weight_only", ""), ("something-new", "")),
    ],
)
def test_what_goes_together_is_let_through(asked: str, checkpoint: str) -> None:
    check(asked, checkpoint)


@pytest.mark.parametrize(
    ("asked", "checkpoint", "told"),
    [
        ("awq", "", "the checkpoint's weights are plain"),
        ("moe_wna16", "", "the checkpoint's weights are plain"),
        ("awq", "gptq", "the checkpoint is quantised as gptq"),
        ("fp8", "compressed-tensors", "leave --quantization fp8 out"),
        ("gguf", "", "vllm-gguf-plugin"),
        ("", "bitsandbytes", "vllm-bnb-plugin"),
    ],
)
def test_what_does_not_is_told_before_anything_starts(asked: str, checkpoint: str, told: str) -> None:
    with pytest.raises(CannotStart, match=told):
        check(asked, checkpoint)
