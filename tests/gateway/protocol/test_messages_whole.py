"""A whole message takes the filters of a stream, and stays byte for byte what it was where they changed nothing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from gateway.errors import EngineError
from gateway.protocol.messages_whole import WholeMessage


class Word:
    """Masks "papaya" and blocks at "zebra"; holds all until the end."""

    def __init__(self) -> None:
        self.blocked: Any = None
        self.text = ""
        self.fed = self.told = 0

    def feed(self, text: str) -> tuple[str, Sequence[tuple[int, int, str]]]:
        self.text += text
        self.fed = len(self.text)
        return "", ()

    def finish(self) -> tuple[str, Sequence[tuple[int, int, str]]]:
        text, at = self.text, self.text.find("zebra")
        if at >= 0:
            self.blocked, text = "rule", text[:at]
        self.told = len(text)
        papaya = text.find("papaya")
        edits = [(papaya, papaya + 6, "******")] if papaya >= 0 else []
        return text.replace("papaya", "******"), edits

    def whole(self, text: str) -> tuple[str, Sequence[tuple[int, int, str]]]:
        self.feed(text)
        return self.finish()


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


def call(**values: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": "c", "name": "f", "input": values}


def message(*content: Any, **more: Any) -> bytes:
    body = {"id": "chatcmpl-1", "type": "message", "role": "assistant", "content": content, "model": "m",
            "stop_reason": "end_turn",
            "usage": {"input_tokens": 37, "output_tokens": 8}, "vendor": 2**70, **more}  # fmt: skip
    return json.dumps(body, indent=1, ensure_ascii=False).encode()  # no engine's spacing is ours


def filtered(raw: bytes, model: str = "m", extra: dict[str, Any] | None = None) -> dict[str, Any]:
    answer = WholeMessage(raw)
    answer.filter(lambda *_: Word())
    body: dict[str, Any] = json.loads(answer.close(model, extra))
    return body


def test_a_clean_answer_stays_as_it_came() -> None:
    raw = message({"type": "thinking", "thinking": "hm", "signature": "s"}, text("你好"), call(n=1.50, to="li"), "odd")
    answer = WholeMessage(raw)
    answer.filter(lambda *_: Word())
    assert answer.close("m", None) == raw
    assert answer.finish_reasons == ["stop"]
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (37, 8)


def test_text_and_inputs_are_masked_and_the_rest_is_kept() -> None:
    body = filtered(message(text("a papaya"), call(to="papaya", n=2**60, papaya=1)), "claude", {"tags": ["x"]})
    assert body["content"] == [text("a ******"), call(to="******", n=2**60, papaya=1)]
    assert (body["model"], body["vendor"], body["sluice"]) == ("claude", 2**70, {"tags": ["x"]})


def test_a_block_ends_the_message_as_a_refusal() -> None:
    answer = WholeMessage(message(text("fine"), call(), text("a zebra"), call(), text("later"), stop_sequence="x"))
    answer.filter(lambda *_: Word())
    body = json.loads(answer.close("m", None))
    assert body["content"] == [text("fine"), call(), text("a ")]
    assert (body["stop_reason"], body["stop_sequence"]) == ("refusal", None)
    assert answer.finish_reasons == ["content_filter"]


def test_a_call_with_a_hit_is_not_told_at_all() -> None:
    assert filtered(message(text("fine"), call(q="a zebra"), text("later")))["content"] == [text("fine")]
    assert filtered(message(call(q="zebra")))["content"] == [text("")]


def test_adjacent_blocks_of_text_are_read_as_one() -> None:
    assert filtered(message(text("a ze"), text("bra")))["stop_reason"] == "refusal"
    assert "".join(block["text"] for block in filtered(message(text("a pap"), text("aya")))["content"]) == "a ******"
    assert filtered(message(text("a ze"), call(), text("bra")))["stop_reason"] == "end_turn"
    assert filtered(message({"type": "thinking", "thinking": "ze"}, text("bra")))["stop_reason"] == "end_turn"


def test_each_call_has_its_own_number() -> None:
    asked: list[tuple[int, str, int]] = []
    answer = WholeMessage(message(call(), text("a"), call(a="b"), {"type": "thinking", "thinking": "t"}))
    answer.filter(lambda *channel: asked.append(channel))
    assert list(dict.fromkeys(asked)) == [
        (0, "arguments", 0),
        (0, "content", 0),
        (0, "arguments", 1),
        (0, "reasoning", 0),
    ]


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        ("max_tokens", "length"),
        ("tool_use", "tool_calls"),
        ("stop_sequence", "stop"),
        ("refusal", "content_filter"),
        ("x", "x"),
    ],
)
def test_every_way_in_which_an_answer_ends(reason: str, told: str) -> None:
    assert WholeMessage(message(text("a"), stop_reason=reason)).finish_reasons == [told]


def test_what_came_from_the_cache_is_counted() -> None:
    answer = WholeMessage(
        message(text("a"), usage={"input_tokens": 3, "cache_read_input_tokens": 4, "output_tokens": 1})
    )
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == 7
    assert WholeMessage(message(text("a"), usage=None)).usage is None


@pytest.mark.parametrize(
    "raw",
    [b"x", b"[]", message(text("a"), stop_reason=None), b'{"type":"error","error":{"type":"api_error","message":"x"}}'],
)
def test_what_is_no_answer_is_a_failure(raw: bytes) -> None:
    with pytest.raises(EngineError):
        WholeMessage(raw)


def test_what_stands_beside_is_text_too_unless_it_is_known() -> None:
    body = filtered(message(text("hi"), foo={"x": ["a papaya"]}))
    assert (body["foo"], body["stop_reason"]) == ({"x": ["a ******"]}, "end_turn")
    body = filtered(message(text("hi"), foo="a zebra"))
    assert (body["foo"], body["stop_reason"]) == ("a ", "refusal")


def test_the_name_of_a_call_is_judged_and_never_masked() -> None:
    body = filtered(message(text("hi"), {**call(a=1), "name": "zebra"}))
    assert (body["content"], body["stop_reason"]) == ([text("hi")], "refusal")
    assert filtered(message({**call(a=1), "name": "papaya"}))["content"][0]["name"] == "papaya"
