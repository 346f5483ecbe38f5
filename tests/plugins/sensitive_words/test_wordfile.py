"""Word files are read as their authors meant them; what is odd is said once, what is wrong names file and line."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from structlog.testing import LogCapture

from plugins.sensitive_words.wordfile import read
from plugins.sensitive_words.wordlist import Entry, Source

WORDS = Path(__file__).parents[3] / "words"


def parsed(tmp_path: Path, content: str | bytes, name: str = "list.txt", encoding: str = "utf-8") -> list[Entry]:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read(path, Source(name), encoding)


def test_a_line_is_an_entry_with_its_action_and_tag(tmp_path: Path) -> None:
    first, second, third = parsed(tmp_path, "# words\n赌博\n黄片\tmask\n软猕猴\ttag\t软性\n")
    assert (first.word, first.rule.id, first.rule.action, first.rule.tag) == ("赌博", "list.txt:2", "block", None)
    assert (second.word, second.rule.action) == ("黄片", "mask")
    assert (third.rule.action, third.rule.tag, third.rule.id) == ("tag", "软性", "list.txt:4")


def test_yaml_entries_are_text_and_know_their_line(tmp_path: Path) -> None:
    content = "- 赌博\n# more\n- 69\n- no\n- {word: 黄片, action: mask, tag: null}\n"
    content += "- word: 软猕猴\n  action: tag\n  tag: soft\n"
    entries = parsed(tmp_path, content, "list.yaml")
    assert [entry.word for entry in entries] == ["赌博", "69", "no", "黄片", "软猕猴"]
    assert [entry.rule.id for entry in entries] == [f"list.yaml:{line}" for line in (1, 3, 4, 5, 6)]
    assert [(entry.rule.action, entry.rule.tag) for entry in entries[3:]] == [("mask", None), ("tag", "soft")]


def test_an_entry_is_folded_and_says_where_it_may_stand(tmp_path: Path) -> None:
    entries = parsed(tmp_path, "ＳＨＩＴ\nforbid*\n*bid*\n加vx\nfree money\n🔞\n*赌博*\n")
    assert [(word, rule.left, rule.right) for word, rule in entries] == [
        ("shit", True, True),
        ("forbid", True, False),
        ("bid", False, False),
        ("加vx", False, True),
        ("free money", True, True),
        ("🔞", False, False),
        ("赌博", False, False),
    ]


@pytest.mark.parametrize("content", ["\ufeff赌博\r\nshit\r\n", "赌博\rshit", "赌博\nshit"])
def test_marks_and_line_ends_of_other_systems_are_tolerated(tmp_path: Path, content: str) -> None:
    assert [entry.word for entry in parsed(tmp_path, content)] == ["赌博", "shit"]


def test_blank_and_invisible_lines_are_skipped_with_one_warning(tmp_path: Path, log: LogCapture) -> None:
    entries = parsed(tmp_path, "forbiddenzebra\n\n   \n\u200b\n，。\n赌博,\n")
    assert [entry.word for entry in entries] == ["forbiddenzebra", "赌博"]
    assert [entry["said"] for entry in log.entries] == [
        f"{tmp_path / 'list.txt'}: line 2, 3, 4, 5: blank or without a letter: skipped",
        f"{tmp_path / 'list.txt'}: line 6: punctuation at an edge: stripped",
    ]


def test_a_very_common_single_character_is_taken_with_a_warning(tmp_path: Path, log: LogCapture) -> None:
    assert [entry.word for entry in parsed(tmp_path, "的\na\n" + "是\n" * 9)] == ["的", "a"] + ["是"] * 9
    (entry,) = log.entries
    assert entry["said"].startswith(
        f"{tmp_path / 'list.txt'}: line 1, 2, 3, 4, 5 and 6 more: one very common character"
    )


@pytest.mark.parametrize(
    ("content", "name", "said"),
    [
        ("好\n赌博\n".encode("gb18030"), "a.txt", "a.txt: line 1: not utf-8; save the list as UTF-8"),
        (b"ok\n\xff\xfe\n", "a.txt", "a.txt: line 2: not utf-8"),
        ("ok\nno\0t\n", "a.txt", "a.txt: line 2: a NUL byte"),
        (
            "赌博\tblok\n",
            "a.txt",
            "a.txt: line 1: the action must be one of block, mask, replace, tag, allow, not 'blok'",
        ),
        ("a\tmask\tb\tc\n", "a.txt", "a.txt: line 1: more than entry, action and tag"),
        ("赌博\treplace\n", "a.txt", "a.txt: line 1: the action replace needs a replacement"),
        (
            "- {word: a, action: mask, replacement: b}\n",
            "a.yaml",
            "a.yaml: line 1: a replacement belongs to the action",
        ),
        ("x" * 1001, "a.txt", "a.txt: line 1: an entry may have 1000 characters, this one has 1001"),
        ("word: x\n", "a.yaml", "a.yaml: line 1: a list of entries is expected"),
        ("- a\n- [b]\n", "a.yaml", "a.yaml: line 2: an entry is a word or"),
        ("- {word: a, acton: mask}\n", "a.yaml", "a.yaml: line 1: unknown 'acton'"),
        ("- {action: mask}\n", "a.yaml", "a.yaml: line 1: an entry needs its word"),
        ("- a\n- 'b\n", "a.yaml", "a.yaml: line 3: not YAML"),
        ("- a\n- \x07\n", "a.yaml", "a.yaml: line 1: not YAML"),
    ],
)
def test_what_cannot_be_used_is_refused_naming_file_and_line(
    tmp_path: Path, content: str | bytes, name: str, said: str
) -> None:
    with pytest.raises(ValueError, match="line") as caught:
        parsed(tmp_path, content, name)
    assert str(caught.value).startswith(f"{tmp_path}/{said}")
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"none\.txt: cannot be read: No such file"):
        read(tmp_path / "none.txt", Source("none.txt"))


def test_an_empty_file_is_an_empty_list(tmp_path: Path) -> None:
    assert parsed(tmp_path, "") == []
    assert parsed(tmp_path, "", "list.yaml") == []
    assert parsed(tmp_path, "# nothing yet\n") == []


def test_another_encoding_is_read_where_it_is_said(tmp_path: Path) -> None:
    assert [entry.word for entry in parsed(tmp_path, "赌博\n".encode("gb18030"), encoding="gb18030")] == ["赌博"]


def test_the_shipped_list_has_both_languages_and_no_warning(log: LogCapture) -> None:
    words = [entry.word for entry in read(WORDS / "block.txt", Source("block.txt"))]
    assert "赌博" in words
    assert any(word.isascii() for word in words)
    assert not log.entries


def test_a_pipe_is_no_word_list(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "words.txt")
    with pytest.raises(ValueError, match="not a file"):
        read(tmp_path / "words.txt", Source("words.txt"))


def test_every_fault_of_a_file_is_told_on_a_line_of_its_own(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="line") as caught:
        parsed(tmp_path, "赌博\tblok\nfine\na\tmask\tb\tc\n" + "x\thide\n" * 30)
    lines = str(caught.value).splitlines()
    assert [line.removeprefix(f"{tmp_path}/list.txt: ").partition(":")[0] for line in lines[:3]] == [
        "line 1",
        "line 3",
        "line 4",
    ]
    assert len(lines) == 21
    assert lines[-1] == f"{tmp_path}/list.txt: and 12 faults more"
    with pytest.raises(ValueError, match="line 3: an entry needs its word"):
        parsed(tmp_path, "- a\n- b\n- {action: mask}\n", "list.yaml")


def test_a_replacement_makes_the_action_replace(tmp_path: Path) -> None:
    content = "- {word: 赌博, replacement: '[…]'}\n- {word: 黄片, action: replace}\n- {word: a*, replacement: ''}\n"
    path = tmp_path / "list.yaml"
    path.write_text(content, "utf-8")
    rules = [entry.rule for entry in read(path, Source("list.yaml", replacement="(gone)"))]
    assert [(rule.action, rule.replacement) for rule in rules] == [
        ("replace", "[…]"),
        ("replace", "(gone)"),
        ("replace", ""),
    ]


def test_a_version_is_of_the_content_and_of_nothing_else(tmp_path: Path) -> None:
    def version(content: str, name: str) -> str:
        path = tmp_path / name
        path.write_text(content, "utf-8")
        source = Source(name)
        read(path, source)
        return source.version

    assert version("赌博\n", "a.txt") == version("赌博\n", "b.txt") != version("赌博\n\n", "c.txt")
    assert re.fullmatch("[0-9a-f]{8}", version("", "a.txt"))
