"""Parts a text into sentences: runs of the text that follow each other without a gap, no longer than is handy."""

from __future__ import annotations

import re

from plugins.length.graphemes import after, before

#: A longer sentence (a list, a line of a log) is parted at a space or a comma, if need be anywhere.
LONGEST = 300
#: Of more sentences neighbours are joined: choosing among them has to stay quick.
MOST = 4000

_CLOSING = "”’\"'」』）)\\]"
#: Each alternative reads a run from its first character on, so that no text is read over and over.
_end = re.compile(
    rf"(?:[。！？…]+|(?<![!?;；.])[!?;；.]++(?=[{_CLOSING}]*(?:\s|\Z|[^\x00-\x7f])))[{_CLOSING}]*\s*|\n\s*"
)
_soft = re.compile(r"[\s,，、:：|]")


def sentences(text: str) -> list[tuple[int, int]]:
    """Return start and end of each sentence, with the white space after it."""
    found: list[tuple[int, int]] = []
    start = 0
    for match in _end.finditer(text):
        _add(found, text, start, match.end())
        start = match.end()
    _add(found, text, start, len(text))
    together = -(-len(found) // MOST)
    if together > 1:
        return [
            (found[first][0], found[min(first + together, len(found)) - 1][1])
            for first in range(0, len(found), together)
        ]
    return found


def _add(found: list[tuple[int, int]], text: str, start: int, end: int) -> None:
    """Add a sentence, in parts where it is very long; one that would begin inside a grapheme goes with the last."""
    if found and start < end and after(text, start) != start:
        start = found.pop()[0]
    while end - start > LONGEST:
        soft = [match.end() for match in _soft.finditer(text, start + LONGEST // 2, start + LONGEST)]
        cut = before(text, soft[-1] if soft else start + LONGEST)
        if cut <= start:
            cut = after(text, start + 1)
        if cut >= end:
            break
        found.append((start, cut))
        start = cut
    if start < end:
        found.append((start, end))
