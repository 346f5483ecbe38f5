"""Does a model fit a machine, how many requests at once, and what is the cheapest change if it does not?

Sizes are in bytes. What cannot be computed (the CUDA context, activations, captured graphs) is a reserve on the safe
side and told as such; the KV cache is vLLM's own arithmetic (``kv.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from gateway.engine import kv
from gateway.engine.cards import Card
from gateway.engine.kv import Cache, Capacity
from gateway.engine.machine import GIB
from gateway.engine.quantised import BEFOREHAND, FAMILIES, Quantisation
from gateway.engine.shape import BYTES, Shape

#: Requests that vLLM samples for at once unless told otherwise; their logits are in memory together, 4 bytes a number.
SEQUENCES = 256
#: The CUDA context, NCCL's buffers and what the allocator keeps beside tensors.
CONTEXT = int(1.25 * GIB)
#: Captured graphs, as vLLM estimates and reserves them.
GRAPHS = GIB
#: Numbers of 2 bytes that a token of the batch has in flight at once, as multiples of the hidden size.
ACTIVATIONS = 16
#: On a CPU: the interpreter and torch, for each worker.
CPU_WORKER = GIB
#: Of the requests that fit, so many are left free: lengths are never as planned.
HEADROOM = 0.2
#: Models that vLLM does not run in float16 (config/model.py, 0.32): float32 is left to them on cards without bfloat16.
NO_FLOAT16 = frozenset({"gemma2", "gemma3", "gemma3_text", "glm4"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What there is to run on: so many cards of one kind, or (no card) a CPU with ``memory`` bytes for the engine."""

    card: Card | None
    count: int = 1
    memory: int = 0

    @property
    def total(self) -> int:
        """Bytes of one device."""
        return self.card.memory if self.card else self.memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is asked of the machine. ``length``: the longest prompt and answer together; None: the model's context."""

    length: int | None = None
    tensor_parallel: int | None = None
    pipeline_parallel: int = 1
    kv_dtype: str = "auto"
    utilization: float = 0.9
    kv_memory: int | None = None  # bytes for the cache of each worker, in the place of what is left over
    block: int | None = None
    quantisation: Quantisation | None = None  # of weights that are to be quantised yet


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One way to run the model. All bytes are of one worker; ``capacity`` is None where not one request fits."""

    wanted: Wanted
    tensor_parallel: int
    length: int
    weights: int
    reserve: int
    cache: Cache
    kv_memory: int
    capacity: Capacity | None
    longest: int  # the longest context of one request that would fit
    total: int

    @property
    def fits(self) -> bool:
        """Tell whether the engine would start."""
        return self.capacity is not None

    def at_once(self, shape: Shape, length: int) -> int:
        """Return how many requests of this length fit at once, less the headroom; one at least where one fits."""
        if self.capacity is None:
            return 0
        return max(1, int(self.capacity.blocks / kv.blocks_a_request(shape, self.cache, length) * (1 - HEADROOM)))


def splits(shape: Shape, degree: int) -> str | None:
    """Say why a model cannot be split over so many ranks; None where it can.

    vLLM's rules: query heads evenly, key-value heads evenly or each on several ranks, and the intermediate size; of
    weights quantised in groups, each rank's share of the input channels has to be whole groups.
    """
    if shape.heads % degree:
        return f"{shape.heads} attention heads cannot be split over {degree}"
    if not shape.latent and shape.kv_heads % degree and degree % shape.kv_heads:
        return f"{shape.kv_heads} key-value heads can be neither split over {degree} nor repeated"
    inner = shape.expert_intermediate if shape.experts else shape.intermediate
    if inner % degree:
        return f"the intermediate size {inner} cannot be split over {degree}"
    # Kernels for experts alone pad them.
    group = shape.quantisation.group if shape.quantisation and not shape.quantisation.experts else 0
    if group and (inner // degree) % group:
        return f"{inner // degree} channels a rank are no whole groups of {group}"
    return None


def loaded(shape: Shape, machine: Machine) -> Shape:
    """Return the shape in the dtype that vLLM loads it in (``_resolve_auto_dtype``): float32 only where it has to."""
    if not machine.card or machine.card.bf16:
        return replace(shape, dtype="bfloat16") if BYTES[shape.dtype] == BYTES["float32"] else shape
    return replace(shape, dtype="float32" if shape.kind in NO_FLOAT16 else "float16")


def plan(shape: Shape, machine: Machine, wanted: Wanted) -> Plan:
    """Plan with what is asked; the tensor parallel degree is the smallest that fits. Raises ValueError."""
    if wanted.length and wanted.length > shape.context:
        raise ValueError(f"--max-model-len {wanted.length}: the model's context is {shape.context}, vLLM takes no more")
    if wanted.block and wanted.block % kv.CUDA_BLOCK:
        raise ValueError(f"--block-size {wanted.block}: vLLM's attention takes multiples of {kv.CUDA_BLOCK}")
    shape = loaded(replace(shape, quantisation=wanted.quantisation or shape.quantisation), machine)
    degrees = [wanted.tensor_parallel] if wanted.tensor_parallel else _degrees(shape, machine, wanted) or [1]
    tried = [_at(shape, machine, wanted, degree) for degree in degrees]
    found = next((one for one in tried if one.fits), tried[-1])
    if not found.fits and wanted.kv_memory and _over(found, machine):
        raise ValueError(f"--kv-cache-memory-bytes {wanted.kv_memory}: beside the weights no device has so much")
    return found


def _over(found: Plan, machine: Machine) -> bool:
    """Tell whether a cache of a given size is more than its device has beside weights and reserve."""
    ranks = 1 if machine.card else found.tensor_parallel * found.wanted.pipeline_parallel
    return found.weights + found.reserve + found.kv_memory > machine.total // ranks


def _degrees(shape: Shape, machine: Machine, wanted: Wanted) -> list[int]:
    most = min(shape.heads, machine.count // wanted.pipeline_parallel) if machine.card else 1
    return [degree for degree in range(1, max(1, most) + 1) if splits(shape, degree) is None]


def _at(shape: Shape, machine: Machine, wanted: Wanted, degree: int) -> Plan:
    if why := splits(shape, degree):
        raise ValueError(f"tensor parallel {degree}: {why}")
    if shape.layers < wanted.pipeline_parallel:
        raise ValueError(f"pipeline parallel {wanted.pipeline_parallel}: the model has {shape.layers} layers")
    ranks = degree * wanted.pipeline_parallel
    if machine.card and ranks > machine.count:
        split = f"tensor parallel {degree}, pipeline parallel {wanted.pipeline_parallel}"
        raise ValueError(f"{split}: that takes {ranks} cards, there are {machine.count} (--gpus)")
    length = wanted.length or shape.context
    weights = -(-shape.weight_bytes() // ranks)
    reserve = _reserve(shape, machine, degree)
    cache = Cache(
        tensor_parallel=degree,
        pipeline_parallel=wanted.pipeline_parallel,
        dtype=wanted.kv_dtype,
        block=wanted.block or _block(shape, machine),
        in_flight=kv.BATCHED_TOKENS * (2 if machine.card else 1),  # cards run one batch while the next is made up
    )
    share = int(machine.total * wanted.utilization) // (1 if machine.card else ranks)
    memory = share - weights - reserve if wanted.kv_memory is None else wanted.kv_memory
    fits = memory > 0 and kv.serves_one(shape, cache, memory, length)
    made = Plan(
        wanted=wanted,
        tensor_parallel=degree,
        length=length,
        weights=weights,
        reserve=reserve,
        cache=cache,
        kv_memory=max(0, memory),
        capacity=kv.capacity(shape, cache, memory, length) if fits else None,
        longest=kv.longest(shape, cache, memory) if memory > 0 else 0,
        total=share,
    )
    return replace(made, capacity=None) if wanted.kv_memory and _over(made, machine) else made


def _reserve(shape: Shape, machine: Machine, degree: int) -> int:
    """Return what is kept beside weights and cache.

    Activations at a full batch, the logits of all its sequences (each rank has its part of the vocabulary), and on a
    card the context and the graphs.
    """
    activations = kv.BATCHED_TOKENS * shape.hidden * ACTIVATIONS * 2
    logits = SEQUENCES * shape.vocabulary * 4 // degree
    return activations + logits + (CONTEXT + GRAPHS if machine.card else CPU_WORKER)


def _block(shape: Shape, machine: Machine) -> int:
    return kv.CUDA_BLOCK if machine.card or shape.latent else kv.CPU_BLOCK


@dataclass(frozen=True, slots=True)
class Change:
    """Something else that would make it fit, and the plan then."""

    said: str
    plan: Plan


def changes(shape: Shape, machine: Machine, wanted: Wanted) -> Iterator[Change]:
    """Yield what makes a model fit that does not, the cheapest first."""
    tries: tuple[Callable[[], tuple[str, Machine, Wanted] | None], ...] = (
        lambda: _shorter(shape, machine, wanted),
        lambda: _fp8_cache(machine, wanted),
        lambda: _quantised(shape, machine, wanted, "FP8 weights", Quantisation(method="fp8", bits=8)),
        lambda: _quantised(shape, machine, wanted, "a checkpoint with 4-bit weights (AWQ)", _AWQ),
        lambda: _more_cards(shape, machine, wanted),
    )
    for attempt in tries:
        try:
            if (tried := attempt()) and (found := plan(shape, tried[1], tried[2])).fits:
                yield Change(tried[0], found)
        except ValueError:  # groups that do not divide, say
            continue


_AWQ = Quantisation(method="awq", bits=4, group=128, zero_points=True)


def _shorter(shape: Shape, machine: Machine, wanted: Wanted) -> tuple[str, Machine, Wanted] | None:
    longest = plan(shape, machine, wanted).longest
    usual = next((length for length in (131072, 65536, 32768, 16384, 8192, 4096, 2048) if length <= longest), None)
    if usual is None or usual >= (wanted.length or shape.context):
        return None
    return f"a shorter context: {usual} tokens", machine, replace(wanted, length=usual)


def _fp8_cache(machine: Machine, wanted: Wanted) -> tuple[str, Machine, Wanted] | None:
    if wanted.kv_dtype != "auto" or not (machine.card and machine.card.fp8):
        return None
    return "an FP8 KV cache (check the answers: sluice compare)", machine, replace(wanted, kv_dtype="fp8")


def _quantised(
    shape: Shape, machine: Machine, wanted: Wanted, said: str, how: Quantisation
) -> tuple[str, Machine, Wanted] | None:
    if shape.quantisation or (how.method == "fp8" and not (machine.card and machine.card.fp8)):
        return None
    return f"{said} (check the answers: sluice compare)", machine, replace(wanted, quantisation=how)


def _more_cards(shape: Shape, machine: Machine, wanted: Wanted) -> tuple[str, Machine, Wanted] | None:
    if machine.card is None:
        return None
    for degree in (2, 4, 8, 16):
        count = degree * wanted.pipeline_parallel
        if count > machine.count and splits(shape, degree) is None:
            asked = replace(wanted, tensor_parallel=degree)
            if plan(shape, replace(machine, count=count), asked).fits:
                return f"{count} cards, tensor parallel {degree}", replace(machine, count=count), asked
    return None


def flags(found: Plan) -> list[str]:
    """Return vLLM's flags for a plan."""
    said = ["--max-model-len", str(found.length)]
    if found.tensor_parallel > 1:
        said += ["--tensor-parallel-size", str(found.tensor_parallel)]
    if found.wanted.pipeline_parallel > 1:
        said += ["--pipeline-parallel-size", str(found.wanted.pipeline_parallel)]
    if found.wanted.kv_dtype != "auto":
        said += ["--kv-cache-dtype", found.wanted.kv_dtype]
    if method := while_loading(found):
        said += ["--quantization", method]
    if found.wanted.block:
        said += ["--block-size", str(found.wanted.block)]
    if found.wanted.kv_memory is not None:
        said += ["--kv-cache-memory-bytes", str(found.wanted.kv_memory)]
    elif found.wanted.utilization != Wanted().utilization:
        said += ["--gpu-memory-utilization", str(found.wanted.utilization)]
    return said


