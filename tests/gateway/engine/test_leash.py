from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from gateway.engine import leash
from tests.gateway.engine.conftest import Family

LEASH = Path(leash.__file__)


def held(family: Family, code: str, *, grace: float = 5.0) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-I", "-S", str(LEASH), str(grace), sys.executable, "-c", textwrap.dedent(code)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=family.environ)


def let_go(process: subprocess.Popen[bytes]) -> int:
    assert process.stdin is not None
    assert process.stdout is not None
    with process.stdin, process.stdout:
        pass
    return process.wait(10)


def heard(process: subprocess.Popen[bytes]) -> bytes:
    assert process.stdout is not None
    return process.stdout.readline()


@pytest.mark.parametrize(
    ("code", "status"),
    [("raise SystemExit(3)", 3), ("import os; os.kill(os.getpid(), 9)", 137), ("pass", 0)],
)
def test_the_status_is_the_engines(family: Family, code: str, status: int) -> None:
    process = held(family, code)
    assert process.wait(10) == status
    let_go(process)


def test_a_command_that_does_not_exist_is_said_so(family: Family) -> None:
    command = [sys.executable, str(LEASH), "1", "/nowhere/vllm"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, env=family.environ, check=False)
    assert (done.returncode, done.stderr) == (127, b"/nowhere/vllm: No such file or directory\n")


def test_letting_go_gives_the_engine_time_to_end_well(family: Family) -> None:
    process = held(
        family,
        """
        import signal, sys, time
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(42))
        print("up", flush=True)
        time.sleep(60)
        """,
    )
    assert heard(process) == b"up\n"
    assert let_go(process) == 42


def test_one_that_ignores_sigterm_is_killed_after_the_grace(family: Family) -> None:
    process = held(
        family,
        "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(60)",
        grace=0.2,
    )
    heard(process)
    begun = time.monotonic()
    assert let_go(process) == 137
    assert time.monotonic() - begun < 3


GRANDCHILDREN = """
    import os, subprocess, sys, time
    stubborn = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
    for own_session in (True, False):
        subprocess.Popen([sys.executable, '-c', stubborn], start_new_session=own_session)
    """


def test_grandchildren_in_sessions_of_their_own_go_with_a_crashed_engine(family: Family) -> None:
    process = held(family, GRANDCHILDREN + "time.sleep(0.5); os._exit(7)")
    heard(process), heard(process)
    assert process.wait(10) == 7
    assert family.members() == []
    let_go(process)


def test_grandchildren_go_when_we_let_go(family: Family) -> None:
    process = held(family, GRANDCHILDREN + "time.sleep(60)", grace=1)
    heard(process), heard(process)
    assert len(family.members()) == 4
    let_go(process)
    assert family.members() == []


def test_when_we_are_killed_nothing_is_left_behind(family: Family) -> None:
    code = textwrap.dedent(GRANDCHILDREN + "time.sleep(60)")
    ours = f"""
    import subprocess, sys, time
    command = [sys.executable, {str(LEASH)!r}, "1", sys.executable, "-c", {code!r}]
    subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
    time.sleep(60)
    """
    us = subprocess.Popen([sys.executable, "-c", textwrap.dedent(ours)], env=family.environ, stdout=subprocess.PIPE)
    heard(us), heard(us)
    assert len(family.members()) == 5
    us.kill()
    us.wait()
    assert us.stdout is not None
    us.stdout.close()
    family.wait(lambda count: count == 0)


def test_when_the_leash_is_killed_the_engine_dies_with_it(family: Family) -> None:
    process = held(family, "import time; print('up', flush=True); time.sleep(60)")
    heard(process)
    os.kill(process.pid, signal.SIGKILL)
    family.wait(lambda count: count == 0)
    let_go(process)
