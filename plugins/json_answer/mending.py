"""Makes JSON of text that is nearly JSON: changes spelling, never a value, and completes nothing that was cut off."""

from __future__ import annotations

import re

#: Levels of arrays and objects in one answer; the gateway's own limit for requests.
MAX_DEPTH = 200
CUT_OFF = "it is cut off"

_GAP = re.compile(r"(?:[ \t\n\r]++|//[^\n]*+|/\*.*?\*/|[^\S \t\n\r]++|\ufeff)*+", re.DOTALL)
_FOREIGN = re.compile(r"//[^\n]*+|/\*.*?\*/|[^\S \t\n\r]|\ufeff", re.DOTALL)
_STRICT = re.compile(r'"(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+"')
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?(?![\w.+*-])")
_MASKED = re.compile(r"[0-9](?=[0-9-]*\*)[0-9*-]*(?![\w.+])")  # a number that a filter masked
_WORD = re.compile(r"-?[A-Za-z_$][\w$-]*")
_LAST = re.compile(r"[\w.+$-]*\Z")
_WORDS = {word: word for word in ("true", "false", "null")} | {"True": "true", "False": "false", "None": "null"}
_WORDS |= dict.fromkeys(("NaN", "nan", "Infinity", "-Infinity", "inf", "-inf"), "null")  # JSON has none of them

_CLOSING = {'"': '"', "'": "'", "“": "”", "‘": "’"}
_UP_TO = {
    quote: re.compile(rf"(?:[^\\{quote}]++|\\.)*+{quote}", re.DOTALL) for quote in _CLOSING.values()
}  # up to a quote that no backslash stands before
_ODD = re.compile(r'\\u[0-9a-fA-F]{4}|\\.|[\x00-\x1f"]', re.DOTALL)
_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f", '"': '\\"', "\\'": "'"}
_AFTER = {
    "name": re.compile(r"\s*[:：]"),
    "{": re.compile(r"\s*(?:[,，}]|//|/\*|\Z)|[^\S\n]*\n\s*[\"'“]"),
    "[": re.compile(r"\s*(?:[,，\]]|//|/\*|\Z)|[^\S\n]*\n\s*[\"'“\[{]"),
}
_APOSTROPHE = re.compile(r"\w['’]\w")
_STRUCTURAL = re.compile(r"\s*[,，:：}\]]")


class Broken(Exception):
    """It cannot be made JSON. ``cut_off``: it ends too early; ``begun``: something of a value had been read before."""

    def __init__(self, why: str, *, cut_off: bool = False, begun: bool = True) -> None:
        super().__init__(why)
        self.cut_off, self.begun = cut_off, begun


def mend(text: str, at: int) -> tuple[str, int]:
    """Return the JSON of the array or object that begins at ``at``, and where it ended. Linear in the text's length.

    What is JSON already keeps its spelling. Mended are: quotes of other kinds, bare names, commas too many or missing
    between lines, comments, Python's and JavaScript's words, control characters and wrong escapes in strings, quotes
    inside a string where there is no doubt, full-width colons and commas. Raises Broken.
    """
    return _Mender(text, at).run()


