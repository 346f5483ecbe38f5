"""Request bodies: what is let in is strict JSON, what is refused is refused with one clear line, never a 500."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.errors import InvalidRequest
from gateway.protocol.body import MAX_CONTAINERS, MAX_DEPTH, decode, encode

keys = st.text(st.characters(exclude_categories=["Cs"]))
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | keys
objects = st.dictionaries(keys, st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(keys, inner)))


def refusal(raw: bytes) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        decode(raw)
    message = caught.value.message
    assert message
    assert len(message) < 400
    assert "\n" not in message
    assert "Error" not in message
    json.dumps(caught.value.body()).encode()
    return caught.value


@given(objects)
def test_a_body_goes_on_as_it_was_understood(body: dict[str, object]) -> None:
    assert decode(encode(body)) == body
    assert decode(json.dumps(body).encode()) == body


def test_integers_stay_exact_however_long() -> None:
    raw = b'{"seed":123456789012345678901234567890,"n":-9007199254740993}'
    assert encode(decode(raw)) == raw


def test_of_a_duplicate_key_one_is_left_that_everybody_reads() -> None:
    assert encode(decode(b'{"model":"a","model":"b"}')) == b'{"model":"b"}'


@pytest.mark.parametrize(
    "raw", [b'{"model":"m",', b'["a"]', b"42", b'"x"', b"", b" \n", b"null", b"true", b"{}x", b"{'a':1}"]
)
def test_what_is_no_json_object_is_refused(raw: bytes) -> None:
    assert refusal(raw).param is None


@pytest.mark.parametrize(
    ("raw", "param"),
    [
        (b'{"temperature":NaN}', "temperature"),
        (b'{"top_p":Infinity}', "top_p"),
        (b'{"top_p":-Infinity}', "top_p"),
        (b'{"max_tokens":1e400}', "max_tokens"),
        (b'{"max_tokens":-1e400}', "max_tokens"),
        (b'{"messages":[{"x":1},{"x":[0,NaN]}]}', "messages[1].x[1]"),
        (b'{"ok":1.5,"a":{"b.c":NaN}}', "a.b.c"),
        (b'{"messages":[{"content":"a\\ud83cb"}]}', "messages[0].content"),
        (b'{"messages":[{"content":"a\\ude00b"}]}', "messages[0].content"),
        (b'{"messages":[{"\\ud83c":1}]}', "messages[0]"),
        (b'{"\\ud83c":NaN}', None),
    ],
)
def test_numbers_and_characters_that_cannot_be_sent_on_are_refused_by_name(raw: bytes, param: str | None) -> None:
    assert refusal(raw).param == param


def test_a_long_path_of_the_callers_own_names_is_cut() -> None:
    param = refusal(b'{"' + b"k" * 5000 + b'":NaN}').param
    assert param is not None
    assert len(param) <= 200


@pytest.mark.parametrize("raw", [b'{"a":"\xff"}', b"\xff\xfe{\x00}\x00", b'{"a":"\xed\xa0\xbc"}', b'{"\xc3":1}'])
def test_what_is_not_utf8_is_refused(raw: bytes) -> None:
    assert "UTF-8" in refusal(raw).message


def test_200_levels_are_let_in_and_201_are_not() -> None:
    deepest = b'{"x":' * MAX_DEPTH + b"1" + b"}" * MAX_DEPTH
    assert decode(deepest)
    refusal(b'{"x":' + deepest + b"}")
    refusal(b'{"x":' + b"[" * MAX_DEPTH + b"]" * MAX_DEPTH + b"}")


def test_brackets_in_a_text_are_no_nesting() -> None:
    assert decode(encode({"content": "[{" * 100_000 + '\\"[' * 1000}))


@pytest.mark.parametrize(
    "raw",
    [
        b'{"x":' + b"[" * 5_000_000,
        b'{"x":' + b"[" * 10_000 + b"]" * 10_000 + b"}",
        b'{"x":"' + b'\\"[' * 3_000_000 + b"\\",
        b'{"x":[' + b"[]," * 3_000_000 + b"1]}",
    ],
    ids=["unended", "deep", "unended text", "very many"],
)
def test_bombs_are_refused_quickly(raw: bytes) -> None:
    began = time.perf_counter()
    refusal(raw)
    assert time.perf_counter() - began < 1


def test_as_many_arrays_as_a_long_conversation_needs_are_let_in() -> None:
    assert decode(b'{"x":[' + b"[]," * (MAX_CONTAINERS - 10) + b"1]}")


@given(st.one_of(st.binary(), objects.map(lambda body: json.dumps(body).encode())), st.integers(0, 200))
@example(b'{"a":"\\ud83c"}', 0)
def test_whatever_comes_is_understood_or_refused(raw: bytes, cut: int) -> None:
    try:
        body = decode(raw[: len(raw) - cut])
    except InvalidRequest as refused:
        json.dumps(refused.body()).encode()
    else:
        assert decode(encode(body)) == body
