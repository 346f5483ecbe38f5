"""How weights are quantised: what a checkpoint says of itself, and whether what was asked for goes with it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from gateway.engine.failure import CannotStart, Uncounted

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
#: Bits of a weight, how many share a scale, and that scale's bits (layers/quantization/modelopt.py and mxfp4.py, 0.32).
FORMATS: Mapping[str, tuple[int, int, int]] = {
    **dict.fromkeys(("FP8", "FP8_PER_CHANNEL_PER_TOKEN", "FP8_PB_WO", "FP8_BLOCK_SCALES"), (8, 0, 16)),
    **dict.fromkeys(("NVFP4", "W4A16_NVFP4"), (4, 16, 8)),
    "MXFP8": (8, 32, 8),
    "MXFP4": (4, 32, 8),
}
#: Methods whose names say the format; ``modelopt`` says it in ``quant_algo``.
NAMED: Mapping[str, str] = {
    "fp8": "FP8",
    "fbgemm_fp8": "FP8",
    "modelopt_fp4": "NVFP4",
    "modelopt_mxfp8": "MXFP8",
    "mxfp8": "MXFP8",
    "mxfp4": "MXFP4",
    "gpt_oss_mxfp4": "MXFP4",
}
#: Methods that say their bits and group size.
BITS = frozenset({"awq", "gptq", "inc", "auto-round", "moe_wna16"})
#: Where checkpoints name what they leave plain, and what of it is counted as plain anyway, or not at all.
SPARED = ("modules_to_not_convert", "ignore", "exclude_modules", "ignored_layers")
PLAIN = re.compile(r"lm_head|embed|norm|visi|visual|audio|multi_modal|mtp|router|\bgate\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantisation:
    """How weights are kept: ``method`` as vLLM names it, ``bits`` a weight, ``group`` (0: none) that shares a scale."""

    method: str
    bits: int
    group: int = 0
    zero_points: bool = False
    scale: int = 16  # bits of a group's scale
    experts: bool = False  # of experts alone: all other layers are plain
    spares: bool = False  # some layers that are counted as quantised are left plain

    def bytes_of(self, weights: int) -> int:
        """Return the bytes of so many weights: packed, plus for each group a scale and a zero point.

        8-bit kinds have one scale a row or a 128 x 128 block, which is less than a thousandth and not counted.
        """
        packed = weights * self.bits // 8
        if not self.group:
            return packed
        return packed + weights // self.group * (self.scale + (self.bits if self.zero_points else 0)) // 8


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


def read(config: Mapping[str, Any], text: Mapping[str, Any]) -> Quantisation | None:
    """Read what a checkpoint says of its weights; None: plain. Raises CannotStart where their size cannot be known."""
    said = config.get("quantization_config") or text.get("quantization_config") or config.get("compression_config")
    if not said:
        return None
    if not isinstance(said, Mapping):
        raise CannotStart(f"config.json: quantization_config {said!r:.40} is no object")
    method = str(said.get("quant_method") or "").lower().replace("_tensors", "-tensors")
    if method in GONE:
        raise CannotStart(
            f"config.json: quant_method {method!r} is in vLLM's core no more: it takes a plugin, or a checkpoint in "
            "AWQ, GPTQ, FP8 or compressed-tensors"
        )
    if method == "compressed-tensors":
        found = _compressed(said)
    elif FAMILIES.get(method, method) in BITS:
        found = _packed(method, said)
    else:
        found = _format(method, said)
    lists = [said.get(name) for name in SPARED]
    spared = [str(name) for each in lists if isinstance(each, list) for name in each]
    spares = found is not None and not found.experts and not all(PLAIN.search(name) for name in spared)
    return replace(found, spares=True) if found and spares else found


def _packed(method: str, said: Mapping[str, Any]) -> Quantisation:
    bits = next((said[name] for name in ("bits", "w_bit", "num_bits") if isinstance(said.get(name), int)), 0)
    if not 1 < bits <= 8:
        raise _unknown(method, "it names no bits")
    group = next((said[name] for name in ("group_size", "q_group_size") if isinstance(said.get(name), int)), 0)
    zeros = bool(said.get("zero_point")) or (method == "gptq" and not said.get("sym", True))
    return Quantisation(method=method, bits=bits, group=max(0, group) if bits < 8 else 0, zero_points=zeros)


def _format(method: str, said: Mapping[str, Any]) -> Quantisation:
    inner = said.get("quantization")  # ModelOpt's older form
    told = (inner if isinstance(inner, Mapping) else said).get("quant_algo")
    name = str(told or "").upper() if method in {"", "modelopt"} else NAMED.get(method, "")
    if name not in FORMATS:
        raise _unknown(method or "none", f"quant_algo {name}" if name else "it is none of those counted here")
    bits, group, scale = FORMATS[name]
    experts = name == "MXFP4"  # vLLM leaves linear layers as they are
    return Quantisation(method=method or "modelopt", bits=bits, group=group, scale=scale, experts=experts)


def _compressed(said: Mapping[str, Any]) -> Quantisation | None:
    groups = said.get("config_groups")
    each = groups.values() if isinstance(groups, Mapping) else ()
    kinds = {_kind(group["weights"]) for group in each if isinstance(group, Mapping) and group.get("weights")}
    if not kinds:
        return None  # of the cache or of nothing, then
    if len(kinds) > 1 or None in kinds:
        raise _unknown("compressed-tensors", "its config_groups are of several kinds, or name no bits")
    bits, group, scale = kinds.pop() or (0, 0, 0)
    return Quantisation(method="compressed-tensors", bits=bits, group=group, scale=scale)


def _kind(weights: Any) -> tuple[int, int, int] | None:
    """Return bits, group and the bits of its scale: those of small floats (NVFP4, MXFP4, MXFP8) have 8."""
    bits = weights.get("num_bits") if isinstance(weights, Mapping) else None
    if not isinstance(bits, int) or not 1 < bits <= 16:
        return None
    group = weights.get("group_size") if weights.get("strategy") in {"group", "tensor_group"} else 0
    return bits, max(0, group) if isinstance(group, int) else 0, 8 if weights.get("type") == "float" else 16


def _unknown(method: str, why: str) -> Uncounted:
    return Uncounted(f"config.json: how large weights in quant_method {method!r} are cannot be told: {why}")
