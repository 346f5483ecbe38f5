"""What takes the place of words that are not blocked but must not be read: masks and replacements, joined."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from plugins.sensitive_words.matcher import Found

COVERING = frozenset({"mask", "replace"})
"""The actions that put something in a word's place."""


class Cover(NamedTuple):
    """A span that is not shown as it is. ``text`` takes its place; None: a mask for each of its code points."""

    start: int
    end: int
    text: str | None = None


def covers(found: Iterable[Found], begun: Iterable[Cover] = ()) -> list[Cover]:
    """Join the spans of what is to be covered, so that each code point is covered once.

    Of spans that overlap, the one that starts first (the longest of those) says what takes the place of all: so a
    stream, which has shown the first one's cover already, ends up as the whole text does. ``begun`` come first.
    """
    spans = [Cover(start, end, rule.replacement) for start, end, rule in found if rule.action in COVERING]
    spans.sort(key=lambda span: (span.start, -span.end))
    joined: list[Cover] = []
    for span in (*begun, *spans):
        last = joined[-1] if joined else None
        masks = last is not None and last.text is span.text is None
        if last is not None and (span.start < last.end or (masks and span.start == last.end)):
            joined[-1] = last._replace(end=max(last.end, span.end))
        else:
            joined.append(span)
    return joined
