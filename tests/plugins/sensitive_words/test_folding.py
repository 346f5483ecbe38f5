"""Each option of how texts are read does what it says."""

from __future__ import annotations

import pytest

from plugins.sensitive_words.folding import Folding
from plugins.sensitive_words.matcher import Matcher
from plugins.sensitive_words.wordlist import Source


def found(text: str, *words: str, folding: Folding) -> list[str]:
    entries = [Source("list", "mask").entry(word, number) for number, word in enumerate(words, 1)]
    scan = Matcher((entry for entry in entries if entry is not None), folding).scan(text)
    return [text[start:end] for start, end, _ in scan.found]


def test_max_skip_bounds_what_is_skipped_but_runs_of_one_sign() -> None:
    assert found("赌*-博 赌~~~~~博", "赌博", folding=Folding(max_skip=1)) == ["赌~~~~~博"]
    assert found("赌*-博 赌~博 s-h-i-t", "赌博", "shit", folding=Folding(max_skip=0)) == []
    assert found("赌\u200b博", "赌博", folding=Folding(max_skip=0)) == ["赌\u200b博"], "what nobody sees does not count"


def test_confusables_can_be_switched_off() -> None:
    assert found("fоrbidden", "forbidden", folding=Folding(confusables=False)) == []
    assert found("fоrbidden", "forbidden", folding=Folding()) == ["fоrbidden"]


@pytest.mark.parametrize("text", ["shiiiit", "ssshhhiiittt", "SHIIIIT", "shi\u200biit", "s-h-ii-t"])
def test_repeats_count_once_where_they_shall(text: str) -> None:
    assert found(text, "shit", folding=Folding(repeats=True)) == [text]
    assert found("ass as asss", "ass", folding=Folding(repeats=True)) == ["ass", "asss"], (
        "an entry's own run is the least"
    )
    assert found("赌赌博博", "赌博", folding=Folding(repeats=True)) == ["赌赌博博"]
    assert found("shiiit", "shit", folding=Folding()) == []


@pytest.mark.parametrize("text", ["du bo", "dubo", "DU BO", "du-bo", "dǔ bó", "Dubo", "ｄｕ　ｂｏ"])
def test_pinyin_of_chinese_entries_is_found_as_whole_words(text: str) -> None:
    assert found(f"he likes {text}, she says", "赌博", folding=Folding(pinyin=True)) == [text]
    assert found(text, "赌博", folding=Folding()) == []


@pytest.mark.parametrize("text", ["dubois", "redu bo", "du. bo", "d u b o", "dub o"])
def test_pinyin_is_not_found_in_other_words(text: str) -> None:
    assert found(text, "赌博", folding=Folding(pinyin=True)) == []