def while_loading(found: Plan) -> str:
    """Return what vLLM quantises to while it loads; empty where the checkpoint's weights are left as they are."""
    method = found.wanted.quantisation.method if found.wanted.quantisation else ""
    return "" if FAMILIES.get(method, method) in BEFOREHAND else method


def values(found: Plan, machine: Machine, model: str) -> Mapping[str, Any]:
    """Return the chart's values for a plan: one model of one engine."""
    wanted = found.wanted
    extra = [] if wanted.kv_dtype == "auto" else [f"--kv-cache-dtype={wanted.kv_dtype}"]
    extra += [f"--block-size={wanted.block}"] if wanted.block else []
    extra += [f"--kv-cache-memory-bytes={wanted.kv_memory}"] if wanted.kv_memory is not None else []
    engine = {
        "name": "v1",
        "model": model,
        "nodes": wanted.pipeline_parallel,
        "gpu": {"count": found.tensor_parallel if machine.card else 0},
        "tensorParallelSize": found.tensor_parallel,
        "maxModelLen": found.length,
        "gpuMemoryUtilization": wanted.utilization,
        "quantization": while_loading(found),
        "extraArgs": extra,
    }
    name = model.rstrip("/").rsplit("/", 1)[-1].lower()
    return {"models": [{"name": name, "engines": [engine]}]}
