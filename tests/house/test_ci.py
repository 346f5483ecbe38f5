"""One command is what CI does: every part is run, one red part makes it red, and pytest's closing line is the last."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.house.test_layout import ROOT

TOOLS = ("curl", "nginx", "promtool", "openssl", "systemd-analyze", "podman")
MAKE = """#!/bin/sh
case "$1" in
  test) echo "..."; echo "12 passed in 3.45s"; exit ${TEST:-0} ;;
  soak) echo "soak: ${SOAK_SAID:-nothing leaks}"; exit ${SOAK:-0} ;;
esac
"""
CONTAINERS = "#!/bin/sh\necho '7 passed, 30 deselected in 60.00s'\nexit ${CONTAINERS:-0}\n"


def script(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout whose parts are played."""
    script(tmp_path / ".ci" / "run", (ROOT / ".ci" / "run").read_text("utf-8"))
    script(tmp_path / ".ci" / "containers", CONTAINERS)
    script(tmp_path / "bin" / "make", MAKE)
    for tool in TOOLS:
        script(tmp_path / "bin" / tool, "#!/bin/sh\n")
    return tmp_path


def run(checkout: Path, **said: str) -> tuple[int, list[str]]:
    environ = {"PATH": f"{checkout / 'bin'}:{os.environ['PATH']}", **said}
    done = subprocess.run([checkout / ".ci" / "run"], env=environ, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout.splitlines()


def test_all_green_is_green_and_ends_with_the_closing_line_of_the_suite(checkout: Path) -> None:
    code, lines = run(checkout)
    assert (code, lines[-1]) == (0, "12 passed in 3.45s")
    assert lines[-4:-1] == [
        "make test: green: 12 passed in 3.45s",
        "containers: green: 7 passed, 30 deselected in 60.00s",
        "soak: green: soak: nothing leaks",
    ]


def test_where_no_container_can_be_started_they_are_said_not_to_be_run(checkout: Path) -> None:
    script(checkout / ".ci" / "containers", "#!/bin/sh\necho 'no namespaces here' >&2\nexit 77\n")
    code, lines = run(checkout)
    assert (code, lines[-3]) == (0, "containers: not run: no namespaces here")


@pytest.mark.parametrize("part", ["TEST", "CONTAINERS", "SOAK"])
def test_one_red_part_is_red_and_the_others_are_run(checkout: Path, part: str) -> None:
    code, lines = run(checkout, **{part: "2"})
    assert code == 1
    assert [": RED (2)" in line for line in lines[-4:-1]] == [part == each for each in ("TEST", "CONTAINERS", "SOAK")]
    assert lines[-1] == "12 passed in 3.45s"


def test_a_suite_that_breaks_off_is_said_so(checkout: Path) -> None:
    script(checkout / "bin" / "make", '#!/bin/sh\ntest "$1" = soak\n')
    code, lines = run(checkout)
    assert (code, lines[-1]) == (1, "make test did not come to its end")
