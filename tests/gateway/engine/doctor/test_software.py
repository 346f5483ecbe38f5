"""Whether driver, CUDA and torch fit each other, on what the interpreters tell."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from gateway.engine.doctor import software
from tests.gateway.engine.doctor.test_host import smi

GPU = {"python": "3.12", "torch": "2.13.0", "cuda": "12.9", "cards": 2, "capability": [9, 0], "vllm": "0.32.0"}


@pytest.mark.parametrize(
    ("more", "driver", "level", "told"),
    [
        ({}, (12, 9), "fine", "sees 2 cards"),
        ({}, (11, 8), "wrong", "the driver can run 11.8"),
        ({"cards": 0}, (12, 9), "wrong", "sees no card"),
        ({"capability": [6, 1]}, (12, 9), "wrong", "compute capability [6, 1]"),
        ({"cuda": None}, (12, 9), "wrong", "but there is a card"),
        ({"cuda": None}, None, "fine", "for the CPU"),
        ({}, None, "odd", "no driver"),
        ({"torch_fault": "ImportError: libcudart.so.12"}, (12, 9), "wrong", "libcudart.so.12"),
    ],
)
def test_torch_and_driver(more: dict[str, Any], driver: tuple[int, int] | None, level: str, told: str) -> None:
    found = next(each for each in software.judge(GPU | more, driver) if each.check == "torch")
    assert (found.level, told in found.told) == (level, True), found


def test_a_vllm_that_does_not_import_is_told_with_its_reason() -> None:
    found = list(software.judge(GPU | {"vllm_fault": "ModuleNotFoundError: No module named 'vllm._C'"}, (12, 9)))
    assert found[-1].level == "wrong"
    assert "vllm._C" in found[-1].told


def test_the_drivers_cuda_is_read_from_its_head(tmp_path: Path) -> None:
    head = "echo '| NVIDIA-SMI 570.1   Driver Version: 570.1   CUDA Version: 12.8     |'"
    assert software.driver_cuda(smi(tmp_path, head)) == (12, 8)
    assert software.driver_cuda(smi(tmp_path, "exit 9")) is None
    assert software.driver_cuda({"PATH": ""}) is None


def test_an_interpreter_without_an_engine_says_what_is_missing() -> None:
    """Our own has neither torch nor vLLM."""
    probed = software.probe(Path(sys.executable), dict(os.environ))
    assert probed is not None
    found = list(software.judge(probed, None))
    assert [each.level for each in found] == ["wrong", "wrong"]
    assert "No module named 'torch'" in found[0].told


def test_an_environment_that_is_not_there_or_does_not_run(tmp_path: Path) -> None:
    found = list(software.look_at_software(tmp_path / "python", {}))
    assert "make engine" in found[-1].mend
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/false\n")
    broken.chmod(0o755)
    assert list(software.look_at_software(broken, {}))[-1].told.endswith("does not run")
