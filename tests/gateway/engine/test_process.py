from __future__ import annotations

import asyncio
import os
import signal
import sys
import time

import pytest

from gateway.engine.process import end, lines, spawn
from tests.gateway.engine.conftest import Family

WITH_CHILD = """
import subprocess, sys
subprocess.run([sys.executable, '-c', 'print(1, flush=True); import time; time.sleep(60)'])
"""


async def test_lines_are_whole_however_they_come_and_a_bars_states_are_lines(family: Family) -> None:
    code = r"""
import sys, time
for piece in (b"one\ntw", b"o\r 10%\r 20%\r\n", b"\x1b[36mth", b"ree\x1b[0m \xff", b"\nlast"):
    sys.stdout.buffer.write(piece); sys.stdout.flush(); time.sleep(0.02)
print("error", file=sys.stderr)
"""
    process = await spawn([sys.executable, "-c", code], family.environ, grace_s=1)
    assert [line async for line in lines(process) if line] == ["one", "two", " 10%", " 20%", "three �", "lasterror"]
    assert await end(process, grace_s=1) == 0


async def test_it_runs_in_a_group_of_its_own(family: Family) -> None:
    code = "import os; print(os.getpgid(0), os.getsid(0))"
    process = await spawn([sys.executable, "-c", code], family.environ, grace_s=1)
    assert [line async for line in lines(process)] == [f"{process.pid} {process.pid}"]
    await end(process, grace_s=1)


async def test_a_killed_leash_leaves_nothing_either(family: Family) -> None:
    process = await spawn([sys.executable, "-c", WITH_CHILD], family.environ, grace_s=1)
    assert process.stdout is not None
    await process.stdout.readline()
    os.kill(process.pid, signal.SIGKILL)
    await end(process, grace_s=1)
    family.wait(lambda count: count == 0)


async def test_who_is_in_a_hurry_cancels_and_it_is_gone_at_once(family: Family) -> None:
    code = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
    process = await spawn([sys.executable, "-c", code], family.environ, grace_s=30)
    assert process.stdout is not None
    await process.stdout.readline()
    begun = time.monotonic()
    ending = asyncio.get_running_loop().create_task(end(process, grace_s=30))
    await asyncio.sleep(0.1)
    ending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await ending
    family.wait(lambda count: count == 0)
    assert time.monotonic() - begun < 5
    assert await process.stdout.read() == b""
    await process.wait()


async def test_a_killed_leash_is_the_end_of_the_lines_though_a_grandchild_holds_the_pipe(family: Family) -> None:
    process = await spawn([sys.executable, "-c", WITH_CHILD], family.environ, grace_s=1)
    heard = []
    async for line in lines(process):
        heard.append(line)
        os.kill(process.pid, signal.SIGKILL)
    assert heard == ["1"]
    assert await end(process, grace_s=1) == -9


@pytest.mark.parametrize("after_s", [0.0, 0.001, 0.005, 0.02, 0.05])
async def test_cancelled_at_any_moment_of_the_start_it_leaves_nothing(family: Family, after_s: float) -> None:
    code = "import time; time.sleep(60)"
    starting = asyncio.get_running_loop().create_task(spawn([sys.executable, "-c", code], family.environ, grace_s=1))
    await asyncio.sleep(0)
    time.sleep(after_s)  # the loop is held up, so that the cancel meets the start
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert family.members() == []
