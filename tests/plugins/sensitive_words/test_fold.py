"""Every code point folds alike alone and in a text."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugins.sensitive_words import fold as fold_module
from plugins.sensitive_words.fold import WORD, fold, fold_character
from plugins.sensitive_words.matcher import Matcher
from plugins.sensitive_words.wordlist import Source


@given(st.text(), st.text())
def test_a_text_folds_piece_by_piece(left: str, right: str) -> None:
    assert fold(left + right) == fold(left) + fold(right) == "".join(map(fold_character, left + right))


def test_compatibility_width_and_case_are_undone() -> None:
    for spelling in ("ＦｏｒＢｉｄ", "fOrBiD", "ⓕⓞⓡⓑⓘⓓ", "𝐟𝐨𝐫𝐛𝐢𝐝", "f\u200do\u00adr\ufeffb\U000e0069i\x00d"):
        assert fold(spelling) == "forbid"
    assert fold("ẞ ﬃ ㎏ ①") == "ss ffi kg 1"
    assert fold("ｶﾞ") == fold("ガ") == unicodedata.normalize("NFD", "ガ")
    assert fold("é") == fold("e\u0301")


def test_an_entry_spelled_with_a_lone_surrogate_is_still_text() -> None:
    assert fold("a\ud83cb") == "a\ufffdb"


def test_a_text_of_all_of_unicode_does_not_fill_the_memory() -> None:
    fold("".join(map(chr, range(0x40000))))
    assert len(fold_module._TABLE) <= 30_000


def test_words_are_of_scripts_with_spaces() -> None:
    assert set("az09\u0301пяωሰꭰᏣᠮᐃᛖ𞤀ꓐ") <= WORD
    assert WORD.isdisjoint("赌か한กကខ _.-'")


@pytest.mark.parametrize(("word", "longer"), [("ሰው", "ሰውነት"), ("ᏣᎳ", "ᏣᎳᎩ"), ("ᠮᠣᠩ", "ᠮᠣᠩᠭᠣᠯ"), ("ꓐꓳ", "ꓐꓳꓠ")])
def test_a_word_of_a_script_with_spaces_is_not_found_in_a_longer_one(word: str, longer: str) -> None:
    entry = Source("list").entry(word, 1)
    assert entry is not None
    matcher = Matcher([entry])
    assert not matcher.scan(f"{longer} {longer}").found
    assert len(matcher.scan(f"{longer} {word}, {word}").found) == 2
