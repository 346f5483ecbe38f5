"""Noticing that files have changed, also by a Kubernetes symlink swap, or that somebody says so (SIGHUP)."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path

import structlog

log = structlog.get_logger()

Stamp = tuple[str, int, int, int] | None
"""Where a path leads, inode, time of the last change in ns, length; None where there is no file."""

#: Looks after which a file that never comes to rest is read all the same: a change is in force within 10 s.
PATIENCE = 5


def stamp(path: Path) -> Stamp:
    """Look at a file: two stamps are equal where nothing has changed."""
    try:
        real = os.path.realpath(path)
        seen = Path(real).stat()
    except OSError:
        return None
    return real, seen.st_ino, seen.st_mtime_ns, seen.st_size


class Changes:
    """Decides, from one look after another, when files have changed and come to rest. It touches no file."""

    def __init__(self, known: Mapping[Path, Stamp]) -> None:
        self.known = dict(known)
        self._last = dict(known)
        self._restless = 0

    def look(self, seen: Mapping[Path, Stamp]) -> bool:
        """Take the next look; say whether it is time to read the files."""
        if seen == self.known:
            self._last, self._restless = dict(seen), 0
            return False
        at_rest = seen == self._last
        self._last = dict(seen)
        self._restless += 1
        if not at_rest and self._restless < PATIENCE:
            return False
        self.known, self._restless = dict(seen), 0
        return True


class Watch:
    """Calls ``changed`` when followed files have changed, or on ``poke``. Make it before the files are first read.

    ``changed`` reads them and calls ``follow`` with what it has read; should it raise, that is logged and the watch
    goes on.
    """

    def __init__(self, changed: Callable[[], Awaitable[None]], *, interval_s: float = 1.0) -> None:
        self._changed = changed
        self._interval_s = interval_s
        self._poked = asyncio.Event()
        self._reading_since = time.time_ns()
        self._changes = Changes({})

    def follow(self, files: Iterable[Path]) -> None:
        """Follow these files from now on. One that was written while it was being read counts as changed."""
        known = self._changes.known
        self._changes = Changes({file: known.get(file) or self._fresh(file) for file in files})

    def _fresh(self, file: Path) -> Stamp:
        found = stamp(file)
        return None if found is None or found[2] > self._reading_since else found

    def poke(self) -> None:
        """Read the files now, changed or not."""
        self._poked.set()

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            poked = await self._pause()
            changes = self._changes
            seen = await asyncio.to_thread(lambda files: {file: stamp(file) for file in files}, tuple(changes.known))
            if changes.look(seen) or poked:
                changes.known = seen
                await self._read()

    async def _pause(self) -> bool:
        try:
            async with asyncio.timeout(self._interval_s):
                await self._poked.wait()
        except TimeoutError:
            return False
        self._poked.clear()
        return True

    async def _read(self) -> None:
        self._reading_since = time.time_ns()
        try:
            await self._changed()
        except Exception:  # what went wrong once may go well at the next change
            log.exception("reload_broke")
