"""The tables come of their sources' lines."""

from __future__ import annotations

from plugins.sensitive_words.make_tables import confusables, lookalikes, pinyin, simplified

CONFUSABLES = [
    "\ufeff# a comment",
    "0430 ;\t0061 ;\tMA\t# а",
    "0391 ;\t0041 ;\tMA\t# Α",
    "00F8 ;\t006F 0338 ;\tMA\t# ø",
    "0261 ;\t0067 ;\tMA\t# ɡ",
    "05D5 ;\t006C ;\tMA\t# ו",
    "2E81 ;\t5382 ;\tMA\t# ⺁",
    "0041 ;\t0391 ;\tMA\t# A",
]


def test_look_alikes_are_told_apart_by_script() -> None:
    others, latin, strokes = lookalikes(confusables(CONFUSABLES))
    assert others == {"а": "a", "Α": "a"}
    assert latin["ɡ"] == "g"
    assert latin["ᴀ"] == "a"
    assert strokes == {"ø": "o"}


def test_the_first_simplified_form_counts_and_radicals_are_characters() -> None:
    table = simplified(["# comment", "", "乾\t干 乾", "賭\t赌", "一\t一"], confusables(CONFUSABLES))
    assert table == {"乾": "干", "賭": "赌", "⺁": "厂"}


def test_syllables_lose_their_tones_and_keep_two_readings() -> None:
    readings = {"34892": "xíng,háng,hàng", "22899": "nǚ", "13312": "qiū"}
    assert pinyin(readings) == {"hang": "行", "nv": chr(22899), "xing": "行"}
