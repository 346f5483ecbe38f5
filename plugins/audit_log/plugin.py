"""The plugin: its options, and what it takes from an exchange when that is over."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from time import perf_counter
from typing import Literal

from pydantic import Field, SecretStr

from gateway.sdk import Channel, ConfigPath, Edit, Exchange, Options, Plugin, Refused, Run, TextFilter
from plugins.audit_log.entry import Entry, Said, line
from plugins.audit_log.journal import Journal
from plugins.audit_log.seal import Seal
from plugins.audit_log.writer import Writer

NO_EDITS: tuple[Edit, ...] = ()
_LEFT = 499  # of a caller who left before any status, as in the log
_FULL = "The request cannot be accounted for at the moment; please try again."


class AuditLogOptions(Options):
    """Where the log is written, and how much is said in it."""

    path: ConfigPath = Field(description="the file; several workers may share it")
    text: Literal["none", "hash", "full"] = Field(
        default="none",
        description="of requests and answers: lengths only, a hash of each text, or the texts themselves",
    )
    rotate_mb: int = Field(
        default=100, ge=1, description="put the file aside, under the time of day, when it is so large"
    )
    keep: int | None = Field(
        default=None, ge=1, description="how many files put aside are kept; all of them if not said"
    )
    queue: int = Field(default=10_000, ge=1, description="entries that may wait for the disk")
    when_full: Literal["drop", "refuse"] = Field(
        default="drop",
        description="with no room for an entry: count it as dropped, or refuse new requests (503 `filter_unavailable`) "
        "until there is",
    )
    secret: SecretStr | None = Field(
        default=None,
        min_length=16,
        description="makes the chain's hashes HMACs, which nobody without it can redo; write `${NAME}` to take it from "
        "the environment",
    )


class AuditLog(Plugin):
    """Writes one JSON line for every exchange, tied to the one before it; it never holds one up."""

    Options = AuditLogOptions
    options: AuditLogOptions

    def __init__(self, options: AuditLogOptions) -> None:
        super().__init__(options)
        if options.path.exists() and not options.path.is_file():
            raise ValueError(f"{options.path}: the audit log cannot be written: it is not a file")
        self._texts = options.text != "none"
        self._refuses = options.when_full == "refuse"
        idle = {"on_request": not (self._texts or self._refuses), "text_filter": not self._texts}
        self.idle = [hook for hook, is_idle in idle.items() if is_idle]
        seal = Seal(None if options.secret is None else options.secret.get_secret_value())
        rotate_bytes = options.rotate_mb * 1024 * 1024
        journal = Journal(options.path, rotate_bytes=rotate_bytes, keep=options.keep, seal=seal)
        self._writer = Writer(journal, waiting=options.queue, seal=seal)

    def start(self) -> None:
        """Open the file. Raises ValueError where it cannot be written."""
        self._writer.start()

    async def stop(self) -> None:
        """Write what is left."""
        await asyncio.to_thread(self._writer.close)

    def on_request(self, exchange: Exchange) -> None:
        """Refuse what could not be accounted for; keep the texts of the request, as they are at this place."""
        if self._refuses:
            if self._writer.full:
                raise Refused(_FULL, status=503, code="filter_unavailable", retry_after=1)
            exchange.state[self._let_in] = True
        if self._texts:
            exchange.state[self._request] = _said(exchange)

    def text_filter(self, exchange: Exchange, channel: Channel) -> TextFilter:
        """Keep the text of the answer, as it is at this place of the chain."""
        tap = _Tap()
        exchange.state.setdefault(self._answer, []).append(Said(_place(channel), tap.pieces))
        return tap

    def on_complete(self, exchange: Exchange) -> None:
        """Hand the facts over to the writer; what it had no room for counts as this plugin's failure."""
        record = exchange.record
        record.prompt_chars = sum([len(text.text) for text in exchange.texts()])
        record.total_s = record.total_s or (perf_counter() - record.started if record.started else 0.0)
        if record.outcome == "client_left" and not record.status:
            record.status = _LEFT
        entry = self._entry(exchange)
        handed = entry if self._texts else line(entry)
        if not self._writer.put(handed, whatever=self._let_in in exchange.state):
            record.runs[self.name] = Run("failed")

    def _entry(self, exchange: Exchange) -> Entry:
        now, record = datetime.now(UTC), exchange.record
        if not self._texts:
            return Entry(now, record, told=exchange.extra)
        state = exchange.state
        request = state[self._request] if self._request in state else _said(exchange)  # refused before it came here
        answer = [said for said in state.get(self._answer, ()) if said.pieces]
        evidence = [
            Said(str(told.pop("where", "")), [str(told.pop("text", ""))], told)
            for told in map(dict, state.get("evidence", ()))
        ]
        full = self.options.text == "full"
        return Entry(now, record, request, answer, exchange.extra, evidence, full=full)

    @property
    def _request(self) -> str:
        return f"{self.name}.request"

    @property
    def _answer(self) -> str:
        return f"{self.name}.answer"

    @property
    def _let_in(self) -> str:
        return f"{self.name}.let_in"


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
