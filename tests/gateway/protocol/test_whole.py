"""A whole answer takes the filters of a stream, and stays byte for byte what it was where they changed nothing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import EngineError
from gateway.protocol import sse
from gateway.protocol.stream import MakeFilter, StreamEditor
from gateway.protocol.whole import FLOOR, WholeAnswer, as_stream


class Word:
    """Masks "papaya" and blocks at "zebra"; gets the whole text in one piece, as a whole answer is fed."""

    def __init__(self) -> None:
        self.blocked: Any = None
        self.told = 0

    def feed(self, text: str) -> tuple[str, Sequence[tuple[int, int, str]]]:
        at = text.find("zebra")
        if at >= 0:
            self.blocked, text = "rule", text[:at]
        self.told = len(text)
        papaya = text.find("papaya")
        edits = [(papaya, papaya + 6, "******")] if papaya >= 0 else []
        return text.replace("papaya", "******"), edits

    def finish(self) -> tuple[str, Sequence[tuple[int, int, str]]]:
        return "", ()

    def whole(self, text: str) -> tuple[str, Sequence[tuple[int, int, str]]]:
        return self.feed(text)


class Channels:
    """Makes a filter for every channel and notes which were asked for."""

    def __init__(self, *, watch: bool = True) -> None:
        self.asked: list[tuple[int, str, int]] = []
        self.watch = watch

    def __call__(self, choice: int, kind: str, tool: int) -> Any:
        self.asked.append((choice, kind, tool))
        return Word() if self.watch else None


def chat(*messages: dict[str, Any], finish: str = "stop", **more: Any) -> bytes:
    choices = [
        {"index": index, "message": {"role": "assistant", **message}, "logprobs": None, "finish_reason": finish, **more}
        for index, message in enumerate(messages)
    ]
    body = {"id": "c-1", "object": "chat.completion", "model": "m", "choices": choices, "vendor": {"big": 2**70}}
    return json.dumps(body, indent=1, ensure_ascii=False).encode()  # no engine's spacing is ours


def filtered(raw: bytes, make: MakeFilter | None = None, *, model: str = "m", extra: Any = None) -> dict[str, Any]:
    answer = WholeAnswer(raw)
    answer.filter(make or Channels())
    body: dict[str, Any] = json.loads(answer.close(model, extra))
    return body


@pytest.mark.parametrize("watch", [True, False])
def test_an_answer_that_nothing_changed_is_the_engine_s_bytes(watch: bool) -> None:
    raw = chat({"content": "a tree", "reasoning": "hm", "unknown": [1]})
    answer = WholeAnswer(raw)
    answer.filter(Channels(watch=watch))
    assert answer.close("m", None) == raw
    assert answer.chars == len("a tree") + len("hm")
    assert answer.finish_reasons == ["stop"]


def test_a_masked_text_is_masked_in_its_logprobs_too_and_the_rest_is_kept() -> None:
    logprobs = {"content": [{"token": token, "bytes": [1], "top_logprobs": []} for token in ("a ", "papaya")]}
    body = filtered(chat({"content": "a papaya"}, logprobs=logprobs, token_ids=[1, 2]))
    (choice,) = body["choices"]
    assert choice["message"] == {"role": "assistant", "content": "a ******"}
    assert [each["token"] for each in choice["logprobs"]["content"]] == ["a ", "******"]
    assert choice["token_ids"] is None
    assert choice["finish_reason"] == "stop"
    assert body["vendor"] == {"big": 2**70}


def test_a_block_ends_the_text_before_the_hit_and_says_so() -> None:
    logprobs = {"content": [{"token": token, "bytes": [1], "top_logprobs": []} for token in ("a ", "zebra")]}
    body = filtered(chat({"content": "a zebra"}, {"content": "fine"}, logprobs=logprobs, stop_reason=7))
    first, second = body["choices"]
    assert first["message"]["content"] == "a "
    assert (first["finish_reason"], first["stop_reason"]) == ("content_filter", None)
    assert "zebra" not in json.dumps(first)
    assert (second["message"]["content"], second["finish_reason"]) == ("fine", "stop")


class Ends:
    """Ends the text before "zebra", however it is cut."""

    def __init__(self) -> None:
        self.blocked: Any = None
        self.fed = self.told = 0
        self._text = ""

    def feed(self, text: str) -> tuple[str, Sequence[tuple[int, int, str]]]:
        self._text += text
        self.fed = len(self._text)
        at = self._text.find("zebra")
        self.blocked = None if at < 0 else "rule"
        held = next((size for size in range(4, 0, -1) if self._text.endswith("zebra"[:size])), 0)
        return self._to(self.fed - held if at < 0 else at)

    def finish(self) -> tuple[str, Sequence[tuple[int, int, str]]]:
        return self._to(self.fed)

    def whole(self, text: str) -> tuple[str, Sequence[tuple[int, int, str]]]:
        shown, _ = self.feed(text)
        return (shown, ()) if self.blocked else (shown + self.finish()[0], ())

    def _to(self, told: int) -> tuple[str, Sequence[tuple[int, int, str]]]:
        shown, self.told = self._text[self.told : told], told
        return shown, ()


def listing(tokens: Sequence[str], at: int = 0, *, is_chat: bool) -> dict[str, Any]:
    if is_chat:
        return {"content": [{"token": token, "logprob": -1.0, "bytes": [1], "top_logprobs": []} for token in tokens]}
    offsets = [at + sum(map(len, tokens[:position])) for position in range(len(tokens))]
    return {
        "tokens": list(tokens),
        "token_logprobs": [-1.0 for _ in tokens],
        "top_logprobs": [{token: -1.0} for token in tokens],
        "text_offset": offsets,
    }


@given(st.lists(st.sampled_from(["x ", "ze", "bra", " y", "z", "ebra more"]), min_size=1), st.booleans())
def test_where_an_answer_was_ended_its_logprobs_are_those_that_a_stream_would_have_shown(
    tokens: list[str], is_chat: bool
) -> None:
    text = "".join(tokens)
    said: dict[str, Any] = {"message": {"role": "assistant", "content": text}} if is_chat else {"text": text}
    whole = {"index": 0, **said, "logprobs": listing(tokens, is_chat=is_chat), "finish_reason": "stop"}
    body = filtered(json.dumps({"model": "m", "choices": [whole]}).encode(), lambda *_: Ends())
    edit = StreamEditor(lambda *_: Ends(), model="m", choices=1, want_usage=False, merge=True)
    for at, token in enumerate(tokens):
        piece: dict[str, Any] = {"delta": {"content": token}} if is_chat else {"text": token}
        listed = listing([token], sum(map(len, tokens[:at])), is_chat=is_chat)
        edit.feed(
            sse.encode(json.dumps({"model": "m", "choices": [{"index": 0, **piece, "logprobs": listed}]}).encode())
        )
    end: dict[str, Any] = {"index": 0, **({"delta": {}} if is_chat else {"text": ""}), "finish_reason": "stop"}
    edit.feed(sse.encode(json.dumps({"model": "m", "choices": [end]}).encode()))
    (streamed,), (shown,) = edit.merged()["choices"], body["choices"]
    assert shown["finish_reason"] == streamed["finish_reason"]
    nothing = listing([], is_chat=is_chat)
    assert shown["logprobs"] == (streamed.get("logprobs") or nothing)


def test_of_a_call_that_ended_the_answer_no_token_is_left() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a": "zebra"}'}}
    body = filtered(
        chat({"content": "", "tool_calls": [call]}, logprobs=listing(['{"a": "', "zebra", '"}'], is_chat=True))
    )
    assert body["choices"][0]["logprobs"] == {"content": []}


def test_every_channel_has_a_filter_of_its_own() -> None:
    channels = Channels()
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"q": "papaya", "n": 1}'}}
    body = filtered(
        chat({"content": "x", "reasoning_content": "papaya", "refusal": "no", "tool_calls": [call]}), channels
    )
    assert {(0, "content", 0), (0, "reasoning", 0), (0, "refusal", 0), (0, "arguments", 0)} <= set(channels.asked)
    message = body["choices"][0]["message"]
    assert message["reasoning_content"] == "******"
    assert json.loads(message["tool_calls"][0]["function"]["arguments"]) == {"q": "******", "n": 1}


def test_a_completion_s_text_is_filtered() -> None:
    choice = {"index": 0, "text": "a papaya", "finish_reason": "stop"}
    raw = json.dumps({"object": "text_completion", "model": "m", "choices": [choice]}).encode()
    assert filtered(raw)["choices"][0]["text"] == "a ******"


def test_the_caller_s_name_for_the_model_and_what_we_add_are_written_in() -> None:
    body = filtered(chat({"content": "x"}), model="alias", extra={"tags": ["soft"]})
    assert body["model"] == "alias"
    assert body["sluice"] == {"tags": ["soft"]}
    assert body["vendor"] == {"big": 2**70}


@pytest.mark.parametrize("raw", [b"", b"no json", b"[]", b"[" * 100_000, b'{"choices": 7}', b"\xff"])
def test_what_is_no_answer_is_the_engine_s_failure(raw: bytes) -> None:
    with pytest.raises(EngineError):
        WholeAnswer(raw)


@pytest.mark.parametrize("reason", ["abort", "error"])
def test_an_answer_that_the_engine_gave_up_is_a_failure(reason: str) -> None:
    with pytest.raises(EngineError):
        WholeAnswer(chat({"content": "half"}, finish=reason))


def test_infinities_that_some_engines_write_become_json() -> None:
    raw = chat({"content": "x"}, logprobs={"content": [{"token": "x", "logprob": 0, "bytes": [1]}]})
    body = filtered(raw.replace(b'"logprob": 0', b'"logprob": -Infinity'))
    assert body["choices"][0]["logprobs"]["content"][0]["logprob"] == FLOOR


def told(body: dict[str, Any], *, want_usage: bool = False) -> list[dict[str, Any]]:
    frames = as_stream(body, want_usage=want_usage).decode().split("\n\n")
    assert frames[-2:] == ["data: [DONE]", ""]
    return [json.loads(frame.removeprefix("data: ")) for frame in frames[:-2]]


def test_a_whole_chat_is_told_as_text_then_end_then_usage() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    body = json.loads(chat({"content": "hello", "tool_calls": [call]})) | {
        "usage": {"total_tokens": 3},
        "sluice": {"tags": ["t"]},
    }
    text, end, usage = told(body, want_usage=True)
    assert text["object"] == "chat.completion.chunk"
    assert text["choices"][0]["delta"]["content"] == "hello"
    assert text["choices"][0]["delta"]["tool_calls"][0]["index"] == 0
    assert text["choices"][0]["finish_reason"] is None
    assert end["choices"][0]["finish_reason"] == "stop"
    assert (usage["choices"], usage["usage"], usage["sluice"]) == ([], {"total_tokens": 3}, {"tags": ["t"]})
    assert len(told(body)) == 2


def test_a_whole_completion_is_told_in_one_chunk() -> None:
    body = {
        "object": "text_completion",
        "model": "m",
        "choices": [{"index": 0, "text": "hi", "finish_reason": "length"}],
    }
    (only,) = told(body)
    assert only["choices"] == [{"index": 0, "text": "hi", "finish_reason": "length"}]


def _blocked_whole(message: dict[str, Any]) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": "tool_calls"}
    answer = WholeAnswer(msgspec.json.encode({"object": "chat.completion", "model": "m", "choices": [choice]}))
    answer.filter(lambda *_: Zebra())
    told: dict[str, Any] = msgspec.json.decode(answer.close("m", None))["choices"][0]
    assert told["finish_reason"] == "content_filter"
    whole: dict[str, Any] = told["message"]
    return whole


class Zebra:
    """Ends the choice at "zebra"."""

    def __init__(self) -> None:
        self.blocked: Any = None
        self.fed = self.told = 0

    def feed(self, text: str) -> tuple[str, list[Any]]:
        shown, found, _ = text.partition("zebra")
        self.blocked = found or None
        self.told, self.fed = len(shown), len(text)
        return shown, []

    def finish(self) -> tuple[str, list[Any]]:
        return "", []

    whole = feed


def _called(name: str, arguments: str) -> dict[str, Any]:
    return {"id": name, "type": "function", "function": {"name": name, "arguments": arguments}}


def test_of_a_blocked_whole_answer_nothing_is_left_that_a_stream_would_not_have_brought() -> None:
    calls = [_called("rm", "{}"), _called("rm2", "{}")]
    told = _blocked_whole({"content": "ok zebra tail", "tool_calls": calls})
    assert (told["content"], told["tool_calls"]) == ("ok ", [])
    told = _blocked_whole({"reasoning_content": "a zebra", "content": "later", "tool_calls": calls})
    assert (told["reasoning_content"], told["content"], told["tool_calls"]) == ("a ", None, [])
    told = _blocked_whole({"content": "ok", "tool_calls": [calls[0], _called("f", '{"b":"zebra"}'), calls[1]]})
    assert (told["content"], told["tool_calls"]) == ("ok", [calls[0]])
    told = _blocked_whole({"content": "ok", "tool_calls": [calls[0], _called("zebra", "{}")]})
    assert told["tool_calls"] == [calls[0]]


@pytest.mark.parametrize(
    "raw",
    [b'{"choices": []}', b'{"choices": [{"index": 0, "message": {"content": "a"}, "finish_reason": NaN}]}'],
)
def test_what_would_be_no_stream_is_no_whole_answer(raw: bytes) -> None:
    with pytest.raises(EngineError):
        WholeAnswer(raw).filter(lambda *_: None)
