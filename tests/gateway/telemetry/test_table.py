from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.telemetry.table import SLOTS, Key, Table

REQUESTS = Key("requests", ("chat", "ok"))


@contextmanager
def table(path: Path | None = None) -> Iterator[Table]:
    opened = Table(path)
    try:
        yield opened
    finally:
        opened.close()


def test_a_table_without_a_path_is_its_process_s_alone() -> None:
    with table() as own:
        own.view[own.slot(REQUESTS)] += 3
        (snapshot,) = own.snapshots()
    assert snapshot.series == {REQUESTS: [3.0]}
    assert snapshot.alive


def test_a_series_keeps_its_slots_and_no_two_share_one() -> None:
    with table() as own:
        first, histogram, last = own.slot(REQUESTS), own.slot(Key("seconds"), 20), own.slot(Key("up"))
        assert own.slot(REQUESTS) == first
        assert len({first, last, *range(histogram, histogram + 20)}) == 22


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from("abc"), st.integers(1, 1000))))
def test_every_worker_reads_what_all_have_counted(
    tmp_path_factory: pytest.TempPathFactory, counts: list[tuple[int, str, int]]
) -> None:
    folder = tmp_path_factory.mktemp("metrics")
    tables = [Table(folder / f"worker-{index}") for index in range(4)]
    expected: Counter[str] = Counter()
    for worker, name, amount in counts:
        tables[worker].view[tables[worker].slot(Key(name))] += amount
        expected[name] += amount
    for reader in tables:
        seen: Counter[str] = Counter()
        for snapshot in reader.snapshots():
            assert snapshot.alive
            for key, values in snapshot.series.items():
                seen[key.name] += int(values[0])
        assert seen == expected
    for each in tables:
        each.close()


def test_what_a_killed_worker_has_counted_stays_and_it_is_known_to_be_dead(tmp_path: Path) -> None:
    code = f"""
import os, signal
from pathlib import Path
from gateway.telemetry.table import Key, Table
table = Table(Path({str(tmp_path)!r}) / "worker-1")
table.view[table.slot(Key("requests"))] += 7
os.kill(os.getpid(), signal.SIGKILL)
"""
    subprocess.run([sys.executable, "-c", code], check=False, timeout=20)
    with table(tmp_path / "worker-0") as own:
        dead = next(snapshot for snapshot in own.snapshots() if snapshot.worker == "worker-1")
    assert not dead.alive
    assert dead.series == {Key("requests"): [7.0]}


def test_who_takes_a_dead_worker_s_place_goes_on_counting(tmp_path: Path) -> None:
    with table(tmp_path / "worker-0") as first:
        first.view[first.slot(REQUESTS)] += 5
    with table(tmp_path / "worker-0") as second:
        second.view[second.slot(Key("other"))] += 1
        second.view[second.slot(REQUESTS)] += 1
        (snapshot,) = second.snapshots()
    assert snapshot.series == {REQUESTS: [6.0], Key("other"): [1.0]}


def test_a_name_half_written_by_a_dying_worker_harms_nobody(tmp_path: Path) -> None:
    with table(tmp_path / "worker-0") as first:
        first.view[first.slot(REQUESTS)] += 5
    with (tmp_path / "worker-0.keys").open("ab") as keys:
        keys.write(b'["hal')
    with table(tmp_path / "worker-1") as other:
        assert {key for snapshot in other.snapshots() for key in snapshot.series} == {REQUESTS}
    with table(tmp_path / "worker-0") as second:
        second.slot(Key("new"))
    with table(tmp_path / "worker-1") as other:
        assert {key for snapshot in other.snapshots() for key in snapshot.series} == {REQUESTS, Key("new")}


def test_two_living_workers_cannot_write_in_one_place(tmp_path: Path) -> None:
    with table(tmp_path / "worker-0"), pytest.raises(BlockingIOError):
        Table(tmp_path / "worker-0")


def test_a_full_table_counts_on_without_touching_others(tmp_path: Path) -> None:
    with table(tmp_path / "worker-0") as own:
        slot = own.slot(REQUESTS)
        for index in range(SLOTS // 64 + 10):
            own.view[own.slot(Key("many", (str(index),)), 64)] += 1
        own.view[own.slot(Key("one more"))] += 1
        assert own.view[slot] == 0
        assert sum(values[0] for snapshot in own.snapshots() for values in snapshot.series.values()) <= SLOTS // 64


def test_unused_room_takes_no_disk(tmp_path: Path) -> None:
    with table(tmp_path / "worker-0") as own:
        own.view[own.slot(REQUESTS)] += 1
        assert (tmp_path / "worker-0.values").stat().st_blocks * 512 <= 64 * 1024
