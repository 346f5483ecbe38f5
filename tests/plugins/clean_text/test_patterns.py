"""The quick looks never overlook what the patterns would find."""

from __future__ import annotations

import pytest

from plugins.clean_text.patterns import compile_pattern, is_plain, special

EVERY = [chr(code) for code in (*range(0xD800), *range(0xE000, 0x20000), *range(0xE0000, 0xE0200))]


def test_what_the_quick_look_passes_is_found_by_no_pattern() -> None:
    found = [compile_pattern(tokens=True, final=final).match for final in (True, False)]
    for character in EVERY:
        special_one = any(look(character) for look in found)
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


def test_the_tokens_of_the_common_families_are_known() -> None:
    whole = compile_pattern(tokens=True, final=True)
    for token in (
        *("<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|begin_of_text|>", "<|start_header_id|>"),
        *("<｜begin▁of▁sentence｜>", "<｜User｜>", "[INST]", "[/INST]", "<<SYS>>", "<</SYS>>", "<end_of_turn>"),
        *("<|START_OF_TURN_TOKEN|>", "[TOOL_CALLS]", "[gMASK]", "<|channel|>"),
    ):
        match = whole.fullmatch(token)
        assert match is not None
        assert match.lastgroup == "token"
    for text in ("<|a b|>", "<||>", "<s>", "[1]", "a <| b |> c", "<html>", f"<|{'x' * 60}|>"):
        assert not any(match.lastgroup == "token" for match in whole.finditer(text))
