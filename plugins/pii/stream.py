"""The filter of one channel: holds text back only while a value may be under way at its end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from gateway.sdk import Blocked, Edit
from plugins.pii.scan import Found, Mask, Reader, Scanner

_INVISIBLE = 1024  # held beyond the longest value: only invisible characters can do that

NO_EDITS: tuple[Edit, ...] = ()

Report = Callable[[Found], None]
"""Told of every value found, with positions in the channel."""


class PiiFilter:
    """Watches one channel. Raises Blocked at the earliest value whose kind blocks."""

    __slots__ = ("_fed", "_held", "_mask", "_masks", "_reader", "_report", "_scanner")

    def __init__(self, scanner: Scanner, report: Report, *, mask: str = "*") -> None:
        self._scanner, self._report, self._mask = scanner, report, mask
        self._reader = Reader(scanner)
        self._held = ""
        self._fed = 0
        self._masks: list[Mask] = []  # of text that is held, in the channel's positions

    def is_clean(self, text: str) -> bool:
        """Say that no value is in a text that is whole."""
        return self._scanner.is_clean(text)

    def feed(self, text: str) -> tuple[str, Sequence[Edit]]:
        """Return what may be shown now and the masks in it."""
        self._fed += len(text)
        if not self._held and self._scanner.is_plain(text):
            self._reader.passed(text)
            return text, NO_EDITS
        shown, edits = self._step(self._held + text, final=False)
        if self._scanner.only_tags:  # nothing will change: only the look waits, not the text
            self._held = self._held[-self._scanner.longest - _INVISIBLE :]
            return text, NO_EDITS
        if len(self._held) > self._scanner.longest + _INVISIBLE:
            raise Blocked("pii:held_too_long", shown=shown, edits=edits)
        return shown, edits

    def finish(self) -> tuple[str, Sequence[Edit]]:
        """Return what was held, masked where it has to be."""
        shown, edits = self._step(self._held, final=True) if self._held else ("", NO_EDITS)
        return ("", NO_EDITS) if self._scanner.only_tags else (shown, edits)

    def _step(self, text: str, *, final: bool) -> tuple[str, Sequence[Edit]]:
        found, hold = self._reader.step(text, final=final)
        self._held = text[hold:]
        if not found and not self._masks:
            return text[:hold], NO_EDITS
        base = self._fed - len(text)
        for one in found:
            self._report(one._replace(start=base + one.start, end=base + one.end))
            if one.rule.action == "block":
                shown, edits = self._masked(text[: one.start], base)
                raise Blocked(one.rule.id, tag=one.rule.id, shown=shown, edits=edits)
            self._masks += [(base + start, base + end) for start, end in one.masks]
        shown, edits = self._masked(text[:hold], base)
        self._masks = [(max(start, base + hold), end) for start, end in self._masks if end > base + hold]
        return shown, edits

    def _masked(self, text: str, base: int) -> tuple[str, Sequence[Edit]]:
        """Mask what is to be masked of a text that stands at ``base`` of the channel."""
        edits, parts, done = [], [], 0
        for start, reach in union(self._masks):
            first, last = start - base, min(reach - base, len(text))
            if first >= last:
                break
            mask = self._mask * (last - first)
            edits.append(Edit(start, base + last, mask))
            parts += [text[done:first], mask]
            done = last
        return ("".join([*parts, text[done:]]), edits) if edits else (text, NO_EDITS)


def union(masks: Iterable[Mask]) -> list[Mask]:
    """Return the spans by their place, those that touch or overlap as one."""
    joined: list[Mask] = []
    for start, end in sorted(masks):
        if joined and start <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(joined[-1][1], end)
        else:
            joined.append((start, end))
    return joined
