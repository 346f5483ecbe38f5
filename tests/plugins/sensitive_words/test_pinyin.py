"""How Chinese entries are spelled in Latin letters."""

from __future__ import annotations

from plugins.sensitive_words.pinyin import spelled


def test_a_chinese_word_has_a_spelling_for_each_reading() -> None:
    assert spelled("赌博") == [("du", "bo")]
    assert ("yin", "hang") in spelled("银行")
    assert len(spelled("行行行行行行")) == 8


def test_single_characters_and_words_of_other_scripts_have_none() -> None:
    assert spelled("赌") == spelled("av女优") == spelled("shit") == spelled("") == []
