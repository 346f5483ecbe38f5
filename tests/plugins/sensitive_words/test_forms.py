"""What an entry is looked for as."""

from __future__ import annotations

import pytest

from plugins.sensitive_words.folding import Folding
from plugins.sensitive_words.forms import forms
from plugins.sensitive_words.wordlist import Source


def keys(word: str, folding: Folding) -> list[str]:
    entry = Source("list").entry(word, 1)
    assert entry is not None
    return [form.key for form in forms(0, entry, folding)]


@pytest.mark.parametrize(
    ("word", "key"),
    [
        *(("Shit", "shit"), ("賭博", "赌博"), ("café", "cafe"), ("сука", "cyka"), ("fuck you", "fuckyou"), ("☭", "")),
        *(("node.js", "nodejs"), ("ａｖ女優", "av女优"), ("don’t", "dont")),
    ],
)
def test_the_key_is_what_a_copy_has(word: str, key: str) -> None:
    assert keys(word, Folding()) == [key]


def test_options_add_and_shorten_keys() -> None:
    assert keys("赌博", Folding(pinyin=True)) == ["赌博", "dubo"]
    assert keys("assassin", Folding(repeats=True)) == ["asasin"]


def test_an_entry_of_marks_alone_is_nothing() -> None:
    assert keys("\u0301\u0301", Folding()) == []
