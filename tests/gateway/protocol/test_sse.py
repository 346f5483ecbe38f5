"""SSE framing: any cut of any stream gives the same frames, and no byte is lost or changed."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.protocol.sse import BOM, DONE, HEARTBEAT, FrameTooLong, Splitter, encode, event_name, payload

pieces = st.sampled_from(
    [b"data: a", b"data:b", b"data", b": c", b"event: x", b"\n", b"\r", b"\r\n", b"\n\n", b"\r\r", b" ", b"x:"]
)
streams = st.one_of(st.binary(max_size=60), st.lists(pieces, max_size=30).map(b"".join))


def frames_of(stream: bytes, cuts: list[int]) -> tuple[list[bytes], bytes]:
    splitter = Splitter()
    frames = []
    at = 0
    for cut in [*sorted(cuts), len(stream)]:
        frames += splitter.feed(stream[at:cut])
        at = cut
    return frames, splitter.rest


@given(streams, st.data())
@example(b"data: a\r\n\r\ndata: b\r\r\n\n", None)
def test_any_cut_of_a_stream_gives_the_same_frames_and_keeps_every_byte(
    stream: bytes, data: st.DataObject | None
) -> None:
    cuts = list(range(len(stream))) if data is None else data.draw(st.lists(st.integers(0, len(stream)), max_size=10))
    frames, rest = frames_of(stream, cuts)
    assert (frames, rest) == frames_of(stream, [])
    assert b"".join(frames) + rest == stream


@given(st.lists(st.sampled_from([b"data: a", b"data:b\x85", b": c", b"event: x"]), min_size=1), st.data())
def test_line_ends_may_be_of_any_kind_and_mixed(lines: list[bytes], data: st.DataObject) -> None:
    ends = st.sampled_from([b"\n", b"\r\n"])  # a lone CR before an LF would be one end
    stream = b"".join(line + data.draw(ends) + data.draw(ends) for line in lines)
    frames, rest = frames_of(stream, [])
    assert rest == b""
    assert [payload(frame) for frame in frames] == [payload(line + b"\n\n") for line in lines]


def test_a_whole_frame_is_handed_on_as_the_very_object_that_came() -> None:
    frame = b'data: {"choices":[]}\n\n'
    assert Splitter().feed(frame)[0] is frame


def test_lone_cr_ends_lines_and_the_last_frame_waits_for_what_may_be_its_lf() -> None:
    splitter = Splitter()
    assert splitter.feed(b"data: a\r\rdata: b\r\r") == [b"data: a\r\r"]
    assert splitter.rest == b"data: b\r\r"
    assert splitter.feed(b"d") == [b"data: b\r\r"]


def test_an_event_that_was_never_ended_is_the_rest() -> None:
    splitter = Splitter()
    assert splitter.feed(b"data: a\n\ndata: [DONE]") == [b"data: a\n\n"]
    assert splitter.rest == b"data: [DONE]"


@pytest.mark.parametrize("trickle", [1, 7, 501])
def test_an_event_without_end_is_refused_before_it_fills_the_memory(trickle: int) -> None:
    splitter = Splitter(limit=500)
    for _ in range(500 // trickle):
        splitter.feed(b"x" * trickle)
    with pytest.raises(FrameTooLong, match="longer than 500 bytes"):
        splitter.feed(b"x" * trickle)


def test_many_whole_frames_together_are_no_long_event() -> None:
    assert len(Splitter(limit=50).feed(b"data: 1\n\n" * 100)) == 100


@pytest.mark.parametrize(
    ("frame", "expected"),
    [
        (b"data: x\n\n", b"x"),
        (b"data:x\n\n", b"x"),
        (b"data:  x\n\n", b" x"),
        (b"data\n\n", b""),
        (b"data:\n\n", b""),
        (b"data: x\r\n\r\n", b"x"),
        (b"data: x\r\r", b"x"),
        (b"\ndata: x\n\n", b"x"),
        (b"data: a\ndata: b\n\n", b"a\nb"),
        (b"data: a\rdata: b\n\n", b"a\nb"),
        (b"event: message\nid: 1\nretry: 5\ndata: x\n: c\n\n", b"x"),
        (BOM + b"data: x\n\n", b"x"),
        ("data: a\u2028b\u2029c\u0085d\n\n".encode(), "a\u2028b\u2029c\u0085d".encode()),
        (b"data: x", b"x"),
        (b": ping\n\n", None),
        (b"retry: 10\n\n", None),
        (b"dataset: x\n\n", None),
        (b"\n\n", None),
    ],
)
def test_the_payload_is_what_the_data_lines_say(frame: bytes, expected: bytes | None) -> None:
    assert payload(frame) == expected


@pytest.mark.parametrize(
    ("frame", "name"),
    [
        (b"event: response.created\ndata: {}\n\n", b"response.created"),
        (b"event:error\r\ndata: {}\r\n\r\n", b"error"),
        (b'data: {"event": 1}\n\n', None),
        (b"data: {}\n\n", None),
        (b"event: a\nevent: b\n\n", b"b"),
    ],
)
def test_the_name_of_an_event_is_read(frame: bytes, name: bytes | None) -> None:
    assert event_name(frame) == name


@given(st.binary(), st.sampled_from([None, b"error"]))
def test_what_is_written_is_read_back_as_one_frame(data: bytes, event: bytes | None) -> None:
    (frame,) = Splitter().feed(encode(data, event))
    assert payload(frame) == data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    assert event_name(frame) == event


def test_heartbeat_is_a_comment_and_done_the_end_that_sdks_know() -> None:
    assert payload(HEARTBEAT) is None
    assert payload(DONE) == b"[DONE]"
