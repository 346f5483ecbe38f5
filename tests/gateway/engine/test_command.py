from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gateway.engine.command import Command, Wishes, build, divides, kv_cache_bytes, split
from gateway.engine.failure import CannotStart
from gateway.engine.machine import GIB, Machine
from gateway.engine.model import Model

SMOLLM2 = Model(
    source="/models/smollm2",
    name="smollm2",
    weights=269_060_552,
    heads=9,
    kv_heads=3,
    kv_per_token=23_040,
    context=8192,
)
LAPTOP = Machine(cores=8, whole=True, memory=16 * GIB, free=12 * GIB)


def llama(gib: float, *, heads: int = 64, kv_heads: int = 8) -> Model:
    return Model(source="/m", name="m", weights=int(gib * GIB), heads=heads, kv_heads=kv_heads)


def cards(*gib: int) -> Machine:
    return Machine(16, True, 256 * GIB, 200 * GIB, tuple(size * GIB for size in gib))


def made(
    machine: Machine = LAPTOP, model: Model = SMOLLM2, environ: dict[str, str] | None = None, **wishes: Any
) -> Command:
    return build(model, machine, Wishes(**wishes), python=Path("/e/bin/python"), port=4321, environ=environ or {})


def flag(command: Command, name: str) -> str:
    """Return what vLLM takes: the last one."""
    last = len(command.argv) - 1 - command.argv[::-1].index(name)
    return command.argv[last + 1]


def test_the_engine_is_on_loopback_reports_to_nobody_and_trusts_no_code() -> None:
    command = made(environ={"PATH": "/bin", "SLUICE_SERVER__PORT": "9000", "HF_ENDPOINT": "https://mirror"})
    assert command.argv[:3] == ("/e/bin/python", "-m", "vllm.entrypoints.openai.api_server")
    assert (flag(command, "--host"), flag(command, "--port")) == ("127.0.0.1", "4321")
    assert flag(command, "--served-model-name") == "smollm2"
    assert "--trust-remote-code" not in command.argv
    assert command.environ["VLLM_NO_USAGE_STATS"] == "1"
    assert command.environ["VLLM_MEDIA_URL_ALLOW_REDIRECTS"] == "0"
    assert command.environ["PATH"] == "/bin"
    assert command.environ["HF_ENDPOINT"] == "https://mirror"
    assert not any(name.startswith("SLUICE_") for name in command.environ)


def test_what_is_set_in_the_environment_wins() -> None:
    command = made(environ={"OMP_NUM_THREADS": "7", "HF_HUB_OFFLINE": "0", "VLLM_CPU_KVCACHE_SPACE": "2"})
    assert command.environ["OMP_NUM_THREADS"] == "7"
    assert command.environ["HF_HUB_OFFLINE"] == "0"
    assert "--kv-cache-memory-bytes" not in command.argv


@pytest.mark.parametrize("args", [("-tp", "-1"), ("-tp=0",), ("--tensor-parallel-size", "two"), ("-tp",)])
def test_a_split_over_no_number_of_devices_starts_nothing(args: tuple[str, ...]) -> None:
    with pytest.raises(CannotStart, match=r"--tensor-parallel-size .* has to be a whole number"):
        made(args=args)


def test_flags_given_come_last_and_make_room_for_themselves() -> None:
    command = made(args=("--max_model_len=4096", "--gpu-memory-utilization", "0.5", "--no-enforce-eager"))
    assert command.argv[-4:] == ("--max_model_len=4096", "--gpu-memory-utilization", "0.5", "--no-enforce-eager")
    assert "--kv-cache-memory-bytes" not in command.argv
    assert "TORCHDYNAMO_DISABLE" not in command.environ


@pytest.mark.parametrize("words", [("-tp", "2"), ("-tp=2",), ("--tensor_parallel_size=2",), ("-tp", "4", "-tp", "2")])
def test_a_degree_among_the_flags_is_ours_too(words: tuple[str, ...]) -> None:
    assert made(args=words, tensor_parallel=3).tensor_parallel == 2


@pytest.mark.parametrize("words", [("--host", "0.0.0.0"), ("--uds=/tmp/x",)])
def test_the_engine_cannot_be_opened_to_the_world(words: tuple[str, ...]) -> None:
    with pytest.raises(CannotStart, match="listens on loopback"):
        made(args=words)


