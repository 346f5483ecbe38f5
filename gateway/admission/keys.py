"""Who a key belongs to. Keys are kept as SHA-256 only."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Protocol

from gateway.admission.limits import Held, Limits

#: Distinct spellings of good Authorization headers remembered; each is a key that passed.
REMEMBERED = 10_000


class SharedLimits(Protocol):
    """The limits of a key where the count is kept outside of this process: who enters has to wait."""

    async def enter(self, now: float, tokens: int) -> Held:
        """Admit a request that may use ``tokens``. Raises RateLimited."""


@dataclass(frozen=True, slots=True)
class Principal:
    """Who a key belongs to and what it may do. ``models`` None: every model.

    At a model's gate ``batch`` requests come last, then the lower ``priority`` goes first, and keys take turns by their
    ``share``.
    """

    name: str | None
    digest: str = ""
    role: str = "user"
    models: frozenset[str] | None = None
    limits: Limits | SharedLimits = field(default_factory=Limits)
    priority: int = 0
    share: float = 1.0
    batch: bool = False

    @property
    def operator(self) -> bool:
        """May it use the operator's routes?"""
        return self.role == "operator"

    def may_use(self, model: str) -> bool:
        """May it use this model (by its configured name)?"""
        return self.models is None or model in self.models


ANYONE = Principal(None)
"""Whoever calls a gateway without keys, which listens on loopback only."""


class Keyring:
    """The configured keys."""

    __slots__ = ("_by_digest", "_seen")

    def __init__(self, principals: Iterable[Principal]) -> None:
        self._by_digest = {principal.digest.lower(): principal for principal in principals}
        self._seen: dict[bytes, Principal] = {}  # hashing a key anew for each request would cost more than finding it

    def __len__(self) -> int:
        return len(self._by_digest)

    @property
    def names(self) -> set[str | None]:
        """The names of the keys."""
        return {principal.name for principal in self._by_digest.values()}

    def find(self, authorization: bytes) -> Principal | None:
        """Return who an Authorization header's value names; the scheme in any case, the key exactly, as bytes."""
        principal = self._seen.get(authorization)
        if principal is None:
            scheme, _, key = authorization.partition(b" ")
            if scheme.lower() != b"bearer":
                return None
            principal = self.find_key(key.strip(b" \t"))
            if principal is not None:
                if len(self._seen) >= REMEMBERED:
                    self._seen.clear()
                self._seen[authorization] = principal
        return principal

    def find_key(self, key: bytes) -> Principal | None:
        """Return whose key this is."""
        return self._by_digest.get(sha256(key).hexdigest()) if key else None
