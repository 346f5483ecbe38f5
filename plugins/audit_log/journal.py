"""The file behind the log, which processes share: whole lines under a lock, put aside when full, one chain through all.

Where the chain has come to stands in the lock's file, so that rotation, restarts and tools that move files away do not
break it, and lines cut off at the end are missed.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import structlog

from plugins.audit_log.entry import gap
from plugins.audit_log.seal import Head, Seal, begun, head_of

_log = structlog.get_logger()

_BACK = 64 * 1024  # bytes read at a time, from the end backwards, to find a last line
_STATE = 1024  # bytes, more than the state ever takes


class _State(msgspec.Struct, frozen=True):
    """What the lock's file holds: a head, the file's size when it was so, and with which line what is kept begins."""

    chain: str
    seq: int
    hash: str
    size: int
    first: int = 1


class Journal:
    """Appends lines to ``path``; every ``rotate_bytes`` it is put aside, and ``keep`` of those are kept."""

    def __init__(self, path: Path, *, rotate_bytes: int, keep: int | None = None, seal: Seal | None = None) -> None:
        self.path, self.rotate_bytes, self._keep = path, rotate_bytes, keep
        self._seal = seal or Seal()
        self._file = self._lock = -1

    def open(self) -> None:
        """Open the file. Raises ValueError where it cannot be written."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._lock = _opened(self.path.with_name(f"{self.path.name}.lock"), append=False)
            self._file = _opened(self.path)
        except OSError as error:
            self.close()
            raise ValueError(f"{error.filename}: the audit log cannot be written: {error.strerror}") from error

    def close(self) -> None:
        """Close the file."""
        for descriptor in (self._file, self._lock):
            if descriptor >= 0:
                os.close(descriptor)
        self._file = self._lock = -1

    def append(self, lines: Sequence[bytes]) -> None:
        """Write lines and their links of the chain. Raises OSError; then none of them is in the file."""
        with self._alone():
            self._reopen_if_moved()
            size = os.fstat(self._file).st_size
            state = self._state()
            if state is not None and state.size == size:
                head = Head(state.chain, state.seq, state.hash)
            else:
                size, torn = self._without_torn_line(size)
                head = self._head(state, size)
                lines = [gap(1), *lines] if torn else lines
            linked, head = self._seal.linked(lines, head)
            data = b"".join(linked)
            first = state.first if state is not None and state.chain == head.chain else 1
            if size and size + len(data) > self.rotate_bytes:
                first = max(first, self._rotate(head.chain))
                size = 0
            self._write(data, size)
            self._remember(_State(*head, size=size + len(data), first=first))

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep other processes, and a second journal of this one, from the file meanwhile."""
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._lock, fcntl.LOCK_UN)

    def _write(self, data: bytes, size: int) -> None:
        try:
            done = 0
            while done < len(data):
                done += os.write(self._file, data[done:])
        except OSError:
            os.ftruncate(self._file, size)  # half a line would be none
            raise

    # ---- where the chain has come to ----

    def _state(self) -> _State | None:
        try:
            return msgspec.json.decode(os.pread(self._lock, _STATE, 0), type=_State)
        except msgspec.DecodeError:  # new, or a process was killed over it
            return None

    def _remember(self, state: _State) -> None:
        written = os.pwrite(self._lock, msgspec.json.encode(state) + b"\n", 0)
        os.ftruncate(self._lock, written)

    def _head(self, state: _State | None, size: int) -> Head:
        """Find where the chain has come to: the later of what was remembered and what the last line says.

        A file with fewer lines than are remembered has lost some: the chain goes on from what is remembered, so that
        whoever verifies it misses them. One with more was written by a process that was killed before it said so.
        """
        said = head_of(self._last_line(self._file, size)) if size else None
        if state is None:
            return said or self._head_put_aside() or begun()
        remembered = Head(state.chain, state.seq, state.hash)
        return said if said is not None and said.chain == state.chain and said.seq > state.seq else remembered

    def _head_put_aside(self) -> Head | None:
        for aside in reversed(self._put_aside()):
            with aside.open("rb") as file:
                return head_of(self._last_line(file.fileno(), os.fstat(file.fileno()).st_size))
        return None

    @staticmethod
    def _last_line(descriptor: int, size: int) -> bytes:
        read, start = b"", size
        while start > 0 and b"\n" not in read[:-1]:
            start = max(0, start - _BACK)
            read = os.pread(descriptor, size - start, start)
        return read[read.rfind(b"\n", 0, -1) + 1 :]

    def _without_torn_line(self, size: int) -> tuple[int, bool]:
        """Cut off half a line, which a process that was killed has left; return the new size, and whether there was."""
        last = self._last_line(self._file, size) if size else b""
        if not last or last.endswith(b"\n"):
            return size, False
        _log.warning("audit_log_torn", path=str(self.path), bytes=len(last))
        os.ftruncate(self._file, size - len(last))
        return size - len(last), True

    # ---- other files ----

    def _reopen_if_moved(self) -> None:
        mine = os.fstat(self._file)
        try:
            there = self.path.stat()
        except FileNotFoundError:
            there = None
        if there is None or (there.st_dev, there.st_ino) != (mine.st_dev, mine.st_ino):
            self._replace_file()

    def _rotate(self, chain: str) -> int:
        """Put the full file aside under the time of day, begin a new one, and remove what is not to be kept.

        Return the line with which the chain begins where something of it was removed now, else 1.
        """
        stamp = f"{datetime.now(UTC):%Y%m%dT%H%M%S.%f}"
        self.path.rename(self.path.with_name(f"{self.path.name}.{stamp}"))
        self._replace_file()
        aside = self._put_aside()
        if self._keep is None or len(aside) <= self._keep:
            return 1
        for old in aside[: -self._keep]:
            old.unlink(missing_ok=True)
        with aside[-self._keep].open("rb") as file:
            begins = head_of(file.readline())
        return begins.seq if begins is not None and begins.chain == chain else 1

    def _put_aside(self) -> list[Path]:
        return sorted(self.path.parent.glob(f"{self.path.name}.[0-9]*[0-9]"))

    def _replace_file(self) -> None:
        opened = _opened(self.path)
        os.close(self._file)
        self._file = opened


def _opened(path: Path, *, append: bool = True) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | (os.O_APPEND if append else 0)
    return os.open(path, flags, 0o640)
