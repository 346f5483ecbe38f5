"""Several processes on one socket: starts them, replaces those that die, passes signals on, leaves none behind."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import shutil
import signal
import socket
import tempfile
from asyncio.subprocess import PIPE, Process
from collections.abc import Generator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic

import structlog

log = structlog.get_logger()

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 30.0
_SETTLED_S = 60.0  # who has lived this long did not die of its configuration
_FORCED_S = 5.0
_PREFIX = "sluice-metrics-"
_JUST_MADE_S = 60.0  # its parent may not have locked it yet
_FATAL = frozenset({2, 3})  # wrong configuration, could not start: the next one would fare no better


class Workers:
    """Runs ``count`` times ``command`` with ``--descriptor``, ``--worker`` and ``--metrics`` added.

    The workers' numbers lie in a directory that is made here and removed at the end. Each worker's standard input is a
    pipe that nobody writes to: it ends when this process does, however it does, and then so does the worker.
    """

    def __init__(
        self, command: Sequence[str], listener: socket.socket, count: int, *, pause_s: float = _FIRST_PAUSE_S
    ) -> None:
        self._command = tuple(command)
        self._listener = listener
        self._count = count
        self._pause_s = pause_s
        self._running: dict[int, Process] = {}
        self._stopping = asyncio.Event()
        self._status = 0

    async def run(self) -> int:
        """Keep the workers running until told to stop; return the exit status."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop, number)
        loop.add_signal_handler(signal.SIGHUP, self._pass_on, signal.SIGHUP)
        with _fresh_directory() as metrics:
            async with asyncio.TaskGroup() as group:
                for index in range(self._count):
                    group.create_task(self._keep(index, metrics))
        log.info("stopped")
        return self._status

    async def _keep(self, index: int, metrics: Path) -> None:
        pause, first = self._pause_s, True
        while not self._stopping.is_set():
            began = monotonic()
            process = self._running[index] = await self._start(index, metrics)
            status = await process.wait()
            del self._running[index]
            if self._stopping.is_set():
                return
            if first and status in _FATAL:
                self._status = status
                self._stop(signal.SIGTERM)
                return
            first = False
            log.warning("worker_died", worker=index, pid=process.pid, status=status)
            if monotonic() - began > _SETTLED_S:
                pause = self._pause_s
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._stopping.wait()
            pause = min(pause * 2, _LONGEST_PAUSE_S)

    async def _start(self, index: int, metrics: Path) -> Process:
        descriptor = self._listener.fileno()
        added = ("--descriptor", str(descriptor), "--worker", str(index), "--metrics", str(metrics))
        # A group of its own: Ctrl-C at a terminal is for the parent, which passes it on once.
        return await asyncio.create_subprocess_exec(
            *self._command, *added, stdin=PIPE, pass_fds=(descriptor,), process_group=0
        )

    def _stop(self, number: int) -> None:
        if self._stopping.is_set():
            self._status = self._status or 128 + number
            asyncio.get_running_loop().call_later(_FORCED_S, self._pass_on, signal.SIGKILL)
        else:
            log.info("stopping", signal=signal.Signals(number).name)
        self._stopping.set()
        self._pass_on(signal.SIGTERM)

    def _pass_on(self, number: int) -> None:
        for process in self._running.values():
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(number)


@contextlib.contextmanager
def _fresh_directory() -> Generator[Path]:
    memory = Path("/dev/shm")  # noqa: S108 - a directory of our own is made in it, with a name nobody can guess
    place = memory if os.access(memory, os.W_OK) else Path(tempfile.gettempdir())
    _sweep(place)
    made = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=place))
    descriptor = os.open(made, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)  # for as long as we live
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)
        os.close(descriptor)


def _sweep(place: Path) -> None:
    """Remove what parents left behind that were killed: directories that nobody holds any more."""
    for left in place.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):  # another user's, held by a living parent, or gone already
            descriptor = os.open(left, os.O_RDONLY)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if datetime.now(UTC).timestamp() - os.fstat(descriptor).st_mtime > _JUST_MADE_S:
                    shutil.rmtree(left, ignore_errors=True)
            finally:
                os.close(descriptor)
