"""What is found out about a text once holds for everybody who relies on it."""

from __future__ import annotations

import unicodedata

from gateway.protocol.reading import WIDE_MARKS, Reading


def test_ordinary_text_is_usual_chinese_and_english() -> None:
    assert Reading("").ordinary
    assert Reading("Hello, 世界！“引号”……（见第3页）\n\tok 👍").ordinary
    for text in ("a\0", "\x1b[0m", "\x7f", "a\u200bb", "\u202e", "\ufeff", "é", "Ａ", "\u0301", "か", "🏴"):
        assert not Reading(text).ordinary, ascii(text)


def test_nothing_ordinary_joins_another_is_invisible_or_controls_but_tab_and_line_ends() -> None:
    for character in map(chr, range(0x110000)):
        if Reading(character).ordinary:
            category = unicodedata.category(character)
            assert category not in {"Mn", "Me", "Mc", "Cf", "Cs", "Zl", "Zp"}, hex(ord(character))
            assert category != "Cc" or character in "\t\n\r"


def test_ordinary_text_folds_to_itself_but_for_capitals_and_marks() -> None:
    for character in map(chr, range(0x110000)):
        if Reading(character).ordinary and character not in {*WIDE_MARKS, "…"}:
            assert unicodedata.normalize("NFKD", character) == character, hex(ord(character))
            assert character.casefold() == (character.lower() if character.isascii() else character)


def test_ordinary_text_stays_ordinary_when_its_marks_are_narrowed() -> None:
    assert Reading(unicodedata.normalize("NFKC", WIDE_MARKS)).ordinary
