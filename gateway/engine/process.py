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
    """Start ``command`` under a leash; its output, errors too, is ``stdout``. ``end`` it in any case."""
    leash = [sys.executable, "-I", "-S", str(LEASH), str(grace_s), *command]
    return await asyncio.create_subprocess_exec(
        *leash, stdin=PIPE, stdout=PIPE, stderr=STDOUT, env=dict(environ), start_new_session=True
    )


async def end(process: Process, *, grace_s: float) -> int:
    """Take the whole family down and return the exit status: let go of the leash, and after the grace, kill.

    Cancelled (somebody is in a hurry), it kills at once. Nothing of the family is left when this returns or raises.
    """
    try:
        if process.stdin is not None:
            process.stdin.close()
        async with asyncio.timeout(grace_s + 5):  # the leash kills after grace_s, and needs a moment
            await process.wait()
    except TimeoutError:
        pass
    finally:
        # The leash itself was killed, or is to be: its group is the engine's.
        if process.returncode is None or process.returncode < 0:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    return await process.wait()


async def lines(process: Process) -> AsyncIterator[str]:
    """Yield what it prints, without terminal escapes; a progress bar's every state is a line."""
    if process.stdout is None:
        return
    rest = b""
    while data := await process.stdout.read(65536):
        *whole, rest = re.split(rb"[\r\n]+", rest + data)
        for line in whole:
            yield _readable(line)
        if len(rest) > 1_000_000:  # no line is that long
            rest = b""
    if rest:
        yield _readable(rest)


def _readable(line: bytes) -> str:
    return _ESCAPES.sub("", line.decode("utf-8", "replace")).rstrip()
