"""How many requests may be sent again: a bad hour must not double the load."""

from __future__ import annotations

from collections import deque
from typing import Final

#: Within the time, so many may be sent again whatever happens, and this part of all requests.
WINDOW_S: Final = 10.0
AT_LEAST: Final = 3
PART: Final = 0.2


class Budget:
    """Counts the requests and the second tries of one model; times are those of ``loop.time()``."""

    __slots__ = ("_requests", "_second", "_tries")

    def __init__(self) -> None:
        self._second = -1
        self._requests = deque((0,), int(WINDOW_S))  # of each second, the last at the right end
        self._tries: deque[float] = deque()

    def asked(self, now: float) -> None:
        """A request goes to its first engine."""
        self._move_to(int(now))
        self._requests[-1] += 1

    def again(self, now: float) -> bool:
        """Say whether a request may be sent to another engine, and count that it was."""
        self._move_to(int(now))
        while self._tries and self._tries[0] <= now - WINDOW_S:
            self._tries.popleft()
        if len(self._tries) >= max(AT_LEAST, PART * sum(self._requests)):
            return False
        self._tries.append(now)
        return True

    def _move_to(self, second: int) -> None:
        for _ in range(min(second - self._second, int(WINDOW_S))):
            self._requests.append(0)
        self._second = max(second, self._second)
