"""What is installed: Python, the engine's environment, and whether driver, CUDA and torch fit each other."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from gateway.engine.doctor.finding import Finding, fine, odd, wrong

#: Asks the engine's own interpreter; each part may fail by itself.
PROBE = """
import json, sys
told = {"python": "%d.%d" % sys.version_info[:2]}
try:
    import torch
    told["torch"] = torch.__version__
    told["cuda"] = torch.version.cuda
    told["cards"] = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if told["cards"]:
        told["capability"] = list(torch.cuda.get_device_capability(0))
except Exception as fault:
    told["torch_fault"] = f"{type(fault).__name__}: {fault}"
try:
    import vllm
    told["vllm"] = vllm.__version__
except Exception as fault:
    told["vllm_fault"] = f"{type(fault).__name__}: {fault}"
print("\\n" + json.dumps(told))
"""
IMPORTS_S = 120
#: vLLM's kernels are built for these and later: compute capability.
OLDEST_CARD = (7, 0)
INSTALL = "make engine installs it anew"


def look_at_software(python: Path, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Look at the gateway's interpreter and at the engine's (``python``), which takes some seconds."""
    version = sys.version_info[:2]
    told = platform.python_version()
    fits = (3, 11) <= version <= (3, 13)
    yield fine("Python", told) if fits else wrong("Python", told, "3.11, 3.12 or 3.13 is needed")
    if not python.exists():
        yield wrong("engine", f"there is no {python}", "make engine installs vLLM into .engine-venv")
        return
    probed = probe(python, environ)
    if probed is None:
        yield wrong("engine", f"{python} does not run", INSTALL)
        return
    yield from judge(probed, driver_cuda(environ))


def probe(python: Path, environ: Mapping[str, str]) -> dict[str, Any] | None:
    """Ask the engine's interpreter what it can import; None where it does not even run."""
    settings = {**environ, "VLLM_LOGGING_LEVEL": "ERROR", "PYTHONWARNINGS": "ignore"}
    try:
        done = subprocess.run(
            [python, "-c", PROBE], capture_output=True, text=True, timeout=IMPORTS_S, env=settings, check=False
        )
        told = msgspec.json.decode(done.stdout.strip().rpartition("\n")[2], type=dict[str, Any])
    except (OSError, subprocess.SubprocessError, msgspec.MsgspecError):
        return None
    return told


def driver_cuda(environ: Mapping[str, str]) -> tuple[int, int] | None:
    """Return the newest CUDA that the driver can run, as nvidia-smi's head tells it; None without a driver."""
    if not (tool := shutil.which("nvidia-smi", path=environ.get("PATH"))):
        return None
    try:
        head = subprocess.run([tool], capture_output=True, text=True, timeout=30, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    _, found, rest = head.partition("CUDA Version:")
    return _version(rest.split()[0]) if found and rest.split() else None


def judge(probed: Mapping[str, Any], driver: tuple[int, int] | None) -> Iterator[Finding]:
    """Say what the engine's interpreter has told, beside what the driver can run."""
    if fault := probed.get("torch_fault"):
        yield wrong("torch", f"does not import: {fault}", INSTALL)
    else:
        yield from _torch(probed, driver)
    if fault := probed.get("vllm_fault"):
        yield wrong("vLLM", f"does not import: {fault}", INSTALL)
    elif "vllm" in probed:
        yield fine("vLLM", f"{probed['vllm']}, on Python {probed.get('python')}")


def _torch(probed: Mapping[str, Any], driver: tuple[int, int] | None) -> Iterator[Finding]:
    cuda = probed.get("cuda")
    told = f"{probed.get('torch')}, {f'for CUDA {cuda}' if cuda else 'for the CPU'}"
    if driver is None:
        if cuda:
            yield odd(
                "torch", f"{told}, but there is no driver", "install NVIDIA's driver, or make engine on this machine"
            )
        else:
            yield fine("torch", told)
        return
    if not cuda:
        yield wrong("torch", f"{told}, but there is a card", f"{INSTALL} with CUDA")
    elif _version(cuda)[0] > driver[0]:
        newest = ".".join(map(str, driver))
        yield wrong("torch", f"{told}; the driver can run {newest}", "a newer driver, or a torch for an older CUDA")
    elif not probed.get("cards"):
        yield wrong(
            "torch", f"{told}, sees no card", "CUDA_VISIBLE_DEVICES, /dev/nvidia*, or the container's --gpus all"
        )
    elif tuple(probed.get("capability", OLDEST_CARD)) < OLDEST_CARD:
        yield wrong(
            "torch", f"the card is of compute capability {probed['capability']}", "7.0 (V100) or newer is needed"
        )
    else:
        yield fine("torch", f"{told}, sees {probed['cards']} cards; the driver can run {'.'.join(map(str, driver))}")


def _version(text: str) -> tuple[int, int]:
    major, _, minor = text.partition(".")
    return int(major), int(minor.partition(".")[0] or 0)
