"""The texts of an answer that no field of ours names, on their way through their filters; whole, and in a stream."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from gateway.protocol.chunks import Choice
from gateway.protocol.filtering import Filter, MakeFilter, Names, reason_of
from gateway.protocol.patches import Patch
from gateway.protocol.rest import Leaf, Path, Rest, under


class RestTexts:
    """Such texts of one choice, or of what stands beside the choices, through their filters.

    ``blocked`` is what the filter that ended one of them says of it; nothing of any is shown from then on.
    """

    __slots__ = ("_channels", "_here", "_make", "_names", "blocked", "changed", "chars")

    def __init__(self, make: Callable[[str, int], Filter | None]) -> None:
        self._make = make  # the filter for a kind and a tool call
        self._channels: dict[Path, Filter | None] = {}
        self._here: dict[Path, Leaf] = {}
        self._names = Names()
        self.blocked: Any = None
        self.changed = False
        self.chars = 0

    def feed(self, leaves: list[Leaf]) -> None:
        """Take texts of a chunk, and put what may be shown in their places; ``changed``: that is not what was said."""
        for leaf in leaves:
            self._here[leaf.path] = leaf
            text = leaf.text
            self.chars += len(text)
            shown = self._shown(leaf, text) if self.blocked is None else ""
            if shown != text:
                leaf.holder[leaf.key], self.changed = shown, True

    def _shown(self, leaf: Leaf, text: str) -> str:
        kind = leaf.kind
        if leaf.is_name:
            self.blocked = self._names.judged(leaf.path, text, lambda: self._make(*kind))
            return text if self.blocked is None else ""
        if leaf.path not in self._channels:
            self._channels[leaf.path] = self._make(*kind)
        channel = self._channels[leaf.path]
        if channel is None:
            return text
        shown, _ = channel.feed(text)
        self.blocked = channel.blocked
        return shown

    def finish(self) -> list[tuple[Path, str]]:
        """The texts have ended: return what was held back of those that the last chunk did not tell."""
        tails = []
        for path, channel in self._channels.items():
            if channel is None or channel.blocked is not None:
                continue
            tail, _ = channel.finish()
            self.blocked = self.blocked or channel.blocked
            leaf = self._here.get(path)
            if tail and leaf is not None:
                leaf.holder[leaf.key], self.changed = leaf.text + tail, True
            elif tail:
                tails.append((path, tail))
        self._channels = {}
        return tails

    @property
    def tells(self) -> bool:
        """Is there something to show in the chunk?"""
        return any(leaf.text for leaf in self._here.values())

    def passed(self) -> None:
        """The chunk has been written: nothing goes into it any more."""
        self._here, self.changed, self.chars = {}, False, 0


def filtered(members: dict[str, Any], make_filter: MakeFilter) -> RestTexts:
    """Send each text of members that are whole through a filter of its own, and put what may be shown in its place."""
    texts = RestTexts(partial(make_filter, 0))
    texts.feed([leaf for name in members for leaf in under((name,), members, name)])
    texts.finish()
    return texts


class StreamRest:
    """Such texts of all choices of a stream, and of what stands beside them.

    ``over``: one that stands beside the choices was blocked, which ends each choice that is told from then on.
    """

    __slots__ = ("_make_filter", "_texts", "_top", "over")

    def __init__(self, make_filter: MakeFilter) -> None:
        self._make_filter = make_filter
        self._texts: dict[int, RestTexts] = {}
        self._top: RestTexts | None = None
        self.over = False

    @property
    def chars(self) -> int:
        """How many characters of such texts the chunk has."""
        return sum(texts.chars for texts in self._all())

    def _all(self) -> list[RestTexts]:
        return [*self._texts.values(), *([self._top] if self._top is not None else [])]

    def _new(self, index: int) -> RestTexts:
        return RestTexts(lambda kind, tool: self._make_filter(index, kind, tool))

    def beside(self, leaves: list[Leaf], *, ended: bool) -> bool:
        """Take the texts beside the choices of a chunk (``ended``: of the answer's last); return ``over``."""
        if leaves:
            self._top = self._top or self._new(0)
            self._top.feed(leaves)
            if ended:
                self._top.finish()
            self.over = self._top.blocked is not None
        return self.over

    def patch(
        self, choice: Choice, leaves: list[Leaf], patch: Patch | None, *, hidden: bool
    ) -> tuple[bool, Patch | None]:
        """Take the texts of a choice of a chunk; return whether something of the choice is hidden, and its patch."""
        if leaves:
            self._texts.setdefault(choice.index, self._new(choice.index)).feed(leaves)
        texts = [each for each in (self._texts.get(choice.index), self._top) if each is not None]
        for each in texts:
            if each.changed or each.blocked is not None:
                hidden, patch = True, patch or Patch()
                patch.hide(choice.logprobs)
                if each.blocked is not None:
                    patch.finish_reason = reason_of(each.blocked)
        if patch is not None:
            patch.tells = any(each.tells for each in texts)
        return hidden, patch

    def tails(self, index: int, patch: Patch | None, *, last: bool) -> Patch | None:
        """A choice has ended, ``last`` of all: put what is held of its texts into its patch."""
        if not self._texts and self._top is None:  # nearly always
            return patch
        for each in (self._texts.get(index), self._top if last else None):
            tails = each.finish() if each is not None else []
            if each is not None and (tails or each.blocked is not None):
                patch = patch or Patch()
                patch.rest += tails
                if each.blocked is not None:
                    patch.finish_reason = reason_of(each.blocked)
        return patch

    def written(self, rest: Rest, frame: bytes, payload: bytes) -> tuple[bytes, bytes]:
        """Return frame and payload of a chunk with what is shown of these texts; nothing goes into it any more."""
        texts = self._all()
        if any(each.changed for each in texts):
            frame, payload = rest.written()
        for each in texts:
            each.passed()
        return frame, payload
