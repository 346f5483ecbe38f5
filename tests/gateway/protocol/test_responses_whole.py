"""A whole response takes the filters of a stream, and stays byte for byte what it was where they changed nothing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from gateway.errors import EngineError
from gateway.protocol.responses_whole import WholeResponse


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


def message(*texts: str, **more: Any) -> dict[str, Any]:
    parts = [{"type": "output_text", "text": text, "annotations": [], "logprobs": None, **more} for text in texts]
    return {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": parts}


def call(arguments: str) -> dict[str, Any]:
    return {
        "type": "function_call",
        "id": "f",
        "call_id": "c",
        "name": "f",
        "arguments": arguments,
        "status": "completed",
    }


def response(*output: Any, **more: Any) -> bytes:
    usage = {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5}
    body = {"id": "resp_1", "object": "response", "model": "m", "status": "completed", "incomplete_details": None,
            "output": list(output), "usage": usage, "vendor": {"big": 2**70}, **more}  # fmt: skip
    return json.dumps(body, indent=1, ensure_ascii=False).encode()  # no engine's spacing is ours


def filtered(raw: bytes, *, model: str = "m", **more: Any) -> dict[str, Any]:
    answer = WholeResponse(raw, **more)
    answer.filter(lambda *_: Word())
    body: dict[str, Any] = json.loads(answer.close(model, None))
    return body


def test_a_clean_answer_stays_as_it_came() -> None:
    raw = response(message("你好"), call('{"a": 1}'), {"type": "reasoning", "summary": [{"text": "s"}]}, "odd")
    answer = WholeResponse(raw)
    answer.filter(lambda *_: Word())
    assert answer.close("m", None) == raw
    assert (answer.finish_reasons, answer.chars) == (["stop"], 11)
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (3, 2)
    unwatched = WholeResponse(raw)
    unwatched.filter(lambda *_: None)
    assert unwatched.close("m", None) == raw


def test_masked_text_is_masked_in_its_logprobs() -> None:
    entries = [
        {"token": token, "bytes": list(token.encode()), "logprob": -1, "top_logprobs": []} for token in ("a ", "papaya")
    ]
    part = filtered(response(message("a papaya", logprobs=entries)))["output"][0]["content"][0]
    assert part["text"] == "a ******"
    assert [entry["token"] for entry in part["logprobs"]] == ["a ", "******"]


def test_a_block_ends_the_answer_as_in_a_stream() -> None:
    answer = WholeResponse(response(message("fine"), call('{"q":"a zebra"}'), message("later")))
    answer.filter(lambda *_: Word())
    body = json.loads(answer.close("m", {"tags": ["x"]}))
    assert (body["status"], body["incomplete_details"]) == ("incomplete", {"reason": "content_filter"})
    assert [item["status"] for item in body["output"]] == ["completed", "incomplete"]
    assert body["output"][1]["arguments"] == '{"q":"a '
    assert answer.finish_reasons == ["content_filter"]
    assert body["sluice"] == {"tags": ["x"]}
    assert body["vendor"] == {"big": 2**70}


def test_what_stands_behind_a_hit_in_the_same_item_is_not_shown() -> None:
    said = message("a zebra", "more")
    said["content"].insert(1, {"type": "refusal", "refusal": "no"})
    body = filtered(response(said))
    assert [part.get("text", part.get("refusal")) for part in body["output"][0]["content"]] == ["a ", "", ""]


def test_adjacent_parts_are_read_as_one_text() -> None:
    body = filtered(response(message("a pap", "aya b")))
    assert "".join(part["text"] for part in body["output"][0]["content"]) == "a ****** b"
    assert filtered(response(message("a ze"), message("bra")))["status"] == "incomplete"
    apart = filtered(response(message("a ze"), call("{}"), message("bra")))
    assert apart["status"] == "completed"


def test_each_call_has_its_own_number() -> None:
    asked: list[tuple[int, str, int]] = []
    answer = WholeResponse(response(call("{}"), message("a"), call('{"a":"b"}')))
    answer.filter(lambda *channel: asked.append(channel))
    assert list(dict.fromkeys(asked)) == [(0, "arguments", 0), (0, "content", 0), (0, "arguments", 1)]


@pytest.mark.parametrize(
    ("more", "reasons"),
    [
        ({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}, ["length"]),
        ({"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}, ["content_filter"]),
        ({"status": "incomplete"}, ["length"]),
        ({"status": "queued", "output": [], "usage": None}, []),
        ({"status": "in_progress", "usage": None}, []),
    ],
)
def test_every_way_in_which_an_answer_ends(more: dict[str, Any], reasons: list[str]) -> None:
    assert WholeResponse(response(message("a"), **more)).finish_reasons == reasons


@pytest.mark.parametrize(
    "raw",
    [
        b"x",
        b"[]",
        b'{"output": 1}',
        response(status="failed"),
        response(status="cancelled"),
        response(message(), usage={"input_tokens": 3, "output_tokens": 0}),
        b'{"error": {"message": "x", "code": 500}}',
    ],
)
def test_what_is_no_answer_is_a_failure(raw: bytes) -> None:
    with pytest.raises(EngineError):
        WholeResponse(raw)


def test_a_stored_response_need_not_have_ended_well() -> None:
    assert filtered(response(message("a papaya"), status="cancelled"), stored=True)["status"] == "cancelled"


def test_infinity_is_read_where_an_engine_writes_it() -> None:
    raw = response(message("a papaya")).replace(b'"vendor"', b'"confidence": -Infinity, "vendor"')
    assert filtered(raw)["confidence"] == -9999.0


def test_the_caller_gets_its_own_words_back_and_no_raw_messages() -> None:
    raw = response(message("a"), instructions="ours", output_messages=[{"message": "zebra"}], input_messages=[{}])
    body = filtered(raw, model="gpt", echo={"instructions": None})
    assert (body["model"], body["instructions"], body["output_messages"], body["input_messages"]) == (
        "gpt",
        None,
        None,
        None,
    )


def test_what_stands_beside_is_text_too_unless_it_is_known() -> None:
    body = filtered(response(message("hi"), foo={"x": ["a papaya"]}, reasoning={"effort": "low", "summary": "papaya"}))
    assert (body["foo"], body["reasoning"]) == ({"x": ["a ******"]}, {"effort": "low", "summary": "******"})
    body = filtered(response(message("hi"), output_text="a zebra"))
    assert (body["output_text"], body["status"]) == ("a ", "incomplete")
    echoed = response(message("hi"), instructions="a zebra", tools=[{"name": "zebra"}], metadata={"a": "zebra"})
    assert filtered(echoed) == json.loads(echoed)


def test_the_name_of_a_call_is_judged_and_never_masked() -> None:
    body = filtered(response(message("hi"), {**call('{"a": 1}'), "name": "zebra"}, message("more")))
    assert (body["status"], [item["type"] for item in body["output"]]) == ("incomplete", ["message", "function_call"])
    assert (body["output"][-1]["name"], body["output"][-1]["status"]) == ("", "incomplete")
    assert filtered(response({**call("{}"), "name": "papaya"}))["output"][0]["name"] == "papaya"
