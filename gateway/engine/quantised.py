"""How weights are quantised: what a checkpoint says of itself, and whether what was asked for goes with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.engine.failure import CannotStart

#: vLLM's names for kernels of the same weights (layers/quantization/__init__.py, 0.32).
FAMILIES: Mapping[str, str] = {
    "auto_awq": "awq",
    "awq_marlin": "awq",
    "auto_gptq": "gptq",
    "gptq_marlin": "gptq",
}
#: Kernels that take several families' weights.
ANY_OF: Mapping[str, frozenset[str]] = {
    "moe_wna16": frozenset({"awq", "gptq"}),
    "humming": frozenset({"awq", "gptq", "compressed-tensors"}),
}
#: The checkpoint has to be quantised so beforehand, and then says so itself.
BEFOREHAND = frozenset({"awq", "gptq", "compressed-tensors", "modelopt", "quark", "mxfp4", "gpt_oss_mxfp4"})
#: In vLLM's core no more: each takes a plugin of its own.
GONE: Mapping[str, str] = {"gguf": "vllm-gguf-plugin", "bitsandbytes": "vllm-bnb-plugin"}


def quantisation_of(config: Mapping[str, Any]) -> str:
    """Return the method that a config.json names; empty for plain weights."""
    text = config.get("text_config")
    said = config.get("quantization_config") or (text.get("quantization_config") if isinstance(text, Mapping) else None)
    return str(said.get("quant_method", "")).lower() if isinstance(said, Mapping) else ""


def check(asked: str, checkpoint: str) -> None:
    """Hold ``--quantization`` (empty: not given) against the checkpoint's own. Raises CannotStart.

    vLLM would say so too, half a minute later and in a traceback. Names that we do not know are vLLM's to judge.
    """
    family = FAMILIES.get(asked, asked)
    own = FAMILIES.get(checkpoint, checkpoint)
    if plugin := GONE.get(family) or (not asked and GONE.get(own)):
        raise CannotStart(
            f"{family or own}: vLLM has it in a plugin only ({plugin}); take a checkpoint in AWQ, GPTQ, FP8 or "
            "compressed-tensors"
        )
    if not asked or family == own or own in ANY_OF.get(family, ()):
        return
    if own:
        raise CannotStart(f"the checkpoint is quantised as {checkpoint}: leave --quantization {asked} out")
    if family in BEFOREHAND or family in ANY_OF:
        raise CannotStart(
            f"--quantization {asked}: the checkpoint's weights are plain; take one that was quantised so, or fp8, "
            "which vLLM does while loading"
        )
