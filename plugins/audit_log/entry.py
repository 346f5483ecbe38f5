"""What an audit line says. docs/plugins/audit_log.md describes every field for its readers."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec

from gateway.sdk import Record


class Said(NamedTuple):
    """One text of a request or an answer: its place, and its pieces."""

    where: str
    pieces: Sequence[str]


class Entry(NamedTuple):
    """An exchange that is over. ``full``: texts are written, not only hashed."""

    ended: datetime
    record: Record
    request: Sequence[Said] = ()
    answer: Sequence[Said] = ()
    full: bool = False

    @property
    def size(self) -> int:
        """How many code points wait with it."""
        return sum(len(piece) for said in (*self.request, *self.answer) for piece in said.pieces)


_encode = msgspec.json.Encoder().encode


def line(entry: Entry) -> bytes:
    """Write an entry as one line of JSON."""
    record = entry.record
    # int() / 1e3 and not round(): four times quicker, and there are a dozen of them
    facts: dict[str, Any] = {
        "time": entry.ended,
        "request_id": record.request_id,
        "key": record.key,
        "model": record.model,
        "engine": record.engine,
        "route": record.route,
        "stream": record.stream,
        "status": record.status,
        "outcome": record.outcome,
        "plugin": record.plugin,
        "rule": record.rule,
        "prompt_chars": record.prompt_chars,
        "answer_chars": record.answer_chars,
        "prompt_tokens": record.prompt_tokens,
        "completion_tokens": record.completion_tokens,
        "finish_reasons": record.finish_reasons,
        "total_ms": int(record.total_s * 1e6) / 1e3,
        "first_text_ms": None if record.first_text_s is None else int(record.first_text_s * 1e6) / 1e3,
        "phases_ms": {name: int(seconds * 1e6) / 1e3 for name, seconds in record.phases.items()},
        "plugins": {
            name: {"outcome": run.outcome, "ms": int(run.seconds * 1e6) / 1e3} for name, run in record.runs.items()
        },
        "hits": [hit._asdict() for hit in record.hits],
        "tags": record.tags,
        "config_version": record.config_version,
    }
    if entry.request or entry.answer:
        facts["request"] = [_said(said, full=entry.full) for said in entry.request]
        facts["answer"] = [_said(said, full=entry.full) for said in entry.answer]
    return _encode(facts) + b"\n"


def gap(dropped: int) -> bytes:
    """Write the line that stands for entries that could not be kept."""
    return _encode({"time": datetime.now(UTC), "dropped": dropped}) + b"\n"


def _said(said: Said, *, full: bool) -> dict[str, Any]:
    text = "".join(said.pieces)
    raw = text.encode("utf-8", "surrogatepass")
    told = {"where": said.where, "chars": len(text), "sha256": hashlib.sha256(raw).hexdigest()}
    if full:
        told["text"] = raw.decode("utf-8", "replace")
    return told
