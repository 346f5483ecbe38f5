"""A small process between us and the engine: when we are gone, however that came, nothing of the engine stays.

A script (`python leash.py GRACE COMMAND…`), standard library only, Linux. It holds the other end of our pipe as its
standard input: the pipe closes when we close it, and also when we are killed. Then the engine gets SIGTERM and
``GRACE`` seconds, and whatever is left of it SIGKILL; the same sweep follows when the engine dies by itself, for a
crashed vLLM may leave workers behind. Its exit status is the engine's (128 + n for signal n).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


def prctl(option: int, value: int) -> None:
    """Ask the kernel for one of the process options above; where it does not know it we go without."""
    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def hold(command: list[str], grace: float) -> int:
    """Run ``command`` until it ends or standard input does, and leave no descendant of it."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)  # orphans come to us, so that the sweep finds them whatever group they are in
    die_with_us = partial(_die_with, os.getpid())
    try:
        engine = subprocess.Popen(command, stdin=subprocess.DEVNULL, preexec_fn=die_with_us)  # noqa: PLW1509 -- one thread
    except OSError as failure:
        print(f"{command[0]}: {failure.strerror}", file=sys.stderr, flush=True)
        return 127
    ended = os.pidfd_open(engine.pid)
    while True:
        ready, _, _ = select.select([0, ended], [], [])
        if ended in ready or not os.read(0, 4096):
            break
    if ended not in ready:
        engine.terminate()
        select.select([ended], [], [], grace)
        engine.kill()
    status = engine.wait()
    sweep()
    return status if status >= 0 else 128 - status


def _die_with(parent: int) -> None:
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before we asked
        os._exit(1)


def sweep() -> None:
    """Kill every descendant; again, until none is left, for one may fork while we look."""
    while remaining := descendants(os.getpid()):
        for pid in remaining:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)
        for pid in remaining:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


def descendants(ancestor: int) -> set[int]:
    """Return all processes under ``ancestor``, read from ``/proc``."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            # The name, in brackets, may hold anything; the state and the parent follow the last bracket.
            parents[int(stat.parent.name)] = int(stat.read_text(errors="replace").rpartition(")")[2].split()[1])
    found: set[int] = set()
    while more := {pid for pid, parent in parents.items() if parent in found | {ancestor}} - found:
        found |= more
    return found


if __name__ == "__main__":
    sys.exit(hold(sys.argv[2:], float(sys.argv[1])))
