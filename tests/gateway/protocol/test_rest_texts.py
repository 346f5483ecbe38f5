"""A text in a field that nobody named is filtered like any other, whole and in pieces; clean it stays as it came."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.protocol.stream import StreamEditor
from gateway.protocol.whole import WholeAnswer
from tests.gateway.protocol.test_stream import DONE, Word, chunk, ends_of, events, play, text_of

#: A chat's delta with a piece of a text, by what it is.
FIELDS: dict[str, Callable[[str], dict[str, Any]]] = {
    "audio": lambda text: {"audio": {"id": "audio_1", "data": "UklGRg==", "transcript": text}},
    "thinking": lambda text: {"thinking": text},
    "details": lambda text: {"reasoning_details": [{"type": "reasoning.text", "text": text, "format": "v1"}]},
    "summary": lambda text: {"reasoning_details": [{"index": 3, "summary": text}]},
    "annotations": lambda text: {"annotations": [{"type": "url_citation", "url_citation": {"title": text}}]},
    "custom": lambda text: {"tool_calls": [{"index": 0, "type": "custom", "custom": {"input": text}}]},
    "deep": lambda text: {"x": [[{"y": {"z": [text]}}]]},
}
#: What stands beside the delta, by what it is.
BESIDE: dict[str, Callable[[str], dict[str, Any]]] = {
    "text": lambda text: {"text": text},
    "message": lambda text: {"message": {"content": text}},
    "x": lambda text: {"x": {"y": text}},
}
ALL = [*FIELDS, *BESIDE, "top"]


class Wholly(Word):
    """The same for a whole answer."""

    def whole(self, text: str) -> tuple[str, Sequence[tuple[int, int, str]]]:
        """Take all at once."""
        shown, edits = self.feed(text)
        tail, more = self.finish()
        return shown + tail, [*edits, *more]


def piece(field: str, text: str, finish: str | None = None, **more: Any) -> bytes:
    if field in FIELDS:
        return chunk(FIELDS[field](text), finish, **more)
    if field in BESIDE:
        return chunk({}, finish, **BESIDE[field](text), **more)
    body = json.loads(chunk({}, finish, **more)[6:])
    return b"data: " + msgspec.json.encode({**body, "prompt_text": text}) + b"\n\n"


def strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for each in inner for text in strings(each)]


def said(out: bytes) -> str:
    """All strings that are shown and are no labels, one after the other."""
    labels = {"c-1", "chat.completion.chunk", "m", "assistant", "stop", "content_filter", "UklGRg==", "audio_1", "v1"}
    return "".join(
        text for text in strings(events(out)) if text not in labels | {"reasoning.text", "url_citation", "custom"}
    )


def editor(**more: Any) -> StreamEditor:
    return StreamEditor(lambda *_: Word(), model="m", choices=1, want_usage=False, merge=False, **more)


@pytest.mark.parametrize("field", ALL)
def test_a_clean_stream_stays_byte_for_byte(field: str) -> None:
    data = piece(field, "a tree") + piece(field, " and", None, more={"n": 1}) + chunk({"content": "."}, "stop") + DONE
    assert play(editor(), data) == data


@pytest.mark.parametrize("field", ALL)
def test_a_word_in_pieces_is_masked(field: str) -> None:
    data = piece(field, "a pa") + piece(field, "pa") + piece(field, "ya, so pap") + chunk({}, "stop") + DONE
    out = play(editor(), data)
    assert said(out) == "a ******, so pap"
    assert ends_of(out) == ["stop"]


@pytest.mark.parametrize("field", ALL)
@pytest.mark.parametrize("last", [False, True])
def test_a_block_ends_the_choice(field: str, last: bool) -> None:
    edit = editor()
    out = play(
        edit,
        chunk({"content": "ok"})
        + piece(field, "a ze")
        + piece(field, "bra", "stop" if last else None)
        + chunk({"content": "late"})
        + DONE,
    )
    assert said(out) == "oka "
    assert ends_of(out) == ["content_filter"]
    assert edit.finish_reasons == ["content_filter"]
    assert edit.abort
    assert out.endswith(DONE)


@pytest.mark.parametrize("field", ALL)
def test_logprobs_do_not_repeat_what_is_held_masked_or_blocked(field: str) -> None:
    def logprobs(token: str) -> dict[str, Any]:
        return {"logprobs": {"content": [{"token": token, "bytes": list(token.encode()), "top_logprobs": []}]}}

    clean = piece(field, "a tree", **logprobs("a tree")) + chunk({}, "stop") + DONE
    assert play(editor(), clean) == clean or field == "top"  # of no choice: its tokens wait for a text
    for words in (("pa", "paya"), ("ze", "bra")):
        data = b"".join(piece(field, word, **logprobs(word)) for word in words) + chunk({}, "stop") + DONE
        out = play(editor(), data).decode()
        assert not any(f'"{word}"' in out for word in words)


def test_each_path_and_choice_is_a_text_of_its_own() -> None:
    data = (
        chunk({"thinking": "pa", "x": "pa"})
        + chunk({"thinking": "pa", "x": "y"}, index=1)
        + chunk({"thinking": "pa", "x": "!"})
        + chunk({"thinking": "ya"}, "stop", index=1)
        + chunk({"thinking": "ya"}, "stop")
        + DONE
    )
    edit = StreamEditor(lambda *_: Word(), model="m", choices=2, want_usage=False, merge=False)
    out = play(edit, data)
    assert [text_of(out, index, "thinking") for index in (0, 1)] == ["******", "paya"]
    assert text_of(out, 0, "x") == "pa!"


def test_a_call_s_name_is_not_masked_but_blocked() -> None:
    def call(name: str) -> bytes:
        return chunk({"tool_calls": [{"index": 0, "id": "c", "type": "custom", "custom": {"name": name}}]})

    data = call("papaya") + chunk({}, "stop") + DONE
    assert play(editor(), data) == data
    out = play(editor(), call("zebra") + chunk({}, "stop") + DONE)
    assert b"zebra" not in out
    assert ends_of(out) == ["content_filter"]


def test_a_custom_call_s_name_in_pieces_is_judged_as_one() -> None:
    data = b"".join(
        chunk({"tool_calls": [{"index": 0, "type": "custom", "custom": {"name": name}}]}) for name in ("ze", "bra")
    )
    assert ends_of(play(editor(), data + chunk({}, "stop") + DONE)) == ["content_filter"]


def test_an_old_function_s_name_is_judged_without_arguments_too() -> None:
    out = play(editor(), chunk({"function_call": {"name": "zebra"}}) + chunk({}, "stop") + DONE)
    assert b"zebra" not in out
    assert ends_of(out) == ["content_filter"]


def test_a_text_beside_no_choice_is_filtered_before_and_after_the_end() -> None:
    def alone(text: str) -> bytes:
        return b'data: {"id":"c-1","model":"m","choices":[],"x":"' + text.encode() + b'"}\n\n'

    late = chunk({"content": "late"}) + chunk({"content": "later"}) + chunk({}, "stop")
    out = play(editor(), alone("a zebra") + late + DONE)
    assert said(out) == "a late"
    assert ends_of(out) == ["content_filter"]
    edit = StreamEditor(lambda *_: Word(), model="m", choices=1, want_usage=True, merge=False)
    used = alone("a papaya pap").replace(b'"choices"', b'"usage":{"prompt_tokens":1,"completion_tokens":1},"choices"')
    assert said(play(edit, chunk({"content": "x"}, "stop") + used + DONE)) == "xa ****** pap"


def test_a_form_is_taken_of_no_chunk_with_such_a_text() -> None:
    """Else what stands in it would be read once for all chunks."""
    data = b"".join(chunk({"content": "x"}, x=letter) for letter in "zebra") + chunk({}, "stop") + DONE
    assert ends_of(play(editor(), data)) == ["content_filter"]
    data = chunk({"content": "x"}, x="bra") + chunk({}, x="ze") + chunk({"content": "x"}, x="bra") + DONE
    assert ends_of(play(editor(), data)) == ["content_filter"]


def test_a_choice_that_is_told_twice_in_a_chunk_hides_nothing() -> None:
    body = json.loads(chunk({"x": "a papaya"})[6:])
    body["choices"] += json.loads(chunk({"x": " tree"})[6:])["choices"]
    out = play(editor(), b"data: " + msgspec.json.encode(body) + b"\n\n" + chunk({}, "stop") + DONE)
    assert said(out) == "a ****** tree"


@given(st.sampled_from(ALL), st.text(alphabet="papayzebr ", max_size=14), st.data())
def test_any_pieces_and_cuts_show_what_the_whole_shows(field: str, text: str, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.sets(st.integers(0, len(text)), max_size=5)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    stream = b"".join(piece(field, each) for each in pieces) + chunk({}, "stop") + DONE
    at = sorted(data.draw(st.sets(st.integers(0, len(stream)), max_size=5)))
    out = play(editor(), stream, at)
    word = Word()
    shown = word.feed(text)[0]
    shown += "" if word.blocked else word.finish()[0]
    assert said(out) == shown
    assert ends_of(out) == ["content_filter" if word.blocked else "stop"]


def whole(field: str, text: str) -> bytes:
    if field in FIELDS:
        message, beside = FIELDS[field](text), {}
    else:
        message, beside = {}, BESIDE[field](text) if field in BESIDE else {}
    if "message" in beside:
        beside = {"delta": beside.pop("message")}
    choice = {"index": 0, "message": {"role": "assistant", "content": "ok", **message}, "logprobs": None, **beside}
    top = {"prompt_text": text} if field == "top" else {}
    body = {"id": "c-1", "object": "chat.completion", "choices": [choice | {"finish_reason": "stop"}], **top}
    return json.dumps(body, indent=1).encode()


@pytest.mark.parametrize("field", ALL)
def test_a_whole_answer_is_filtered_alike(field: str) -> None:
    def told(text: str) -> tuple[bytes, dict[str, Any]]:
        answer = WholeAnswer(whole(field, text))
        answer.filter(lambda *_: Wholly())
        raw = answer.close("m", None)
        return raw, json.loads(raw)["choices"][0]

    assert told("a tree")[0] == whole(field, "a tree")
    raw, masked = told("a papaya so pap")
    assert masked["finish_reason"] == "stop"
    assert json.loads(raw) == json.loads(whole(field, "a ****** so pap"))
    raw, blocked = told("a zebra later")
    assert blocked["finish_reason"] == "content_filter"
    assert blocked["message"]["content"] == "ok"
    assert b"zebra" not in raw
    assert b'"a "' in raw
    assert b"later" not in raw
