"""The tables come of their sources' lines."""

from __future__ import annotations

from plugins.sensitive_words.make_tables import (
    confusables,
    ligatures,
    lookalikes,
    marks,
    numbers,
    pinyin,
    simplified,
    strangers,
    variants,
)

CONFUSABLES = [
    "\ufeff# a comment",
    "0430 ;\t0061 ;\tMA\t# а",
    "0391 ;\t0041 ;\tMA\t# Α",
    "00F8 ;\t006F 0338 ;\tMA\t# ø",
    "0261 ;\t0067 ;\tMA\t# ɡ",
    "05D5 ;\t006C ;\tMA\t# ו",
    "2E81 ;\t5382 ;\tMA\t# ⺁",
    "0244 ;\t0055 0335 ;\tMA\t# Ʉ",
    "A74F ;\t006F 006F ;\tMA\t# ꝏ",
    "006D ;\t0072 006E ;\tMA\t# m",
    "0041 ;\t0391 ;\tMA\t# A",
]


def test_look_alikes_are_told_apart_by_script() -> None:
    others, latin, strokes = lookalikes(confusables(CONFUSABLES))
    assert {letter: others[letter] for letter in "аΑ"} == {"а": "a", "Α": "a"}
    assert strangers(confusables(CONFUSABLES), others) == {"ו": "l"}
    assert latin["ɡ"] == "g"
    assert latin["ᴀ"] == "a"
    assert strokes == {"ø": "o", "Ʉ": "u", "ʉ": "u"}, "capitals with their small forms"
    assert ligatures(confusables(CONFUSABLES)) == {"ꝏ": "oo"}


def test_the_first_simplified_form_counts_and_radicals_are_characters() -> None:
    table = simplified(["# comment", "", "乾\t干 乾", "賭\t赌", "一\t一"], confusables(CONFUSABLES))
    assert table == {"乾": "干", "賭": "赌", "⺁": "厂"}


def test_a_variant_counts_that_is_one_of_a_single_common_character() -> None:
    unihan = [
        "# comment",
        "U+8534\tkSemanticVariant\tU+9EBB<kLau U+9EBC<kX",  # 蔴: 麻, 麼
        "U+9B2D\tkZVariant\tU+9B25",  # 鬭: 鬥
        "U+534D\tkSemanticVariant\tU+842C",
    ]
    table = variants(["枪\t槍 鎗", "云\t云 雲"], unihan, {"槍": "枪", "雲": "云", "鬥": "斗", "萬": "万"})
    assert {old: table.get(old) for old in "鎗蔴鬭卍槍云"} == {
        "鎗": "枪",
        "蔴": "麻",
        "鬭": "斗",
        "卍": None,
        "槍": None,
        "云": None,
    }


def test_marks_are_ranges() -> None:
    assert "\u0e47-\u0e4e" in marks()
    assert numbers().startswith("\u09f4-\u09f9")


def test_syllables_lose_their_tones_and_keep_two_readings() -> None:
    readings = {"34892": "xíng,háng,hàng", "22899": "nǚ", "13312": "qiū"}
    assert pinyin(readings) == {"hang": "行", "nv": chr(22899), "xing": "行"}
