"""An engine that is up and has work, and gets nowhere."""

from __future__ import annotations


class Stall:
    """Decides, from one look after another, whether an engine is stuck. Times are those of ``loop.time()``."""

    __slots__ = ("_mark", "_since", "_within_s")

    def __init__(self, within_s: float) -> None:
        self._within_s = within_s
        self._mark: float | None = None
        self._since = 0.0

    def look(self, now: float, *, works: bool, heard: bool, progress: float | None) -> bool:
        """Say whether it is stuck: it ``works``, and for so long nothing was ``heard`` and its count stood still.

        ``heard``: something came from it since the last look. ``progress``: its own count; None where it has none.
        """
        if not works or heard or progress != self._mark:
            self._mark, self._since = progress, now
            return False
        return now - self._since >= self._within_s