def test_the_window_is_as_wished_else_as_large_as_fits() -> None:
    assert flag(made(max_model_len=2048), "--max-model-len") == "2048"
    assert flag(made(), "--max-model-len") == "auto"


@pytest.mark.parametrize(
    ("gib", "sizes", "degree"),
    [
        (16, (80,), 1),
        (16, (80, 80, 80, 80), 1),
        (130, (80, 80), 2),
        (130, (80, 80, 80, 80), 2),
        (130, (48, 48, 48, 48), 4),
        (200, (80, 80, 80), None),  # 3 does not divide 64 heads, and two cards are too few
        (130, (80, 24, 80, 80), None),  # the smallest card decides
    ],
)
def test_one_card_if_it_fits_else_the_smallest_degree_that_fits_and_divides(
    gib: float, sizes: tuple[int, ...], degree: int | None
) -> None:
    if degree is None:
        with pytest.raises(CannotStart, match="does not fit"):
            split(llama(gib), cards(*sizes), 0.9)
    else:
        assert split(llama(gib), cards(*sizes), 0.9) == degree


def test_a_degree_that_is_wished_is_not_argued_with() -> None:
    command = made(cards(80, 80, 80, 80), llama(300), tensor_parallel=4)
    assert (command.tensor_parallel, flag(command, "--tensor-parallel-size")) == (4, "4")


@pytest.mark.parametrize(
    ("heads", "kv_heads", "degree", "possible"),
    [(9, 3, 2, False), (9, 3, 3, True), (64, 8, 16, True), (12, 2, 3, False), (28, 4, 4, True), (0, 0, 4, True)],
)
def test_heads_are_divided_evenly(heads: int, kv_heads: int, degree: int, possible: bool) -> None:
    assert divides(llama(1, heads=heads, kv_heads=kv_heads), degree) is possible


def test_a_card_gets_its_share_and_is_compiled_for() -> None:
    command = made(cards(80), gpu_memory_utilization=0.8)
    assert flag(command, "--gpu-memory-utilization") == "0.8"
    assert "--enforce-eager" not in command.argv
    assert "TORCHDYNAMO_DISABLE" not in command.environ


def test_a_cpu_gets_cache_for_eight_full_requests_one_gib_at_least_and_a_third_of_what_is_free_at_most() -> None:
    def cache(free: float, degree: int = 1, **wishes: Any) -> float:
        machine = Machine(4, True, 16 * GIB, int(free * GIB))
        return kv_cache_bytes(SMOLLM2, machine, Wishes(**wishes), degree) / GIB

    assert cache(12) == pytest.approx(8 * 8192 * 23_040 / GIB)
    assert cache(12, max_model_len=2048) == 1
    assert cache(12, args=("--max-model-len", "2048")) == 1
    assert cache(3) == pytest.approx(1)
    assert cache(2.4) == pytest.approx(0.8)
    assert cache(12, gpu_memory_utilization=0.1) < 0.4


def test_a_model_that_is_larger_than_the_memory_is_refused_in_one_line() -> None:
    with pytest.raises(CannotStart, match=r"m needs 31\.0 GiB of memory, 12\.0 GiB are free"):
        made(model=llama(30))


@pytest.mark.parametrize(
    ("cores", "whole", "degree", "threads"),
    [
        (2, True, 1, "1"),
        (4, True, 1, "3"),
        (8, True, 1, None),
        (8, False, 1, "7"),
        (8, True, 2, "3"),
        (2, True, 2, "1"),
    ],
)
def test_threads_leave_a_core_and_are_bound_only_where_there_is_room(
    cores: int, whole: bool, degree: int, threads: str | None
) -> None:
    command = made(Machine(cores, whole, 16 * GIB, 12 * GIB), tensor_parallel=degree)
    assert command.environ.get("OMP_NUM_THREADS") == threads
    assert command.environ.get("VLLM_CPU_OMP_THREADS_BIND") == ("nobind" if threads else None)


def test_a_quantisation_that_the_checkpoint_has_not_is_refused_and_one_that_it_has_goes_through() -> None:
    quantised = replace(SMOLLM2, quantisation="gptq")
    assert flag(made(model=quantised, args=("--quantization", "gptq_marlin")), "--quantization") == "gptq_marlin"
    for words in (("--quantization", "awq"), ("--quantization=awq",), ("-q", "awq")):
        with pytest.raises(CannotStart, match="quantised as gptq"):
            made(model=quantised, args=words)
