"""What of a request decides which engine gets it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class Want(NamedTuple):
    """``work``: the tokens that it may take, prompt and answer. ``key`` and ``priority`` (lower: sooner): the caller's.

    ``session`` and ``prefix`` are digests (0: none): requests with the same one go to the same engine if they can.
    ``only`` names the one engine that can serve it. ``headers``: the caller's, names in lower case.
    """

    work: int = 1
    stream: bool = False
    key: str = ""
    priority: int = 0
    session: int = 0
    prefix: int = 0
    only: str | None = None
    headers: Mapping[bytes, bytes] = {}


ANY = Want()


@dataclass(frozen=True, slots=True)
class Preference:
    """Whose requests go first to an engine: of these keys, with one of these header values, or this important."""

    keys: frozenset[str] = frozenset()
    headers: Mapping[bytes, bytes] = field(default_factory=dict)
    priority: int | None = None

    def meets(self, want: Want) -> bool:
        """Say whether the request is one of them."""
        return (
            want.key in self.keys
            or (self.priority is not None and want.priority <= self.priority)
            or any(want.headers.get(name) == value for name, value in self.headers.items())
        )
