"""The machine: cards and who holds them, shared memory, disk, ports, open files, the processor."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from gateway.engine.doctor.finding import Finding, fine, odd, wrong
from gateway.engine.machine import GIB

#: Workers meet in /dev/shm: vLLM's own buffers and NCCL's. Docker gives 64 MB unless told otherwise.
SHARED_MEMORY = GIB
DISK = 20 * GIB
FILES = 4096
#: A card of which others hold more than this has no room for an engine that takes nine tenths.
HELD = 0.05


def look_at_host(environ: Mapping[str, str], port: int, folder: Path, root: Path = Path("/")) -> Iterator[Finding]:
    """Look at all of it: the gateway's ``port``, the ``folder`` of models; ``root`` is where /proc is found."""
    yield from cards(environ, root)
    yield shared_memory(root)
    yield disk(folder)
    yield open_files()
    yield port_free(port, root)
    yield processor(root)


def cards(environ: Mapping[str, str], root: Path = Path("/")) -> Iterator[Finding]:
    """Each card: how much of it is free, and which processes hold the rest."""
    tool = shutil.which("nvidia-smi", path=environ.get("PATH"))
    if tool is None:
        yield fine("cards", "no nvidia-smi: the engine runs on the CPU")
        return
    rows = _ask(tool, "--query-gpu=index,name,memory.total,memory.used,driver_version,persistence_mode")
    if rows is None:
        mend = "load the driver (modprobe nvidia), or mend its installation; nvidia-smi has to work first"
        yield wrong("cards", "nvidia-smi is there but cannot speak to the driver", mend)
        return
    users = _ask(tool, "--query-compute-apps=gpu_uuid,pid,used_memory") or []
    for index, name, total, used, driver, persistence in (row for row in rows if len(row) == 6):
        share = int(used) / max(1, int(total))
        told = f"{name}, {int(used)} of {int(total)} MiB in use, driver {driver}"
        if share > HELD:
            holders = (
                ", ".join(f"{_called(root, pid)} ({pid}, {held} MiB)" for _, pid, held in users) or "unknown processes"
            )
            yield wrong(
                f"card {index}", f"{told}, held by {holders}", "end them, or choose cards: CUDA_VISIBLE_DEVICES=…"
            )
        else:
            yield fine(f"card {index}", told)
        if persistence == "Disabled":
            yield odd(
                f"card {index}", "persistence mode is off: the first request after a pause waits", "nvidia-smi -pm 1"
            )


def _ask(tool: str, query: str) -> list[list[str]] | None:
    command = [tool, query, "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    return [[field.strip() for field in line.split(",")] for line in answer.splitlines() if line.strip()]


def _called(root: Path, pid: str) -> str:
    try:
        return (root / "proc" / pid / "comm").read_text().strip()
    except OSError:
        return "a process of another container"


def shared_memory(root: Path = Path("/")) -> Finding:
    """Where tensor-parallel workers meet."""
    try:
        free = shutil.disk_usage(root / "dev/shm").free
    except OSError:
        return odd("shared memory", "there is no /dev/shm", "mount a tmpfs there; tensor parallelism needs it")
    told = f"{free / GIB:.1f} GiB free in /dev/shm"
    if free < SHARED_MEMORY:
        mend = "docker run --shm-size=8g, or an emptyDir of medium Memory on Kubernetes"
        return odd("shared memory", f"{told}: too little for tensor parallelism", mend)
    return fine("shared memory", told)


def disk(folder: Path) -> Finding:
    """Where models are kept."""
    there = next(each for each in (folder, *folder.parents) if each.exists())
    free = shutil.disk_usage(there).free
    told = f"{free / GIB:.0f} GiB free for models in {folder}"
    return fine("disk", told) if free > DISK else odd("disk", told, "make room, or set HF_HOME to a larger disk")


def open_files() -> Finding:
    """Every stream takes two."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    told = f"{soft} may be open (at most {hard})"
    if soft < FILES:
        return odd(
            "open files", f"{told}: some {soft // 2 - 50} streams at once", "ulimit -n 65536 (LimitNOFILE= in systemd)"
        )
    return fine("open files", told)


def port_free(port: int, root: Path = Path("/")) -> Finding:
    """The gateway's own."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("0.0.0.0", port))  # noqa: S104 - bound for a moment only, to see whether it is free
        except PermissionError:
            return wrong("port", f"{port} is for root", "choose one over 1023: SLUICE_SERVER__PORT=8080")
        except OSError:
            holder = _listener(port, root)
            return wrong("port", f"{port} is taken{holder}", f"end it, or SLUICE_SERVER__PORT={port + 1}")
    return fine("port", f"{port} is free")


def _listener(port: int, root: Path) -> str:
    """Name who listens at a port, as far as we may see."""
    inodes = set()
    for table in ("net/tcp", "net/tcp6"):
        try:
            rows = (root / "proc" / table).read_text().splitlines()[1:]
        except OSError:
            continue
        fields = (row.split() for row in rows)
        inodes |= {row[9] for row in fields if row[3] == "0A" and int(row[1].rpartition(":")[2], 16) == port}
    held = {f"socket:[{inode}]" for inode in inodes}
    for link in (root / "proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):  # it may be another's, or gone by now
            if os.readlink(link) in held:  # noqa: PTH115 - what it leads to is no path
                pid = link.parts[-3]
                return f" by {_called(root, pid)} ({pid})"
    return ""


def processor(root: Path = Path("/")) -> Finding:
    """What a CPU engine needs of it."""
    try:
        text = (root / "proc/cpuinfo").read_text()
    except OSError:
        return odd("processor", "/proc/cpuinfo cannot be read", "the CPU engine needs Linux")
    flags = next(
        (line.partition(":")[2].split() for line in text.splitlines() if line.startswith(("flags", "Features"))), []
    )
    cores = len(os.sched_getaffinity(0))
    known = [name for name in ("amx_bf16", "avx512_bf16", "avx512f", "avx2", "asimd") if name in flags]
    told = f"{cores} cores, {', '.join(known) or 'no vector units that vLLM knows'}"
    if not known:
        return wrong("processor", told, "vLLM's CPU engine needs AVX2, AVX-512 or NEON: another machine, or a card")
    return fine("processor", told)
