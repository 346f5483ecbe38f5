"""Every entry handed over is written once, and nobody waits for the disk."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import LogCapture

from gateway.record import Record
from plugins.audit_log import writer as writer_module
from plugins.audit_log.entry import Entry, Said
from plugins.audit_log.journal import Journal
from plugins.audit_log.writer import Writer
from tests.harness import until

NOW = datetime(2026, 11, 29, tzinfo=UTC)


def entry(name: str, text: str = "") -> Entry:
    return Entry(NOW, Record(request_id=name), [Said("messages[0].content", [text])] if text else ())


def started(path: Path, *, rotate_bytes: int = 1 << 20, waiting: int = 10_000) -> Writer:
    writer = Writer(Journal(path, rotate_bytes=rotate_bytes), waiting=waiting)
    writer.start()
    return writer


def told(*paths: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in paths for line in path.read_text("utf-8").splitlines()]


@pytest.fixture
def slow_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """Make every write wait until it is let go."""
    gate = threading.Event()
    append = Journal.append

    def waiting(self: Journal, lines: Sequence[bytes]) -> None:
        gate.wait(10)
        append(self, lines)

    monkeypatch.setattr(Journal, "append", waiting)
    yield gate.set
    gate.set()


def test_what_was_handed_over_is_in_the_file_after_closing(tmp_path: Path) -> None:
    writer = started(tmp_path / "logs" / "audit.jsonl")
    for number in range(300):
        writer.put(entry(str(number)))
    writer.close()
    assert [line["request_id"] for line in told(tmp_path / "logs" / "audit.jsonl")] == [str(n) for n in range(300)]
    writer.close()  # a second time does no harm


def test_every_entry_is_told_once_while_the_thread_and_the_loop_both_make_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "_GATHER_S", 0.0)
    writer = started(tmp_path / "audit.jsonl", rotate_bytes=1 << 24)
    for number in range(3000):
        writer.put(entry(str(number), "text" if number % 7 == 0 else ""))
    writer.close()
    assert [line["request_id"] for line in told(tmp_path / "audit.jsonl")] == [str(n) for n in range(3000)]


def test_an_entry_is_written_soon_without_closing(tmp_path: Path) -> None:
    writer = started(tmp_path / "audit.jsonl")
    writer.put(entry("a"))
    until(lambda: (tmp_path / "audit.jsonl").read_bytes() != b"")
    assert len(told(tmp_path / "audit.jsonl")) == 1
    writer.close()


def test_a_full_queue_drops_counts_and_says_so(tmp_path: Path, slow_disk: Callable[[], None], log: LogCapture) -> None:
    writer = started(tmp_path / "audit.jsonl", waiting=10)
    began = time.perf_counter()
    for number in range(1000):
        writer.put(entry(str(number)))
    assert time.perf_counter() - began < 1, "nobody waits for the disk"
    slow_disk()
    writer.close()
    lines = told(tmp_path / "audit.jsonl")
    dropped = sum(line.get("dropped", 0) for line in lines)
    assert dropped > 900
    assert dropped + sum("request_id" in line for line in lines) == 1000
    assert any(entry["event"] == "audit_log_gap" for entry in log.entries)


def test_texts_that_wait_are_bounded(
    tmp_path: Path, slow_disk: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "_CHARACTERS", 100)
    writer = started(tmp_path / "audit.jsonl")
    for _ in range(10):
        writer.put(entry("a", "x" * 40))
    writer.put(entry("b"))
    slow_disk()
    writer.close()
    lines = told(tmp_path / "audit.jsonl")
    assert sum(line.get("dropped", 0) for line in lines) == 10 - sum(line.get("request_id") == "a" for line in lines)
    assert sum(line.get("dropped", 0) for line in lines) >= 6
    assert sum(line.get("request_id") == "b" for line in lines) == 1


def test_an_admitted_exchange_is_kept_whatever_waits(tmp_path: Path, slow_disk: Callable[[], None]) -> None:
    writer = started(tmp_path / "audit.jsonl", waiting=2)
    kept = [writer.put(entry(str(number)), whatever=True) for number in range(20)]
    assert writer.full
    assert not writer.put(entry("not admitted"))
    slow_disk()
    writer.close()
    assert all(kept)
    told_of = [line["request_id"] for line in told(tmp_path / "audit.jsonl") if "request_id" in line]
    assert told_of == [str(number) for number in range(20)]


def test_a_disk_that_refuses_loses_nothing_once_it_takes_entries_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log: LogCapture
) -> None:
    write, full_disk = os.write, True

    def refusing(descriptor: int, data: bytes) -> int:
        if not full_disk:
            return write(descriptor, data)
        write(descriptor, data[:10])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", refusing)
    monkeypatch.setattr(writer_module, "_GATHER_S", 0.01)
    monkeypatch.setattr(writer_module, "_RETRY_S", 0.01)
    writer = started(tmp_path / "audit.jsonl")
    writer.put(entry("first"))
    until(lambda: writer.full, otherwise="a disk that refuses is as good as a full queue")
    assert (tmp_path / "audit.jsonl").read_bytes() == b"", "half a line is taken back"
    writer.put(entry("second"))
    full_disk = False
    until(lambda: not writer.full)
    writer.close()
    assert [line["request_id"] for line in told(tmp_path / "audit.jsonl")] == ["first", "second"]
    assert [entry["reason"] for entry in log.entries] == ["No space left on device"]


def test_what_a_disk_refuses_to_the_end_is_counted_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log: LogCapture
) -> None:
    def refusing(*_: Any) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", refusing)
    writer = started(tmp_path / "audit.jsonl")
    for number in range(3):
        writer.put(entry(str(number)))
    writer.close()
    assert [(entry["event"], entry.get("entries")) for entry in log.entries] == [
        ("audit_log_unwritable", None),
        ("audit_log_lost", 3),
    ]


def test_an_entry_that_cannot_be_written_does_not_end_the_log(tmp_path: Path) -> None:
    writer = started(tmp_path / "audit.jsonl")
    writer.put(entry("\ud83c"))
    writer.put(entry("b"))
    writer.close()
    lines = told(tmp_path / "audit.jsonl")
    assert [line.get("request_id") or line["dropped"] for line in lines] == ["b", 1]


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"file.*the audit log cannot be written: "):
        started(tmp_path / "file" / "audit.jsonl")
    with pytest.raises(ValueError, match="Is a directory"):
        started(tmp_path)
