"""Symbols with letters in them are no part of the word beside them, and spell words among themselves."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugins.sensitive_words.alone import aside, has_alone, is_power, readings
from plugins.sensitive_words.matcher import Matcher
from plugins.sensitive_words.stream import States
from plugins.sensitive_words.wordlist import Entry, Source
from tests.plugins.legitimate import SCRIPTS
from tests.plugins.sensitive_words.test_stream import stream

WORDS = ("forbiddenzebra", "8964", "赌博", "shit", "64", "12", "co")
MATCHER = Matcher(
    entry for number, word in enumerate(WORDS, 1) if isinstance(entry := Source("list").entry(word, number), Entry)
)
STATES = States(MATCHER)


def hits(text: str) -> list[str]:
    found = [text[start:end] for start, end, _ in MATCHER.scan(text).found]
    assert bool(stream(list(text), STATES)[0].blocked) == bool(found)
    return found


@pytest.mark.parametrize("text", ["{}™", "{}²", "{}①", "№{}", "{}½", "{}㎏", "{}🇨🇳", "🇨🇳{}", "⒈{}", "{}㈱", "{}🆐"])
@pytest.mark.parametrize("word", ["forbiddenzebra", "8964", "赌博", "shit"])
def test_a_symbol_with_letters_is_no_part_of_the_word_beside_it(text: str, word: str) -> None:
    assert hits(text.format(word)) == [word]


@pytest.mark.parametrize(
    "sign",
    ["®", "™", "①", "㎏", "🇨🇳", "🅱", "👨‍👩‍👧‍👦", "👍🏽👍🏽👍🏽", "²", "㊙", "🅱\ufe0f", "௰", "㆒", "゛", "₨", "¨"],
)
def test_it_stands_between_letters_as_other_symbols_do(sign: str) -> None:
    assert hits(f"赌{sign}博") == [f"赌{sign}博"]


@pytest.mark.parametrize("text", ["sh™it", "sh🇨🇳it", "⑧⑨⑥④", "⁸⁹⁶⁴", "🇸🇭🇮🇹", "ⓢⓗⓘⓣ", "🆂🅷🅸🆃", "🅂hit", "s🅷it"])
def test_words_are_still_spelled_in_such_symbols(text: str) -> None:
    assert hits(text) == [text]


@pytest.mark.parametrize("text", ["6⁴=1296", "1²", "2⁶⁴", "CO₂", "64₁₀", "🅲lass", "ⓢⓗⓘⓣⓣⓨ", "1½2", "6½4"])
def test_a_power_an_index_and_a_letter_of_a_styled_word_stand_for_what_they_are(text: str) -> None:
    assert hits(text) == []


@given(st.text("赌ab1²™🇦🇧🅰🏽👍\u200d①½", max_size=12))
def test_the_other_reading_keeps_every_place(text: str) -> None:
    other = aside(text)
    assert list(readings(text)) == ([text] if other is None else [text, other])
    assert other is None or (len(other) == len(text) and has_alone(text))


@pytest.mark.parametrize(
    ("text", "word"),
    [
        *(("赌\u0e49博", "赌博"), ("赌\u3099博", "赌博"), ("赌\u2de0\ua66f博", "赌博"), ("赌\U00016fe4博", "赌博")),
        *(
            ("赌\u0345博", "赌博"),
            ("s\ua670h\ua670i\ua670t\ua670", "shit"),
            ("shit\u0903", "shit"),
            ("s\u0e49hit", "shit"),
        ),
        ("赌丶博", "赌博"),
    ],
)
def test_a_mark_of_another_script_is_decoration(text: str, word: str) -> None:
    assert ["".join(one for one in found if one in word) for found in hits(text)] == [word]


@pytest.mark.parametrize("text", ["ΝAZI", "Νazi", "ΝΑΖΙ", "SKΥ", "fuϲk", "fuϹk"])
def test_a_greek_capital_is_read_as_it_looks(text: str) -> None:
    matcher = Matcher(filter(None, (Source("list").entry(word, 1) for word in ("nazi", "sky", "fuck"))))
    assert [text[found.start : found.end] for found in matcher.scan(text).found] == [text]


@pytest.mark.parametrize("text", ["ναυς", "Ναυς", "ΝΑΥΣ", "νΑΥϲ"])
def test_a_greek_word_is_found_whatever_its_case(text: str) -> None:
    entry = Source("list").entry("ναυσ", 1)
    assert entry is not None
    assert Matcher([entry]).scan(f"η {text} του").found


@pytest.mark.parametrize("text", list(SCRIPTS.values()))
def test_nothing_in_the_spelling_of_the_worlds_scripts_is_read_as_decoration(text: str) -> None:
    signs = {"So", "No", "Sk"}
    letters = "".join(one for one in text if unicodedata.category(one) not in signs and one not in "ΝΥ")
    other = aside(letters) or letters
    changed = [at for at in range(len(letters)) if other[at] != letters[at]]
    assert not any(at and letters[at - 1].isalnum() for at in changed)


@pytest.mark.parametrize("text", ["café🅱x", "cafe\u0301🅱x", "café\u200b🅱x", "x🅱café", "हि🅱x", "كلب🅱ب"])
def test_a_framed_letter_goes_on_a_word_of_any_script_with_spaces(text: str) -> None:
    entries = [Source("list").entry(word, number) for number, word in enumerate(["café", "हि", "كلب"], 1)]
    matcher = Matcher(filter(None, entries))
    assert not matcher.scan(text).found
    assert stream(list(text), States(matcher))[0].blocked is None


def test_a_power_is_raised_at_its_end() -> None:
    assert is_power("6⁴")
    assert not is_power("64")
    assert not is_power("⁶⁴")
