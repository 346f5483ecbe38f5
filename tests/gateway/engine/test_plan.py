"""Plans: what fits, what does not, and what would make it fit."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.engine.cards import named
from gateway.engine.failure import CannotStart
from gateway.engine.machine import GIB
from gateway.engine.plan import Machine, Wanted, changes, flags, loaded, plan, splits, values
from gateway.engine.quantised import Quantisation
from gateway.engine.shape import shape
from tests.gateway.engine.test_shape import GPT_OSS, LLAMA_8B

SMALL = shape(LLAMA_8B)
LARGE = shape(
    LLAMA_8B
    | {
        "hidden_size": 8192,
        "intermediate_size": 28672,
        "num_hidden_layers": 80,
        "num_attention_heads": 64,
        "max_position_embeddings": 131072,
    }
)
H100 = Machine(card=named("H100"))


def test_what_fits_is_counted_in_parts_that_add_up() -> None:
    found = plan(SMALL, H100, Wanted())
    assert found.fits
    assert found.weights + found.reserve + found.kv_memory == found.total == int(H100.total * 0.9)
    assert found.capacity is not None
    assert found.capacity.blocks == found.kv_memory // (131072 * 16)
    assert found.at_once(SMALL, 8192) == int(found.capacity.blocks / 512 * 0.8)
    assert found.at_once(SMALL, 100) > found.at_once(SMALL, 8192)


def test_the_fewest_cards_that_fit_are_taken() -> None:
    assert plan(LARGE, replace(H100, count=8), Wanted()).tensor_parallel == 4
    assert plan(LARGE, replace(H100, count=8), Wanted(length=8192)).tensor_parallel == 2
    assert plan(SMALL, replace(H100, count=8), Wanted()).tensor_parallel == 1
    assert plan(LARGE, replace(H100, count=8), Wanted(pipeline_parallel=2)).tensor_parallel == 2


def test_the_cheapest_change_comes_first_and_fits() -> None:
    said = [change.said for change in changes(LARGE, replace(H100, count=2), Wanted())]
    assert [each.split(" (")[0] for each in said] == [
        "a shorter context: 16384 tokens",
        "FP8 weights",
        "a checkpoint with 4-bit weights",
        "4 cards, tensor parallel 4",
    ]
    a10 = Machine(card=named("A10"))
    said = [change.said for change in changes(replace(SMALL, context=131072), a10, Wanted())]
    assert said[0] == "a shorter context: 16384 tokens"
    for change in changes(replace(SMALL, context=131072), a10, Wanted()):
        assert change.plan.fits


def test_a_card_without_fp8_is_not_told_to_use_it() -> None:
    said = [change.said for change in changes(LARGE, Machine(card=named("A100")), Wanted())]
    assert not any("FP8" in each for each in said)


@pytest.mark.parametrize(
    ("degree", "why"),
    [(1, None), (8, None), (16, None), (64, "intermediate"), (3, "32 attention heads"), (12, "32 attention heads")],
)
def test_what_cannot_be_split_says_why(degree: int, why: str | None) -> None:
    odd = replace(SMALL, intermediate=14336 + 16, heads=64 if degree == 64 else 32)
    said = splits(odd if degree == 64 else SMALL, degree)
    assert (said is None) if why is None else (said is not None and why in said)


def test_groups_of_quantised_weights_are_not_cut() -> None:
    awq = replace(SMALL, quantisation=Quantisation(method="awq", bits=4, group=1024))
    assert splits(awq, 2) is None
    assert splits(awq, 4) == "3584 channels a rank are no whole groups of 1024"


def test_what_cannot_be_is_one_line() -> None:
    with pytest.raises(ValueError, match="tensor parallel 3: 32 attention heads"):
        plan(SMALL, H100, Wanted(tensor_parallel=3))
    with pytest.raises(ValueError, match="the model has 32 layers"):
        plan(SMALL, H100, Wanted(pipeline_parallel=33))


@pytest.mark.parametrize(
    ("more", "card", "dtype"),
    [
        ({}, "H100", "bfloat16"),
        ({"torch_dtype": "float32"}, "H100", "bfloat16"),
        ({"torch_dtype": "float"}, None, "bfloat16"),
        ({"torch_dtype": "float16"}, "H100", "float16"),
        ({}, "T4", "float16"),
        ({"torch_dtype": "float32"}, "V100", "float16"),
        ({"model_type": "gemma2"}, "T4", "float32"),
        ({"torch_dtype": "float32", "model_type": "gemma2"}, "L4", "bfloat16"),
    ],
)
def test_weights_and_cache_take_the_dtype_that_vllm_loads(more: dict[str, str], card: str | None, dtype: str) -> None:
    """``_resolve_auto_dtype`` of vLLM 0.32: float32 becomes the platform's first dtype that the model can be in."""
    machine = Machine(card=named(card), count=8) if card else Machine(card=None, memory=64 * GIB)
    found = shape(LLAMA_8B | more)
    assert loaded(found, machine).dtype == dtype
    assert loaded(loaded(found, machine), machine).dtype == dtype
    usual = loaded(SMALL, machine)
    twice = 2 if dtype == "float32" else 1
    assert plan(found, machine, Wanted(tensor_parallel=8 if card else 1)).weights == pytest.approx(
        usual.weight_bytes() * twice / (8 if card else 1), abs=1
    )


