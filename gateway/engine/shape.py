"""A model's shape, read from its config.json: layers, heads, experts, quantisation; what sizes follow from is here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from gateway.engine.failure import CannotStart

#: Bytes of one number of a dtype as config.json spells it.
BYTES: Mapping[str, int] = {"float32": 4, "float16": 2, "bfloat16": 2, "half": 2, "float": 4}
#: Architectures whose MLP is two matrices, up and down; all others have a gate as well.
PLAIN_MLP = frozenset({"gpt2", "opt", "gpt_neox", "gpt_bigcode", "bloom", "falcon", "phi", "mpt", "starcoder2"})
#: Architectures whose head is their embedding unless config.json says otherwise (transformers' own default is yes).
TIED = frozenset({"gpt2", "gemma", "gemma2", "gemma3_text", "opt", "falcon", "bloom"})
#: Layers of these kinds keep a window of the context; ``layer_types`` names them.
WINDOWED = frozenset({"sliding_attention", "chunked_attention"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Latent:
    """Multi-head latent attention (DeepSeek): what is cached is one vector of ``rank`` + ``rope`` numbers a token."""

    rank: int
    rope: int
    nope: int
    value: int
    query_rank: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantisation:
    """How the linear layers' weights are kept: ``method`` as vLLM names it, ``bits`` a weight, ``group`` (0: none)."""

    method: str
    bits: int
    group: int = 0
    zero_points: bool = False

    def bytes_of(self, weights: int) -> int:
        """Return the bytes of so many weights: packed, plus for each group a 16-bit scale and a zero point.

        AWQ and GPTQ keep both for each group of input channels; 8-bit kinds one scale a row or a 128 x 128 block, which
        is less than a thousandth and not counted.
        """
        packed = weights * self.bits // 8
        if not self.group:
            return packed
        return packed + weights // self.group * (16 + (self.bits if self.zero_points else 0)) // 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """All that sizes follow from. Counts are of the whole model; ``windows`` has each layer's window (None: full)."""

    kind: str
    windows: tuple[int | None, ...]
    hidden: int
    heads: int
    kv_heads: int
    head: int
    intermediate: int
    vocabulary: int
    context: int
    dtype: str
    tied: bool
    latent: Latent | None = None
    experts: int = 0
    expert_intermediate: int = 0
    shared_experts: int = 0
    dense_layers: int = 0  # of a mixture of experts, the first layers that are none
    quantisation: Quantisation | None = None

    @property
    def layers(self) -> int:
        """How many layers there are."""
        return len(self.windows)

    @property
    def attention(self) -> Literal["MHA", "GQA", "MQA", "MLA"]:
        """Name the kind of attention."""
        if self.latent:
            return "MLA"
        if self.kv_heads == self.heads:
            return "MHA"
        return "MQA" if self.kv_heads == 1 else "GQA"

    def linear_weights(self) -> int:
        """Count the weights of all linear layers but embedding and head: those that quantisation is about."""
        return sum(self._attention_weights() + self._mlp_weights(layer) for layer in range(self.layers))

    def other_weights(self) -> int:
        """Count embedding, head (unless it is the embedding) and norms."""
        matrices = 1 if self.tied else 2
        return self.vocabulary * self.hidden * matrices + (2 * self.layers + 1) * self.hidden

    def weight_bytes(self) -> int:
        """Return the bytes of all weights as they are kept; embedding, head and norms are never quantised."""
        plain = BYTES[self.dtype]
        linear = self.linear_weights()
        kept = self.quantisation.bytes_of(linear) if self.quantisation else linear * plain
        return kept + self.other_weights() * plain

    def _attention_weights(self) -> int:
        if self.latent is None:
            return self.hidden * self.head * (2 * self.heads + 2 * self.kv_heads)
        its = self.latent
        query = self.heads * (its.nope + its.rope)
        queries = self.hidden * query if not its.query_rank else (self.hidden + query) * its.query_rank
        values = self.hidden * (its.rank + its.rope) + its.rank * self.heads * (its.nope + its.value)
        return queries + values + self.heads * its.value * self.hidden

    def _mlp_weights(self, layer: int) -> int:
        matrices = 2 if self.kind in PLAIN_MLP else 3
        if not self.experts or layer < self.dense_layers:
            return matrices * self.hidden * self.intermediate
        experts = self.experts + self.shared_experts
        return matrices * self.hidden * self.expert_intermediate * experts + self.hidden * self.experts


