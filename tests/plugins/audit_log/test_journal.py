"""Whoever writes, rotates, dies or moves files: every line is whole, and the chain through them does not break."""

from __future__ import annotations

import json
import multiprocessing
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import LogCapture

from plugins.audit_log.journal import Journal
from plugins.audit_log.seal import NOTHING, Seal, head_of


def lines(*names: object, size: int = 0) -> list[bytes]:
    return [json.dumps({"name": str(name), "fill": "x" * size}).encode() + b"\n" for name in names]


def opened(path: Path, *, rotate_bytes: int = 1 << 20, keep: int | None = None, seal: Seal | None = None) -> Journal:
    journal = Journal(path, rotate_bytes=rotate_bytes, keep=keep, seal=seal)
    journal.open()
    return journal


def written(path: Path, *names: object, **options: Any) -> None:
    journal = opened(path, **options)
    journal.append(lines(*names))
    journal.close()


def files(path: Path) -> list[Path]:
    return [*sorted(path.parent.glob(f"{path.name}.[0-9]*")), path]


def told(paths: Iterable[Path]) -> list[dict[str, Any]]:
    return [json.loads(line) for path in paths for line in path.read_bytes().splitlines()]


def assert_one_chain(found: list[dict[str, Any]], *, first: int = 1) -> None:
    assert len({line["chain"] for line in found}) == 1
    assert [line["seq"] for line in found] == list(range(first, first + len(found)))
    assert [line["prev"] for line in found[1:]] == [line["hash"] for line in found[:-1]]
    if first == 1:
        assert found[0]["prev"] == NOTHING


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "logs" / "audit.jsonl"


def test_the_chain_goes_on_after_a_restart(path: Path) -> None:
    for number in range(3):
        written(path, number)
    assert [line["name"] for line in told([path])] == ["0", "1", "2"]
    assert_one_chain(told([path]))


def test_the_chain_goes_on_over_rotation_and_no_file_is_larger(path: Path) -> None:
    journal = opened(path, rotate_bytes=4_000)
    for number in range(60):
        journal.append(lines(number, size=100))
    journal.close()
    assert len(files(path)) > 3
    assert all(file.stat().st_size <= 4_000 for file in files(path))
    assert [line["name"] for line in told(files(path))] == [str(number) for number in range(60)]
    assert_one_chain(told(files(path)))


def test_only_so_many_files_put_aside_are_kept(path: Path) -> None:
    journal = opened(path, rotate_bytes=2_000, keep=2)
    for number in range(60):
        journal.append(lines(number, size=100))
    journal.close()
    assert len(files(path)) == 3
    kept = told(files(path))
    assert kept[-1]["name"] == "59"
    assert_one_chain(kept, first=kept[0]["seq"])


def test_a_file_that_somebody_else_moved_or_removed_is_begun_anew_and_the_chain_goes_on(path: Path) -> None:
    journal = opened(path)
    journal.append(lines("a"))
    moved = path.rename(path.with_name("moved.jsonl"))
    journal.append(lines("b"))
    path.unlink()
    journal.append(lines("c"))
    journal.close()
    assert [line["name"] for line in told([moved, path])] == ["a", "c"]
    assert [line["seq"] for line in told([moved, path])] == [1, 3], "the line that is gone is missed"


def test_half_a_line_of_a_killed_process_is_cut_off_and_counted(path: Path, log: LogCapture) -> None:
    written(path, "a", "b")
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:100])
    written(path, "c")
    found = told([path])
    assert [line.get("name") or line["dropped"] for line in found] == ["a", "b", 1, "c"]
    assert_one_chain(found)
    assert log.entries[0]["event"] == "audit_log_torn"


def test_what_a_killed_process_wrote_and_did_not_remember_stays_in_the_chain(path: Path) -> None:
    written(path, "a")
    before = (path.with_name("audit.jsonl.lock")).read_bytes()
    written(path, "b")
    path.with_name("audit.jsonl.lock").write_bytes(before)
    written(path, "c")
    assert_one_chain(told([path]))


@pytest.mark.parametrize("state", [b"", b"{", b"[1]\n", b'{"chain":"x"}\n'])
def test_a_lost_or_broken_state_is_found_again_in_the_last_line(path: Path, state: bytes) -> None:
    written(path, "a", "b")
    path.with_name("audit.jsonl.lock").write_bytes(state)
    journal = opened(path)
    journal.append(lines("c"))
    path.rename(path.with_name("audit.jsonl.20261129T170815.123456"))
    path.with_name("audit.jsonl.lock").write_bytes(state)
    journal.append(lines("d"))
    journal.close()
    assert_one_chain(told(files(path)))


def test_lines_cut_off_at_the_end_are_missed_when_the_chain_goes_on(path: Path) -> None:
    written(path, *range(5))
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:3]))
    written(path, "next")
    assert [line["seq"] for line in told([path])] == [1, 2, 3, 6]


def test_a_last_line_longer_than_any_block_is_found(path: Path) -> None:
    journal = opened(path)
    journal.append(lines("short"))
    journal.append(lines("long", size=200_000))
    journal.close()
    path.with_name("audit.jsonl.lock").write_bytes(b"")
    written(path, "next")
    assert_one_chain(told([path]))


def test_a_file_of_no_chain_gets_one_from_here_on(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b'{"name":"old"}\n')
    written(path, "a")
    assert head_of(path.read_bytes().splitlines()[0]) is None
    assert_one_chain(told([path])[1:])


def _worker(path: Path, name: str) -> None:
    journal = opened(path, rotate_bytes=50_000)
    for number in range(0, 300, 3):
        journal.append(lines(*(f"{name}-{each}" for each in range(number, number + 3)), size=40))
        if number % 50 == 0:
            time.sleep(0.005)
    journal.close()


def test_several_processes_share_one_file_one_rotation_and_one_chain(path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    workers = [spawn.Process(target=_worker, args=(path, str(name))) for name in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    found = told(files(path))
    assert {line["name"] for line in found} == {f"{name}-{number}" for name in range(3) for number in range(300)}
    assert len(found) == 900
    assert_one_chain(found)


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"file.*the audit log cannot be written: "):
        opened(tmp_path / "file" / "audit.jsonl")
    with pytest.raises(ValueError, match="Is a directory"):
        opened(tmp_path)
