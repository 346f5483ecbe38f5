"""Tool-call arguments on their way through the filters: raw JSON in any pieces, each value a text of its own.

What no filter changed leaves with its own escapes and spaces; what one changed is escaped again, and a changed number
becomes a string. Names are unchanged, but one that a filter blocks ends the arguments too. From where the text
stops being JSON it is one plain text: nothing is shown that no filter has seen.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from gateway.protocol.jsontext import escape, splice, spliced, unescape, units

_SCALAR_LENGTH = 512  # a longer number is taken for plain text, so that nothing is held back without end

_SPACE = re.compile(r"[ \t\n\r]+")
_SCALAR = re.compile(r"[-+.0-9A-Za-z_]+")
_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
_WORDS = frozenset({"true", "false", "null", "NaN", "Infinity", "-Infinity"})
_BEGINNINGS = frozenset(word[:length] for word in _WORDS for length in range(1, len(word) + 1))

_ESCAPED = r"\\u[0-9a-fA-F]{4}|\\[^u]|\\u(?=[0-9a-fA-F]{0,3}[^0-9a-fA-F])"  # the last: no escape after all
_INSIDE = re.compile(rf'(?:[^"\\]++|{_ESCAPED})*+', re.DOTALL)
_PLAIN = re.compile(rf"(?:[^\\]++|{_ESCAPED})*+", re.DOTALL)
_HALF = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}\Z")  # the other half may come in the next piece

# What may come next. A comma behind the last member is let pass, as lenient parsers do.
_VALUE, _KEY, _COLON, _COMMA, _STRING, _TEXT = range(6)


class ValueFilter(Protocol):
    """The filter of one text; ``blocked`` is not None once it has ended the answer."""

    blocked: Any

    def feed(self, text: str) -> tuple[str, Sequence[Any]]:
        """Take a piece, return what may be shown and the edits made (start, end, text; from the text's beginning)."""

    def finish(self) -> tuple[str, Sequence[Any]]:
        """Return what was held back."""


class _Open:
    """A text that is being read: its filter, and the raw of what the filter holds back."""

    __slots__ = ("_editable", "_filter", "_raw", "_told")

    def __init__(self, value_filter: ValueFilter | None, *, editable: bool) -> None:
        self._filter, self._editable = value_filter, editable
        self._raw = ""
        self._told = 0  # code points dealt with

    @property
    def blocked(self) -> Any:
        return self._filter.blocked if self._filter is not None else None

    def feed(self, raw: str) -> str:
        if self._filter is None:
            return raw
        text = unescape(raw)
        shown, edits = self._filter.feed(text)
        if shown == text and not edits and not self._raw:
            self._told += len(text)
            return raw
        self._raw += raw
        return self._take(shown, edits)

    def finish(self) -> str:
        return self._take(*self._filter.finish()) if self._filter is not None else ""

    def _take(self, shown: str, edits: Sequence[tuple[int, int, str]]) -> str:
        """Give out the raw of what is shown."""
        if not shown and not edits:
            return ""
        mine = [(start - self._told, end - self._told, new) for start, end, new in edits]
        taken = len(shown) + sum(end - start - len(new) for start, end, new in mine)
        cut = units(self._raw)[taken:][:1] or [len(self._raw)]
        raw, self._raw = self._raw[: cut[0]], self._raw[cut[0] :]
        self._told += taken
        if not self._editable:
            return raw
        if spliced(unescape(raw), mine) != shown:  # a filter that miscounts is believed in what it shows
            return escape(shown)
        return splice(raw, mine)


class ArgumentsFilter:
    """Filters one call's arguments. ``make_filter`` makes a fresh filter for every value (None: nothing watches it).

    ``blocked`` is what the filter that ended the arguments says of it; nothing is shown from then on.
    """

    __slots__ = ("_key", "_make", "_next", "_open", "_rest", "_stack", "blocked")

    def __init__(self, make_filter: Callable[[], ValueFilter | None]) -> None:
        self._make = make_filter
        self._next = _VALUE
        self._stack: list[str] = []  # brackets that are open
        self._open: _Open | None = None
        self._key = False  # the string that is being read is a member's name
        self._rest = ""  # raw that cannot be told yet: half an escape, half a number
        self.blocked: Any = None

    def feed(self, raw: str) -> str:
        """Take the next piece of raw arguments, return the raw that may be shown."""
        return self._run(raw, end=False)

    def finish(self) -> str:
        """The arguments have ended: return what was held back."""
        shown = self._run("", end=True)
        if self._open is not None and self.blocked is None:
            shown += self._open.finish()
            self.blocked = self._open.blocked
            self._open = None
        return shown

    def _run(self, raw: str, *, end: bool) -> str:
        raw, self._rest = self._rest + raw, ""
        shown: list[str] = []
        at = 0
        while at < len(raw) and self.blocked is None:
            if self._next in {_STRING, _TEXT}:
                at = self._inside(raw, at, shown, end=end)
            else:
                at = self._between(raw, at, shown, end=end)
        return "".join(shown)

    def _between(self, raw: str, at: int, shown: list[str], *, end: bool) -> int:
        """Read one sign of the structure, or a scalar."""
        if (space := _SPACE.match(raw, at)) is not None:
            shown.append(space[0])
            return space.end()
        sign = raw[at]
        if self._next == _VALUE and (scalar := _SCALAR.match(raw, at)) is not None:
            return self._scalar(scalar[0], raw, at, shown, end=end)
        if sign == '"' and self._next in {_VALUE, _KEY}:
            self._key, self._next = self._next == _KEY, _STRING
            self._open = _Open(self._make(), editable=not self._key)
        elif not self._structure(sign):
            self._begin_text()
            return at
        shown.append(sign)
        return at + 1

    def _structure(self, sign: str) -> bool:
        """Take a bracket, comma or colon; False where JSON has none here."""
        within = self._stack[-1] if self._stack else ""
        if sign in "{[" and self._next == _VALUE:
            self._stack.append(sign)
            self._next = _KEY if sign == "{" else _VALUE
        elif sign == ":" and self._next == _COLON:
            self._next = _VALUE
        elif sign == "," and self._next == _COMMA and within:
            self._next = _KEY if within == "{" else _VALUE
        elif within + sign in {"{}", "[]"} and self._next in {_COMMA, _KEY if within == "{" else _VALUE}:
            self._stack.pop()
            self._ended()
        else:
            return False
        return True

    def _ended(self) -> None:
        self._next = _COMMA if self._stack else _VALUE  # behind the whole, some models begin another

    def _begin_text(self) -> None:
        self._next = _TEXT
        self._open = _Open(self._make(), editable=True)

    def _scalar(self, token: str, raw: str, at: int, shown: list[str], *, end: bool) -> int:
        """Read a number, true, false or null, which are complete only where something else follows."""
        could_be = token in _BEGINNINGS if token.lstrip("-")[:1].isalpha() else len(token) <= _SCALAR_LENGTH
        if could_be and not end and at + len(token) == len(raw):
            self._rest = token
        elif token in _WORDS:
            shown.append(token)
            self._ended()
        elif could_be and _NUMBER.fullmatch(token) is not None:
            shown.append(self._number(token))
            self._ended()
        else:
            self._begin_text()
            return at
        return at + len(token)

    def _number(self, token: str) -> str:
        value_filter = self._make()
        if value_filter is None:
            return token
        shown, edits = value_filter.feed(token)
        if value_filter.blocked is None:
            tail, more = value_filter.finish()
            shown, edits = shown + tail, [*edits, *more]
        self.blocked = value_filter.blocked
        if self.blocked is not None or (shown == token and not edits):
            return shown
        return f'"{escape(shown)}"'

    def _inside(self, raw: str, at: int, shown: list[str], *, end: bool) -> int:
        """Read on in a string, or in plain text to the end."""
        text = self._open
        if text is None:  # never: what is inside is open
            return len(raw)
        stop = found.end() if (found := (_INSIDE if self._next == _STRING else _PLAIN).match(raw, at)) else at
        closed = stop < len(raw) and raw[stop] == '"'
        if not closed:
            if end:
                stop = len(raw)
            elif (half := _HALF.search(raw, at, stop)) is not None and _is_escape(raw, at, half.start()):
                stop = half.start()
            self._rest = raw[stop:]
        if stop > at:
            shown.append(text.feed(raw[at:stop]))
        if closed and text.blocked is None:
            shown.append(text.finish())
            if text.blocked is None:
                shown.append('"')
                self._open = None
                self._next = _COLON if self._key else _COMMA
                if not self._key:
                    self._ended()
        self.blocked = text.blocked
        return stop + 1 if closed else len(raw)


def _is_escape(raw: str, begin: int, at: int) -> bool:
    """Tell whether the backslash at ``at`` begins an escape: not if it is itself an escaped one."""
    before = raw[begin:at]
    return (len(before) - len(before.rstrip("\\"))) % 2 == 0
