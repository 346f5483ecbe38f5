"""The plugin: its options, and what it takes from an exchange when that is over."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Literal

from pydantic import Field

from gateway.sdk import Channel, ConfigPath, Edit, Exchange, Options, Plugin, TextFilter
from plugins.audit_log.entry import Entry, Said, line
from plugins.audit_log.writer import Writer

NO_EDITS: tuple[Edit, ...] = ()


class AuditLogOptions(Options):
    """Where the log is written, and how much is said in it."""

    path: ConfigPath = Field(description="the file; several workers may share it")
    text: Literal["none", "hash", "full"] = Field(
        default="none",
        description="of requests and answers: lengths only, SHA-256 of each text, or the texts themselves",
    )
    rotate_mb: int = Field(
        default=100, ge=1, description="put the file aside, under the time of day, when it is so large"
    )
    keep: int | None = Field(
        default=None, ge=1, description="how many files put aside are kept; all of them if not said"
    )
    queue: int = Field(
        default=10_000, ge=1, description="entries that may wait for the disk; more are dropped and counted"
    )


class AuditLog(Plugin):
    """Writes one JSON line for every exchange; it never holds one up."""

    Options = AuditLogOptions
    options: AuditLogOptions

    def __init__(self, options: AuditLogOptions) -> None:
        super().__init__(options)
        if options.path.exists() and not options.path.is_file():
            raise ValueError(f"{options.path}: the audit log cannot be written: it is not a file")
        self._texts = options.text != "none"
        self.idle = () if self._texts else ("on_request", "text_filter")
        self._writer = Writer(
            options.path, rotate_bytes=options.rotate_mb * 1024 * 1024, keep=options.keep, waiting=options.queue
        )

    def start(self) -> None:
        """Open the file. Raises ValueError where it cannot be written."""
        self._writer.start()

    async def stop(self) -> None:
        """Write what is left."""
        await asyncio.to_thread(self._writer.close)

    def on_request(self, exchange: Exchange) -> None:
        """Keep the texts of the request, as they are at this place of the chain."""
        exchange.state[self._request] = _said(exchange)

    def text_filter(self, exchange: Exchange, channel: Channel) -> TextFilter:
        """Keep the text of the answer, as it is at this place of the chain."""
        tap = _Tap()
        exchange.state.setdefault(self._answer, []).append(Said(_place(channel), tap.pieces))
        return tap

    def on_complete(self, exchange: Exchange) -> None:
        """Hand the facts over to the writer."""
        exchange.record.prompt_chars = sum([len(text.text) for text in exchange.texts()])
        if not self._texts:
            self._writer.put(line(Entry(datetime.now(UTC), exchange.record)))
            return
        state = exchange.state
        request = state[self._request] if self._request in state else _said(exchange)  # refused before it came here
        answer = [said for said in state.get(self._answer, ()) if said.pieces]
        self._writer.put(Entry(datetime.now(UTC), exchange.record, request, answer, self.options.text == "full"))

    @property
    def _request(self) -> str:
        return f"{self.name}.request"

    @property
    def _answer(self) -> str:
        return f"{self.name}.answer"


class _Tap:
    """Lets everything through and keeps it."""

    __slots__ = ("pieces",)

    def __init__(self) -> None:
        self.pieces: list[str] = []

    def feed(self, text: str) -> tuple[str, tuple[Edit, ...]]:
        self.pieces.append(text)
        return text, NO_EDITS

    def finish(self) -> tuple[str, tuple[Edit, ...]]:
        return "", NO_EDITS


def _said(exchange: Exchange) -> list[Said]:
    return [Said(text.path, (text.text,)) for text in exchange.texts()]


def _place(channel: Channel) -> str:
    if channel.kind == "arguments":
        return f"choices[{channel.choice}].tool_calls[{channel.tool}].arguments"
    return f"choices[{channel.choice}].{channel.kind}"
