"""Only what the policy names is rewritten, and everything that it names."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from gateway.testing import play
from plugins.normalize import Normalize
from tests.plugins.exchanges import chat, contents
from tests.plugins.pages import example


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


CODE = '改一下（谢谢）：\n```python\nprint（"你好，世界！"）\x1b[0m\n```\n然后，好吗？'


def test_code_in_a_fenced_block_keeps_its_characters() -> None:
    assert normalized(CODE) == '改一下(谢谢):\n```python\nprint（"你好，世界！"）\n```\n然后,好吗?'
    assert normalized(CODE, code_blocks="normalize") == '改一下(谢谢):\n```python\nprint("你好,世界!")\n```\n然后,好吗?'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("~~~\n（a）\n~~~（b）", "~~~\n（a）\n~~~(b)"),
        ("````\n```\n（a）\n````（b）", "````\n```\n（a）\n````(b)"),
        ("```\n（never closed）", "```\n（never closed）"),
        ("say ```（a）``` inline", "say ```(a)``` inline"),
        ("（a）``（b）``", "(a)``(b)``"),
    ],
)
def test_what_is_a_block_and_what_is_not(text: str, expected: str) -> None:
    assert normalized(text) == expected


async def test_the_example_on_its_page_is_true() -> None:
    options, (asked, sent, answer) = example("normalize")
    said = answer["choices"][0]["message"]["content"]
    played = await play(Normalize(Normalize.Options.model_validate(options)), asked, said)
    assert played.request == sent
    assert played.shown == said


@pytest.mark.parametrize(
    ("route", "body", "sent"),
    [
        ("/v1/responses", {"input": "Ａ", "instructions": "１"}, {"input": "A", "instructions": "1"}),
        (
            "/v1/messages",
            {"system": "Ａ", "messages": [{"role": "user", "content": [{"type": "text", "text": "１"}]}]},
            {"system": "A", "messages": [{"role": "user", "content": [{"type": "text", "text": "1"}]}]},
        ),
        ("/v1/completions", {"prompt": ["Ａ", "１"]}, {"prompt": ["A", "1"]}),
    ],
)
async def test_every_route_is_rewritten(route: str, body: dict[str, Any], sent: dict[str, Any]) -> None:
    played = await play(Normalize(Normalize.Options()), {"model": "m", "stream": False, **body}, "a", route=route)
    assert played.request == {"model": "m", "stream": False, **sent}
