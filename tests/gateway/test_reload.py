"""When files count as changed: seen look by look without a clock, and once for real."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from gateway.reload import PATIENCE, Changes, Stamp, Watch, stamp

FILE = Path("words.txt")


def at(version: int) -> dict[Path, Stamp]:
    return {FILE: ("/words.txt", 1, version, 10)}


def test_a_change_counts_when_it_has_come_to_rest() -> None:
    changes = Changes(at(1))
    assert [changes.look(at(v)) for v in (1, 2, 3, 3, 3)] == [False, False, False, True, False]


def test_a_file_that_never_rests_is_read_all_the_same() -> None:
    changes = Changes(at(0))
    looks = [changes.look(at(v)) for v in range(1, 2 * PATIENCE + 1)]
    assert looks.count(True) == 2
    assert looks[PATIENCE - 1]


def test_what_is_as_before_again_is_no_change() -> None:
    changes = Changes(at(1))
    assert [changes.look(at(v)) for v in (2, 1, 2, 2)] == [False, False, False, True]


def test_a_file_that_vanishes_for_a_moment_is_no_change_and_one_that_stays_away_is() -> None:
    gone: dict[Path, Stamp] = {FILE: None}
    changes = Changes(at(1))
    assert [changes.look(look) for look in (gone, at(1), gone, gone)] == [False, False, False, True]
    assert [changes.look(look) for look in (at(2), at(2))] == [False, True]


def test_a_symlink_swap_in_a_mounted_folder_changes_the_stamp(tmp_path: Path) -> None:
    for version in ("..1", "..2"):
        (tmp_path / version).mkdir()
        (tmp_path / version / "words.txt").write_text("same")
        os.utime(tmp_path / version / "words.txt", ns=(5, 5))
    (tmp_path / "..data").symlink_to("..1")
    (tmp_path / "words.txt").symlink_to("..data/words.txt")
    before = stamp(tmp_path / "words.txt")
    (tmp_path / "..next").symlink_to("..2")
    (tmp_path / "..next").replace(tmp_path / "..data")
    assert before is not None
    assert stamp(tmp_path / "words.txt") != before
    assert stamp(tmp_path / "none") is None


class Reader:
    """Reads the files when told to, and can be waited for."""

    def __init__(self, *files: Path) -> None:
        self.files = files
        self.texts: asyncio.Queue[str] = asyncio.Queue()
        self.then: Callable[[], Awaitable[None]] | None = None
        self.watch = Watch(self.read, interval_s=0.01)

    async def read(self) -> None:
        text = "".join(file.read_text() for file in self.files if file.exists())
        if self.then is not None:
            await self.then()
        self.watch.follow(self.files)
        self.texts.put_nowait(text)
        if text == "broken":
            raise ValueError(text)

    async def next(self) -> str:
        async with asyncio.timeout(10):
            return await self.texts.get()


@asynccontextmanager
async def watching(*files: Path) -> AsyncIterator[Reader]:
    reader = Reader(*files)
    await reader.read()
    await reader.next()
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(reader.watch.run())
        yield reader
        task.cancel()


async def test_a_changed_file_is_read_and_a_failure_does_not_end_the_watch(tmp_path: Path) -> None:
    file = tmp_path / "words.txt"
    file.write_text("one")
    async with watching(file) as reader:
        for text in ("broken", "twos", "three"):
            file.write_text(text)
            assert await reader.next() == text
        file.unlink()
        assert await reader.next() == ""
        file.write_text("back")
        assert await reader.next() == "back"


async def test_a_poke_reads_at_once_changed_or_not(tmp_path: Path) -> None:
    file = tmp_path / "words.txt"
    file.write_text("one")
    async with watching(file) as reader:
        reader.watch.poke()
        assert await reader.next() == "one"


async def test_a_file_written_while_it_was_read_is_read_again(tmp_path: Path) -> None:
    first, second = tmp_path / "sluice.yaml", tmp_path / "words.txt"
    first.write_text("a")
    async with watching(first) as reader:

        async def meanwhile() -> None:
            second.write_text("new")
            os.utime(second, ns=(2**62, 2**62))  # surely later than the reading began
            reader.then = None

        second.write_text("old")
        reader.files = (first, second)
        reader.then = meanwhile
        reader.watch.poke()
        assert await reader.next() == "aold"
        assert await reader.next() == "anew"
