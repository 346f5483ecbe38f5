"""Whoever asks about a text hears which entry fires, on which span, through which fold, and for whom."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from plugins.sensitive_words import SensitiveWords
from plugins.sensitive_words.explain import read


def made(base: Path, **options: Any) -> SensitiveWords:
    return SensitiveWords(SensitiveWords.Options.model_validate(options, context={"base": base}))


def test_it_says_which_rule_fires_where_and_through_which_fold(tmp_path: Path) -> None:
    plugin = made(tmp_path, words=["forbid*", {"word": "赌博", "action": "tag", "tag": "gambling"}])
    first, second = plugin.explain("ＦORBID 赌\u200b博")
    assert first == {
        "said": "words:1: block: 'ＦORBID' at 0 to 6 is the entry 'forbid'; "
        "read 'Ｆ' as 'f' (form), 'O' as 'o' (case), "
        "'R' as 'r' (case), 'B' as 'b' (case), 'I' as 'i' (case), 'D' as 'd' (case)",
        "rule": "words:1",
        "version": plugin.lists[0].version,
        "entry": "forbid",
        "action": "block",
        "tag": None,
        "replacement": None,
        "start": 0,
        "end": 6,
        "text": "ＦORBID",
        "folds": [
            {
                "at": at,
                "character": character,
                "read_as": character.lower() if at else "f",
                "why": "case" if at else "form",
            }
            for at, character in enumerate("ＦORBID")
        ],
        "skipped": [],
        "directions": ["request", "answer"],
        "keys": None,
        "models": None,
    }
    assert second["said"] == (
        "words:2: tag (gambling): '赌\\u200b博' at 7 to 10 is the entry '赌博'; skipped '\\u200b' (invisible)"
    )
    assert second["skipped"] == [{"at": 8, "character": "\u200b", "why": "invisible"}]


def test_where_nothing_fires_it_says_nothing(tmp_path: Path) -> None:
    plugin = made(tmp_path, words=["赌博"], allow=["反赌博"])
    assert plugin.explain("clean") == plugin.explain("反赌博") == []


def test_of_very_many_places_the_first_are_told(tmp_path: Path) -> None:
    told = made(tmp_path, words=["赌博"]).explain("赌博" * 100_000)
    assert [each["start"] for each in told] == list(range(0, 200, 2))


def test_it_tells_for_whom_and_can_be_asked_for_one(tmp_path: Path) -> None:
    (tmp_path / "tenant.txt").write_text("赌博\n", "utf-8")
    (tmp_path / "out.txt").write_text("赌博\n", "utf-8")
    lists = [
        {"path": "tenant.txt", "keys": ["team-b", "team-a"], "models": ["m"]},
        {"path": "out.txt", "directions": ["answer"]},
    ]
    plugin = made(tmp_path, lists=lists, words=["赌博"])

    def rules(**options: Any) -> list[str]:
        return [told["rule"] for told in plugin.explain("赌博", **options)]

    assert [told["said"].partition("赌博'; ")[2] for told in plugin.explain("赌博")] == [
        "in the answer only",
        "for the keys team-a, team-b only; for the models m only",
        "",
    ]
    assert rules() == ["out.txt:1", "tenant.txt:1", "words:1"]
    assert rules(direction="request") == ["tenant.txt:1", "words:1"]
    assert rules(key="team-a") == rules(model="m") == rules()
    assert rules(key="team-c") == rules(model="n") == rules(key="team-a", model="n") == ["out.txt:1", "words:1"]


@pytest.mark.parametrize(
    ("piece", "word", "told"),
    [
        ("plain", "plain", []),
        ("free money", "free money", []),
        ("s-H\u200bit", "shit", [(1, "-", "", "separator"), (2, "H", "h", "case"), (3, "\u200b", "", "invisible")]),
        ("shіt", "shit", [(2, "і", "i", "look-alike")]),
        ("赌、。博", "赌博", [(1, "、", "", "separator"), (2, "。", "", "separator")]),
        ("賭博", "赌博", [(0, "賭", "赌", "variant")]),
        ("shiit", "shit", [(3, "i", "", "repeated")]),
        ("s™H①it", "shit", [(1, "™", "", "separator"), (2, "H", "h", "case"), (3, "①", "", "separator")]),
        ("赌\u0e49博", "赌博", [(1, "\u0e49", "", "mark")]),
        ("Νazi", "nazi", [(0, "Ν", "n", "look-alike")]),
        ("du bo", "赌博", [(0, "du bo", "赌博", "pinyin")]),
    ],
)
def test_what_is_read_as_something_else_or_passed_over_is_told_with_its_reason(
    piece: str, word: str, told: list[tuple[int, str, str, str]]
) -> None:
    assert [tuple(each) for each in read(piece, word)] == told


def test_a_span_inside_a_text_keeps_its_place(tmp_path: Path) -> None:
    (told,) = made(tmp_path, words=["赌博"]).explain("去賭 博吧")
    assert (told["start"], told["end"], told["text"]) == (1, 4, "賭 博")
    assert told["folds"] == [{"at": 1, "character": "賭", "read_as": "赌", "why": "variant"}]
    assert told["skipped"] == [{"at": 2, "character": " ", "why": "separator"}]
