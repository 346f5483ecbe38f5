"""Marks and look-alikes: when another spelling is the same word, and when it is another word."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugins.sensitive_words.matcher import Matcher
from plugins.sensitive_words.tables import LOOKALIKES
from plugins.sensitive_words.wordlist import Source


def found(text: str, *words: str) -> list[str]:
    entries = [Source("list", "mask").entry(word, number) for number, word in enumerate(words, 1)]
    scan = Matcher(entry for entry in entries if entry is not None).scan(text)
    return [text[start:end] for start, end, _ in scan.found]


@pytest.mark.parametrize(
    "text", ["cop", "соp", "сор", "СОР", "СoP", "сор!", "this сор is", "c\u0336o\u0336p\u0336", "cоp"]
)
def test_a_word_counts_where_scripts_are_mixed_or_all_is_alike(text: str) -> None:
    assert len(found(text, "cop")) == 1


@pytest.mark.parametrize(
    "text",
    [
        "не выноси сор из избы",
        "не выноси сор",
        "это сор",
        "сор и пыль",
        "хор, сор",
        "мусор",
        "сорт",
        "сор — это пыль",
        "ни сор,\nни дым",
        "σoφός",
    ],
)
def test_among_words_of_its_script_a_look_alike_is_ordinary_text(text: str) -> None:
    if text == "хор, сор":  # the word before is made of nothing but look-alikes too
        assert found(text, "cop") == ["сор"]
    else:
        assert found(text, "cop") == []


@pytest.mark.parametrize("text", ["А片", "Α片", "ꓮ片", "看А片", "А 片"])
def test_one_look_alike_beside_chinese_is_a_mixture_of_scripts(text: str) -> None:
    assert found(text, "A片") == [text.removeprefix("看")]
    assert found("ДНА片段", "A片") == []


@pytest.mark.parametrize(
    ("text", "word"),
    [
        *(("НЕ РОТ, А НОС БОЛИТ", "pot"), ("ДА, РОТ", "pot"), ("РОТ НА ЗАМОК", "pot"), ("то о сор, а хор, и", "cop")),
        *(("ΝΑΙ Η ΟΧΙ, ΔΕΝ", "oxi"), ("ΔΕΝ ΤΟ ΟΧΙ", "oxi"), ("и 5 сор", "cop"), ("сор 5, и", "cop")),
    ],
)
def test_neighbours_made_of_look_alikes_are_looked_past(text: str, word: str) -> None:
    assert found(text, word) == []


def test_a_text_made_of_look_alikes_alone_is_latin() -> None:
    assert found("а сор", "cop") == ["сор"]
    assert found("и this сор is и", "cop") == ["сор"]


def test_an_entry_of_another_script_counts_when_latin_letters_are_mixed_in() -> None:
    assert found("сука cука сyка", "сука") == ["сука", "cука", "сyка"]
    assert found("cyka", "сука") == []


@pytest.mark.parametrize(("text", "word"), [("τορ", "τσρ"), ("οου", "σου"), ("оре", "өре")])
def test_one_letter_of_a_script_is_no_look_alike_of_another_letter_of_it(text: str, word: str) -> None:
    assert found(text, word) == []


@pytest.mark.parametrize("text", ["ΝΑΡΚΩΤΙΚΑ", "ΝΑΡΚΩΤΙΚΆ", "Ναρκωτικά", "ναρκωτικά"])
def test_greek_capitals_go_without_their_accents(text: str) -> None:
    assert found(f"τα {text} ή", "ναρκωτικά") == [text]
    assert found("ναρκωτικα", "ναρκωτικά") == [], "small letters do not"


@pytest.mark.parametrize(
    ("text", "hit"),
    [
        *(
            ("café", False),
            ("cafe\u0301", False),
            ("c\u0301a\u0301f\u0301e\u0301", True),
            ("cafe\u0301\u0302\u0303", True),
        ),
        *(
            ("c\u0338a\u0338f\u0338e", True),
            ("çåfé", False),
            ("ćáḟé", True),
            ("ɕafe", False),
            ("caƒe", True),
            ("cąfe", False),
            ("ƈafe", False),
        ),
    ],
)
def test_marks_make_another_word_unless_they_are_decoration(text: str, hit: bool) -> None:
    assert found(text, "cafe") == ([text] if hit else [])


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("赌\u302a博", "赌博"),
        ("赌\u0591博", "赌博"),
        ("赌\u064b博", "赌博"),
        ("c\u05b6afe", "cafe"),
        ("كَلْب", "كلب"),
        ("כֶּלֶב", "כלב"),
    ],
    ids=ascii,
)
def test_vowels_and_tone_marks_of_other_scripts_make_no_other_word(text: str, word: str) -> None:
    assert found(f"x {text} y", word) == [text]


@pytest.mark.parametrize("text", ["ꓢꓚꓳꓑꓰ", "ꓢcope", "sꓚope", "ꮪcope", "ЅСОРЕ", "sсоре", "ꮪꓚope"])
def test_look_alikes_of_scripts_that_nobody_types_count_too(text: str) -> None:
    assert found(f"{text}!", "scope") == [text]
    assert found(text, "scope") == [text]


@given(st.text(st.sampled_from([*LOOKALIKES, *"scope ", "\u0301", "博", "1"]), max_size=12))
def test_no_mixture_of_look_alikes_is_too_much(text: str) -> None:
    for words in (["scope", "op", "1e"], ["博s", "ооо"]):
        found(text, *words)


def test_a_hamza_makes_another_letter() -> None:
    assert found("اكل", "أكل") == []
    assert found("أكل", "أكل") == ["أكل"]


def test_an_entrys_own_marks_have_to_be_there() -> None:
    assert found("café cafe cafe\u0301 CAFÉ", "café") == ["café", "cafe\u0301", "CAFÉ"]


def test_marks_on_the_last_letter_belong_to_the_span() -> None:
    assert found("x s\u0336h\u0336i\u0336t\u0336 y", "shit") == ["s\u0336h\u0336i\u0336t\u0336"]
