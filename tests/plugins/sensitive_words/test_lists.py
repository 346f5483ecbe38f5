"""Every list is counted and known by a version; one in which something is wrong names all of it."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gateway.sdk import Listing
from plugins.sensitive_words.lists import WordList, load
from plugins.sensitive_words.options import SensitiveWordsOptions


def loaded(base: Path, **options: Any) -> list[WordList]:
    return load(SensitiveWordsOptions.model_validate(options, context={"base": base}))


def test_each_list_says_how_many_entries_it_has_and_which_version_it_is(tmp_path: Path) -> None:
    (tmp_path / "block.txt").write_text("# none\n赌博\n\n黄片\n", "utf-8")
    lists = loaded(tmp_path, lists=["block.txt"], words=["a1", "b2", {"word": "c3", "action": "tag"}], allow=["d4"])
    assert [(one.listing.name, one.listing.entries) for one in lists] == [("block.txt", 2), ("words", 3), ("allow", 1)]
    again = loaded(tmp_path, lists=["block.txt"], words=["a1", "b2"], allow=["d4"])
    assert [one.listing.version == other.listing.version for one, other in zip(lists, again, strict=True)] == [
        True,
        False,
        True,
    ]
    assert all(int(one.listing.version, 16) >= 0 for one in lists)


def test_nothing_configured_is_no_list(tmp_path: Path) -> None:
    assert loaded(tmp_path) == []
    assert loaded(tmp_path, words=[""])[0].listing == Listing(
        "words", 0, loaded(tmp_path, words=[""])[0].listing.version
    )


def test_a_list_may_be_for_one_direction(tmp_path: Path) -> None:
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("赌博\n", "utf-8")
    lists = loaded(tmp_path, lists=["a.txt", {"path": "b.txt", "directions": ["answer"]}], directions=["request"])
    assert [sorted(one.directions) for one in lists] == [["request"], ["answer"]]


def test_what_is_wrong_in_all_lists_is_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x\thide\ny\thide\n", "utf-8")
    words = [{"word": "x", "action": "replace"}]
    with pytest.raises(ValueError, match="hide") as caught:
        loaded(tmp_path, lists=["a.txt", "none.txt"], words=words)
    told = [line.removeprefix(f"{tmp_path}/") for line in str(caught.value).splitlines()]
    assert [line[:18] for line in told] == [
        "a.txt: line 1: the",
        "a.txt: line 2: the",
        "none.txt: cannot b",
        "words: entry 1: th",
    ]


def test_a_hundred_thousand_entries_load_within_three_seconds_and_150_mb(tmp_path: Path) -> None:
    """In a process of its own, as memory that others have freed would hide some."""
    letters, han = "abcdefghijklmnopqrstuvwxyz", [chr(code) for code in range(0x4E00, 0x9000)]
    rng = random.Random(1)
    lines = [
        "".join(rng.choices(han, k=rng.randint(2, 6))) + f"\tblock\ttag-{rng.randint(1, 7)}" for _ in range(70_000)
    ]
    lines += ["".join(rng.choices(letters, k=rng.randint(5, 12))) for _ in range(30_000)]
    (tmp_path / "block.txt").write_text("\n".join(lines), "utf-8")
    code = (
        "import gc, time; from pathlib import Path; from plugins.sensitive_words import SensitiveWords as Words\n"
        "rss = lambda: int(Path('/proc/self/statm').read_text().split()[1]) * 4096\n"
        "Words(Words.Options(words=['first'])); options = Words.Options(lists=[{'path': 'block.txt'}])\n"
        "before, began = rss(), time.process_time(); words = Words(options); took = time.process_time() - began\n"
        "gc.collect(); print(took, (rss() - before) / 1e6, words.lists[0].entries)"
    )
    environ = {"PYTHONPATH": str(Path(__file__).parents[3])}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environ, capture_output=True, text=True, check=True
    )
    seconds, megabytes, entries = map(float, done.stdout.split())
    assert entries > 99_000
    assert seconds < 3
    assert megabytes < 150
