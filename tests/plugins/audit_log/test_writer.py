"""Every entry is one whole line in the file, whoever else writes to it, and nobody waits for the disk."""

from __future__ import annotations

import json
import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import LogCapture

from gateway.record import Record
from plugins.audit_log import writer as writer_module
from plugins.audit_log.entry import Entry, Said
from plugins.audit_log.writer import Writer

NOW = datetime(2026, 11, 29, tzinfo=UTC)


def entry(name: str, text: str = "") -> Entry:
    return Entry(NOW, Record(request_id=name), [Said("messages[0].content", [text])] if text else ())


def started(path: Path, *, rotate_bytes: int = 1 << 20, keep: int | None = None, waiting: int = 10_000) -> Writer:
    writer = Writer(path, rotate_bytes=rotate_bytes, keep=keep, waiting=waiting)
    writer.start()
    return writer


def told(*paths: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in paths for line in path.read_text("utf-8").splitlines()]


@pytest.fixture
def slow_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """Make every write wait until it is let go."""
    gate = threading.Event()
    append = Writer._append

    def waiting(self: Writer, data: bytes) -> None:
        gate.wait(10)
        append(self, data)

    monkeypatch.setattr(Writer, "_append", waiting)
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
    until = time.monotonic() + 5
    while not (tmp_path / "audit.jsonl").read_bytes() and time.monotonic() < until:
        time.sleep(0.01)
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


def test_a_full_file_is_put_aside_and_no_line_is_lost(tmp_path: Path) -> None:
    writer = started(tmp_path / "audit.jsonl", rotate_bytes=40_000)
    for number in range(500):
        writer.put(entry(str(number)))
    writer.close()
    aside = sorted(tmp_path.glob("audit.jsonl.[0-9]*"))
    assert len(aside) >= 2
    assert all(path.stat().st_size <= 40_000 for path in aside)
    assert [line["request_id"] for line in told(*aside, tmp_path / "audit.jsonl")] == [str(n) for n in range(500)]


def test_only_so_many_files_put_aside_are_kept(tmp_path: Path) -> None:
    writer = started(tmp_path / "audit.jsonl", rotate_bytes=20_000, keep=2)
    for number in range(1000):
        writer.put(entry(str(number)))
    writer.close()
    aside = sorted(tmp_path.glob("audit.jsonl.[0-9]*"))
    assert len(aside) == 2
    assert told(tmp_path / "audit.jsonl")[-1]["request_id"] == "999"


def test_a_file_that_somebody_else_moved_is_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    writer = started(path)
    path.rename(tmp_path / "moved.jsonl")
    writer.put(entry("a"))
    writer.close()
    assert [line["request_id"] for line in told(path)] == ["a"]
    assert told(tmp_path / "moved.jsonl") == []


def _worker(path: Path, name: str) -> None:
    writer = started(path, rotate_bytes=100_000)
    for number in range(400):
        writer.put(entry(f"{name}-{number}", "赌博" * 20))
        if number % 50 == 0:
            time.sleep(0.01)
    writer.close()


def test_several_processes_share_one_file_and_its_rotation(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    spawn = multiprocessing.get_context("spawn")
    workers = [spawn.Process(target=_worker, args=(path, str(name))) for name in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    lines = told(*tmp_path.glob("audit.jsonl.[0-9]*"), path)
    assert {line["request_id"] for line in lines} == {f"{name}-{number}" for name in range(3) for number in range(400)}
    assert len(lines) == 1200


def test_a_disk_that_refuses_loses_entries_and_says_so_when_it_takes_them_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log: LogCapture
) -> None:
    write, failing = os.write, True

    def full(descriptor: int, data: bytes) -> int:
        if failing:
            write(descriptor, data[:10])
            monkeypatch.setattr(os, "write", nothing_left)
            return 10
        return write(descriptor, data)

    def nothing_left(*_: Any) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    monkeypatch.setattr(writer_module, "_GATHER_S", 0.01)
    writer = started(tmp_path / "audit.jsonl")
    writer.put(entry("lost"))
    until = time.monotonic() + 5
    while not log.entries and time.monotonic() < until:
        time.sleep(0.01)
    failing = False
    monkeypatch.setattr(os, "write", full)
    writer.put(entry("kept"))
    writer.close()
    torn, *lines = (tmp_path / "audit.jsonl").read_text("utf-8").splitlines()
    assert len(torn) == 10
    assert [json.loads(line).get("dropped") for line in lines] == [1, None]
    assert json.loads(lines[1])["request_id"] == "kept"
    assert log.entries[0]["reason"] == "No space left on device"


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
