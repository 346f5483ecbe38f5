"""What each character is read as, on the quick path and on the slow one, and the way back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugins.sensitive_words import skeleton
from plugins.sensitive_words.skeleton import read, spelling
from plugins.sensitive_words.tables import SIMPLIFIED

EVERY = [chr(code) for code in (*range(0x20000), *range(0xE0000, 0xE0200))]
ODD = "aAß，。一賭ﬃİé\u0301か゚\u200b\0👍㎏각ѕ🇦🅐ⓐ ᴀø\u0336'’"


def slowly(text: str) -> str:
    return "".join(letter.read_as for letter in spelling(text))


def test_the_quick_path_says_of_every_code_point_what_the_slow_one_says() -> None:
    padding = "一" * 30
    quick = [character for character in EVERY if read(padding + character).same]
    for character in quick:
        assert read(padding + character).letters[30:] == slowly(character), hex(ord(character))
    assert len(quick) > 22_000
    assert set("，：？！（）；％～．＂　…“”‘’—。、《》「」·\n\tAz0") <= set(quick)
    assert set(quick).isdisjoint(SIMPLIFIED)


@given(st.text(), st.text())
def test_a_text_is_read_piece_by_piece(left: str, right: str) -> None:
    assert read(left + right).letters == read(left).letters + read(right).letters == slowly(left + right)


@given(st.text(st.sampled_from(ODD), max_size=60), st.booleans())
def test_each_letter_knows_where_it_came_from(text: str, repeats: bool) -> None:
    copy = read(text, repeats=repeats)
    for letter, place, last in zip(copy.letters, copy.places, copy.lasts, strict=True):
        assert place <= last
        assert letter in slowly(text[place])
        assert letter in slowly(text[last])
    if copy.same and not repeats:
        assert list(copy.places) == list(range(len(text)))


@pytest.mark.parametrize(
    "spelled",
    [
        *("ＦｏｒＢｉｄ", "ⓕⓞⓡⓑⓘⓓ", "𝐟𝐨𝐫𝐛𝐢𝐝", "🅕🅞🅡🅑🅘🅓", "🄵🄾🅁🄱🄸🄳", "🅵🅾🆁🅱🅸🅳", "ᶠᵒʳᵇⁱᵈ", "ꜰᴏʀʙɪᴅ", "𝔣𝔬𝔯𝔟𝔦𝔡", "𝕗𝕠𝕣𝕓𝕚𝕕"),
        *(
            "fоrbіd",
            "fοrbid",
            "f\u0336o\u0336r\u0336b\u0336i\u0336d\u0336",
            "føɍƀɨđ",
            "f\U000e0061or\u2800b\u3164i\u034fd",
        ),
    ],
)
def test_styled_framed_struck_and_foreign_letters_are_read_as_plain_ones(spelled: str) -> None:
    assert read(spelled).letters == "forbid"


def test_parenthesised_letters_and_flags_stand_alone() -> None:
    assert read("⒡⒪").letters == "-f--o-"
    assert read("🇫🇴").letters == "-f--o-"


def test_traditional_characters_are_read_as_simplified_ones() -> None:
    assert read("線上賭博，產門裡⽊").letters == "线上赌博-产门里木"


def test_digits_of_all_scripts_are_digits() -> None:
    assert read("٦٩ ६९ 69 ⑥⑨ ６９ 𝟔𝟗").letters == "69 69 69 69 69 69"


def test_digits_in_frames_and_new_digits_are_digits() -> None:
    assert read("❽❾❻❹ ➑➒➏➍ ➇➈➅➃ ⓼⓽⓺⓸ 𜳸𜳹𜳶𜳴 ⓫❿⓿").letters == "8964 8964 8964 8964 8964 11100"


def test_struck_capitals_outlined_letters_and_ligatures_are_plain_letters() -> None:
    assert read("ɄⱧⱩꝀȾƮƝɎ 𜳨𜳝 ꝏꜲʣ").letters == "uhkkttny sh ooaadz"


def test_letters_that_look_like_signs_separate() -> None:
    assert read("ˉˇːꓸㆍᐧǃ").letters == "-" * 7
    assert read("ʻˈˊʾꞌ").letters == " " * 5
    assert {read("一" * 30 + stroke).same for stroke in "丶丿丨"} == {False}, "they are read in two ways"


def test_where_repeats_count_once_a_run_knows_its_length() -> None:
    copy = read("shiiiit  --", repeats=True)
    assert copy.letters == "shit  --"
    assert list(copy.runs)[:4] == [1, 1, 4, 1]
    assert (copy.places[2], copy.lasts[2]) == (2, 5)


def test_a_letter_keeps_its_marks_and_what_it_was() -> None:
    (letter,) = spelling("Ѕ\u0301\u0302")
    assert letter == ("s", "ѕ", "\u0301\u0302", "Ѕ")


def test_a_text_of_all_of_unicode_does_not_fill_the_memory() -> None:
    read("".join(map(chr, range(0x40000))))
    assert len(skeleton.TABLE) <= 60_000
