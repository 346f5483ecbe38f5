"""What this machine has to run a model on: cores, memory and NVIDIA cards. Standard library only."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

GIB = 2**30


@dataclass(frozen=True, slots=True)
class Machine:
    """``cores`` we may use (``whole``: all of the machine's, with no quota), memory and each card's memory in bytes."""

    cores: int
    whole: bool
    memory: int
    free: int
    cards: tuple[int, ...] = ()


def look(environ: Mapping[str, str], root: Path = Path("/")) -> Machine:
    """Look around. ``root`` is where ``/proc`` and ``/sys`` are found."""
    affinity = len(os.sched_getaffinity(0))
    quota = _cpu_quota(root)
    cores = min(affinity, max(1, round(quota))) if quota else affinity
    memory, free = _memory(root)
    return Machine(cores, cores == os.cpu_count(), memory, free, nvidia_cards(environ))


def nvidia_cards(environ: Mapping[str, str]) -> tuple[int, ...]:
    """Return the bytes of memory of each visible NVIDIA card; none without a working driver."""
    if not (tool := shutil.which("nvidia-smi", path=environ.get("PATH"))):
        return ()
    query = [tool, "--query-gpu=index,uuid,memory.total", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, timeout=30, check=True).stdout
        rows = [[field.strip() for field in line.split(",")] for line in answer.splitlines() if line.strip()]
        cards = [(index, uuid, int(mib) * 2**20) for index, uuid, mib in rows]
    except (OSError, subprocess.SubprocessError, ValueError):
        return ()
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return tuple(memory for _, _, memory in cards)
    # CUDA's own rule: indices or (beginnings of) UUIDs, in order; what does not exist ends the list.
    chosen = []
    for name in visible.split(","):
        wanted = name.strip()
        found = [memory for index, uuid, memory in cards if wanted == index or (wanted and uuid.startswith(wanted))]
        if not found:
            break
        chosen.append(found[0])
    return tuple(chosen)


def _memory(root: Path) -> tuple[int, int]:
    """Return total and available bytes as vLLM sees them: of one NUMA node, and at most what the container may have.

    vLLM binds a worker's memory to its node, so what other nodes have does not help it.
    """
    system = _meminfo(root / "proc/meminfo")
    total, free = system.get("MemTotal", 8 * GIB), system.get("MemAvailable", 4 * GIB)
    for path in (root / "sys/devices/system/node").glob("node*/meminfo"):
        if node := _meminfo(path):
            reclaimable = ("MemFree", "Active(file)", "Inactive(file)", "SReclaimable")
            total = min(total, node["MemTotal"] or total)
            free = min(free, sum(node.get(field, 0) for field in reclaimable)) if node["MemTotal"] else free
    limit = _number(root / "sys/fs/cgroup/memory.max")
    if limit is not None and limit < total:
        total, free = limit, min(free, limit - (_number(root / "sys/fs/cgroup/memory.current") or 0))
    return total, max(0, free)


def _meminfo(path: Path) -> dict[str, int]:
    """Read ``[Node 0] MemTotal: 123 kB`` lines into bytes."""
    try:
        lines = path.read_text(encoding="ascii").splitlines()
    except OSError:
        return {}
    fields = [line.partition(":") for line in lines if line.endswith("kB")]
    return {name.split()[-1]: int(value.split()[0]) * 1024 for name, _, value in fields}


def _cpu_quota(root: Path) -> float | None:
    """Return the container's limit in cores (cgroup v2), or None."""
    try:
        quota, period = (root / "sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
        return int(quota) / int(period)
    except (OSError, ValueError):
        return None


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
