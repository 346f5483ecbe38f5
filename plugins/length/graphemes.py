"""Where a text may be cut: between what a reader takes for characters (extended grapheme clusters, UAX #29)."""

from __future__ import annotations

import regex

_cluster = regex.compile(r"\X")
#: Two characters between which there is a boundary whatever stands around them: what joins nothing, or a line end.
_certain = regex.compile(r"(?s)[\p{GCB=Other}\p{GCB=LV}\p{GCB=LVT}]{2}|\n.|[^\r][\r\n]|\r\r")
#: So far back is looked for one; a longer run of marks, joiners or flags is no text, and is cut anywhere.
_FAR = 256


def before(text: str, place: int) -> int:
    """Return the last boundary at or before a place."""
    if place >= len(text):
        return len(text)
    start, farthest = place, max(0, place - _FAR)
    while start > farthest and not _certain.match(text, start - 1):
        start -= 1
    while start < place:
        end = _next(text, start)
        if end > place:
            break
        start = end
    return max(0, start)


def after(text: str, place: int) -> int:
    """Return the first boundary at or after a place."""
    start = before(text, max(0, place))
    return start if start >= place else _next(text, start)


def _next(text: str, start: int) -> int:
    """Return the end of the cluster at ``start``. The pattern sees no more than that: it would look back and far."""
    found = _cluster.match(text[start : start + _FAR])
    return start + (found.end() if found else 1)
