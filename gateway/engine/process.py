"""A child process under its leash: started in a group of its own, read line by line, ended with all it started."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import sys
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

LEASH = Path(__file__).with_name("leash.py")
#: What a terminal obeys and a log does not need: colours, cursor movements.
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


async def spawn(command: Sequence[str], environ: Mapping[str, str], *, grace_s: float) -> Process:
    """Start ``command`` under a leash; its output, errors too, is ``stdout``. ``end`` it in any case.

    Cancelled, it ends what had begun: asyncio by itself would kill the leash, perhaps before that holds its child.
    """
    leash = [sys.executable, "-I", "-S", str(LEASH), str(grace_s), *command]
    start = asyncio.create_subprocess_exec(
        *leash, stdin=PIPE, stdout=PIPE, stderr=STDOUT, env=dict(environ), start_new_session=True
    )
    starting = asyncio.get_running_loop().create_task(start)
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        await end(await starting, grace_s=grace_s)
        raise


async def end(process: Process, *, grace_s: float) -> int:
    """Take the whole family down and return the exit status: let go of the leash, and after the grace, kill.

    Cancelled (somebody is in a hurry), it kills at once. Nothing of the family is left when this returns or raises.
    """
    try:
        if process.stdin is not None:
            process.stdin.close()
        async with asyncio.timeout(grace_s + 5):  # the leash kills after grace_s, and needs a moment
            # wait() would also wait for the pipe, which outlives the leash where that was killed.
            while process.returncode is None:  # noqa: ASYNC110 -- there is no event for it
                await asyncio.sleep(0.02)
    except TimeoutError:
        pass
    finally:
        # The leash itself was killed, or is to be: its group is the engine's.
        if process.returncode is None or process.returncode < 0:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    status = await process.wait()
    if process.stdout is not None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1):  # the rest of its output, unheard, so that the pipe is closed too
                while await process.stdout.read(65536):
                    pass
    return status


async def lines(process: Process) -> AsyncIterator[str]:
    """Yield what it prints, without terminal escapes; a progress bar's every state is a line."""
    if process.stdout is None:
        return
    rest = b""
    while data := await _read(process, process.stdout):
        *whole, rest = re.split(rb"[\r\n]+", rest + data)
        for line in whole:
            yield _readable(line)
        if len(rest) > 1_000_000:  # no line is that long
            rest = b""
    if rest:
        yield _readable(rest)


async def _read(process: Process, output: asyncio.StreamReader) -> bytes:
    """Read on; the end is also where the leash is gone, though somebody it left behind may hold the pipe open."""
    while True:
        try:
            async with asyncio.timeout(1):
                return await output.read(65536)
        except TimeoutError:
            if process.returncode is not None:
                return b""


def _readable(line: bytes) -> str:
    return _ESCAPES.sub("", line.decode("utf-8", "replace")).rstrip()
