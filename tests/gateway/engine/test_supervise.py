from __future__ import annotations

import asyncio
import contextlib
import io
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.engine.command import Command
from gateway.engine.failure import CannotStart
from gateway.engine.progress import Progress
from gateway.engine.supervise import State, Supervisor, describe
from tests.gateway.engine.conftest import Family


class Bench:
    """A supervisor over a script that is "alive" as long as the file it touches is there."""

    def __init__(self, family: Family, tmp_path: Path) -> None:
        self.family = family
        self.alive_file = tmp_path / "alive"
        self.told = io.StringIO()
        self.log = io.BytesIO()
        self.warmed = 0

    def supervisor(self, code: str, *, grace_s: float = 2.0) -> Supervisor:
        preamble = f"import os, signal, sys, time, pathlib; alive = pathlib.Path({str(self.alive_file)!r})\n"
        return Supervisor(
            Command((sys.executable, "-c", preamble + code), self.family.environ, 1),
            alive=self._alive,
            warm=self._warm,
            progress=Progress(self.told),
            log=self.log,
            grace_s=grace_s,
            pauses=(0.05, 0.1),
        )

    async def _alive(self) -> bool:
        return self.alive_file.exists()

    async def _warm(self) -> None:
        self.warmed += 1


@pytest.fixture
def bench(family: Family, tmp_path: Path) -> Bench:
    return Bench(family, tmp_path)


@contextlib.asynccontextmanager
async def running(supervisor: Supervisor) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.get_running_loop().create_task(supervisor.run())
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task])


async def reached(supervisor: Supervisor, state: State, starts: int = 1) -> None:
    async with asyncio.timeout(10):
        while not (supervisor.state is state and supervisor.starts == starts):
            await asyncio.sleep(0.01)


async def test_ready_means_alive_and_warm(bench: Bench) -> None:
    supervisor = bench.supervisor("print('loading', flush=True); time.sleep(0.2); alive.touch(); time.sleep(60)")
    async with running(supervisor):
        await reached(supervisor, State.STARTING)
        assert bench.warmed == 0
        await reached(supervisor, State.READY)
        assert bench.warmed == 1
    assert supervisor.state is State.STOPPED
    assert bench.log.getvalue() == b"loading\n"
    assert "ready after" in bench.told.getvalue()


async def test_an_engine_that_never_came_up_is_not_tried_again_and_its_cause_is_told(bench: Bench) -> None:
    log = [
        "INFO fine",
        "(Worker pid=1) ValueError: To serve at least one request, more memory is needed",
        "Traceback (most recent call last):",
        "RuntimeError: Engine core initialization failed. See root cause above.",
    ]
    supervisor = bench.supervisor(f"print(*{log!r}, sep='\\n'); sys.exit(1)")
    with pytest.raises(CannotStart) as failure:
        await supervisor.run()
    assert str(failure.value) == (
        "vLLM died while starting (exit status 1): ValueError: To serve at least one request, more memory is needed"
    )
    assert failure.value.log == tuple(log)
    assert (supervisor.state, supervisor.starts) == (State.FAILED, 1)


UNTIL_TOLD = "alive.touch()\nwhile alive.exists(): time.sleep(0.02)\nos.kill(os.getpid(), 9)"


async def test_one_that_crashes_later_is_started_again_with_growing_pauses(bench: Bench) -> None:
    supervisor = bench.supervisor(UNTIL_TOLD)
    async with running(supervisor):
        for life in (1, 2, 3):
            await reached(supervisor, State.READY, starts=life)
            bench.alive_file.unlink()
        await reached(supervisor, State.READY, starts=4)
    told = bench.told.getvalue()
    assert "died (killed): memory limit: most likely the kernel, for lack of memory; " in told
    assert "starting it again in 0.05 s" in told
    assert told.count("starting it again in 0.1 s") == 2


async def test_a_restart_that_fails_is_tried_again(bench: Bench) -> None:
    once = "if (alive.parent / 'second').exists(): raise ValueError('no card')\n(alive.parent / 'second').touch()\n"
    supervisor = bench.supervisor(once + UNTIL_TOLD)
    async with running(supervisor):
        await reached(supervisor, State.READY)
        bench.alive_file.unlink()
        await reached(supervisor, State.WAITING, starts=3)
    assert "ValueError: no card" in bench.told.getvalue()


async def test_a_stubborn_one_is_ended_all_the_same(bench: Bench) -> None:
    supervisor = bench.supervisor("signal.signal(15, signal.SIG_IGN); alive.touch(); time.sleep(60)", grace_s=0.2)
    async with running(supervisor):
        await reached(supervisor, State.READY)
    assert bench.family.members() == []


async def test_stopping_while_it_loads_leaves_nothing(bench: Bench) -> None:
    supervisor = bench.supervisor("print('loading', flush=True); time.sleep(60)")
    async with running(supervisor):
        await reached(supervisor, State.STARTING)
        bench.family.wait(lambda count: count == 2)
    assert bench.family.members() == []
    assert supervisor.state is State.STOPPED


async def test_a_pydantic_complaint_is_told_with_its_second_line(bench: Bench) -> None:
    log = ["pydantic_core.ValidationError: 1 validation error for ModelConfig", "  Value error, Unknown method: x."]
    supervisor = bench.supervisor(f"print(*{log!r}, sep='\\n'); sys.exit(1)")
    with pytest.raises(CannotStart, match=r"1 validation error for ModelConfig: Value error, Unknown method: x\.$"):
        await supervisor.run()


@pytest.mark.parametrize(
    ("status", "said"),
    [(0, "exit status 0"), (1, "exit status 1"), (139, "signal 11"), (137, "killed")],
)
def test_how_it_ended_is_said_as_people_say_it(status: int, said: str) -> None:
    assert describe(status) == said
