"""The failure of this room: the engine cannot be had, told in a line that a person can act on."""

from __future__ import annotations


class CannotStart(Exception):
    """No engine, and why. ``log`` holds the last lines of whatever was tried, oldest first, for the terminal only."""

    def __init__(self, message: str, log: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.log = log


class Uncounted(CannotStart):
    """A model that vLLM may run, and whose size is not counted here."""
