"""What a check has found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Level = Literal["fine", "odd", "wrong"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One line: what was looked at, how it is, and (unless fine) what to do. "odd" works, perhaps not as wished."""

    check: str
    level: Level
    told: str
    mend: str = ""

    def line(self) -> str:
        """Return it as people read it."""
        return f"{self.level:5}  {self.check}: {self.told}" + (f"; {self.mend}" if self.mend else "")


def fine(check: str, told: str) -> Finding:
    """Nothing to do."""
    return Finding(check, "fine", told)


def odd(check: str, told: str, mend: str) -> Finding:
    """It will start, and somebody may wonder."""
    return Finding(check, "odd", told, mend)


def wrong(check: str, told: str, mend: str) -> Finding:
    """It will not start, or not work."""
    return Finding(check, "wrong", told, mend)
