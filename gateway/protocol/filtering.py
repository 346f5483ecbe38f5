"""The words in which a text and its filter speak: channels, edits, an end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

_NAME_LENGTH = 4096  # of a name in pieces without end the last so many characters are judged together


class Channel(NamedTuple):
    """One text stream inside an answer. ``kind``: content, reasoning, refusal or arguments (of tool call ``tool``).

    Of tool arguments each decoded string or number value is a text of its own: one filter for each.
    """

    choice: int
    kind: str
    tool: int = 0


class Edit(NamedTuple):
    """``text`` takes the place of code points ``start`` to ``end`` of the text that went into the filter."""

    start: int
    end: int
    text: str


class TextFilter(Protocol):
    """Watches one channel. It may hold text back, but only as long as it must, and a bounded amount."""

    def feed(self, text: str) -> tuple[str, Sequence[Edit]]:
        """Take the next piece; return what may be shown now and the edits made in it (positions count from the start
        of the channel, rising, each told once, when its replacement is shown). May raise Blocked.
        """

    def finish(self) -> tuple[str, Sequence[Edit]]:
        """The text has ended: return what was held back."""


class Blocked(Exception):
    """Raised by a text filter: the answer ends here. ``shown`` is the clean text before the hit not yet shown."""

    def __init__(self, rule: str, *, tag: str | None = None, shown: str = "", edits: Sequence[Edit] = (),
                 finish_reason: str = "content_filter") -> None:  # fmt: skip
        super().__init__(rule)
        self.rule, self.tag, self.shown, self.edits, self.finish_reason = rule, tag, shown, edits, finish_reason


class Filter(Protocol):
    """What the pipeline gives for a channel: positions are code points of the channel's original text."""

    blocked: Any
    fed: int
    told: int

    def feed(self, text: str) -> tuple[str, Sequence[Any]]:
        """Take a piece, return what may be shown and the edits made."""

    def finish(self) -> tuple[str, Sequence[Any]]:
        """Return what was held back."""

    def whole(self, text: str) -> tuple[str, Sequence[Any]]:
        """Take a text that is all there is."""


MakeFilter = Callable[[int, str, int], Filter | None]
"""Makes the filter of a channel from choice, kind and tool call; None where nothing watches it."""


def reason_of(blocked: Any) -> str:
    """Return the finish_reason that a filter's block gives: its own, or the content filter's."""
    return getattr(blocked, "finish_reason", "content_filter")


def judged(name: str, channel: Filter | None) -> Any:
    """Return what blocks a name, None if nothing does. A caller's program goes by it, so it is never masked."""
    if channel is None:
        return None
    channel.feed(name)
    if channel.blocked is None:
        channel.finish()
    return channel.blocked


class Names:
    """Names that may come in pieces, which clients put together: each piece is judged, and what it makes of the name.

    A piece is shown at once, for some clients take the first for the whole; the piece in which the hit ends is not.
    """

    __slots__ = ("_said",)

    def __init__(self) -> None:
        self._said: dict[Any, str] = {}

    def judged(self, which: Any, piece: str, make: Callable[[], Filter | None]) -> Any:
        """Take a piece of a name; return what blocks it, None if nothing does."""
        before = self._said.get(which, "")
        self._said[which] = (before + piece)[-_NAME_LENGTH:]
        blocked = judged(piece, make())
        return judged(self._said[which], make()) if blocked is None and before else blocked
