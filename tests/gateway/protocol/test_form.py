"""A frame of a known form is read without being parsed, and says what parsing would have said."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.protocol.chunks import decode_chunk
from gateway.protocol.form import Form, form_of


def frame(text: str, *, spaced: bool = False, field: str = "content", ascii_only: bool = False, **more: Any) -> bytes:
    said = {"text": text} if field == "text" else {"delta": {"content": text, **more.pop("delta", {})}}
    choice = {"index": 0, **said, "logprobs": None, "finish_reason": None, **more.pop("choice", {})}
    body = {"id": "c-1", "model": "m", "choices": [choice], **more}
    separators = (", ", ": ") if spaced else (",", ":")
    return b"data: " + json.dumps(body, ensure_ascii=ascii_only, separators=separators).encode() + b"\n\n"


def form(first: bytes, name: str = "m") -> Form | None:
    return form_of(first, decode_chunk(first[6:-2]), name)


@given(st.text(min_size=1), st.text(), st.booleans(), st.sampled_from(["content", "text"]))
def test_it_reads_and_writes_what_parsing_would(first: str, text: str, spaced: bool, field: str) -> None:
    its = form(frame(first, spaced=spaced, field=field), "alias")
    if its is None:  # a character that the engine escapes in another way
        assert msgspec.json.encode(first) != json.dumps(first, ensure_ascii=False).encode("utf-8", "replace")
        return
    for ascii_only in (False, True):
        following = frame(text, spaced=spaced, field=field, ascii_only=ascii_only)
        assert its.text_of(following) == text
        assert json.loads(its.renamed(following)[6:]) == {**json.loads(following[6:]), "model": "alias"}
    shown = json.loads(its.saying(text)[6:])["choices"][0]
    assert (shown["text"] if field == "text" else shown["delta"]["content"]) == text
    assert not its.same


def test_a_frame_that_says_anything_else_has_another_form() -> None:
    its = form(frame("a"))
    assert its is not None
    assert its.same
    whole = frame("b")
    said = b'"content":'
    assert its.text_of(whole) == "b"
    for other in (
        frame("b", choice={"finish_reason": "stop"}),
        frame("b", id="c-2"),
        whole.replace(b'"b"', b'"b","content":"c"'),
        whole.replace(b'"b"', b'"b","role":"x"'),
        whole.replace(b'"b"', b"null"),
        whole.replace(b'"b"', b'"b'),
        whole.replace(b'"b"', b'"b"\ndata: ""'),
        whole.replace(b'"b"', b'"\xff"'),
        whole[: whole.index(said) + len(said)],
        b"data: [DONE]\n\n",
    ):
        assert its.text_of(other) is None, other


@pytest.mark.parametrize(
    "other",
    [
        frame(""),
        frame("a", choice={"finish_reason": "stop"}),
        frame("a", choice={"logprobs": {"content": []}}),
        frame("a", choice={"token_ids": [1]}),
        frame("a", choice={"index": 0, "content": "a"}),
        frame("a", delta={"role": "assistant"}),
        frame("a", delta={"reasoning": "b"}),
        frame("a", delta={"tool_calls": [{"index": 0}]}),
        frame("a", usage={"prompt_tokens": 1}),
        b"id: 1\n" + frame("a"),
        frame("a").replace(b"\n", b"\r\n"),
    ],
)
def test_only_what_says_a_text_and_nothing_else_has_a_form(other: bytes) -> None:
    payload = other.strip().rpartition(b"data: ")[2]
    assert form_of(other, decode_chunk(payload), "m") is None
