"""A model's shape, read from its config.json: layers, heads, experts, quantisation; what sizes follow from is here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from gateway.engine.failure import CannotStart, Uncounted
from gateway.engine.quantised import Quantisation
from gateway.engine.quantised import read as quantisation

#: Bytes of one number of a dtype as config.json spells it.
BYTES: Mapping[str, int] = {"float32": 4, "float16": 2, "bfloat16": 2, "half": 2, "float": 4}
#: Architectures whose MLP is two matrices, up and down; all others have a gate as well.
PLAIN_MLP = frozenset({"gpt2", "opt", "gpt_neox", "gpt_bigcode", "bloom", "falcon", "phi", "mpt", "starcoder2"})
#: Architectures whose head is their embedding unless config.json says otherwise (transformers' own default is yes).
TIED = frozenset({"gpt2", "gemma", "gemma2", "gemma3_text", "opt", "falcon", "bloom"})
#: Layers of these kinds keep a window of the context; ``layer_types`` names them.
WINDOWED = frozenset({"sliding_attention", "chunked_attention"})
FULL = frozenset({"full_attention", "attention"})
#: Every so manieth layer is full attention where config.json does not say (transformers' own defaults).
PATTERNS: Mapping[str, int] = {
    **dict.fromkeys(("gemma2", "gpt_oss"), 2),
    **dict.fromkeys(("cohere2", "exaone4", "llama4", "llama4_text", "olmo3"), 4),
    **dict.fromkeys(("gemma3", "gemma3_text"), 6),
}
#: Fields of models whose cache is another than the one counted here (vLLM's model_executor/models has them).
STATES = (
    *("mamba_d_state", "mamba_expand", "mamba_num_heads", "ssm_state_size", "state_size", "conv_L_cache"),
    *("linear_attn_config", "linear_num_value_heads", "attn_type_list", "attn_layer_period", "block_types"),
    *("layers_block_type", "hybrid_override_pattern", "full_attention_interval"),
)
OTHERWISE: Mapping[str, str] = {
    **dict.fromkeys(("index_topk", "compress_ratios"), "sparse attention with a cache of its own beside"),
    **dict.fromkeys(("num_kv_shared_layers", "use_cla"), "layers that share their KV cache"),
    **dict.fromkeys(("block_configs", "swa_head_dim", "swa_num_key_value_heads"), "layers of several shapes"),
    **dict.fromkeys(("global_head_dim", "num_global_key_value_heads"), "layers of several shapes"),
    "is_encoder_decoder": "an encoder, and attention to it",
}
#: How long a context may be, the ways models say it; the smallest counts (transformers_utils, 0.32).
LENGTHS = (
    *("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "max_target_positions"),
    *("max_sequence_length", "max_seq_length", "seq_len"),
)
#: What vLLM takes where a model says nothing of its length.
LENGTH = 2048
#: Rotary embeddings whose factor is in the length already (config/model.py, ``_get_and_verify_max_len``).
SCALED = frozenset({"su", "longrope", "llama3", "yarn", "deepseek_yarn", "deepseek_llama_scaling"})
#: No number of a model, and no count of layers, is larger: what is, is a slip.
MOST, MOST_LAYERS = 2**31, 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Latent:
    """Multi-head latent attention (DeepSeek): what is cached is one vector of ``rank`` + ``rope`` numbers a token."""

    rank: int
    rope: int
    nope: int
    value: int
    query_rank: int = 0


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
    shared_intermediate: int = 0  # of the expert that every token takes
    dense_layers: int = 0  # of a mixture of experts, those that are none
    quantisation: Quantisation | None = None
    notes: tuple[str, ...] = ()  # what is not counted

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
        dense = self.dense_layers if self.experts else self.layers
        beside = self._matrices * self.shared_intermediate + self.experts  # the shared expert, and the router
        mlp = dense * self._matrices * self.intermediate + (self.layers - dense) * beside
        return self.layers * self._attention_weights() + self.hidden * mlp + self._expert_weights()

    def other_weights(self) -> int:
        """Count embedding, head (unless it is the embedding) and norms."""
        matrices = 1 if self.tied else 2
        return self.vocabulary * self.hidden * matrices + (2 * self.layers + 1) * self.hidden

    def weight_bytes(self) -> int:
        """Return the bytes of all weights as they are kept; embedding, head and norms are never quantised."""
        plain = BYTES[self.dtype]
        every = self.linear_weights()
        if self.quantisation is None:
            kept = every * plain
        else:
            small = self._expert_weights() if self.quantisation.experts else every
            kept = self.quantisation.bytes_of(small) + (every - small) * plain
        return kept + self.other_weights() * plain

    def _expert_weights(self) -> int:
        return (
            (self.layers - self.dense_layers) * self._matrices * self.hidden * self.expert_intermediate * self.experts
        )

    @property
    def _matrices(self) -> int:
        return 2 if self.kind in PLAIN_MLP else 3

    def _attention_weights(self) -> int:
        if self.latent is None:
            return self.hidden * self.head * (2 * self.heads + 2 * self.kv_heads)
        its = self.latent
        query = self.heads * (its.nope + its.rope)
        queries = self.hidden * query if not its.query_rank else (self.hidden + query) * its.query_rank
        values = self.hidden * (its.rank + its.rope) + its.rank * self.heads * (its.nope + its.value)
        return queries + values + self.heads * its.value * self.hidden


def shape(config: Mapping[str, Any], *, weights_dtype: str | None = None) -> Shape:
    """Read a config.json; ``weights_dtype`` is for one that says none. Raises CannotStart naming the field."""
    text: Any = config.get("text_config") or config  # of a multimodal model, the language model's part
    if not isinstance(text, Mapping):
        raise CannotStart("config.json: text_config is no object")
    heads = _number(text, "num_attention_heads", "n_head", "n_heads")
    hidden = _number(text, "hidden_size", "n_embd", "d_model")
    layers = _number(text, "num_hidden_layers", "n_layer", "n_layers")
    if layers > MOST_LAYERS:
        raise CannotStart(f"config.json: {layers} layers are no model's")
    kind = str(text.get("model_type") or config.get("model_type") or "")
    kv_heads = _optional(text, "num_key_value_heads", "num_kv_heads") or (1 if text.get("multi_query") else heads)
    said = (config.get("dtype"), config.get("torch_dtype"), text.get("dtype"), text.get("torch_dtype"), weights_dtype)
    dtype = next((str(each).removeprefix("torch.") for each in said if each), "bfloat16")
    if dtype not in BYTES:
        raise CannotStart(f"config.json: torch_dtype {dtype!r:.40} is none of {', '.join(BYTES)}")
    _counted(config, text)
    if not (head := _optional(text, "head_dim") or hidden // heads):
        raise CannotStart(f"config.json: hidden_size {hidden} leaves nothing to each of {heads} heads")
    experts = _optional(text, "num_local_experts", "num_experts", "n_routed_experts")
    inner = _optional(text, "intermediate_size", "n_inner", "ffn_dim") or 4 * hidden
    expert = _optional(text, "moe_intermediate_size") or inner
    shared = expert if kind.startswith("llama4") else expert * _optional(text, "n_shared_experts")
    quantised = quantisation(config, text)
    return Shape(
        kind=kind,
        windows=tuple(_windows(text, layers)),
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head=head,
        intermediate=_optional(text, "intermediate_size_mlp") or inner,
        vocabulary=_number(text, "vocab_size"),
        context=_context(text, str(config.get("model_type"))),
        dtype=dtype,
        tied=bool(text.get("tie_word_embeddings", config.get("tie_word_embeddings", kind in TIED))),
        latent=_latent(text),
        experts=experts,
        expert_intermediate=expert if experts else 0,
        shared_intermediate=_optional(text, "shared_expert_intermediate_size") or shared,
        dense_layers=_dense(text, layers) if experts else 0,
        quantisation=quantised,
        notes=tuple(_notes(config, quantised)),
    )


def _counted(config: Mapping[str, Any], text: Mapping[str, Any]) -> None:
    """Refuse what the arithmetic here is not of: a number would be wrong. Raises CannotStart."""
    kinds = text.get("layer_types")
    if isinstance(kinds, list):
        odd = next((str(kind) for kind in kinds if str(kind) not in WINDOWED | FULL), None)
    else:
        odd = next((name for name in STATES if text.get(name)), None)
    if odd:
        raise Uncounted(f"config.json: {odd!r:.40}: the state of such layers is not counted here; vLLM tells it")
    for name, why in OTHERWISE.items():
        if text.get(name) or config.get(name):
            raise Uncounted(f"config.json: {name}: {why}: that is not counted here; vLLM tells it")


def _notes(config: Mapping[str, Any], quantised: Quantisation | None) -> Iterator[str]:
    if beside := [name for name in ("vision_config", "audio_config") if config.get(name)]:
        yield f"weights beside the language model's are not counted ({', '.join(beside)})"
    if quantised and quantised.experts:
        yield "on some cards vLLM's kernel pads the experts (to 256 x 128): up to a tenth more than counted here"
    if quantised and quantised.spares:
        yield "the checkpoint leaves some layers unquantised, counted here as if they were not: its files tell more"


def _context(text: Mapping[str, Any], kind: str) -> int:
    """Return the longest context as vLLM derives it: scaled by the rotary embedding's factor where it has to be."""
    context = _optional(text, "model_max_length") or min(
        (length for name in LENGTHS if (length := _optional(text, name))), default=LENGTH
    )
    said = text.get("rope_parameters") or text.get("rope_scaling")
    if not isinstance(said, Mapping) or "gemma3" in kind + str(text.get("model_type")):
        return context
    for rope in (each for each in (said, *said.values()) if isinstance(each, Mapping)):
        factor = rope.get("factor")
        if str(rope.get("rope_type") or rope.get("type")) not in SCALED and isinstance(factor, int | float):
            return int(context * min(max(factor, 0), MOST))
    return context


