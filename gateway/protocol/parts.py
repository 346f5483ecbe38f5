"""A part of an answer on its way through the filters: what the engine has said of it, and what of that may be shown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from gateway.protocol.arguments import ArgumentsFilter
from gateway.protocol.filtering import Filter, MakeFilter, judged, reason_of
from gateway.protocol.logprobs import LogprobQueue, in_step, masked

NO_LOGPROBS = (b"null", b"[]")
#: Kinds of which adjacent parts are read as one text.
TEXTS = frozenset({"content", "reasoning", "refusal"})


class TextChannel:
    """One text through its filter. Adjacent parts of one kind share a channel: they are read as one text.

    Positions are code points of the channel's original text: ``edits`` are those made so far, ``seams`` say for the end
    of a part how much had been told when the next began.
    """

    __slots__ = ("_ended", "_filter", "_logprobs", "edits", "fed", "seams")

    def __init__(self, made: Filter | None) -> None:
        self._filter = made
        self._ended = False
        self._logprobs: LogprobQueue | None = None
        self.edits: list[tuple[int, int, str]] = []
        self.seams: dict[int, int] = {}
        self.fed = 0

    @property
    def blocked(self) -> bool:
        """Has the filter ended the answer?"""
        return self._filter is not None and self._filter.blocked is not None

    @property
    def reason(self) -> str:
        """Why the filter ended the answer."""
        return reason_of(self._filter.blocked if self._filter is not None else None)

    @property
    def told(self) -> int:
        """Code points that were shown or edited away."""
        return self.fed if self._filter is None else self._filter.told

    @property
    def holds(self) -> bool:
        """Is there text that could not be shown yet?"""
        return not self.blocked and self.told < self.fed

    def feed(self, text: str, logprobs: bytes | msgspec.Raw = b"null") -> tuple[str, list[Any] | None]:
        """Take a piece and its logprobs (a list, as JSON); return what may be shown of both, None: as they came."""
        self.fed += len(text)
        if self._filter is None:
            return text, None
        shown, edits = self._filter.feed(text)
        queue = self._logprobs
        if shown == text and not edits and (queue is None or queue.empty) and in_step(_wrapped(logprobs), text):
            return shown, None
        self.edits += edits
        given = bytes(logprobs)
        if queue is None:
            if given in NO_LOGPROBS:
                return shown, []
            queue = self._logprobs = LogprobQueue()
        return shown, _entries(queue.feed(_wrapped(logprobs), b"null", text, self.fed, self.told, edits))

    def whole(self, text: str) -> str:
        """Take a text that is all there is."""
        self.fed += len(text)
        self._ended = True
        if self._filter is None:
            return text
        shown, edits = self._filter.whole(text)
        self.edits += edits
        return shown

    def finish(self) -> tuple[str, list[Any]]:
        """The text has ended: return what was held back. Asked again: nothing."""
        if self._filter is None or self._ended or self.blocked:
            return "", []
        self._ended = True
        shown, edits = self._filter.finish()
        self.edits += edits
        queue = self._logprobs
        if queue is None:
            return shown, []
        return shown, _entries(queue.finish(self.fed, self.told, edits, None, hidden=bool(self.edits)))


class NameChannel(TextChannel):
    """The name of one call, which comes whole. A caller's program goes by it: it is judged, and never masked."""

    __slots__ = ()

    @property
    def told(self) -> int:
        """All of it, or nothing."""
        return 0 if self.blocked else self.fed

    def feed(self, text: str, logprobs: bytes | msgspec.Raw = b"null") -> tuple[str, list[Any] | None]:
        """Take the name; return it if it may be shown."""
        del logprobs
        return self.whole(text), None

    def whole(self, text: str) -> str:
        """Take the name; return it if it may be shown."""
        self.fed, self._ended = len(text), True
        return text if judged(text, self._filter) is None else ""


def _wrapped(logprobs: bytes | msgspec.Raw) -> bytes:
    return b'{"content":%b}' % bytes(logprobs)


def _entries(told: tuple[Any, Any]) -> list[Any]:
    logprobs = told[0]
    return (logprobs.get("content") or []) if isinstance(logprobs, dict) else []


class ArgumentsChannel:
    """The arguments of one tool call: each value in them is a text of its own."""

    __slots__ = ("_arguments", "_ended", "edits", "fed", "seams")

    def __init__(self, make_filter: MakeFilter, tool: int) -> None:
        watched = make_filter(0, "arguments", tool) is not None
        self._arguments = ArgumentsFilter(lambda: make_filter(0, "arguments", tool)) if watched else None
        self.edits: list[tuple[int, int, str]] = []
        self.seams: dict[int, int] = {}
        self.fed = 0
        self._ended = False

    @property
    def blocked(self) -> bool:
        """Has a filter ended the answer?"""
        return self._arguments is not None and self._arguments.blocked is not None

    @property
    def reason(self) -> str:
        """Why a filter ended the answer."""
        return reason_of(self._arguments.blocked if self._arguments is not None else None)

    @property
    def told(self) -> int:
        """All of it: arguments have no logprobs, and nobody waits for them."""
        return self.fed

    @property
    def holds(self) -> bool:
        """Arguments are never carried over to another part."""
        return False

    def feed(self, text: str, logprobs: bytes | msgspec.Raw = b"null") -> tuple[str, list[Any] | None]:
        """Take a piece of raw JSON; return the raw JSON to show."""
        del logprobs
        return (text if self._arguments is None else self._arguments.feed(text)), None

    def whole(self, text: str) -> str:
        """Take arguments that are all there is."""
        return self.feed(text)[0] + self.finish()[0]

    def finish(self) -> tuple[str, list[Any]]:
        """The arguments have ended: return what was held back. Asked again: nothing."""
        if self._arguments is None or self._ended or self.blocked:
            return "", []
        self._ended = True
        return self._arguments.finish(), []


