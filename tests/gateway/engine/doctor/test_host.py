"""The machine, as a doctor sees it: a fake nvidia-smi and a fake /proc where the real ones cannot be had."""

from __future__ import annotations

import os
import resource
import socket
import sys
from pathlib import Path

import pytest

from gateway.engine.doctor import host


def smi(folder: Path, script: str) -> dict[str, str]:
    """Put an nvidia-smi on the path that answers with this."""
    tool = folder / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}"}


def test_without_a_driver_the_cpu_is_what_there_is() -> None:
    (found,) = host.cards({"PATH": ""})
    assert (found.level, "CPU" in found.told) == ("fine", True)


def test_a_free_card_and_one_that_is_held(tmp_path: Path) -> None:
    environ = smi(
        tmp_path,
        'case "$1" in *query-gpu*) echo "0, H100, 81559, 0, 570.1, Enabled"; '
        'echo "1, H100, 81559, 70000, 570.1, Disabled";; *) echo "GPU-1, 4242, 69000";; esac',
    )
    comm = tmp_path / "proc/4242/comm"
    comm.parent.mkdir(parents=True)
    comm.write_text("python3\n")
    free, held, persistence = host.cards(environ, tmp_path)
    assert (free.level, free.check) == ("fine", "card 0")
    assert held.level == "wrong"
    assert "held by python3 (4242, 69000 MiB)" in held.told
    assert "CUDA_VISIBLE_DEVICES" in held.mend
    assert persistence.mend == "nvidia-smi -pm 1"


def test_a_driver_that_does_not_answer_is_wrong(tmp_path: Path) -> None:
    (found,) = host.cards(smi(tmp_path, "exit 9"))
    assert (found.level, found.check) == ("wrong", "cards")


def test_a_taken_port_is_named_with_who_has_it() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        found = host.port_free(port)
        assert found.level == "wrong"
        assert f"{port} is taken by" in found.told
        assert f"({os.getpid()})" in found.told
    assert host.port_free(port).level == "fine"


def test_few_open_files_are_told_in_streams() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))
    try:
        found = host.open_files()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert found.level == "odd"
    assert "some 462 streams" in found.told
    assert "ulimit -n 65536" in found.mend


@pytest.mark.parametrize(
    ("flags", "level"),
    [
        ("flags : fpu avx2 avx512f", "fine"),
        ("Features : fp asimd", "fine"),
        ("flags : fpu sse2", "wrong"),
        ("", "wrong"),
    ],
)
def test_a_processor_needs_vectors(tmp_path: Path, flags: str, level: str) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text(flags + "\n")
    assert host.processor(tmp_path).level == level


def test_small_shared_memory_and_a_full_disk_are_odd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = type("Usage", (), {"free": 64 * 2**20})
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage)
    assert "--shm-size" in host.shared_memory().mend
    assert "HF_HOME" in host.disk(tmp_path / "not/there/yet").mend


def test_everything_is_looked_at_here(tmp_path: Path) -> None:
    found = {each.check for each in host.look_at_host(dict(os.environ), 0, tmp_path)}
    assert {"shared memory", "disk", "open files", "port", "processor"} <= found
    assert sys.platform == "linux"