class _Mender:
    """Reads one value with a stack of its own, so that depth costs nothing."""

    def __init__(self, text: str, at: int) -> None:
        self._text, self._at, self._start = text, at, at
        self._parts: list[str] = []
        self._stack: list[str] = []
        self._values = 0  # names and values read so far
        self._new_line = False  # in the gap before the next token

    def run(self) -> tuple[str, int]:
        """Walk to the bracket that closes the first."""
        self._open()
        complete = False  # a member has been read, and no comma behind it
        while self._stack:
            self._gap()
            first = self._peek()
            if first in "]}":
                self._close(first, after_comma=not complete)
                complete = True
            elif complete:
                self._comma(first)
                complete = False
            else:
                if self._stack[-1] == "{":
                    self._name(first)
                complete = self._value(self._peek())
        return "".join(self._parts), self._at

    def _broken(self, why: str) -> Broken:
        if _LAST.match(self._text, self._at):  # half a word, half a number
            return Broken(CUT_OFF, cut_off=True)
        return Broken(f"{why} at character {self._at - self._start + 1}", begun=self._values > 0)

    def _peek(self) -> str:
        if self._at >= len(self._text):
            raise Broken(CUT_OFF, cut_off=True)
        return self._text[self._at]

    def _take(self, shown: str, end: int) -> None:
        self._parts.append(shown)
        self._at = end

    def _gap(self) -> None:
        """Keep white space, drop comments, write other spaces as one of JSON's."""
        found = _GAP.match(self._text, self._at)
        end = found.end() if found is not None else self._at
        gap = self._text[self._at : end]
        self._new_line = "\n" in gap
        if gap:
            self._take(_FOREIGN.sub(lambda odd: "" if odd[0][0] in "/\ufeff" else " ", gap), end)

    def _open(self) -> None:
        bracket = self._text[self._at]
        self._stack.append(bracket)
        if len(self._stack) > MAX_DEPTH:
            raise Broken("it is nested too deeply")
        self._take(bracket, self._at + 1)

    def _close(self, bracket: str, *, after_comma: bool) -> None:
        if bracket != ("}" if self._stack.pop() == "{" else "]"):
            raise self._broken("a bracket is closed that is not open")
        if after_comma:  # a comma behind the last member says nothing
            index = next(at for at in range(len(self._parts) - 1, -1, -1) if self._parts[at].strip())
            if self._parts[index] == ",":
                del self._parts[index]
        self._take(bracket, self._at + 1)
        self._values += 1

    def _comma(self, first: str) -> None:
        if first in ",，":
            self._take(",", self._at + 1)
        elif self._new_line:
            self._parts.append(",")
        else:
            raise self._broken("a comma is expected")

    def _name(self, first: str) -> None:
        if first in _CLOSING:
            self._string(first, "name")
        else:
            word = _WORD.match(self._text, self._at)
            if word is None or not _AFTER["name"].match(self._text, word.end()):
                raise self._broken("a name is expected")
            self._take(f'"{word[0]}"', word.end())
        self._gap()
        if self._peek() not in ":：":
            raise self._broken("a colon is expected")
        self._take(":", self._at + 1)
        self._values += 1
        self._gap()

    def _value(self, first: str) -> bool:
        """Take a value; False where it only begins."""
        if first in "{[":
            self._open()
            return False
        if first in _CLOSING:
            self._string(first, self._stack[-1])
        elif number := _NUMBER.match(self._text, self._at):
            self._take(number[0], number.end())
        elif masked := _MASKED.match(self._text, self._at):
            self._take(f'"{masked[0]}"', masked.end())
        else:
            word = _WORD.match(self._text, self._at)
            if word is None or word[0] not in _WORDS:
                raise self._broken("a value is expected")
            self._take(_WORDS[word[0]], word.end())
        self._values += 1
        return True

    def _string(self, first: str, of: str) -> None:
        """Take a string that is a name, or a value in an object or array (``of``)."""
        strict = _STRICT.match(self._text, self._at)
        if strict is not None and _AFTER[of].match(self._text, strict.end()):
            self._take(strict[0], strict.end())
            return
        quote, end, inner = _CLOSING[first], self._at + 1, 0
        while True:
            found = _UP_TO[quote].match(self._text, end)
            if found is None:
                raise Broken(CUT_OFF, cut_off=True)
            end = found.end()
            if _AFTER[of].match(self._text, end):
                break
            if quote in "'’" and _APOSTROPHE.match(self._text, end - 2):
                continue
            if _STRUCTURAL.match(self._text, end):
                raise self._broken("a string ends where it cannot")
            inner += 1
        if inner % 2:  # where it ends is anybody's guess, and a wrong guess loses text
            raise self._broken("a string has quotes inside that are not escaped")
        self._take(f'"{_ODD.sub(_spelled, self._text[self._at + 1 : end - 1])}"', end)


def _spelled(found: re.Match[str]) -> str:
    """Write what a JSON string cannot hold as it is."""
    odd = found[0]
    if odd in _ESCAPES:
        return _ESCAPES[odd]
    if odd[0] != "\\":
        return f"\\u{ord(odd):04x}"
    if len(odd) == 6 or odd[1] in '"\\/bfnrt':
        return odd
    if odd[1] < " ":
        raise Broken("a string holds a backslash before a line end")
    return f"\\{odd}"  # a backslash that escapes nothing was meant as one
