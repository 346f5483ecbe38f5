"""The quick looks never overlook what the patterns would find."""

from __future__ import annotations

import pytest

from plugins.clean_text.patterns import compile_pattern, is_plain, special
from plugins.clean_text.tokens import Tokens

EVERY = [chr(code) for code in (*range(0xD800), *range(0xE000, 0x20000), *range(0xE0000, 0xE0200))]


def test_what_the_quick_look_passes_is_found_by_no_pattern() -> None:
    found = [compile_pattern(final=final).match for final in (True, False)]
    starts = Tokens(wide=True).starts
    for character in EVERY:
        special_one = character in starts or any(look(character) for look in found)
        assert not (special_one and is_plain(character)), hex(ord(character))
        assert not (special_one and special(character) is None), hex(ord(character))


@pytest.mark.parametrize(
    "text", ["a" * 100 + "\0", "a" * 100 + "<", "a" * 100 + "[", "a" * 100 + "\x7f", "é\u0301", ""]
)
def test_long_and_short_texts_are_looked_at_alike(text: str) -> None:
    assert not is_plain(text)
    assert not is_plain(text[-1:])


def test_ordinary_text_is_plain() -> None:
    for text in ("机器学习，是 a way。\n", "é ü ñ Привет", "😀🚀", "한국어 かな", "x" * 100 + "\t\r\n"):
        assert is_plain(text)
