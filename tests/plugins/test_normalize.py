"""Only what the policy names is rewritten, and everything that it names."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from plugins.normalize import Normalize
from tests.plugins.exchanges import chat, contents


def normalized(text: Any, **options: Any) -> Any:
    exchange = chat(text)
    Normalize(Normalize.Options.model_validate(options)).on_request(exchange)
    return contents(exchange)[0]


def test_full_width_becomes_half_width() -> None:
    assert normalized("ＡＢＣ１２３，你好！　（ｘ＝１）：；？～＂％") == 'ABC123,你好! (x=1):;?~"%'


def test_punctuation_can_stay_full_width() -> None:
    assert normalized("Ａ，！？（）：；％～　。", keep_punctuation=True) == "A，！？（）：；%~ 。"


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"])))
def test_nothing_else_is_rewritten(text: str) -> None:
    narrow = "".join(
        chr(ord(character) - 0xFEE0)
        if "\uff01" <= character <= "\uff5e"
        else " "
        if character == "\u3000"
        else character
        for character in text
    )
    assert normalized(text) == narrow


def test_control_characters_and_terminal_escapes_are_removed() -> None:
    assert normalized("a\0b \x1b[31mred\x1b[0m\x08 tab:\t nl:\n") == "ab red tab:\t nl:\n"
    assert normalized("\x1b]0;title\x07a\x1b]8;;http://x\x1b\\b\x9b1mc\x1bPq\x9cd\x1b(Be\x1b=f\x1b") == "abcdef"
    assert normalized("a\x7f\x85\x9fb\r\n\x0b\x0c") == "ab\r\n"
    assert normalized("a\u200db\u202e") == "a\u200db\u202e", "invisible is not control"
    assert normalized("\x1b［31m红") == "红"


@given(st.text(st.sampled_from("a\x1b[]0m\x07\\;\x9b\x9c\n\t\r\0")))
def test_no_control_character_is_left(text: str) -> None:
    assert set(normalized(text)) <= set("a[]0m\\;\n\t\r")


def test_each_step_can_be_switched_off() -> None:
    assert normalized("Ａ\0", width="off") == "Ａ"
    assert normalized("Ａ\0", control_characters=False) == "A\0"
    assert normalized("Ａ\0", width="off", control_characters=False) == "Ａ\0"


def test_every_text_part_is_rewritten_and_nothing_beside_it() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,Ａ"}}
    parts = [{"type": "text", "text": "ａ"}, {"type": "text", "text": "ｂ\0"}, image]
    assert normalized(parts) == [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}, image]


@pytest.mark.parametrize("options", [{"width": "full"}, {"widht": "half"}])
def test_wrong_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Normalize.Options.model_validate(options)
