"""The engines of one model: a sequence that changes while it is in use, and the choice among them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, overload

from gateway.upstream import affinity
from gateway.upstream.budget import Budget
from gateway.upstream.choice import Shares, choose
from gateway.upstream.engine import Engine
from gateway.upstream.mirror import Mirrors
from gateway.upstream.want import ANY, Want


class Fleet(Sequence[Engine]):
    """``keeps_prefixes``: requests that begin alike go to the same engine while it has room."""

    __slots__ = ("_copies", "_engines", "_shares", "budget", "keeps_prefixes", "mirrors")

    def __init__(
        self, engines: Iterable[Engine] = (), *, keeps_prefixes: bool = True, copies: Mirrors | None = None
    ) -> None:
        self.change(engines)
        self._copies = copies
        self._shares = Shares()
        self.budget = Budget()
        self.keeps_prefixes = keeps_prefixes

    @overload
    def __getitem__(self, index: int) -> Engine: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Engine]: ...

    def __getitem__(self, index: int | slice) -> Engine | Sequence[Engine]:
        return self._engines[index]

    def __len__(self) -> int:
        return len(self._engines)

    def change(self, engines: Iterable[Engine]) -> None:
        """Take these engines from now on. Requests that are at others go on there."""
        self._engines = tuple(engines)
        self.mirrors = tuple(engine for engine in self._engines if engine.mirror)

    def want(
        self,
        body: Mapping[str, Any],
        headers: Mapping[bytes, bytes],
        *,
        work: int,
        stream: bool,
        key: str = "",
        priority: int = 0,
        only: str | None = None,
    ) -> Want:
        """Say what of a request decides where it goes. Nothing is looked at where there is nothing to choose."""
        if len(self._engines) < 2:
            return Want(work, stream, only=only)
        session = headers.get(b"x-session-id", b"")
        return Want(
            work,
            stream,
            key,
            priority,
            affinity.digest(key.encode() + b"\0" + session) if session else 0,
            affinity.prefix_of(body) if self.keeps_prefixes and not session else 0,
            only,
            headers,
        )

    def choose(self, excluded: Collection[Engine], now: float, want: Want = ANY) -> Engine | None:
        """Return the engine for a request, None if there is none (see ``choice.choose``)."""
        return choose(self._engines, want, excluded, now, self._shares)

    def again(self, engine: Engine, now: float, *, busy: bool) -> bool:
        """Say whether a request that another engine has had may be sent to this one.

        From one that was ``busy`` to one that is fit always: that is what others are for. All else is bounded.
        """
        return (busy and engine.fit(now)) or self.budget.again(now)

    def copy(self, request_for: Callable[[Engine], tuple[bytes, bytes]], want: Want) -> tuple[str, ...]:
        """Send copies of a request to mirrors, in the background; return the names of those that got one."""
        return self._copies.send(self.mirrors, request_for, want) if self._copies is not None else ()

    def compare(self, mirrors: Iterable[str], outcome: str, seconds: float, tokens: int) -> None:
        """Tell how the request itself fared."""
        if self._copies is not None:
            self._copies.original(mirrors, outcome, seconds, tokens)
