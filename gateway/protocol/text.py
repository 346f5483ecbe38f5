"""Text in a body: what it says, where it sits, and how an edit gets back to its place."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import msgspec

from gateway.protocol import jsontext
from gateway.protocol.jsontext import spliced

Edits = Sequence[tuple[int, int, str]]
"""(start, end, new): ``new`` takes the place of code points start to end; rising, not overlapping."""


class Text:
    """One text of a body: ``path`` ("messages[0].content"), the ``role`` of its message, and what it says now.

    What is edited here is edited in the body.
    """

    __slots__ = ("_at", "_container", "path", "role", "text")

    def __init__(self, container: Any, at: str | int, path: str, role: str | None = None) -> None:
        self._container, self._at = container, at
        self.path, self.role = path, role
        self.text: str = container[at]

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.path}>"  # never the text

    def edit(self, edits: Edits) -> None:
        """Replace spans of the text."""
        self._write(spliced(self.text, edits))

    def replace(self, new: str) -> None:
        """Put ``new`` in the place of the whole text."""
        if new != self.text:
            if type(self) is Text:  # nearly always
                self.text = self._container[self._at] = new
            else:
                self.edit([(0, len(self.text), new)])

    def _write(self, new: str) -> None:
        self.text = self._container[self._at] = new


class Key(Text):
    """A member's name. An edit renames the member, which moves to the end of its object."""

    __slots__ = ("_ordinal", "value")

    def __init__(self, container: dict[str, Any], at: str, path: str, ordinal: int) -> None:
        self._container, self._at, self._ordinal = container, at, ordinal
        self.path, self.role, self.text = path, None, at
        self.value: Text | None = None  # the member's value, where that is a text

    def _write(self, new: str) -> None:
        value = self._container.pop(self._at)
        while new in self._container:  # two masked names may be alike; neither value is lost
            new = f"{new}_{self._ordinal}"
        self._container[new] = value
        self.text = self._at = new
        if self.value is not None:
            self.value._at = new  # noqa: SLF001 - another Text


class Number(Text):
    """A number of a body, as JSON writes it. An edited one becomes a string, as inside JSON text.

    ``fixed``: nothing but a number can stand there; it is read, and no edit changes it.
    """

    __slots__ = ("_fixed",)

    def __init__(self, container: Any, at: str | int, path: str, role: str | None = None, *, fixed: bool) -> None:
        self._container, self._at, self._fixed = container, at, fixed
        self.path, self.role = path, role
        self.text = msgspec.json.encode(container[at]).decode()

    def _write(self, new: str) -> None:
        if new != self.text and not self._fixed:
            super()._write(new)


class Id(Text):
    """What engine and caller know something by: ``words`` in it are read, and no edit changes it."""

    __slots__ = ()

    def __init__(self, container: Any, at: str | int, words: str, path: str, role: str | None = None) -> None:
        self._container, self._at = container, at
        self.path, self.role, self.text = path, role, words

    def edit(self, edits: Edits) -> None:
        """Leave it: it has to be the same at every place."""


class Joined(Text):
    """Adjacent parts that are read as one text; an edit across them is shared out, character for character."""

    __slots__ = ("_parts",)

    def __init__(self, parts: list[tuple[Any, str | int]], path: str, role: str | None = None) -> None:
        self._parts = parts
        self.path, self.role = path, role
        self.text = "".join([container[at] for container, at in parts])

    def edit(self, edits: Edits) -> None:
        """Replace spans of the text; a part's share of a replacement is as long as its share of the span."""
        waiting = deque(edits)
        low, taken = 0, 0  # of the first waiting edit, so many characters have gone into earlier parts
        last = self._parts[-1]
        for place in self._parts:
            container, at = place
            high = low + len(container[at])
            mine = []
            while waiting and (waiting[0][0] < high or place is last):
                start, end, new = waiting[0]
                begin = max(start, low) - low
                if end > high:
                    mine.append((begin, high - low, new[taken : high - start]))
                    taken = min(high - start, len(new))
                    break
                mine.append((begin, end - low, new[taken:]))
                taken = 0
                waiting.popleft()
            if mine:
                container[at] = spliced(container[at], mine)
            low = high
        self.text = "".join([container[at] for container, at in self._parts])


class Json:
    """A string of JSON text in a body, whose strings and numbers are texts of their own.

    ``names`` are the ordinals of those that are members' names.
    """

    __slots__ = ("_at", "_container", "_pieces", "edited", "names")

    def __init__(self, container: Any, at: str | int) -> None:
        self._container, self._at = container, at
        self._pieces, self.names = jsontext.pieces(container[at])
        self.edited: set[str] = set()  # names, as they are now

    def __len__(self) -> int:
        return len(self._pieces) // 2

    def value(self, index: int) -> str:
        """Return a value as it is written: a string with its quotes, or a number."""
        return self._pieces[2 * index + 1]

    def write(self, index: int, value: str) -> None:
        """Put another value, as JSON, in the place of one."""
        self._pieces[2 * index + 1] = value
        self._container[self._at] = "".join(self._pieces)


class Value(Text):
    """A string or number value inside JSON text. An edited number becomes a string: ``138****8000`` is no number."""

    __slots__ = ("_index", "_json")

    def __init__(self, whole: Json, index: int, path: str, role: str | None = None) -> None:
        self._json, self._index = whole, index
        self.path, self.role = path, role
        raw = whole.value(index)
        self.text = jsontext.unescape(raw[1:-1]) if raw[0] == '"' else raw

    def edit(self, edits: Edits) -> None:
        """Replace spans of the decoded value; the JSON stays valid and the rest of it keeps its spelling."""
        raw = self._json.value(self._index)
        inside = raw[1:-1] if raw[0] == '"' else raw
        self._json.write(self._index, '"' + jsontext.splice(inside, edits) + '"')
        self.text = spliced(self.text, edits)


class Name(Value):
    """A member's name inside JSON text. Two that edits made alike get a number: no value is lost."""

    __slots__ = ()

    def edit(self, edits: Edits) -> None:
        """Replace spans of the decoded name."""
        super().edit(edits)
        if not edits:
            return
        if self.text in self._json.edited:
            super().edit([(len(self.text), len(self.text), f"_{self._index}")])
        self._json.edited.add(self.text)
