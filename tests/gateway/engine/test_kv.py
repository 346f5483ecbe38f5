"""The KV cache's arithmetic: known sizes, and laws. tests/system/test_plan_truth.py holds it against vLLM itself."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.engine import kv
from gateway.engine.kv import Cache
from gateway.engine.shape import Latent, Shape, shape
from tests.gateway.engine.test_shape import DEEPSEEK_V3, LLAMA_8B

GIB = 2**30


def llama(**more: object) -> Shape:
    return replace(shape(LLAMA_8B), **more)  # type: ignore[arg-type] # fields of a test's choosing


def test_the_worked_example() -> None:
    """32 layers, 32 heads of 128, keys and values, 2 bytes, 2,048 tokens, 8 and then 16 requests: 16 GiB."""
    mha = llama(kv_heads=32, context=2048)
    each = kv.token_bytes(mha, Cache())
    assert each == 2 * 32 * 32 * 128 * 2
    assert 2 * 32 * 32 * 128 * 2048 * 16 * 2 == 17_179_869_184 == each * 2048 * 16
    assert kv.capacity(mha, Cache(), 17_179_869_184, 2048).concurrency == 16


@pytest.mark.parametrize(("tp", "size"), [(1, 131072), (2, 65536), (8, 16384), (16, 16384)])
def test_heads_are_split_over_ranks_and_repeated_where_there_are_more_ranks(tp: int, size: int) -> None:
    assert kv.token_bytes(llama(), Cache(tensor_parallel=tp)) == size


def test_a_latent_vector_is_on_every_rank() -> None:
    deepseek = shape(DEEPSEEK_V3)
    assert kv.token_bytes(deepseek, Cache()) == kv.token_bytes(deepseek, Cache(tensor_parallel=8)) == 61 * 576 * 2


def test_an_fp8_cache_takes_half() -> None:
    assert kv.token_bytes(llama(), Cache(dtype="fp8")) * 2 == kv.token_bytes(llama(), Cache())


def test_groups_of_windows_share_a_blocks_pages() -> None:
    gemma = llama(windows=(512,) * 5 + (None,), kv_heads=2, head=32)
    cache = Cache(block=128, in_flight=4096)
    assert (
        kv.block_bytes(gemma, cache) == 2 * 2 * 32 * 2 * 128
    )  # the page of one layer: five groups of a window, one full
    assert kv.blocks_a_request(gemma, cache, 4096) == 5 * 33 + 32
    gpt_oss = llama(windows=(128,) * 12 + (None,) * 13)
    assert kv.block_bytes(gpt_oss, cache) == kv.token_layer_bytes(gpt_oss, cache) * 128 * 13  # padded, not split


SHAPES = st.builds(
    lambda layers, heads, window, every, rank: llama(
        windows=tuple(None if (layer + 1) % every == 0 else window for layer in range(layers)),
        kv_heads=heads,
        latent=Latent(rank=rank, rope=64, nope=128, value=128) if rank else None,
    ),
    st.integers(1, 40),
    st.sampled_from([1, 2, 8, 32]),
    st.sampled_from([None, 128, 1024]),
    st.integers(1, 6),
    st.sampled_from([0, 512]),
)


@given(SHAPES, st.integers(0, 64), st.integers(1, 8192), st.sampled_from([16, 128]))
def test_more_memory_never_holds_less_and_what_starts_serves_one(
    shape: Shape, gib: int, length: int, block: int
) -> None:
    cache = Cache(block=block)
    less, more = (kv.capacity(shape, cache, size * GIB, length) for size in (gib, gib + 1))
    assert less.blocks <= more.blocks
    assert less.blocks * less.block_bytes <= gib * GIB < (less.blocks + 1) * less.block_bytes
    if kv.serves_one(shape, cache, gib * GIB, length):
        assert less.concurrency > 1 or less.blocks > less.blocks_a_request


@given(SHAPES, st.integers(1, 32))
def test_the_longest_context_starts_and_the_next_does_not(shape: Shape, gib: int) -> None:
    cache = Cache(block=128)
    longest = kv.longest(shape, cache, gib * GIB // 16)
    assert longest == 0 or kv.serves_one(shape, cache, gib * GIB // 16, longest)
    assert longest == shape.context or not kv.serves_one(shape, cache, gib * GIB // 16, longest + 1)
