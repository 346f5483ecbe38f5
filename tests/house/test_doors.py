"""The commands of the house: each says in one line what is missing, and none does its work twice."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.test_layout import ROOT


def make(folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MAKE") and name != "MFLAGS"}
    return subprocess.run(
        ["make", *words], cwd=folder, env=clean | environment, capture_output=True, text=True, check=False, timeout=60
    )


def told(done: subprocess.CompletedProcess[str]) -> list[str]:
    """What the command said itself, without make's own last word."""
    return [line for line in (done.stdout + done.stderr).splitlines() if not line.startswith("make:")]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name in ("Makefile", "pyproject.toml", "constraints.txt", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


def stub(path: Path, script: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_make_alone_lists_what_can_be_made(checkout: Path) -> None:
    listed = make(checkout).stdout
    for target in ("run", "serve", "install", "test", "check", "docs", "clean"):
        assert f"  make {target} " in listed


def test_a_wrong_python_is_told_in_one_line(checkout: Path) -> None:
    stub(checkout / "python3.9", 'test "$1" = --version && echo Python 3.9.1 || exit 1')
    done = make(checkout, "install", f"PYTHON={checkout}/python3.9")
    assert done.returncode == 2
    (line,) = told(done)
    assert "3.11, 3.12 or 3.13" in line
    assert "Python 3.9.1" in line


def test_no_python_at_all_is_told_in_one_line(checkout: Path) -> None:
    done = make(checkout, "install", f"PYTHON={checkout}/nothing")
    (line,) = told(done)
    assert "found none" in line


@pytest.mark.parametrize(
    ("fault", "line"),
    [
        ("NewConnectionError: Failed to establish a new connection", "No network: pip cannot reach"),
        ("OSError: [Errno 28] No space left on device", "Not enough disk"),
    ],
)
def test_an_install_that_fails_says_why_in_one_line_and_leaves_no_stamp(checkout: Path, fault: str, line: str) -> None:
    stub(checkout / ".venv/bin/python", f'case "$*" in *"pip install"*) echo "{fault}"; exit 1;; esac')
    done = make(checkout, "install")
    assert done.returncode == 2
    progress, reason = told(done)
    assert progress == "Installing the gateway into .venv"
    assert reason.startswith(line)
    assert not (checkout / ".venv/.gateway").exists()


def test_a_full_disk_is_told_before_anything_is_made(checkout: Path) -> None:
    stub(checkout / "bin/df", 'printf "Filesystem blocks used free\\nnone 1 1 2048\\n"')
    done = make(checkout, "install", PATH=f"{checkout}/bin:{os.environ['PATH']}")
    (line,) = told(done)
    assert "takes 600 MB, and 2 MB are free" in line
    assert not (checkout / ".venv").exists()


def test_an_install_that_is_done_is_not_done_again_and_a_broken_one_is_mended(checkout: Path) -> None:
    stub(checkout / ".venv/bin/python", "true")
    assert "Installing" in make(checkout, "install").stdout
    assert "Installing" not in make(checkout, "install").stdout
    (checkout / ".venv/.gateway").unlink()  # as an install leaves it that was interrupted
    assert "Installing" in make(checkout, "install").stdout


def test_a_taken_port_is_told_before_the_long_install(checkout: Path) -> None:
    stub(checkout / ".venv/bin/python", f'exec "{sys.executable}" "$@"')
    (checkout / ".venv/.gateway").touch()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = make(checkout, "run", SLUICE_SERVER__PORT=port)
    assert done.returncode != 0
    (line,) = told(done)
    assert line.startswith(f"Port {port} cannot be used")
    assert "SLUICE_SERVER__PORT=8081 make run" in line


def test_what_ci_runs_is_what_everybody_runs() -> None:
    script = (ROOT / ".ci" / "run").read_text("utf-8")
    subprocess.run(["bash", "-n", str(ROOT / ".ci" / "run")], check=True)
    parts = re.findall(r"^ *part .*? \d+ (.*)$", script, re.MULTILINE)  # test_ci.py plays them
    assert parts == ["make test", ".ci/containers", 'make soak ARGS="--minutes 5"']
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
