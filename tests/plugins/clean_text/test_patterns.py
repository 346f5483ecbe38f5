"""The quick looks never overlook what the patterns would find."""

from __future__ import annotations

import re

import pytest

from plugins.clean_text.cleaner import Patterns
from plugins.clean_text.patterns import KINDS, compile_pattern

EVERY = [chr(code) for code in (*range(0xD800), *range(0xE000, 0x20000), *range(0xE0000, 0xE0200))]
PATTERNS = Patterns(4, str.lower, wide=True)


def test_what_the_quick_look_passes_is_found_by_no_pattern() -> None:
    found = [compile_pattern(final=final).match for final in (True, False)]
    for character in EVERY:
        special_one = character in PATTERNS.starts or any(look(character) for look in found)
        assert not (special_one and PATTERNS.is_plain(character)), hex(ord(character))
        assert not (special_one and PATTERNS.special(character, 0) is None), hex(ord(character))


@pytest.mark.parametrize(
    "text", ["a" * 100 + "\0", "a" * 100 + "<", "a" * 100 + "[", "a" * 100 + "\x7f", "é\u0301", ""]
)
def test_long_and_short_texts_are_looked_at_alike(text: str) -> None:
    assert not PATTERNS.is_plain(text)
    assert not PATTERNS.is_plain(text[-1:])


def test_ordinary_text_is_plain() -> None:
    for text in ("机器学习，是 a way。\n", "é ü ñ Привет", "😀🚀", "한국어 かな", "x" * 100 + "\t\r\n"):
        assert PATTERNS.is_plain(text)


@pytest.mark.parametrize("text", ["a[0] < b[1] <br><p>", "[docs](x) " * 20, "ที่นี่ x", "क्षि य", "o\u0302\u0309n"])
def test_brackets_that_begin_no_token_and_a_few_marks_need_no_look(text: str) -> None:
    assert PATTERNS.is_plain(text)
    assert not PATTERNS.is_plain(f"{text}[")
    assert not PATTERNS.is_plain(f"{text}[\0INS")
    assert not PATTERNS.is_plain(f"{text}\u0301\u0301\u0301\u0301\u0301x")


def test_marks_are_known_by_their_kind() -> None:
    assert [KINDS.get(one) for one in "\u0301\u20dd\u0903\u1031\u0f90a\ufe0f"] == [
        *("mark", "mark", "spacing", "spacing", "stacked"),
        *(None, None),
    ]
    every = re.compile(compile_pattern(final=True).pattern)
    assert all((found := every.match(one)) and found.lastgroup == "mark" for one in KINDS)
