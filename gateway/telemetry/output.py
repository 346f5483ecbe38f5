"""Where log lines go: whole lines to a descriptor, without ever making the event loop wait for who reads them."""

from __future__ import annotations

import asyncio
import os
import select
import socket
import stat
import threading
from collections import deque
from collections.abc import Callable
from time import monotonic

#: Lines gather for so long, and up to so many bytes (pipe(7): PIPE_BUF).
_SOON_S, _ATOMIC = 0.02, 4096
_RETRY_S = 0.05


class Output:
    """Writes lines to ``descriptor`` (standard output). A line is one write; up to 4096 bytes it never mixes with
    another process's on the same pipe (pipe(7)).

    When the reader is too slow lines wait here, up to ``limit`` bytes, then new ones are dropped and ``on_drop`` is
    called for each. Made before the event loop runs or on it; lines may come from any thread.
    """

    def __init__(self, descriptor: int = 1, *, limit: int = 1 << 20, on_drop: Callable[[], None] | None = None) -> None:
        self.on_drop = on_drop
        self._limit = limit
        self._held: deque[bytes] = deque()
        self._soon: list[bytes] = []
        self._soon_size = 0
        self._soon_due = False
        self._size = 0
        self._lock = threading.Lock()
        self._timer: asyncio.TimerHandle | None = None
        self._descriptor = descriptor
        self._close_own: Callable[[], None] = lambda: None  # closes what we have opened ourselves
        self._send = self._sender(descriptor)

    def _sender(self, descriptor: int) -> Callable[[bytes], int]:
        """Find a way to write here that does not wait.

        The flag O_NONBLOCK would be everybody's who shares the pipe (the shell's, other processes'), so the pipe or
        terminal is opened once more. Files never make a writer wait.
        """
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISSOCK(mode):
            stream = socket.socket(fileno=os.dup(descriptor))  # systemd's journal
            self._close_own = stream.close
            return lambda data: stream.send(data, socket.MSG_DONTWAIT)
        if stat.S_ISFIFO(mode) or os.isatty(descriptor):
            try:
                own = os.open(f"/proc/self/fd/{descriptor}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
            except OSError:  # no /proc, or a terminal of another user's
                return self._polled
            self._descriptor = own
            self._close_own = lambda: os.close(own)
        return lambda data: os.write(self._descriptor, data)

    def _polled(self, data: bytes) -> int:
        """Write only where poll(2) promises room: for a pipe that is a whole page, so a line does not wait."""
        if not select.select([], [self._descriptor], [], 0)[1]:
            raise BlockingIOError
        return os.write(self._descriptor, data)

    def write(self, line: bytes) -> None:
        """Write one line, which ends in a newline."""
        if self._held:
            self._hold(line)
            return
        try:
            sent = self._send(line)
        except BlockingIOError:
            sent = 0
        except OSError:  # the reader is gone, or the disk is full: that must not end a request
            self._drop()
            return
        if sent < len(line):
            self._hold(line[sent:])

    def write_soon(self, line: bytes) -> None:
        """Write one line with those of the next moment: a system call for each would be a tenth of a small request.

        What is written at once stays within the size that never mixes. To be called on the event loop.
        """
        self._soon_size += len(line)
        if self._soon_size > _ATOMIC:
            self._write_gathered()
            self._soon_size = len(line)
        if not self._soon and not self._soon_due:
            self._soon_due = True
            asyncio.get_running_loop().call_later(_SOON_S, self._soon_over)
        self._soon.append(line)

    def _soon_over(self) -> None:
        self._soon_due = False
        self._write_gathered()

    def _write_gathered(self) -> None:
        lines, self._soon, self._soon_size = self._soon, [], 0
        if lines:
            self.write(b"".join(lines))

    def close(self, within: float = 1.0) -> None:
        """Write what is held back, waiting up to ``within`` seconds for a reader; nothing may be written after."""
        self.flush(within)
        if self._timer is not None:
            self._timer.cancel()
        self._close_own()

    def flush(self, within: float = 0.0) -> None:
        """Write what is held back, waiting up to ``within`` seconds for the reader."""
        self._write_gathered()
        deadline = monotonic() + within
        while self._held:
            self._write_held()
            if self._held and (monotonic() >= deadline or not self._wait(deadline - monotonic())):
                return

    def _wait(self, seconds: float) -> bool:
        return bool(select.select([], [self._descriptor], [], max(0.0, seconds))[1])

    def _hold(self, line: bytes) -> None:
        with self._lock:
            fits = self._size + len(line) <= self._limit
            if fits:
                self._held.append(line)
                self._size += len(line)
        if not fits:
            self._drop()
        self._retry_later()

    def _retry_later(self) -> None:
        if self._timer is not None:
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # another thread's line: the loop's next one takes it along
            return
        self._timer = loop.call_later(_RETRY_S, self._retry)

    def _retry(self) -> None:
        self._timer = None
        self._write_held()
        if self._held:
            self._retry_later()

    def _write_held(self) -> None:
        with self._lock:
            while self._held:
                line = self._held[0]
                try:
                    sent = self._send(line)
                except BlockingIOError:
                    return
                except OSError:
                    sent = len(line)
                    self._drop()
                self._size -= sent
                if sent < len(line):
                    self._held[0] = line[sent:]
                    return
                self._held.popleft()

    def _drop(self) -> None:
        if self.on_drop is not None:
            self.on_drop()
