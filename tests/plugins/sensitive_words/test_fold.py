"""Every code point folds alike alone and in a text, on the quick path and on the slow one."""

from __future__ import annotations

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from plugins.sensitive_words import fold as fold_module
from plugins.sensitive_words.fold import WORD, fold, fold_character, origins

EVERY = [chr(code) for code in (*range(0x20000), *range(0xE0000, 0xE0200))]  # what lies between is Chinese


def slowly(text: str) -> str:
    return "".join(map(fold_character, text))


def test_the_quick_path_says_of_every_code_point_what_the_slow_one_says() -> None:
    padding = "一" * 30
    quick = []
    for character in EVERY:
        folded, same = fold(padding + character)
        if same:
            quick.append(character)
            assert folded[30:] == fold_character(character), hex(ord(character))
    assert len(quick) > 28_000
    assert set("，：？！（）；％～．＂　…“”‘’—。、《》「」·\n\t👍Az0") <= set(quick)


@given(st.text(), st.text())
def test_a_text_folds_piece_by_piece(left: str, right: str) -> None:
    assert fold(left + right)[0] == fold(left)[0] + fold(right)[0] == slowly(left + right)


@given(st.text(st.sampled_from("aAß，一ﬃİé\u0301か゚\u200b\0👍㎏각")))
def test_each_folded_character_knows_where_it_came_from(text: str) -> None:
    folded, same = fold(text)
    places = origins(text)
    assert len(places) == len(folded)
    assert all(character in fold_character(text[place]) for character, place in zip(folded, places, strict=True))
    if same:
        assert list(places) == list(range(len(text)))


def test_compatibility_width_and_case_are_undone() -> None:
    for spelling in ("ＦｏｒＢｉｄ", "fOrBiD", "ⓕⓞⓡⓑⓘⓓ", "𝐟𝐨𝐫𝐛𝐢𝐝", "f\u200do\u00adr\ufeffb\U000e0069i\x00d"):
        assert fold(spelling)[0] == "forbid"
    assert fold("ẞ ﬃ ㎏ ①")[0] == "ss ffi kg 1"
    assert fold("ｶﾞ")[0] == fold("ガ")[0] == unicodedata.normalize("NFD", "ガ")
    assert fold("é")[0] == fold("e\u0301")[0]


def test_an_entry_spelled_with_a_lone_surrogate_is_still_text() -> None:
    assert fold("a\ud83cb")[0] == "a\ufffdb"


def test_a_text_of_all_of_unicode_does_not_fill_the_memory() -> None:
    fold("".join(map(chr, range(0x40000))))
    assert len(fold_module.TABLE) <= 30_000


def test_words_are_of_scripts_with_spaces() -> None:
    assert set("az09\u0301пя") | {"ω"} <= WORD
    assert WORD.isdisjoint("赌か한ก _.-'")
