"""Processes that a benchmark starts: begin, end, and what their whole tree costs (Linux)."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

_PAGE = os.sysconf("SC_PAGE_SIZE")
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


def _die_with_parent() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


class Process:
    """A command in a session of its own, its output in a file."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str], log: Path) -> None:
        self.log = log
        self._cpu: dict[int, float] = {}
        with log.open("wb") as output:
            self.popen = subprocess.Popen(
                command,
                env={**os.environ, **env},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_die_with_parent,
            )

    @property
    def ended(self) -> bool:
        return self.popen.poll() is not None

    def pids(self) -> list[int]:
        """The command, its descendants, and whatever else is in its session."""
        root = self.popen.pid
        parents: dict[int, int] = {}
        inside: set[int] = set()
        for entry in os.listdir("/proc"):
            if not entry.isdigit():
                continue
            try:
                stat = Path("/proc", entry, "stat").read_text()
            except OSError:
                continue
            fields = stat.rpartition(")")[2].split()  # state, ppid, pgrp, session, ...
            if fields[0] == "Z":
                continue
            parents[int(entry)] = int(fields[1])
            if int(entry) == root or int(fields[3]) == root:
                inside.add(int(entry))
        grew = True
        while grew:
            more = {pid for pid, parent in parents.items() if parent in inside} - inside
            inside |= more
            grew = bool(more)
        return sorted(inside)

    def cpu(self) -> float:
        """Seconds of user and system time so far, of processes that have ended meanwhile too."""
        for pid in self.pids():
            try:  # the kernel's clock of another process, in nanoseconds: /proc counts in 10 ms
                self._cpu[pid] = time.clock_gettime((~pid << 3) | 2)
            except OSError:
                continue
        return sum(self._cpu.values())

    def rss(self) -> int:
        """Resident bytes; pages that several processes share count in each."""
        total = 0
        for pid in self.pids():
            try:
                total += int(Path("/proc", str(pid), "statm").read_text().split()[1]) * _PAGE
            except (OSError, IndexError):
                continue
        return total

    def peak_rss(self) -> int:
        """The most that was ever resident, summed over the processes alive now."""
        total = 0
        for pid in self.pids():
            try:
                status = Path("/proc", str(pid), "status").read_text()
            except OSError:
                continue
            total += sum(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM"))
        return total

    def fate(self, lines: int = 3) -> str:
        """How it ended, with the last lines that it printed."""
        code = self.popen.poll()
        how = "runs" if code is None else f"killed by signal {-code}" if code < 0 else f"exit status {code}"
        text = self.log.read_text(errors="replace").strip().splitlines()
        return " | ".join([how, *(line.strip() for line in text[-lines:])])

    def ask_to_stop(self) -> None:
        _signal(self.popen.pid, signal.SIGTERM)

    def stop(self, patience: float = 3.0) -> None:
        """Asks the command to end; whatever of its tree is left after that is killed."""
        self.ask_to_stop()
        end = time.monotonic() + patience
        while time.monotonic() < end and not self.ended:
            time.sleep(0.02)
        for pid in self.pids():
            _signal(pid, signal.SIGKILL)
        self.popen.wait()


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def split_command(text: str) -> tuple[list[str], dict[str, str]]:
    """A shell-like command line as (command, environment): A=1 cmd 'an argument'."""
    words = shlex.split(text)
    env: dict[str, str] = {}
    while words and "=" in words[0] and words[0].partition("=")[0].isidentifier():
        name, _, value = words.pop(0).partition("=")
        env[name] = value
    return words, env
