"""Named events: read as sse.payload reads them, numbered without a gap."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.protocol import sse
from gateway.protocol.named import Numbers, event, payload_of


@pytest.mark.parametrize(
    "frame",
    [
        b'event: a\ndata: {"b":1}\n\n',
        b'data: {"b":1}\n\n',
        b"event: a\r\ndata: x\r\n\r\n",
        b"event: a\ndata: x\ndata: y\n\n",
        b"event: a\nid: 5\ndata: x\n\n",
        b"data: x\nevent: a\n\n",
        b"event: a\n\n",
        b": keep-alive\n\n",
        b"event: a\ndata: x",
    ],
)
def test_a_frame_is_read_as_ever(frame: bytes) -> None:
    assert payload_of(frame) == sse.payload(frame)


@given(st.lists(st.sampled_from([b"event: ", b"data: ", b"a", b"\n", b"\r", b": ", b"id"]), max_size=10))
def test_any_frame_is_read_as_ever(pieces: list[bytes]) -> None:
    for frame in sse.Splitter().feed(b"".join(pieces) + b"\n\n"):
        assert payload_of(frame) == sse.payload(frame)


def test_an_event_is_written_under_its_type() -> None:
    assert event({"type": "ping", "a": "é"}) == 'event: ping\ndata: {"type":"ping","a":"é"}\n\n'.encode()


def test_numbers_have_no_gap() -> None:
    numbers = Numbers()
    kept = b'data: {"item":{"sequence_number":-1},"text":"\\"sequence_number\\":6","sequence_number": 6}\n\n'
    assert numbers.keep(b'data: {"sequence_number":4}\n\n', 4) == b'data: {"sequence_number":4}\n\n'
    assert numbers.write({"type": "x"}) == b'event: x\ndata: {"type":"x","sequence_number":5}\n\n'
    assert numbers.keep(kept, 6) == kept
    assert numbers.write({"type": "x", "sequence_number": 3}) == b'event: x\ndata: {"type":"x","sequence_number":7}\n\n'
    assert numbers.keep(kept, 6) == kept.replace(b": 6}", b": 8}")
    assert numbers.next == 9


def test_events_without_numbers_stay_without() -> None:
    numbers = Numbers()
    assert numbers.keep(b"data: {}\n\n", None) == b"data: {}\n\n"
    assert numbers.write({"type": "x"}) == b'event: x\ndata: {"type":"x"}\n\n'


def test_what_the_caller_has_is_not_shown_again() -> None:
    numbers = Numbers(after=1)
    assert [numbers.keep(b"x", at) for at in range(3)] == [b"", b"", b"x"]
    again = Numbers(after=0)
    assert again.write({"type": "x", "sequence_number": 0}) == b""