def shape(config: Mapping[str, Any], *, weights_dtype: str | None = None) -> Shape:
    """Read a config.json; ``weights_dtype`` is for one that says none. Raises CannotStart naming the field."""
    text: Mapping[str, Any] = config.get("text_config") or config  # of a multimodal model, the language model's part
    heads = _number(text, "num_attention_heads", "n_head", "n_heads")
    hidden = _number(text, "hidden_size", "n_embd", "d_model")
    layers = _number(text, "num_hidden_layers", "n_layer", "n_layers")
    kind = str(text.get("model_type") or config.get("model_type") or "")
    kv_heads = _optional(text, "num_key_value_heads", "num_kv_heads") or (1 if text.get("multi_query") else heads)
    said = (text.get("dtype"), text.get("torch_dtype"), config.get("torch_dtype"), weights_dtype, "bfloat16")
    dtype = next(str(each) for each in said if each)
    if dtype not in BYTES:
        raise CannotStart(f"config.json: torch_dtype {dtype!r} is none of {', '.join(BYTES)}")
    experts = _optional(text, "num_local_experts", "num_experts", "n_routed_experts")
    return Shape(
        kind=kind,
        windows=tuple(_windows(text, layers)),
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head=_optional(text, "head_dim") or hidden // heads,
        intermediate=_optional(text, "intermediate_size", "n_inner", "ffn_dim") or 4 * hidden,
        vocabulary=_number(text, "vocab_size"),
        context=_number(text, "max_position_embeddings", "n_positions", "max_sequence_length", "seq_length"),
        dtype=dtype,
        tied=bool(text.get("tie_word_embeddings", config.get("tie_word_embeddings", kind in TIED))),
        latent=_latent(text),
        experts=experts,
        expert_intermediate=_optional(text, "moe_intermediate_size", "intermediate_size"),
        shared_experts=_optional(text, "n_shared_experts"),
        dense_layers=_optional(text, "first_k_dense_replace"),
        quantisation=_quantisation(config.get("quantization_config") or text.get("quantization_config")),
    )


def _windows(text: Mapping[str, Any], layers: int) -> Sequence[int | None]:
    """Return each layer's window, the ways models say it: by layer, by a pattern, from a layer on, or for all."""
    window = text.get("sliding_window") or text.get("attention_chunk_size")
    if not isinstance(window, int) or text.get("use_sliding_window") is False:
        return [None] * layers
    if isinstance(kinds := text.get("layer_types"), list) and len(kinds) == layers:
        return [window if kind in WINDOWED else None for kind in kinds]
    if pattern := _optional(text, "sliding_window_pattern"):
        return [None if (layer + 1) % pattern == 0 else window for layer in range(layers)]
    if text.get("model_type") == "gemma2":
        return [window if layer % 2 == 0 else None for layer in range(layers)]
    first = _optional(text, "max_window_layers") if text.get("use_sliding_window") else 0
    return [None if layer < first else window for layer in range(layers)]


def _latent(text: Mapping[str, Any]) -> Latent | None:
    if not (rank := _optional(text, "kv_lora_rank")):
        return None
    return Latent(
        rank=rank,
        rope=_number(text, "qk_rope_head_dim"),
        nope=_number(text, "qk_nope_head_dim"),
        value=_number(text, "v_head_dim"),
        query_rank=_optional(text, "q_lora_rank"),
    )


def _quantisation(said: Any) -> Quantisation | None:
    """Read ``quantization_config`` as checkpoints carry it. Raises CannotStart for what vLLM has no kernel for."""
    if not isinstance(said, Mapping):
        return None
    method = str(said.get("quant_method", "")).lower()
    if method in {"bitsandbytes", "gguf"}:
        raise CannotStart(
            f"config.json: quant_method {method!r} is in vLLM's core no more: it takes a plugin, or a checkpoint in "
            "AWQ, GPTQ, FP8 or compressed-tensors"
        )
    if method == "compressed-tensors":
        groups: Any = said.get("config_groups") or {}
        weights: Any = next((each.get("weights") or {} for each in groups.values()), {})
        return Quantisation(
            method=method,
            bits=_optional(weights, "num_bits") or 8,
            group=_optional(weights, "group_size") if weights.get("strategy") == "group" else 0,
        )
    bits = _optional(said, "bits", "w_bit", "num_bits") or 8
    group = _optional(said, "group_size", "q_group_size") if bits < 8 else 0
    zeros = bool(said.get("zero_point")) or (method == "gptq" and not said.get("sym", True))
    return Quantisation(method=method or "unknown", bits=bits, group=max(0, group), zero_points=zeros)


def _optional(text: Mapping[str, Any], *names: str) -> int:
    found = (text.get(name) for name in names)
    return next((int(value) for value in found if isinstance(value, int | float) and not isinstance(value, bool)), 0)


def _number(text: Mapping[str, Any], *names: str) -> int:
    if not (value := _optional(text, *names)):
        raise CannotStart(f"config.json has no {names[0]}")
    return value
