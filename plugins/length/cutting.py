"""Cuts one text to a length: its beginning, its end, or the sentences that can least be spared."""

from __future__ import annotations

from functools import cached_property
from typing import Literal

from plugins.length.graphemes import after, before
from plugins.length.ranking import ranked
from plugins.length.sentences import sentences

Way = Literal["head", "tail", "semantic"]


class Cutter:
    """One text, and every cut of it. Lengths are code points; the mark counts, and is left out where room is scarce."""

    def __init__(self, text: str, way: Way, mark: str, outliers: int = 3) -> None:
        self.text, self._way, self._mark, self._outliers = text, way, mark, outliers

    def cut(self, length: int) -> str:
        """Return the text, or what is to be kept of it: at most ``length`` code points, but a grapheme at least."""
        text = self.text
        if len(text) <= length:
            return text
        mark = self._mark if 4 * len(self._mark) <= length else ""
        if self._way == "head":
            end = mark.rstrip()
            return text[: before(text, length - len(end)) or after(text, 1)] + end
        if self._way == "tail":
            begin = mark.lstrip()
            start = after(text, len(text) - length + len(begin))
            return begin + text[min(start, before(text, len(text) - 1)) :]
        return self._kept(length, mark)

    @cached_property
    def parts(self) -> list[str]:
        """The sentences."""
        return [self.text[start:end] for start, end in sentences(self.text)]

    @cached_property
    def order(self) -> list[int]:
        """The sentences' indices, the dearest first; whoever knows better sets it before the first cut."""
        return ranked(self.parts, self._outliers)

    def _kept(self, length: int, mark: str) -> str:
        parts = self.parts
        if len(parts) < 2 or len(parts[0]) + len(mark) + len(parts[-1]) > length:
            return _ends(parts[0], parts[-1] if len(parts) > 1 else parts[0], length, mark)
        left = length - len(mark)
        kept = set()
        for at in self.order:
            cost = len(parts[at]) + (len(mark) if 0 < at < len(parts) - 1 else 0)  # each may open one more gap
            if cost <= left:
                kept.add(at)
                left -= cost
        pieces: list[str] = []
        last = -1
        for at in sorted(kept):
            if at > last + 1:
                pieces.append(mark.lstrip() if pieces[-1][-1:].isspace() else mark)
            pieces.append(parts[at])
            last = at
        return "".join(pieces)


def _ends(first: str, last: str, length: int, mark: str) -> str:
    """Keep the beginning of the first sentence and the end of the last."""
    room = length - len(mark)
    begin = before(first, min(len(first), max(room // 2, room - len(last)))) or after(first, 1)
    end = after(last, max(0, len(last) - (room - begin)))
    cut = first[:begin] + mark + last[end:]
    return cut if mark or before(cut, begin) == begin else first[:begin]  # an accent would get another letter
