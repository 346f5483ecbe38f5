"""Keeps one engine alive: starts it, waits until it answers and is warm, starts it again when it dies, ends it."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from enum import StrEnum
from typing import BinaryIO

from gateway.engine.command import Command
from gateway.engine.diagnosis import diagnose
from gateway.engine.failure import CannotStart
from gateway.engine.process import end, lines, spawn
from gateway.engine.progress import Progress

#: Pauses in seconds before the engine is started again; the last one repeats. An engine that lived so many seconds
#: begins at the first pause again.
PAUSES = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
LIVED = 300.0
#: Lines of the log that are kept for finding the reason of a death, and how many of them are shown.
KEPT = 400
SHOWN = 15

_ERROR = re.compile(r"(?:^|\s)((?:\w+\.)*\w*(?:Error|Exception|Killed)\b: .+)")
_NOT_THE_CAUSE = re.compile(r"[Ss]ee root cause|[Ss]ee stack trace|Engine core initialization failed")


class State(StrEnum):
    """Where the engine is in its life."""

    STOPPED = "stopped"
    STARTING = "starting"
    READY = "ready"
    WAITING = "waiting"  # it died, and will be started again
    FAILED = "failed"  # it never came up


class Supervisor:
    """One engine process and its successors.

    ``alive`` says whether the engine answers, ``warm`` lets nobody pay for a first time; both may raise ``OSError`` or
    ``TimeoutError``-like failures of their own, which mean "not yet". ``log`` gets all the engine prints.
    """

    def __init__(
        self,
        command: Command,
        *,
        alive: Callable[[], Awaitable[bool]],
        warm: Callable[[], Awaitable[None]],
        progress: Progress,
        log: BinaryIO | None = None,
        grace_s: float = 10.0,
        pauses: tuple[float, ...] = PAUSES,
    ) -> None:
        self.state = State.STOPPED
        self.starts = 0
        self._command = command
        self._alive = alive
        self._warm = warm
        self._progress = progress
        self._log = log
        self._grace_s = grace_s
        self._pauses = pauses
        self._kept: deque[str] = deque(maxlen=KEPT)

    async def run(self) -> None:
        """Keep the engine up until cancelled; then nothing of it is left.

        Raises ``CannotStart`` with its last lines when it dies before it was ever ready: it would die again.
        """
        try:
            pauses = self._restart_pauses()
            while True:
                born = asyncio.get_running_loop().time()
                status = await self._live()
                if asyncio.get_running_loop().time() - born >= LIVED:
                    pauses = self._restart_pauses()
                pause = next(pauses)
                self.state = State.WAITING
                why = f"died ({describe(status)}): {self._reason(status)}"
                self._progress.say(f"{why}; starting it again in {pause:g} s")
                await asyncio.sleep(pause)
        except CannotStart:
            self.state = State.FAILED
            raise
        finally:
            if self.state is not State.FAILED:
                self.state = State.STOPPED

    def _restart_pauses(self) -> Iterator[float]:
        yield from self._pauses
        while True:
            yield self._pauses[-1]

    async def _live(self) -> int:
        """Start the engine and return its exit status when it is dead."""
        self.state = State.STARTING
        self.starts += 1
        self._kept.clear()
        degree = self._command.tensor_parallel
        self._progress.phase("starting vLLM", f"split over {degree}" if degree > 1 else "")
        process = await spawn(self._command.argv, self._command.environ, grace_s=self._grace_s)
        try:
            async with asyncio.TaskGroup() as tasks:
                waiting = tasks.create_task(self._become_ready())
                async for line in lines(process):
                    self._keep(line)
                waiting.cancel()  # its output has ended, so it is dead: the leash outlives it
        finally:
            came_up = self.state is State.READY
            status = await end(process, grace_s=self._grace_s)
        if not came_up and self.starts == 1:
            why = f"vLLM died while starting ({describe(status)}): {self._reason(status)}"
            raise CannotStart(why, self._last_lines())
        return status

    async def _become_ready(self) -> None:
        while not await self._alive():  # noqa: ASYNC110 -- it is a question over a socket
            await asyncio.sleep(0.25)
        self._progress.phase("warming up")
        await self._warm()
        self._progress.say(f"ready after {self._progress.elapsed():.0f} s")
        self.state = State.READY

    def _keep(self, line: str) -> None:
        if line:
            self._kept.append(line)
        if self._log is not None:
            with contextlib.suppress(OSError):  # a full disk is no reason to lose the engine
                self._log.write(line.encode() + b"\n")
                self._log.flush()
        if self.state is State.STARTING:
            self._progress.log_line(line)

    def _reason(self, status: int) -> str:
        """Return the diagnosis, else the last error in the log that names a cause, or the last line."""
        kept = [*self._kept]
        if diagnosis := diagnose(kept, status):
            return str(diagnosis)
        errors = []
        for line, following in zip(kept, [*kept, ""][1:], strict=True):
            if found := _ERROR.search(line):
                # pydantic says in its first line that something is wrong, and in the second what.
                what = f": {following.strip()}" if "validation error" in line else ""
                errors.append(found.group(1) + what)
        causes = [error for error in errors if not _NOT_THE_CAUSE.search(error)]
        return (causes or errors or kept or ["it said nothing"])[-1]

    def _last_lines(self) -> tuple[str, ...]:
        return tuple(self._kept)[-SHOWN:]


def describe(status: int) -> str:
    """Say how a process ended; ``status`` as shells write it, 128 + n for signal n."""
    if status in {137, -9}:
        return "killed"
    return f"signal {status - 128}" if status > 128 else f"exit status {status}"
