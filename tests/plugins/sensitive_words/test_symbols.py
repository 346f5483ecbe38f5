"""Entries that begin or end with a symbol are found as they are."""

from __future__ import annotations

import pytest

from plugins.sensitive_words.folding import Folding
from plugins.sensitive_words.forms import Form, forms
from plugins.sensitive_words.symbols import Symbols, is_symbol
from plugins.sensitive_words.wordlist import Source


def form(word: str) -> Form:
    entry = Source("list").entry(word, 1)
    assert entry is not None
    (made,) = forms(0, entry, Folding())
    return made


@pytest.mark.parametrize("word", ["☭", "🍆🍑", "a☭", "☭赌", "🇦🇧"])
def test_what_begins_or_ends_with_a_symbol_is_one(word: str) -> None:
    assert is_symbol(form(word))


@pytest.mark.parametrize("word", ["赌博", "fuck you", "a☭b", "café", "node.js"])
def test_other_entries_are_not(word: str) -> None:
    assert not is_symbol(form(word))


def test_they_are_found_whatever_is_invisible() -> None:
    symbols = Symbols([form("☭"), form("a☭")])
    assert symbols
    assert symbols.any("x☭")
    found = [(start, end, its.word) for start, end, its in symbols.found("xa\u200b☭ a☭", final=True) if its]
    assert sorted(found) == [(3, 4, "☭"), (5, 7, "a☭"), (6, 7, "☭")]


def test_where_one_has_begun_more_text_is_asked_for() -> None:
    symbols = Symbols([form("🍆🍑")])
    assert [found[:2] for found in symbols.found("a 🍆", final=False)] == [(2, 3)]
    assert list(symbols.found("a 🍆", final=True)) == []


def test_none_are_no_cost() -> None:
    assert not Symbols([])
