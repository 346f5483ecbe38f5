"""How large the KV cache of a model is, and how many blocks of it fit: vLLM's own arithmetic, without vLLM.

Source of every rule: ``v1/core/kv_cache_utils.py`` and ``v1/kv_cache_interface.py`` of vLLM 0.32. Sizes are in bytes,
lengths in tokens, and all of it is for one worker (one tensor-parallel rank of one pipeline stage).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from gateway.engine.shape import BYTES, Shape

#: Bytes of one number in the cache, by vLLM's ``--kv-cache-dtype``; "auto" is the model's own.
KV_BYTES = {"fp8": 1, "fp8_e4m3": 1, "fp8_e5m2": 1, "float16": 2, "bfloat16": 2}
#: Tokens in a block unless the engine is told otherwise: CUDA backends 16, CPU 128, CPU with latent attention 16.
CUDA_BLOCK, CPU_BLOCK = 16, 128
#: A batch holds this many tokens unless the engine is told otherwise.
BATCHED_TOKENS = 2048


@dataclass(frozen=True, slots=True, kw_only=True)
class Cache:
    """How a worker's cache is to be laid out."""

    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    dtype: str = "auto"
    block: int = CUDA_BLOCK
    in_flight: int = BATCHED_TOKENS  # tokens scheduled and not yet settled: the batch, twice with async scheduling


@dataclass(frozen=True, slots=True)
class Capacity:
    """What so much memory holds. ``concurrency`` is requests of full length; ``tokens`` what vLLM's log line tells."""

    blocks: int
    block_bytes: int
    blocks_a_request: int
    concurrency: float
    tokens: int


def token_layer_bytes(shape: Shape, cache: Cache) -> int:
    """Return what one token takes in one layer.

    GQA, MQA, MHA: key and value of the rank's heads, at least one (replicated where ranks outnumber heads).
    MLA: the latent vector and its rotary part, once, on every rank.
    """
    size = KV_BYTES.get(cache.dtype) or BYTES[shape.dtype]
    if shape.latent:
        return (shape.latent.rank + shape.latent.rope) * size
    return max(1, shape.kv_heads // cache.tensor_parallel) * 2 * shape.head * size


def token_bytes(shape: Shape, cache: Cache) -> int:
    """Return what one token takes in all of a worker's layers while it is in every window."""
    return token_layer_bytes(shape, cache) * _layers(shape, cache)


def block_bytes(shape: Shape, cache: Cache) -> int:
    """Return the bytes of one block: the page of one layer times the layers of one group."""
    return token_layer_bytes(shape, cache) * cache.block * _group_size(shape, cache)


def blocks_a_request(shape: Shape, cache: Cache, length: int) -> int:
    """Return the blocks that one request of ``length`` tokens takes at its most, over all groups.

    A group of full attention: ceil(L / block). A sliding window W: ceil(min(W - 1 + in flight, L) / block) + 1.
    """
    total = 0
    size = _group_size(shape, cache)
    for window, layers in _kinds(shape, cache).items():
        groups = -(-layers // size)
        if window is None:
            total += groups * -(-length // cache.block)
        else:
            total += groups * (-(-min(window - 1 + cache.in_flight, length) // cache.block) + 1)
    return total


def capacity(shape: Shape, cache: Cache, memory: int, length: int) -> Capacity:
    """Return what ``memory`` bytes of cache hold of requests of ``length`` tokens."""
    size = block_bytes(shape, cache)
    blocks = max(0, memory) // size
    each = blocks_a_request(shape, cache, length)
    concurrency = blocks / each
    return Capacity(blocks, size, each, concurrency, int(concurrency * length))


def serves_one(shape: Shape, cache: Cache, memory: int, length: int) -> bool:
    """Tell whether vLLM starts: one request of full length has to fit beside the block that is never handed out."""
    return blocks_a_request(shape, cache, length) <= memory // block_bytes(shape, cache) - 1


def longest(shape: Shape, cache: Cache, memory: int) -> int:
    """Return the longest context that one request may have, as ``--max-model-len auto`` finds it; 0: none."""
    low, high = 0, shape.context
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if serves_one(shape, cache, memory, middle) else (low, middle - 1)
    return low


def _layers(shape: Shape, cache: Cache) -> int:
    """Layers of the stage that has the most."""
    return -(-shape.layers // cache.pipeline_parallel)


def _kinds(shape: Shape, cache: Cache) -> Counter[int | None]:
    """Count a stage's layers by window; stages alternate as the whole model does."""
    counted = Counter(shape.windows)
    return Counter({window: -(-count // cache.pipeline_parallel) for window, count in counted.items()})


def _group_size(shape: Shape, cache: Cache) -> int:
    """Return the layers of a group: all of one kind, or of several kinds the fewest, unless the most are not many more.

    With the most under 1.5 times the fewest vLLM pads to the most, else it splits into groups of the fewest.
    """
    counts = _kinds(shape, cache).values()
    fewest, most = min(counts), max(counts)
    return most if most < fewest * 1.5 else fewest
