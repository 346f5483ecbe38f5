"""The queue before the log's file, and the one thread that writes what has gathered in it."""

from __future__ import annotations

import threading
from collections import deque

import structlog

from plugins.audit_log.entry import Entry, gap, line
from plugins.audit_log.journal import Journal
from plugins.audit_log.seal import Seal

_GATHER_S = 0.2  # how long entries gather: one wake-up and one write for all of them
_RETRY_S = 1.0  # after which a disk that refused is tried again
#: Bytes of one write. Few writes: each takes the interpreter from a busy event loop half a dozen times, and each time
#: the two wake each other over and over until one lets go. Nothing else in here costs as much.
_AT_ONCE = 1024 * 1024
_CHARACTERS = 32 * 1024 * 1024  # of texts that may wait

_log = structlog.get_logger()


class Writer:
    """Appends entries to a journal. ``put`` never waits: what does not fit into the queue is dropped and counted."""

    def __init__(self, journal: Journal, *, waiting: int, seal: Seal | None = None) -> None:
        self._journal, self._limit, self._seal = journal, waiting, seal or Seal()
        self._at_once = min(_AT_ONCE, journal.rotate_bytes // 4)
        self._queue: deque[Entry | bytes] = deque()
        self._batch: list[bytes] = []  # taken from the queue, and not yet in the file
        # Each is counted by one thread alone: what came and went of texts; what was dropped, what of that was told.
        self._came = self._went = 0
        self._dropped = self._told = self._lost = 0
        self._failing = False  # the disk took nothing the last time
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def full(self) -> bool:
        """Would an entry have to be dropped now, or is the disk refusing what waits?"""
        return self._failing or len(self._queue) >= self._limit or self._came - self._went > _CHARACTERS

    def start(self) -> None:
        """Open the file and start the thread. Raises ValueError where it cannot be written."""
        self._journal.open()
        self._thread = threading.Thread(target=self._run, name=f"audit {self._journal.path.name}", daemon=True)
        self._thread.start()

    def put(self, entry: Entry | bytes, *, whatever: bool = False) -> bool:
        """Hand over an entry, or a line of it; say whether there was room. ``whatever``: also where there is none.

        Better a line: entries that wait keep their records, so that each request finds cold memory in the place of what
        the last one has just freed; that costs several times what writing the line does.
        """
        size = 0 if isinstance(entry, bytes) else entry.size
        fits = len(self._queue) < self._limit and (not size or self._came - self._went + size <= _CHARACTERS)
        if fits or whatever:
            self._came += size
            self._queue.append(entry)
        else:
            self._dropped += 1
        if not self._wake.is_set():
            self._wake.set()
        return fits or whatever

    def close(self) -> None:
        """Write what is left and close the file. It waits: call it in a thread."""
        if self._thread is None:
            return
        self._closing.set()
        self._wake.set()
        self._thread.join()
        self._thread = None
        self._journal.close()

    def _run(self) -> None:
        while True:
            self._wake.wait(_RETRY_S if self._failing else None)
            self._closing.wait(_GATHER_S)
            self._wake.clear()
            closing = self._closing.is_set()
            # Only what has gathered: whoever also wrote what comes meanwhile would never rest, and wake up for each.
            gathered = len(self._queue) or 1
            while self._is_behind() and (gathered > 0 or closing):
                gathered -= self._write_some()
                if self._failing:
                    break
            if self._queue and not self._failing:
                self._wake.set()
            if closing:
                if lost := len(self._batch) + len(self._queue):
                    _log.error("audit_log_lost", path=str(self._journal.path), entries=lost)
                return

    def _is_behind(self) -> bool:
        return bool(self._batch or self._queue or self._dropped > self._told or self._lost)

    def _write_some(self) -> int:
        """Write the next entries; return how many. What the disk does not take stays the batch, for another time."""
        dropped, lost = self._dropped, self._lost
        missing = dropped - self._told + lost
        taken = 0 if self._batch else self._take()
        try:
            self._journal.append([gap(missing), *self._batch] if missing else self._batch)
        except Exception as fault:  # noqa: BLE001 - the thread has to live on, whatever the disk says
            if not self._failing:
                reason = getattr(fault, "strerror", None) or type(fault).__name__
                _log.warning("audit_log_unwritable", path=str(self._journal.path), reason=reason)
            self._failing = True
            return taken
        self._failing = False
        self._batch = []
        if missing:
            _log.warning("audit_log_gap", path=str(self._journal.path), missing=missing)
            self._told, self._lost = dropped, self._lost - lost
        return taken or 1

    def _take(self) -> int:
        """Make the next entries a batch of lines; return how many entries that were."""
        size, taken = 0, 0
        while self._queue and size < self._at_once:
            entry = self._queue.popleft()
            taken += 1
            if not isinstance(entry, bytes):
                self._went += entry.size
                try:
                    entry = line(entry, self._seal)
                except Exception:  # noqa: BLE001 - one odd entry must not end the log
                    self._lost += 1
                    continue
            self._batch.append(entry)
            size += len(entry)
        return taken
