from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from time import monotonic

import pytest

from gateway.telemetry.output import Output

LINE = b'{"event":"x"}\n'


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reader, writer = os.pipe()
    yield reader, writer
    for descriptor in (reader, writer):
        os.close(descriptor)


def fill(writer: int) -> int:
    """Fill a pipe to the brim and return how much went in."""
    os.set_blocking(writer, False)
    size = 0
    try:
        while True:
            size += os.write(writer, b"." * 4096)
    except BlockingIOError:
        os.set_blocking(writer, True)
    return size


def drain(reader: int, size: int) -> bytes:
    data = b""
    while len(data) < size:
        data += os.read(reader, size - len(data))
    return data


def test_a_line_is_written_at_once(pipe: tuple[int, int]) -> None:
    Output(pipe[1]).write(LINE)
    assert os.read(pipe[0], 100) == LINE


def test_the_flags_of_a_shared_pipe_stay_as_they_were(pipe: tuple[int, int]) -> None:
    before = fcntl.fcntl(pipe[1], fcntl.F_GETFL)
    Output(pipe[1]).write(LINE)
    assert fcntl.fcntl(pipe[1], fcntl.F_GETFL) == before


async def test_a_reader_that_sleeps_holds_up_nobody_and_gets_its_lines_in_order(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    output = Output(writer)
    before = fill(writer)
    lines = [b"%d\n" % number for number in range(100)]
    began = monotonic()
    for line in lines:
        output.write(line)
    assert monotonic() - began < 1
    drain(reader, before)
    expected = b"".join(lines)
    assert await asyncio.to_thread(drain, reader, len(expected)) == expected


async def test_lines_beyond_the_limit_are_dropped_and_counted(pipe: tuple[int, int]) -> None:
    dropped = []
    output = Output(pipe[1], limit=10 * len(LINE), on_drop=lambda: dropped.append(1))
    before = fill(pipe[1])
    for _ in range(25):
        output.write(LINE)
    assert len(dropped) == 15
    drain(pipe[0], before)
    output.flush(within=5)
    assert os.read(pipe[0], 10_000) == LINE * 10


async def test_a_line_longer_than_the_pipe_arrives_whole(pipe: tuple[int, int]) -> None:
    line = os.urandom(200_000).hex().encode() + b"\n"
    output = Output(pipe[1])
    output.write(line)
    output.write(LINE)
    expected = line + LINE
    assert await asyncio.to_thread(drain, pipe[0], len(expected)) == expected


def test_a_reader_that_is_gone_harms_nobody() -> None:
    reader, writer = os.pipe()
    dropped: list[int] = []
    output = Output(writer, on_drop=lambda: dropped.append(1))
    os.close(reader)
    output.write(LINE)
    os.close(writer)
    assert dropped == [1]


def test_lines_go_behind_what_a_file_holds(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as file:
        file.write(b"first\n")
        file.flush()
        Output(file.fileno()).write(LINE)
    assert (tmp_path / "log").read_bytes() == b"first\n" + LINE


def test_the_journal_s_socket_is_written_to_without_waiting() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        output = Output(ours.fileno(), limit=1000)
        output.write(LINE)
        assert theirs.recv(100) == LINE
        for _ in range(100_000):
            output.write(LINE)
        assert theirs.recv(100).startswith(b"{")
        output.close(within=0)


def test_a_terminal_is_written_to() -> None:
    ours, theirs = pty.openpty()
    Output(theirs).write(LINE)
    assert os.read(ours, 100).rstrip() == LINE.rstrip()
    os.close(ours)
    os.close(theirs)


def test_without_a_second_opening_a_full_pipe_still_holds_up_nobody(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> int:
        raise PermissionError

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", refused)
        output = Output(pipe[1])
    output.write(LINE)
    assert os.read(pipe[0], 100) == LINE
    before = fill(pipe[1])
    output.write(LINE)
    drain(pipe[0], before)
    output.flush(within=5)
    assert os.read(pipe[0], 100) == LINE


async def test_lines_of_other_threads_are_neither_lost_nor_torn(pipe: tuple[int, int]) -> None:
    output = Output(pipe[1])

    def write(name: bytes) -> None:
        for number in range(500):
            output.write(b"%s%04d\n" % (name, number))

    threads = [threading.Thread(target=write, args=(name,)) for name in (b"a", b"b", b"c")]
    reading = asyncio.create_task(asyncio.to_thread(drain, pipe[0], 3 * 500 * 6))
    for thread in threads:
        thread.start()
    for thread in threads:
        await asyncio.to_thread(thread.join)
    output.flush(within=5)
    lines = (await reading).splitlines()
    for name in (b"a", b"b", b"c"):
        assert sorted(line for line in lines if line.startswith(name)) == [b"%s%04d" % (name, n) for n in range(500)]


async def test_lines_of_one_moment_leave_together_within_the_size_that_never_mixes(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    output = Output(writer)
    lines = [b"%04d" % number + b"x" * 995 + b"\n" for number in range(10)]
    for line in lines:
        output.write_soon(line)
    output.flush()
    read = b""
    while len(read) < 10_000:
        piece = os.read(reader, 4097)
        assert len(piece) <= 4097
        read += piece
    assert read == b"".join(lines)
