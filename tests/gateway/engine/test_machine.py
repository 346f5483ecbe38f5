from __future__ import annotations

from pathlib import Path

import pytest

from gateway.engine.machine import GIB, look, nvidia_cards

SMI = """#!/bin/sh
echo "0, GPU-aaaa-1, 81920"
echo "1, GPU-bbbb-2, 40960"
echo "2, GPU-cccc-3, 81920"
"""
MIB = 2**20


@pytest.fixture
def smi(tmp_path: Path) -> Path:
    tool = tmp_path / "nvidia-smi"
    tool.write_text(SMI)
    tool.chmod(0o755)
    return tool


def test_no_tool_no_cards(tmp_path: Path) -> None:
    assert nvidia_cards({"PATH": str(tmp_path)}) == ()


@pytest.mark.parametrize(
    "script", ["#!/bin/sh\necho 'NVIDIA-SMI has failed'\nexit 9\n", "#!/bin/sh\necho garbage\n", "no script"]
)
def test_a_tool_without_a_driver_is_no_card(smi: Path, script: str) -> None:
    smi.write_text(script)
    assert nvidia_cards({"PATH": str(smi.parent)}) == ()


@pytest.mark.parametrize(
    ("visible", "mib"),
    [
        (None, (81920, 40960, 81920)),
        ("1", (40960,)),
        ("2,0", (81920, 81920)),
        ("GPU-bbbb", (40960,)),
        ("0,7,1", (81920,)),
        ("", ()),
        ("-1", ()),
    ],
)
def test_only_visible_cards_count(smi: Path, visible: str | None, mib: tuple[int, ...]) -> None:
    environ = {"PATH": str(smi.parent)} | ({} if visible is None else {"CUDA_VISIBLE_DEVICES": visible})
    assert nvidia_cards(environ) == tuple(size * MIB for size in mib)


def write(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write(tmp_path, "proc/meminfo", "MemTotal: 33554432 kB\nMemAvailable: 25165824 kB\nHugePages_Total: 0\n")
    return tmp_path


def test_memory_is_the_machines(root: Path) -> None:
    machine = look({}, root)
    assert (machine.memory, machine.free, machine.cards) == (32 * GIB, 24 * GIB, ())


def test_memory_is_that_of_the_smallest_node_for_a_worker_is_bound_to_one(root: Path) -> None:
    node = "Node {0} MemTotal: {1} kB\nNode {0} MemFree: 1048576 kB\nNode {0} Inactive(file): 3145728 kB\n"
    write(root, "sys/devices/system/node/node0/meminfo", node.format(0, 16 * 2**20))
    write(root, "sys/devices/system/node/node1/meminfo", node.format(1, 0))  # a node without memory of its own
    machine = look({}, root)
    assert (machine.memory, machine.free) == (16 * GIB, 4 * GIB)


def test_memory_and_cores_are_what_the_container_may_have(root: Path) -> None:
    write(root, "sys/fs/cgroup/memory.max", f"{8 * GIB}\n")
    write(root, "sys/fs/cgroup/memory.current", f"{3 * GIB}\n")
    write(root, "sys/fs/cgroup/cpu.max", "50000 100000\n")
    machine = look({}, root)
    assert (machine.memory, machine.free, machine.cores) == (8 * GIB, 5 * GIB, 1)


def test_no_limit_is_no_limit(root: Path) -> None:
    write(root, "sys/fs/cgroup/memory.max", "max\n")
    write(root, "sys/fs/cgroup/cpu.max", "max 100000\n")
    assert look({}, root).memory == 32 * GIB


def test_an_unknown_system_gets_a_modest_guess(tmp_path: Path) -> None:
    assert look({}, tmp_path).memory == 8 * GIB
