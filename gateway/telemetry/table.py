"""A table of doubles in memory that workers share through files: one file a worker, which every worker can read."""

from __future__ import annotations

import fcntl
import mmap
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

#: Room for this many doubles. The file is sparse: what is not used takes neither disk nor memory.
SLOTS = 1 << 17
_DOUBLE = 8
_PID = 0  # the first slot says which process writes here
_OVERFLOW = SLOTS - 64  # the last ones take what finds no room any more


class Key(NamedTuple):
    """Which series: the metric's name and the values of its labels, in the order of its declaration."""

    name: str
    labels: tuple[str, ...] = ()


class _Entry(NamedTuple):
    """One line of a key file: this series has ``width`` slots from ``slot`` on."""

    name: str
    labels: tuple[str, ...]
    slot: int
    width: int


class Snapshot(NamedTuple):
    """What one worker has counted so far. ``alive``: the process still runs."""

    worker: str
    pid: int
    alive: bool
    series: dict[Key, list[float]]


class Table:
    """The numbers of this process: ``view[slot] += x`` counts. Not thread-safe: it belongs to the event loop.

    With a ``path`` (``<directory>/<worker>``) the numbers lie in ``<path>.values`` and the names in ``<path>.keys``,
    and a process that starts with the path of a dead one goes on counting where that one stopped. Without, they are
    this process's alone. Raises BlockingIOError when another process writes there.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._keys = self._file = -1
        self._slots: dict[Key, _Entry] = {}
        self._next = _PID + 1
        if path is None:
            self._memory = mmap.mmap(-1, SLOTS * _DOUBLE)
        else:
            self._open(path)
        self.view = memoryview(self._memory).cast("d")
        self.view[_PID] = os.getpid()

    def _open(self, path: Path) -> None:
        self._file = os.open(path.with_suffix(".values"), os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # held for life: so the others know that we live
        os.ftruncate(self._file, SLOTS * _DOUBLE)
        self._memory = mmap.mmap(self._file, SLOTS * _DOUBLE)
        self._keys = os.open(path.with_suffix(".keys"), os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        entries, whole = _read_keys(path)
        os.ftruncate(self._keys, whole)  # a line half written by a process that died in it
        for entry in entries:
            self._slots[Key(entry.name, entry.labels)] = entry
            self._next = max(self._next, entry.slot + entry.width)

    def slot(self, key: Key, width: int = 1) -> int:
        """Return the first of a series' slots (64 at most), which begin at zero. Once full, new series share some."""
        entry = self._slots.get(key)
        if entry is None:
            if self._next + width > _OVERFLOW:
                return _OVERFLOW  # in no key file: counted nowhere rather than wrongly
            entry = _Entry(*key, self._next, width)
            if self._keys >= 0:
                os.write(self._keys, msgspec.json.encode(entry) + b"\n")
            self._next += width
            self._slots[key] = entry
        return entry.slot

    def has(self, key: Key) -> bool:
        """Say whether a series is known already."""
        return key in self._slots

    def keys(self) -> list[Key]:
        """Return the series known so far, also those of a process whose place this one took."""
        return list(self._slots)

    def snapshots(self) -> list[Snapshot]:
        """Read every worker's numbers: this one's, and those of all others in the directory, alive or dead."""
        series = {key: _values(self.view, entry) for key, entry in list(self._slots.items())}
        if self._path is None:
            return [Snapshot("0", os.getpid(), alive=True, series=series)]
        own = Snapshot(self._path.name, os.getpid(), alive=True, series=series)
        return [own, *(other for other in _others(self._path))]

    def close(self) -> None:
        """Let go of the files; the numbers stay in them."""
        self.view.release()
        self._memory.close()
        for descriptor in (self._keys, self._file):
            if descriptor >= 0:
                os.close(descriptor)


def _others(own: Path) -> Iterator[Snapshot]:
    for file in sorted(own.parent.glob("*.values")):
        if file.stem != own.name and file.stat().st_size == SLOTS * _DOUBLE:
            yield _read(file)


def _read(file: Path) -> Snapshot:
    with file.open("rb") as opened:
        alive = _locked(opened.fileno())
        with mmap.mmap(opened.fileno(), 0, prot=mmap.PROT_READ) as memory, memoryview(memory) as raw:
            view = raw.cast("d")
            entries, _ = _read_keys(file)
            series = {Key(entry.name, entry.labels): _values(view, entry) for entry in entries}
            pid = int(view[_PID])
            view.release()
    return Snapshot(file.stem, pid, alive, series)


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def _values(view: memoryview[float], entry: _Entry) -> list[float]:
    return list(view[entry.slot : entry.slot + entry.width])


def _read_keys(path: Path) -> tuple[list[_Entry], int]:
    """Return the entries of a key file, and the length of its whole lines in bytes."""
    lines = path.with_suffix(".keys").read_bytes()
    whole = lines.rfind(b"\n") + 1
    return msgspec.json.Decoder(_Entry).decode_lines(lines[:whole]), whole
