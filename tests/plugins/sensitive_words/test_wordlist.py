"""An entry means what its author meant, says where it may stand, and is for those alone whom its list names."""

from __future__ import annotations

import pytest

from plugins.sensitive_words.wordlist import ANYONE, Asker, Entry, Scope, Source


def made(text: str, source: Source | None = None) -> Entry:
    entry = (source or Source("list")).entry(text, 7)
    assert entry is not None
    return entry


def test_an_entry_is_known_by_list_and_line_and_never_by_its_word() -> None:
    rule = made("forbiddenzebra").rule
    assert rule.id == "list:7"
    assert "zebra" not in repr(rule)


@pytest.mark.parametrize(
    ("scope", "theirs", "others"),
    [
        (None, [ANYONE, Asker("team-a", "m")], []),
        (Scope(keys=frozenset(["team-a"])), [Asker("team-a"), Asker("team-a", "m")], [ANYONE, Asker("team-b", "m")]),
        (Scope(models=frozenset(["m"])), [Asker(None, "m"), Asker("team-a", "m")], [ANYONE, Asker("team-a", "n")]),
        (
            Scope(frozenset(["team-a"]), frozenset(["m"])),
            [Asker("team-a", "m")],
            [Asker("team-a", "n"), Asker("team-b", "m"), ANYONE],
        ),
        (Scope(keys=frozenset()), [], [ANYONE, Asker("team-a", "m")]),
    ],
)
def test_a_rule_is_for_those_whom_its_list_names(scope: Scope | None, theirs: list[Asker], others: list[Asker]) -> None:
    rule = made("赌博", Source("list", scope=scope)).rule
    assert all(rule.applies(asker) for asker in theirs)
    assert not any(rule.applies(asker) for asker in others)


def test_a_replacement_without_the_action_means_it_and_the_action_without_one_is_refused() -> None:
    entry = Source("list").entry("赌博", 1, replacement="…")
    assert entry is not None
    assert (entry.rule.action, entry.rule.replacement) == ("replace", "…")
    assert made("赌博", Source("list", "replace", replacement="x")).rule.replacement == "x"
    assert made("赌博", Source("list", "block", replacement="x")).rule.replacement is None
    with pytest.raises(ValueError, match="list: line 1: the action replace needs a replacement"):
        Source("list").entry("赌博", 1, "replace")
    with pytest.raises(ValueError, match="a replacement belongs to the action replace, not to mask"):
        Source("list").entry("赌博", 1, "mask", replacement="x")


@pytest.mark.parametrize(
    ("text", "left", "right"),
    [
        *(
            ("shit", True, True),
            ("赌博", False, False),
            ("A片", True, False),
            ("卡拉OK", False, True),
            ("*A片", False, False),
        ),
        *(("卡拉OK*", False, False), ("A片B", True, True), ("18+岁", True, False), ("☭", False, False)),
    ],
)
def test_an_edge_of_letters_or_digits_is_a_whole_words_and_one_of_chinese_is_not(
    text: str, *, left: bool, right: bool
) -> None:
    assert made(text).rule[4:6] == (left, right)


def test_odd_entries_are_told_once_for_each_kind() -> None:
    source = Source("list")
    for number, text in enumerate(["", "赌博,", "的", "\u200b"], 1):
        source.entry(text, number)
    assert source.warnings() == [
        "list: line 1, 4: blank or without a letter: skipped",
        "list: line 2: punctuation at an edge: stripped",
        "list: line 3: one very common character: will match nearly everything",
    ]
