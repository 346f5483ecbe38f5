"""A text may come in slices: what is found is told once, where it stands, and only when nothing can change it."""

from __future__ import annotations

from typing import Any

from plugins.pii import Pii
from plugins.pii.scan import Reader, Scanner, scan


def made(**options: Any) -> Scanner:
    return Pii(Pii.Options.model_validate(options))._scanner


def test_a_value_across_the_slices_of_a_long_text_is_found_once() -> None:
    for lead in range(16_360, 16_390):
        text = "年" * lead + "电话138\u200b00138000，" + "年" * 20_000 + "li@example.com"
        found = list(scan(made(), text))
        assert [(one.start - lead, one.rule.id) for one in found] == [(2, "pii:phone_cn"), (20_015, "pii:email")]
        assert [text[start:end] for start, end in found[0].masks] == ["0013"]


def test_what_more_text_may_change_is_not_told_yet() -> None:
    reader = Reader(made(kinds=["phone_cn"]))
    assert reader.step("a 13800138000", final=False) == ([], 2)
    found, hold = reader.step("138001380001", final=False)
    assert (found, hold) == ([], 12)
    found, hold = reader.step(" 13800138000", final=True)
    assert [(one.start, one.end) for one in found] == [(1, 12)]
    assert hold == 12


def test_a_text_without_the_sign_of_a_kind_is_clean_at_once() -> None:
    scanner = made()
    assert scanner.is_clean("In 2024 there were 1,234 of 56; 机器学习。" * 100)
    assert not scanner.is_clean("１３８\u200b00138000")
    assert not made(kinds=[], patterns=[{"name": "x", "pattern": "x"}]).is_clean("y")


def test_the_longest_value_bounds_what_waits() -> None:
    assert made(kinds=["phone_cn"]).longest == 18 + 28  # and the next groups of its row
    assert made().longest == 409
    assert made(kinds=[]).longest == 0