@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        (Wanted(tensor_parallel=8), "takes 8 cards, there are 2"),
        (Wanted(pipeline_parallel=3), "takes 3 cards, there are 2"),
        (Wanted(length=8193), "context is 8192"),
        (Wanted(block=7), "multiples of 16"),
        (Wanted(kv_memory=2**40), "no device has so much"),
    ],
)
def test_what_there_is_not_is_not_planned_with(wanted: Wanted, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        plan(SMALL, replace(H100, count=2), wanted)


def test_a_cache_of_a_given_size_takes_the_fewest_cards_that_have_it_beside_the_weights() -> None:
    assert plan(LARGE, replace(H100, count=8), Wanted(kv_memory=20 * GIB, length=8192)).tensor_parallel == 4


NUMBERS = [name for name, value in GPT_OSS.items() if isinstance(value, int)] + ["n_shared_experts", "kv_lora_rank"]


@given(st.dictionaries(st.sampled_from(NUMBERS), st.integers(0, 2**31)), st.sampled_from([None, "T4", "H200"]))
def test_whatever_the_numbers_a_plan_is_a_plan_or_one_line(said: dict[str, int], card: str | None) -> None:
    machine = Machine(card=named(card), count=4) if card else Machine(card=None, memory=64 * GIB)
    try:
        its = shape(GPT_OSS | said)
        found = plan(its, machine, Wanted())
    except (CannotStart, ValueError) as fault:
        told = str(fault)
    else:
        told = ""
        assert found.fits == (found.at_once(its, found.length) > 0)
        assert all(change.plan.fits for change in changes(its, machine, Wanted()))
    assert "\n" not in told


def test_every_change_is_one_that_can_be_done() -> None:
    stages = Wanted(pipeline_parallel=2)
    said = [change.said for change in changes(LARGE, replace(H100, count=2), stages)]
    assert "4 cards, tensor parallel 2" in said
    odd = replace(LARGE, intermediate=28672 + 64)  # no groups of 128
    assert not any("AWQ" in change.said for change in changes(odd, H100, Wanted()))


def test_gpt_oss_fits_the_card_it_was_made_for_and_its_padded_experts_split() -> None:
    assert plan(shape(GPT_OSS), H100, Wanted()).fits
    assert splits(shape(GPT_OSS), 8) is None


def test_a_cpu_has_one_memory_for_all_its_workers() -> None:
    cpu = Machine(card=None, memory=64 * GIB)
    one, two = (plan(SMALL, cpu, Wanted(tensor_parallel=degree)) for degree in (1, 2))
    assert one.total == 2 * two.total
    assert one.cache.block == 128


def test_flags_and_values_say_what_was_planned() -> None:
    found = plan(LARGE, replace(H100, count=4), Wanted(kv_dtype="fp8", length=32768, utilization=0.85))
    said = " ".join(flags(found))
    assert "--max-model-len 32768" in said
    assert f"--tensor-parallel-size {found.tensor_parallel}" in said
    assert "--kv-cache-dtype fp8" in said
    assert "--gpu-memory-utilization 0.85" in said
    (model,) = values(found, replace(H100, count=4), "org/Large-70B")["models"]
    assert model["name"] == "large-70b"
    assert model["engines"][0]["gpu"] == {"count": found.tensor_parallel}
    assert model["engines"][0]["maxModelLen"] == 32768
    found = plan(SMALL, H100, Wanted(block=32, kv_memory=8 * GIB))
    assert " ".join(flags(found)).endswith(f"--block-size 32 --kv-cache-memory-bytes {8 * GIB}")
    (model,) = values(found, H100, "m")["models"]
    assert model["engines"][0]["extraArgs"] == ["--block-size=32", f"--kv-cache-memory-bytes={8 * GIB}"]


def test_a_checkpoint_that_has_to_be_another_is_no_flag() -> None:
    awq, fp8 = (Quantisation(method=method, bits=4, group=128) for method in ("awq", "fp8"))
    assert "--quantization" not in flags(plan(SMALL, H100, Wanted(quantisation=awq)))
    assert flags(plan(SMALL, H100, Wanted(quantisation=fp8)))[-2:] == ["--quantization", "fp8"]
