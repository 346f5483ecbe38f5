"""The file behind the log: one thread that writes what has gathered, and shares the file with other processes."""

from __future__ import annotations

import fcntl
import os
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import structlog

from plugins.audit_log.entry import Entry, gap, line

_GATHER_S = 0.2  # how long entries gather: one wake-up and one write for all of them
#: Bytes of one write. Few writes: each takes the interpreter from a busy event loop half a dozen times, and each time
#: the two wake each other over and over until one lets go. Nothing else in here costs as much.
_AT_ONCE = 1024 * 1024
_CHARACTERS = 32 * 1024 * 1024  # of texts that may wait; beyond it entries are dropped

_log = structlog.get_logger()


class Writer:
    """Appends entries to ``path``. ``put`` never waits: what does not fit into the queue is dropped and counted."""

    def __init__(self, path: Path, *, rotate_bytes: int, keep: int | None, waiting: int) -> None:
        self.path, self._rotate_bytes, self._keep, self._limit = path, rotate_bytes, keep, waiting
        self._at_once = min(_AT_ONCE, rotate_bytes // 4)
        self._queue: deque[Entry | bytes] = deque()
        # Each is counted by one thread alone: what came and went of texts; what was dropped, what of that was told.
        self._came = self._went = 0
        self._dropped = self._told = self._lost = 0
        self._torn = False
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._file = self._lock = -1

    def start(self) -> None:
        """Open the file and start the thread. Raises ValueError where it cannot be written."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._lock = self._opened(self.path.with_name(f"{self.path.name}.lock"))
            self._file = self._opened(self.path)
        except OSError as error:
            self._close_files()
            raise ValueError(f"{error.filename}: the audit log cannot be written: {error.strerror}") from error
        self._thread = threading.Thread(target=self._run, name=f"audit {self.path.name}", daemon=True)
        self._thread.start()

    def put(self, entry: Entry | bytes) -> None:
        """Hand over an entry, or a line of it.

        Better a line: entries that wait keep their records, so that each request finds cold memory in the place of what
        the last one has just freed; that costs several times what writing the line does.
        """
        size = 0 if isinstance(entry, bytes) else entry.size
        if len(self._queue) >= self._limit or (size and self._came - self._went + size > _CHARACTERS):
            self._dropped += 1
        else:
            self._came += size
            self._queue.append(entry)
        if not self._wake.is_set():
            self._wake.set()

    def close(self) -> None:
        """Write what is left and close the file. It waits: call it in a thread."""
        if self._thread is None:
            return
        self._closing.set()
        self._wake.set()
        self._thread.join()
        self._thread = None
        self._close_files()

    def _run(self) -> None:
        while True:
            self._wake.wait()
            self._closing.wait(_GATHER_S)
            self._wake.clear()
            closing = self._closing.is_set()
            # Only what has gathered: whoever also wrote what comes meanwhile would never rest, and wake up for each.
            gathered = len(self._queue) or 1
            while (self._queue or self._dropped > self._told or self._lost) and (gathered > 0 or closing):
                written = self._write_some()
                if not written:
                    break
                gathered -= written
            if self._queue:
                self._wake.set()
            if closing:
                return

    def _write_some(self) -> int:
        """Write the next entries; return how many, 0 if the file did not take them: they are lost, and counted."""
        dropped, lost = self._dropped, self._lost
        missing = dropped - self._told + lost
        lines = [gap(missing)] if missing else []
        size, taken = 0, 0
        while self._queue and size < self._at_once:
            entry = self._queue.popleft()
            taken += 1
            if not isinstance(entry, bytes):
                self._went += entry.size
                try:
                    entry = line(entry)
                except (TypeError, ValueError):  # half a character in a name; nothing that came as JSON has it
                    self._lost += 1
                    continue
            lines.append(entry)
            size += len(entry)
        try:
            self._append(b"".join(lines))
        except OSError as error:
            _log.warning("audit_log_unwritable", path=str(self.path), reason=error.strerror)
            self._lost += taken
            return 0
        if missing:
            _log.warning("audit_log_gap", path=str(self.path), missing=missing)
            self._told, self._lost = dropped, self._lost - lost
        return taken or 1

    def _append(self, data: bytes) -> None:
        with self._alone():
            self._reopen_if_moved()
            size = os.fstat(self._file).st_size
            if size and size + len(data) > self._rotate_bytes:
                self._rotate()
            if self._torn:  # a full disk has cut the last line off
                data = b"\n" + data
            while data:
                written = os.write(self._file, data)
                self._torn = written < len(data)
                data = data[written:]

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep other processes, and a second writer of this one, from the file meanwhile."""
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._lock, fcntl.LOCK_UN)

    def _reopen_if_moved(self) -> None:
        mine = os.fstat(self._file)
        try:
            there = self.path.stat()
        except FileNotFoundError:
            there = None
        if there is None or (there.st_dev, there.st_ino) != (mine.st_dev, mine.st_ino):
            self._replace_file()

    def _rotate(self) -> None:
        """Put the full file aside under the time of day, begin a new one, and remove what is not to be kept."""
        stamp = f"{datetime.now(UTC):%Y%m%dT%H%M%S.%f}"
        self.path.rename(self.path.with_name(f"{self.path.name}.{stamp}"))
        self._replace_file()
        if self._keep is not None:
            for old in sorted(self.path.parent.glob(f"{self.path.name}.[0-9]*"))[: -self._keep]:
                old.unlink(missing_ok=True)

    def _replace_file(self) -> None:
        opened = self._opened(self.path)
        os.close(self._file)
        self._file = opened

    @staticmethod
    def _opened(path: Path) -> int:
        return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)

    def _close_files(self) -> None:
        for descriptor in (self._file, self._lock):
            if descriptor >= 0:
                os.close(descriptor)
        self._file = self._lock = -1
