"""Writes requests in plain characters: full-width letters and marks to half width, control characters out."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal

from pydantic import Field

from gateway.sdk import WIDE_MARKS, Exchange, Options, Plugin, Reading

_CONTROLS = "\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f"
#: Terminal escape sequences, whole: CSI (colours, cursor), OSC and its like (titles, links) with their end, the rest.
_unwanted = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]{0,64}[ -/]{0,8}[@-~]?"
    r"|\x1b[PX\]^_][^\x07\x1b\x9c]{0,256}(?:\x07|\x1b\\|\x9c)"
    rf"|\x1b[ -/]{{0,8}}[0-~]?|[{_CONTROLS}]"
)
_control = re.compile(f"[{_CONTROLS}]").search
_deleted = dict.fromkeys([*range(9), 11, 12, *range(14, 32), 127])

#: A fenced block of code, to its end or the text's: a full-width character in it is meant as it stands.
_fenced = re.compile(r"(`{3,}|~{3,})[^\n]*\n.*?(?:\n[ ]{0,3}\1|\Z)", re.DOTALL)
_FENCES = ("```", "~~~")

_KEPT = "，！？（）：；"
_table = {0x3000: " "} | {wide: chr(wide - 0xFEE0) for wide in range(0xFF01, 0xFF5F)}


class NormalizeOptions(Options):
    """What is to be made plain."""

    width: Literal["half", "off"] = Field(default="half", description="U+FF01 to U+FF5E and U+3000 to half width")
    keep_punctuation: bool = Field(default=False, description=f"leave {_KEPT} in full width")
    code_blocks: Literal["keep", "normalize"] = Field(
        default="keep", description="full-width characters in fenced blocks of code: leave them, or write them too"
    )
    control_characters: bool = Field(default=True, description="take them out, but for tab and line ends")


class Normalize(Plugin):
    """Writes requests in plain characters: half width, no control characters."""

    Options = NormalizeOptions
    options: NormalizeOptions

    def __init__(self, options: NormalizeOptions) -> None:
        super().__init__(options)
        self._narrow = Narrower(_KEPT if options.keep_punctuation else "") if options.width == "half" else None

    def on_request(self, exchange: Exchange) -> None:
        """Rewrite every text that needs it."""
        reading = exchange.reading()
        code = self.options.code_blocks == "keep" and any(fence in reading.text for fence in _FENCES)
        if self._narrow is not None and not code and not reading.text.isascii():
            narrowed = self._narrow.marks(reading.text)
            if narrowed is not reading.text:
                reading = _put(exchange, narrowed)
        if reading.ordinary and not code:
            return
        for text in exchange.texts():
            plain = text.text
            if self._narrow is not None:  # first: a full-width bracket may begin an escape sequence
                plain = _outside_code(plain, self._narrow.all) if code else self._narrow.all(plain)
            if self.options.control_characters:
                plain = without_controls(plain)
            text.replace(plain)


def _outside_code(text: str, rewrite: Callable[[str], str]) -> str:
    """Rewrite what of a text stands in no fenced block of code."""
    pieces: list[str] = []
    done = 0
    for block in _fenced.finditer(text):
        pieces += [rewrite(text[done : block.start()]), block[0]]
        done = block.end()
    return "".join([*pieces, rewrite(text[done:])])


def _put(exchange: Exchange, joined: str) -> Reading:
    """Put what was rewritten in one go, each text as long as it was, into its places."""
    start = 0
    for text in exchange.texts():
        end = start + len(text.text)
        text.replace(joined[start:end])
        start = end + 1
    return exchange.reading()


class Narrower:
    """Writes full-width characters in half width, all but some."""

    def __init__(self, kept: str) -> None:
        self._table = {wide: half for wide, half in _table.items() if chr(wide) not in kept}
        self._marks = [(mark, self._table[ord(mark)]) for mark in WIDE_MARKS if mark not in kept]
        self._any = re.compile(f"[{''.join(map(chr, self._table))}]").search

    def marks(self, text: str) -> str:
        """Rewrite the usual marks: one replacement each is quicker than a table for all."""
        for mark, half in self._marks:
            if mark in text:
                text = text.replace(mark, half)
        return text

    def all(self, text: str) -> str:
        """Rewrite everything."""
        if text.isascii():
            return text
        text = self.marks(text)
        return text.translate(self._table) if self._any(text) else text


def without_controls(text: str) -> str:
    """Remove terminal escape sequences, and control characters other than tab, newline and return."""
    if text.isascii() and "\x1b" not in text:
        return text.translate(_deleted)
    return _unwanted.sub("", text) if _control(text) else text
