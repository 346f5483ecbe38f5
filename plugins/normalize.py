"""Writes requests in plain characters: full-width letters and marks to half width, control characters out."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal

from pydantic import Field

from gateway.sdk import Exchange, Options, Plugin

_CONTROLS = "\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f"
#: Terminal escape sequences, whole: CSI (colours, cursor), OSC and its like (titles, links) with their end, the rest.
_unwanted = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]{0,64}[ -/]{0,8}[@-~]?"
    r"|\x1b[PX\]^_][^\x07\x1b\x9c]{0,256}(?:\x07|\x1b\\|\x9c)"
    rf"|\x1b[ -/]{{0,8}}[0-~]?|[{_CONTROLS}]"
)
_control = re.compile(f"[{_CONTROLS}]").search
#: Most texts are made of this alone; quicker to confirm than the rest is to miss.
_usual = re.compile("[\t\n\r -~\u4e00-\u9fff\u3001-\u3029\u2010-\u2027]*").fullmatch
_deleted = dict.fromkeys([*range(9), 11, 12, *range(14, 32), 127])

_KEPT = "，！？（）：；"
#: What is found in nearly every Chinese text: one replacement each is quicker than a table for all.
_USUAL = "，：？！（）；　％～"
_table = {0x3000: " "} | {wide: chr(wide - 0xFEE0) for wide in range(0xFF01, 0xFF5F)}


class NormalizeOptions(Options):
    """What is to be made plain."""

    width: Literal["half", "off"] = Field(default="half", description="U+FF01 to U+FF5E and U+3000 to half width")
    keep_punctuation: bool = Field(default=False, description=f"leave {_KEPT} in full width")
    control_characters: bool = Field(default=True, description="take them out, but for tab and line ends")


class Normalize(Plugin):
    """Writes requests in plain characters: half width, no control characters."""

    Options = NormalizeOptions
    options: NormalizeOptions

    def __init__(self, options: NormalizeOptions) -> None:
        super().__init__(options)
        self._steps: list[Callable[[str], str]] = []
        if options.width == "half":  # first: a full-width bracket may begin an escape sequence
            self._steps.append(_narrower(_KEPT if options.keep_punctuation else ""))
        if options.control_characters:
            self._steps.append(without_controls)

    def on_request(self, exchange: Exchange) -> None:
        """Rewrite every text that needs it."""
        for text in exchange.texts():
            plain = text.text
            for step in self._steps:
                plain = step(plain)
            text.replace(plain)


def without_controls(text: str) -> str:
    """Remove terminal escape sequences, and control characters other than tab, newline and return."""
    if text.isascii() and "\x1b" not in text:
        return text.translate(_deleted)
    return text if _usual(text) or not _control(text) else _unwanted.sub("", text)


def _narrower(kept: str) -> Callable[[str], str]:
    """Make the function that writes full-width characters in half width, all but some."""
    table = {wide: half for wide, half in _table.items() if chr(wide) not in kept}
    usual = [(wide, table[ord(wide)]) for wide in _USUAL if wide not in kept]
    rare = re.compile(f"[{''.join(map(chr, table))}]").search

    def narrow(text: str) -> str:
        if text.isascii():
            return text
        for wide, half in usual:
            if wide in text:
                text = text.replace(wide, half)
        return text if _usual(text) or not rare(text) else text.translate(table)

    return narrow
