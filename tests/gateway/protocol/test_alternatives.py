"""What a model might have said is covered where it would not be shown, and nothing else is touched."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from gateway.protocol.alternatives import KIND, Alternatives
from gateway.protocol.editing import Editor
from gateway.protocol.responses_stream import ResponsesEditor
from gateway.protocol.responses_whole import WholeResponse
from gateway.protocol.stream import StreamEditor
from gateway.protocol.whole import WholeAnswer


class Word:
    """Masks "papaya" and blocks "zebra", in a text that is all there is."""

    def __init__(self, asked: list[str] | None = None) -> None:
        self.blocked: Any = None
        self.fed = self.told = 0
        self._asked = asked

    def whole(self, text: str) -> tuple[str, Sequence[Any]]:
        if self._asked is not None:
            self._asked.append(text)
        self.blocked = "rule" if "zebra" in text else None
        return text.replace("papaya", "******"), ()

    def feed(self, text: str) -> tuple[str, Sequence[Any]]:
        raise AssertionError(f"an alternative is whole: {text}")

    def finish(self) -> tuple[str, Sequence[Any]]:
        raise AssertionError


def entry(token: str, *others: str) -> dict[str, Any]:
    tops = [{"token": each, "logprob": -1.0, "bytes": list(each.encode())} for each in (token, *others)]
    return {"token": token, "logprob": -0.1, "bytes": list(token.encode()), "top_logprobs": tops}


def shown(*entries: dict[str, Any], **more: Any) -> list[list[str]]:
    body: dict[str, Any] = {"choices": [{"index": 0, "logprobs": {"content": list(entries)}}], **more}
    Alternatives(lambda *_: Word()).cover(body)
    return [[top["token"] for top in each["top_logprobs"]] for each in body["choices"][0]["logprobs"]["content"]]


def test_an_alternative_that_would_not_be_shown_is_covered_and_its_probability_stays() -> None:
    one = entry("hi", "zebra", "papaya", "ok")
    assert shown(one) == [["hi", "*****", "******", "ok"]]
    assert one["top_logprobs"][1] == {"token": "*****", "logprob": -1.0, "bytes": list(b"*****")}


def test_an_alternative_is_read_behind_what_was_said() -> None:
    assert shown(entry("ze"), entry("ro", "bra", "al")) == [["ze"], ["ro", "***", "al"]]
    alternatives = Alternatives(lambda *_: Word())
    assert not alternatives.cover({"choices": [{"index": 1, "logprobs": {"content": [entry("ze")]}}]})
    assert not alternatives.cover({"choices": [{"index": 0, "logprobs": {"content": [entry("ro", "bra")]}}]})
    assert alternatives.cover({"choices": [{"index": 1, "logprobs": {"content": [entry("ro", "bra")]}}]})


def test_what_was_masked_before_it_covers_no_alternative() -> None:
    assert shown(entry("papaya"), entry(" is", " was")) == [["papaya"], [" is", " was"]]


def test_the_names_in_a_completion_are_alternatives_too() -> None:
    top = {"hi": -0.1, "zebra": -1.0, "*****": -2.0, "ok": -3.0}
    body = {"choices": [{"index": 0, "logprobs": {"tokens": ["hi"], "top_logprobs": [top, None]}}]}
    Alternatives(lambda *_: Word()).cover(body)
    assert top == {"hi": -0.1, "******": -1.0, "*****": -2.0, "ok": -3.0}


def test_those_of_a_prompt_are_too() -> None:
    prompt = [None, {"5": {"logprob": -1.0, "rank": 1, "decoded_token": "zebra"}}]
    assert Alternatives(lambda *_: Word()).cover({"prompt_logprobs": prompt})
    assert prompt == [None, {"5": {"logprob": -1.0, "rank": 1, "decoded_token": "*****"}}]


def test_clean_ones_are_judged_at_once_and_leave_byte_for_byte() -> None:
    asked: list[str] = []
    kinds: list[str] = []

    def make(_choice: int, kind: str, _tool: int) -> Word:
        kinds.append(kind)
        return Word(asked)

    content = [entry("hi", "ho", "<|im_end|>", ""), entry("!", "?")]
    raw = json.dumps({"choices": [{"index": 0, "logprobs": {"content": content}}]}, indent=1).encode()
    assert Alternatives(make).covered(raw) is raw
    assert (len(asked), kinds) == (1, [KIND])
    assert "im_end" not in asked[0], "which no text repeats"
    assert Alternatives(lambda *_: None).covered(raw) is raw


@pytest.mark.parametrize(
    "raw", [b"{}", b'{"top_logprobs":', b'{"top_logprobs":5}', b'[{"top_logprobs":[5,{"token":5}]},6]', b"[" * 9999]
)
def test_what_is_none_is_left_to_others(raw: bytes) -> None:
    assert Alternatives(lambda *_: Word()).covered(raw) == raw
    assert Alternatives(lambda *_: Word()).covered(raw + b'"top_logprobs"') == raw + b'"top_logprobs"'


def test_those_beside_a_number_that_json_does_not_have_are_covered() -> None:
    raw = json.dumps({"choices": [{"logprobs": {"content": [entry("hi", "zebra")]}}]}).replace("-0.1", "-Infinity")
    assert b"zebra" not in Alternatives(lambda *_: Word()).covered(raw.encode())


class Feeding(Word):
    """Takes a text in pieces too."""

    feed = Word.whole

    def finish(self) -> tuple[str, Sequence[Any]]:
        return "", ()


def editing(editor: type[Editor]) -> Editor:
    return editor(lambda *_: Feeding(), model="m", choices=1, want_usage=False, merge=False)  # type: ignore[call-arg]


def test_no_route_shows_one_streamed_or_whole() -> None:
    said = {"index": 0, "finish_reason": "stop", "logprobs": {"content": [entry("hi", "zebra")]}}
    head = {"id": "c", "model": "m"}
    chat = WholeAnswer(json.dumps({**head, "choices": [{**said, "message": {"content": "hi"}}]}).encode())
    part = {"type": "output_text", "text": "hi", "logprobs": [entry("hi", "zebra")]}
    output = [{"type": "message", "id": "i", "content": [part]}]
    response = WholeResponse(json.dumps({**head, "status": "completed", "output": output}).encode())
    for answer in (chat, response):
        answer.filter(lambda *_: Feeding())
        assert b"zebra" not in answer.close("m", None)
        assert b'"*****"' in answer.close("m", None)
        assert answer.finish_reasons == ["stop"]
    delta = {"type": "response.output_text.delta", "delta": "hi", "logprobs": [entry("hi", "zebra")]}
    chunk = {**head, "choices": [{**said, "delta": {"content": "hi"}}]}
    for kind, event in ((StreamEditor, chunk), (ResponsesEditor, delta)):
        editor = editing(kind)
        out = editor.feed(b"data: " + json.dumps(event).encode() + b"\n\n")
        out += editor.close(None) if editor.complete else b""
        assert b"zebra" not in out
        assert b'"*****"' in out
