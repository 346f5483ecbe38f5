"""What a stage says of itself."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """``seconds`` of a mean request are the stage's; ``cause`` is its narrowest name for why, ``pace`` for none.

    ``blocking``: nothing gets through, whatever the seconds say.
    """

    stage: str
    cause: str
    seconds: float
    evidence: str
    next: str
    blocking: bool = False


def ms(seconds: float) -> str:
    """Write a duration as people read it."""
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"
