"""Before a list goes into service, its faults and its oddities are known, each with its place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from plugins.sensitive_words import SensitiveWords

WORDS = Path(__file__).parents[3] / "words"


@pytest.fixture
def reviewed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)

    def made(**files: str) -> dict[str, Any]:
        paths = []
        for name, content in files.items():
            paths.append(Path(f"{name}.txt"))
            paths[-1].write_text(content, "utf-8")
        return SensitiveWords.review_files(paths, "utf-8")

    return made


def kinds(told: dict[str, Any]) -> list[tuple[str, int, str]]:
    return [(each["file"], each["line"], each["kind"]) for each in told["findings"]]


def test_a_good_list_is_counted_and_nothing_is_said_of_it(reviewed: Any) -> None:
    told = reviewed(a="赌博\n黄片\tmask\tadult\n反赌博\tallow\n")
    assert told["findings"] == []
    (counted,) = told["files"]
    assert (counted["entries"], counted["actions"]) == (3, {"block": 1, "mask": 1, "allow": 1})
    assert counted["tags"] == {"adult": 1}
    assert told["said"] == [f"a.txt: 3 entries (1 allow, 1 block, 1 mask), version {counted['version']}"]


def test_every_fault_is_told_with_its_line(reviewed: Any) -> None:
    told = reviewed(a="赌博\n黄片\thide\nx\tmask\ty\tz\n")
    assert kinds(told) == [("a.txt", 2, "fault"), ("a.txt", 3, "fault")]
    assert told["said"][0].startswith("a.txt: line 2: the action must be one of")


def test_a_file_that_is_not_there_is_a_fault(tmp_path: Path) -> None:
    (finding,) = SensitiveWords.review_files([tmp_path / "none.txt"], "utf-8")["findings"]
    assert (finding["severity"], finding["line"]) == ("fault", None)


def test_duplicates_are_found_across_files_and_spellings(reviewed: Any) -> None:
    told = reviewed(a="赌博\nＳＨＩＴ\n", b="shit\n赌\u200b博\tmask\n")
    assert kinds(told) == [("b.txt", 1, "duplicate"), ("b.txt", 2, "duplicate")]
    assert [each["said"] for each in told["findings"]] == [
        "the same as a.txt:2",
        "the same as a.txt:1, which has another action or tag",
    ]


def test_what_never_counts_is_found(reviewed: Any) -> None:
    told = reviewed(a="赌博\n赌博机\n黄片\tmask\n黄片网\n大麻\n大麻烦\tallow\n大麻\tallow\n天气\tallow\n")
    assert kinds(told) == [
        ("a.txt", 2, "redundant"),
        ("a.txt", 5, "hidden"),
        ("a.txt", 8, "allows nothing"),
    ]
    assert "a.txt:1 is in it" in told["findings"][0]["said"]
    assert "a.txt:7 is the same" in told["findings"][1]["said"]


def test_dangerously_short_entries_are_found(reviewed: Any) -> None:
    told = reviewed(a="赌\n的\nab\n69\nabc\nabc*\n*ab\n烟酒\n")
    assert kinds(told) == [
        ("a.txt", 1, "short"),
        ("a.txt", 2, "one very common character"),
        ("a.txt", 3, "redundant"),
        ("a.txt", 3, "short"),
        ("a.txt", 4, "short"),
        ("a.txt", 5, "redundant"),
        ("a.txt", 6, "short"),
        ("a.txt", 7, "short"),
    ]


def test_pinyin_that_is_english_is_found_where_pinyin_counts() -> None:
    for pinyin, found in ((True, [("words", 1), ("words", 3)]), (False, [])):
        options = {"words": ["妈的", "赌博", "媽的"], "allow": ["他么妈的"], "pinyin": pinyin}
        told = SensitiveWords(SensitiveWords.Options.model_validate(options)).review()["findings"]
        assert [(each["file"], each["line"]) for each in told if each["kind"] == "pinyin"] == found
        assert not found or "(made)" in next(each["said"] for each in told if each["kind"] == "pinyin")


def test_stripped_edges_and_blank_lines_are_told(reviewed: Any) -> None:
    told = reviewed(a="赌博,\n\n\u200b\n")
    assert sorted(kinds(told)) == [
        ("a.txt", 1, "punctuation at an edge"),
        ("a.txt", 2, "blank or without a letter"),
        ("a.txt", 3, "blank or without a letter"),
    ]


def test_of_many_findings_people_are_told_the_first_few(reviewed: Any) -> None:
    told = reviewed(a="赌博\n" * 100)
    assert len(told["findings"]) == 99
    assert told["said"][5] == "a.txt: and 94 more of this kind (duplicate)"
    assert len(told["said"]) == 7


def test_nothing_is_wrong_with_the_shipped_lists() -> None:
    assert SensitiveWords.review_files(sorted(WORDS.glob("*.*[!d]")), "utf-8")["findings"] == []


def test_the_lists_of_a_configuration_are_looked_at_as_they_count(tmp_path: Path) -> None:
    """What is for one key, model or direction hides and doubles nothing of what is for others."""
    for name, content in {"all.txt": "赌博\n", "tenant.txt": "赌博机\n赌博\n", "out.txt": "赌博\n黄片\n"}.items():
        (tmp_path / name).write_text(content, "utf-8")
    options = {
        "lists": [
            {"path": "tenant.txt", "keys": ["team-a"]},
            "all.txt",
            {"path": "out.txt", "directions": ["answer"], "action": "mask"},
        ],
        "words": ["ab", "黄片"],
        "allow": ["黄片"],
    }
    plugin = SensitiveWords(SensitiveWords.Options.model_validate(options, context={"base": tmp_path}))
    assert [(Path(each["file"]).name, each["line"], each["kind"]) for each in plugin.review()["findings"]] == [
        ("tenant.txt", 1, "redundant"),
        ("out.txt", 1, "duplicate"),
        ("out.txt", 2, "hidden"),
        ("words", 1, "short"),
        ("words", 2, "hidden"),
    ]