class Part:
    """One part: ``said`` by the engine, ``shown`` to the caller; ``changed`` once the two may differ."""

    __slots__ = ("_base", "_said", "_shown", "changed", "channel", "ended")

    def __init__(self, channel: TextChannel | ArgumentsChannel) -> None:
        self.channel = channel
        self._base = channel.fed
        self._said: list[str] = []
        self._shown: list[str] | None = None
        if channel.holds:  # of the part before: its last words come out here
            self._shown = []
            channel.seams[channel.fed] = channel.told
        self.changed = self._shown is not None
        self.ended = False

    @property
    def said(self) -> str:
        """All that the engine has said of it."""
        return "".join(self._said)

    @property
    def shown(self) -> str:
        """All that the caller has seen of it."""
        return "".join(self._said if self._shown is None else self._shown)

    def feed(self, text: str, logprobs: bytes | msgspec.Raw = b"null") -> tuple[str, list[Any] | None]:
        """Take a piece and its logprobs; return what may be shown of both, None: the logprobs as they came."""
        shown, kept = self.channel.feed(text, logprobs)
        if self._shown is None and shown != text:
            self._shown, self.changed = list(self._said), True
        self._said.append(text)
        if self._shown is not None:
            self._shown.append(shown)
        return shown, kept

    def whole(self, text: str) -> None:
        """Take a text that is all there is of this part, and of what is read with it."""
        self.ended = True
        self._said.append(text)
        shown = self.channel.whole(text)
        if shown != text:
            self._shown, self.changed = [shown], True

    def finish(self) -> tuple[str, list[Any]]:
        """It has ended, and nothing follows that is read with it: return what was held back."""
        self.ended = True
        shown, kept = self.channel.finish()
        if self._shown is not None:
            self._shown.append(shown)
        return shown, kept

    def masked(self, logprobs: Any) -> Any:
        """Return a list of logprobs of the whole part with all of it masked that was not shown as it was said.

        Where a filter ended the answer in it, nothing is left of what followed.
        """
        if not isinstance(logprobs, list) or not logprobs:
            return logprobs
        said, channel = self.said, self.channel
        told = channel.seams.get(self._base + len(said), channel.told) - self._base
        edits: Sequence[tuple[int, int, str]] = [
            (start - self._base, end - self._base, new) for start, end, new in channel.edits
        ]
        if channel.blocked:
            return masked({"content": logprobs}, said, edits, told)["content"]
        if told < len(said):
            edits = [*edits, (max(told, 0), len(said), "")]
        return masked({"content": logprobs}, said, edits)["content"] if edits else logprobs


class Place(NamedTuple):
    """One text of an item of an answer. Adjacent places of one ``kind`` and ``group`` are read as one text.

    ``kind`` is that of the channel (content, reasoning, refusal, arguments; code: arguments that are not JSON; name: of
    a call, which is no text but judged like one);
    ``group`` and ``number`` say which part of the item it is; ``holder[field]`` is the text.
    """

    kind: str
    group: str
    number: int
    holder: Any
    field: Any

    @property
    def text(self) -> str:
        """What stands there now."""
        return str(self.holder[self.field])


def channel_for(kind: str, make_filter: MakeFilter, tool: int) -> TextChannel | ArgumentsChannel:
    """Return a fresh channel for a place of an answer, by the kind of place."""
    if kind == "arguments":
        return ArgumentsChannel(make_filter, tool)
    named = kind == "name"
    kind = {"code": "arguments", "rest": "content", "name": "arguments"}.get(kind, kind)
    made: Filter | None = make_filter(0, kind, tool if kind == "arguments" else 0)
    return NameChannel(made) if named else TextChannel(made)


def fed(found: Sequence[tuple[int, Place, int]], make_filter: MakeFilter) -> list[Part]:
    """Feed all places of a whole answer (with the ordinal of the tool call, last); return the part of each, up to the
    one in which a filter ended the answer.
    """
    parts: list[Part] = []
    runs = [place[:2] if place.kind in TEXTS else ("", str(at)) for at, (_, place, _) in enumerate(found)]
    for at, (_, place, tool) in enumerate(found):
        begins = at == 0 or runs[at - 1] != runs[at]
        ends = at + 1 == len(found) or runs[at + 1] != runs[at]
        part = Part(channel_for(place.kind, make_filter, tool) if begins else parts[-1].channel)
        parts.append(part)
        if begins and ends:
            part.whole(place.text)
        else:
            part.feed(place.text)
            if ends:
                part.finish()
        if part.channel.blocked:
            break
    return parts


def chars_of(found: Sequence[tuple[int, Place, int]], parts: Sequence[Part]) -> int:
    """Return how many characters of text were fed; a name is none."""
    return sum(len(part.said) for (_, place, _), part in zip(found, parts, strict=False) if place.kind != "name")


def write(place: Place, part: Part) -> None:
    """Put what was shown in the place of what was said, and mask the logprobs that repeat it."""
    if part.changed:
        place.holder[place.field] = part.shown
    if isinstance(place.holder, dict) and place.holder.get("logprobs"):
        place.holder["logprobs"] = part.masked(place.holder["logprobs"])