def _dense(text: Mapping[str, Any], layers: int) -> int:
    """Count the layers of a mixture of experts that have none."""
    first, every = _optional(text, "first_k_dense_replace"), text.get("moe_layer_freq")
    step = _optional(text, "decoder_sparse_step", "interleave_moe_layer_step") or 1
    plain = text.get("mlp_only_layers")
    without = {
        layer
        for layer in range(layers)
        if layer < first
        or (layer + 1) % step
        or (isinstance(plain, list) and layer in plain)
        or (isinstance(every, int) and every and layer % every)
        or (isinstance(every, list) and not (every[layer : layer + 1] or [0])[0])
    }
    return len(without)


def _windows(text: Mapping[str, Any], layers: int) -> Sequence[int | None]:
    """Return each layer's window, the ways models say it: by layer, by a pattern, from a layer on, or for all."""
    kinds = text.get("layer_types") or []
    if not isinstance(kinds, list) or 0 < len(kinds) < layers:
        raise CannotStart(f"config.json: layer_types is no list of all {layers} layers")
    window = _optional(text, "sliding_window") or _optional(text, "attention_chunk_size")
    if not window or text.get("use_sliding_window") is False:
        return [None] * layers
    if kinds:
        return [window if str(kind) in WINDOWED else None for kind in kinds[:layers]]
    pattern = text.get("sliding_window_pattern")
    if isinstance(pattern, str) and pattern:  # "LLLG": local or global
        return [None if pattern[layer % len(pattern)] == "G" else window for layer in range(layers)]
    usual = PATTERNS.get(str(text.get("model_type")), 0)
    if pattern := _optional(text, "sliding_window_pattern", "no_rope_layer_interval") or usual:
        return [None if (layer + 1) % pattern == 0 else window for layer in range(layers)]
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


def _optional(text: Mapping[str, Any], *names: str) -> int:
    """Return the first of these fields that is there, else 0. Raises CannotStart where it is no number of a model."""
    name = next((name for name in names if text.get(name) is not None), None)
    if name is None:
        return 0
    value = text[name]
    if isinstance(value, list):  # vLLM has models whose layers differ
        raise Uncounted(f"config.json: {name} differs by layer: that is not counted here; vLLM tells it")
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < MOST or value % 1:
        raise CannotStart(f"config.json: {name} {value!r:.40} is no number of a model")
    return int(value)


def _number(text: Mapping[str, Any], *names: str) -> int:
    if not (value := _optional(text, *names)):
        raise CannotStart(f"config.json has no {names[0]}")
    return value
