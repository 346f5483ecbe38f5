"""Why an engine died, from its own words. tests/system/test_engine_truth.py provokes those of a CPU engine for real."""

from __future__ import annotations

import pytest

from gateway.engine.diagnosis import diagnose

HELD = (
    "ValueError: Free memory on device cuda:0 (20.50/79.10 GiB) on startup is less than desired GPU memory "
    "utilization (0.92, 72.77 GiB). Decrease GPU memory utilization"
)
TORCH = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {wanted} MiB. GPU 0 has a total capacity of "
    "79.10 GiB of which 100.00 MiB is free. {others}Including non-PyTorch memory, this process has 70.00 GiB memory in "
    "use. Of the allocated memory 60.00 GiB is allocated by PyTorch, and {unused} is reserved by PyTorch but "
    "unallocated."
)


@pytest.mark.parametrize(
    ("line", "cause", "parts"),
    [
        (HELD, "other processes", ["20.50 of 79.10 GiB", "cuda:0", "--gpu-memory-utilization 0.25"]),
        (
            "ValueError: No available memory for the cache blocks. Try increasing",
            "weights",
            ["--gpu-memory-utilization 0.95"],
        ),
        (
            "RuntimeError: CUDA out of memory occurred when warming up sampler with 1024 dummy requests. Please try",
            "activations",
            ["1024 requests", "--max-num-seqs 512"],
        ),
        (
            TORCH.format(wanted=100, unused="8.00 GiB", others=""),
            "fragmentation",
            ["100 MiB could not be had", "expandable_segments"],
        ),
        (
            TORCH.format(wanted=500, unused="200.00 MiB", others="Process 77 has 40.00 GiB memory in use. "),
            "other processes",
            ["sluice doctor"],
        ),
        (TORCH.format(wanted=500, unused="200.00 MiB", others=""), "activations", ["--max-num-batched-tokens"]),
        (
            "  File model_loader/default_loader.py, in load_weights\n"
            + TORCH.format(wanted=500, unused="20.00 MiB", others=""),
            "weights",
            ["quantised"],
        ),
        (
            "ValueError: Bfloat16 is only supported on GPUs with compute capability of at least 8.0.",
            "dtype",
            ["float16"],
        ),
        (
            "OSError: [Errno 98] error while attempting to bind on address ('127.0.0.1', 8100): address already in use",
            "port",
            [],
        ),
        (
            "api_server.py: error: unrecognized arguments: --max-modle-len 4",
            "flags",
            ["unrecognized arguments: --max-modle-len 4"],
        ),
        (
            "OSError: /models/x does not appear to have a file named model-00002.safetensors. Checkout",
            "missing files",
            ["model-00002.safetensors is missing"],
        ),
    ],
)
def test_each_message_has_its_cause_numbers_and_mend(line: str, cause: str, parts: list[str]) -> None:
    found = diagnose(["INFO something before", *line.splitlines(), "INFO something after"], 1)
    assert found is not None
    assert found.cause == cause
    assert [part for part in parts if part not in str(found)] == [], found
    assert "\n" not in str(found)


def test_a_kill_without_a_word_is_most_likely_the_kernels() -> None:
    found = diagnose(["INFO loading"], 137)
    assert found is not None
    assert found.cause == "memory limit"


def test_what_no_entry_knows_is_left_to_the_engines_own_words() -> None:
    assert diagnose(["ValueError: something new"], 1) is None
    assert diagnose([], 0) is None
