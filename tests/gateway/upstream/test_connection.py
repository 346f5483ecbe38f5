"""One connection without a socket: it reads what h11 reads, however cut, and never takes rubbish for an answer."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.upstream.client import Connection, Headers
from gateway.upstream.connection import HEAD_BYTES, HEAD_FIELDS
from tests.gateway.upstream.playing import OK, Bench, Seen

CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
UNTIL_CLOSE = b"HTTP/1.1 200 OK\r\n\r\n"

# ---- legal answers, and h11's reading of them ----


@dataclass(frozen=True)
class Read:
    """What was read: by h11, or by us."""

    status: int
    headers: Headers
    body: bytes
    reusable: bool


def by_h11(wire: bytes, method: str = "POST") -> Read | None:
    """Read an answer, and the end of the connection, as h11 does; None where h11 finds it broken."""
    client = h11.Connection(h11.CLIENT)
    client.send(h11.Request(method=method, target="/", headers=[("host", "x")]))
    client.send(h11.EndOfMessage())
    status, headers, body = 0, [], b""
    reusable = True
    client.receive_data(wire)
    try:
        while True:
            event = client.next_event()
            if event is h11.NEED_DATA:
                reusable = False
                client.receive_data(b"")
            elif isinstance(event, h11.Response):
                status = event.status_code
                headers = [(bytes(name), bytes(value)) for name, value in event.headers]
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                idle = client.their_state is h11.DONE and client.our_state is h11.DONE
                more = client.trailing_data[0].strip(b"\r\n")  # RFC 9112 2.2 lets empty lines stand before a message
                return Read(status, headers, body, reusable and idle and not more)
            elif isinstance(event, h11.ConnectionClosed):
                return None
    except h11.RemoteProtocolError:
        return None


def by_us(wire: bytes, cuts: list[int], method: str = "POST") -> Read | None:
    """Read the same with our connection, cut at ``cuts``; None where it failed."""
    bench = Bench(method)
    edges = [0, *sorted(cut % (len(wire) + 1) for cut in cuts), len(wire)]
    bench.hear(*(wire[start:end] for start, end in itertools.pairwise(edges)))
    reusable = bool(bench.shelf.kept) and not bench.line.closing
    seen = bench.hear(eof=True)
    assert len(seen.endings) == 1
    return Read(seen.status, seen.headers, seen.body, reusable) if seen.whole else None


NAMES = st.text(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789!#$%&'*+-.^_`|~", min_size=1, max_size=20
)
VALUES = st.text(st.characters(codec="latin-1", exclude_categories=["Cc", "Zs"]) | st.just(" "), max_size=30)
FRAMING = {"content-length", "transfer-encoding", "connection", "content-encoding", "upgrade"}
OWN = st.lists(st.tuples(NAMES.filter(lambda name: name.lower() not in FRAMING), VALUES), max_size=6)
SPACES = st.sampled_from([" ", "", "\t", "  "])


@st.composite
def heads(draw: st.DrawFn, status: int, *framing: tuple[str, str]) -> bytes:
    """Write status line and fields with every liberty that RFC 9112 leaves."""
    fields = draw(st.permutations([*draw(OWN), *framing]))
    reason = draw(st.sampled_from([" OK", " ", " Not Found", " \u00e9\u00e9"]))
    lines = [f"HTTP/1.1 {status}{reason}"]
    for name, value in fields:
        spelled = draw(st.sampled_from([name, name.upper(), name.title()]))
        after = "" if name == "transfer-encoding" else draw(SPACES)
        lines.append(f"{spelled}:{draw(SPACES)}{value.strip()}{after}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


@st.composite
def chunks(draw: st.DrawFn, body: bytes) -> bytes:
    """Write a body in chunks of any size, with extensions and trailers."""
    wire = b""
    while body:
        size = draw(st.integers(1, len(body)))
        written = draw(st.sampled_from([f"{size:x}", f"{size:X}", f"{size:04x}"]))
        extension = draw(st.sampled_from(["", ";a=b", ";q", ';n="v"']))
        wire += f"{written}{extension}\r\n".encode() + body[:size] + b"\r\n"
        body = body[size:]
    trailers = draw(st.sampled_from([b"", b"", b"x-trailer: 1\r\n", b"a: b\r\nc: d\r\n"]))
    return wire + b"0\r\n" + trailers + b"\r\n"


@st.composite
def answers(draw: st.DrawFn) -> bytes:
    """Write a legal answer to a POST: interim answers, then a final one with any of the three framings."""
    interim = b"".join(draw(heads(status)) for status in draw(st.lists(st.sampled_from([100, 102, 103]), max_size=2)))
    close = draw(st.sampled_from([(), (("connection", "close"),), (("connection", "keep-alive"),)]))
    body = draw(st.binary(max_size=300))
    framing = draw(st.sampled_from(["counted", "chunked", "until close", "none"]))
    if framing == "none":
        return interim + draw(heads(draw(st.sampled_from([204, 304])), *close))
    status = draw(st.integers(200, 599).filter(lambda status: status not in {204, 304}))
    if framing == "counted":
        return interim + draw(heads(status, ("content-length", str(len(body))), *close)) + body
    if framing == "chunked":
        return interim + draw(heads(status, ("transfer-encoding", "chunked"), *close)) + draw(chunks(body))
    return interim + draw(heads(status, *close)) + body


CUTS = st.lists(st.integers(0, 2000), max_size=12)


@given(answers(), CUTS)
def test_any_legal_answer_however_cut_reads_as_h11_reads_it(wire: bytes, cuts: list[int]) -> None:
    expected = by_h11(wire)
    assert expected is not None
    assert by_us(wire, cuts) == expected


@given(answers())
def test_a_trickle_of_single_bytes_reads_as_h11_reads_it(wire: bytes) -> None:
    assert by_us(wire, list(range(len(wire)))) == by_h11(wire)


@given(answers(), CUTS, st.data())
def test_a_spoilt_answer_is_failed_or_read_as_h11_reads_it(wire: bytes, cuts: list[int], data: st.DataObject) -> None:
    spoilt = bytearray(wire)
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(spoilt) - 1))
        kind = data.draw(st.sampled_from(["change", "drop", "add"]))
        if kind == "change":
            spoilt[place] = data.draw(st.integers(0, 255) | st.sampled_from(b"\r\n :0"))
        elif kind == "drop":
            del spoilt[place : place + data.draw(st.integers(1, 8))]
        else:
            spoilt[place:place] = data.draw(st.sampled_from([b"\r\n", b"\n", b"0", b" ", b"content-length: 1\r\n"]))
        if not spoilt:
            return
    ours, reference = by_us(bytes(spoilt), cuts), by_h11(bytes(spoilt))
    if ours and reference:  # what both take they understand alike; what they forgive differs
        assert (ours.status, ours.body) == (reference.status, reference.body)
        assert reference.reusable or not ours.reusable


@given(answers(), st.data())
def test_an_answer_cut_off_anywhere_fails_unless_its_end_is_the_end_of_the_connection(
    wire: bytes, data: st.DataObject
) -> None:
    length = data.draw(st.integers(0, len(wire) - 1))
    bench = Bench()
    seen = bench.hear(wire[:length], eof=True)
    reference = by_h11(wire[:length])
    assert len(seen.endings) == 1
    if reference is None:
        assert seen.failure.kind == "broke_off"
        assert seen.failure.answer_begun == (length > 0)
    else:
        assert seen.whole
    assert not bench.shelf.kept or reference is not None


# ---- rubbish, and lies about lengths ----


@pytest.mark.parametrize(
    "wire",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"HTTP/2.0 200 OK\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 99 Low\r\n\r\n",
        b"HTTP/1.1 2000 High\r\n\r\n",
        b"HTTP/1.1 101 Switching\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\ncontent-length: 5\r\n\r\nabcde" + OK,
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nspace : before colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\na: b\r\n folded\r\n\r\n",
        b"HTTP/1.1 200 OK\r\na: \x00\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: +1\r\n\r\na",
        b"HTTP/1.1 200 OK\r\ncontent-length: 0x1\r\n\r\na",
        b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999999999999999\r\n\r\na",
        CHUNKED + b"0x3\r\nabc\r\n0\r\n\r\n",
        CHUNKED + b"-3\r\nabc\r\n0\r\n\r\n",
        CHUNKED + b"zz\r\n",
        CHUNKED + b"3\r\nabcd\r\n0\r\n\r\n",
        CHUNKED + b"FFFFFFFFFFFFFFFFFF\r\n",
    ],
)
def test_rubbish_is_called_nonsense_and_its_connection_closed(wire: bytes) -> None:
    bench = Bench()
    assert bench.hear(wire).failure.kind == "nonsense"
    assert bench.sink.failure.answer_begun
    assert not bench.reusable


@pytest.mark.parametrize(
    "fields",
    [
        b"content-length: 6\r\ntransfer-encoding: chunked\r\n",
        b"transfer-encoding: chunked\r\ncontent-length: 6\r\n",
        b"content-length: 3\r\ncontent-length: 4\r\n",
        b"content-length: 3\r\ncontent-length: 3\r\n",
        b"content-length: 3, 3\r\n",
        b"transfer-encoding: chunked\t\r\n",
        b"transfer-encoding: chunked, gzip\r\n",
        b"transfer-encoding: gzip, chunked\r\n",
        b"transfer-encoding: identity\r\n",
        b"transfer-encoding: xchunked\r\n",
        b"transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n",
        b"transfer-encoding: chunked\r\ntransfer-encoding: identity\r\n",
    ],
)
def test_an_answer_with_two_readings_of_its_length_is_refused(fields: bytes) -> None:
    bench = Bench()
    seen = bench.hear(b"HTTP/1.1 200 OK\r\n" + fields + b"\r\n0\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", eof=True)
    assert seen.failure.kind == "nonsense"
    assert not seen.pieces
    assert not bench.reusable


@pytest.mark.parametrize("coding", [b"gzip", b"br", b"deflate", b"zstd", b"gzip, gzip", b"identity, gzip"])
def test_a_content_coding_that_was_not_asked_for_is_nonsense_before_anything_is_unpacked(coding: bytes) -> None:
    bench = Bench()
    seen = bench.hear(b"HTTP/1.1 200 OK\r\nContent-Encoding: " + coding + b"\r\ncontent-length: 3\r\n\r\nabc")
    assert seen.failure.kind == "nonsense"
    assert not seen.status


def test_identity_said_aloud_is_fine() -> None:
    assert Bench().hear(b"HTTP/1.1 200 OK\r\nContent-Encoding: Identity\r\ncontent-length: 3\r\n\r\nabc").whole


def test_a_body_shorter_than_its_length_broke_off_and_what_came_was_handed_on() -> None:
    bench = Bench()
    seen = bench.hear(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc", eof=True)
    assert seen.failure.kind == "broke_off"
    assert seen.body == b"abc"


def test_a_truncated_chunked_body_broke_off() -> None:
    for wire in (CHUNKED, CHUNKED + b"5\r\nab", CHUNKED + b"5\r\nabcde\r\n", CHUNKED + b"5\r\nabcde\r\n0\r\n"):
        assert Bench().hear(wire, eof=True).failure.kind == "broke_off"


@pytest.mark.parametrize("more", [b"x", b"HTTP/1.1 200 OK\r\n", OK, b"\x00"])
@pytest.mark.parametrize("together", [True, False])
def test_bytes_after_the_end_of_an_answer_end_the_connection_not_the_answer(more: bytes, together: bool) -> None:
    bench = Bench()
    bench.hear(*([OK + more] if together else [OK, more]))
    assert bench.sink.whole
    assert bench.sink.body == b"ok"
    assert bench.line.closing


def test_bytes_on_an_idle_connection_are_never_the_next_ones_answer() -> None:
    bench = Bench()
    bench.hear(OK)
    bench.wire.data_received(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil")
    assert bench.line.closing
    assert bench.wire in bench.shelf.gone


# ---- limits ----


def test_a_head_over_the_limit_is_too_large() -> None:
    field = b"a: " + b"b" * 1000 + b"\r\n"
    assert Bench().hear(b"HTTP/1.1 200 OK\r\n" + field * 70 + b"\r\n").failure.kind == "too_large"
    assert Bench().hear(b"HTTP/1.1 200 OK\r\na: " + b"b" * HEAD_BYTES + b"\r\n\r\n").failure.kind == "too_large"


def test_too_many_header_fields_are_too_large() -> None:
    for count, kind in ((HEAD_FIELDS - 1, None), (HEAD_FIELDS + 1, "too_large")):
        wire = b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * count + b"content-length: 0\r\n\r\n"
        seen = Bench().hear(wire)
        assert (seen.failure.kind if seen.endings[0] else None) == kind


@pytest.mark.parametrize(
    ("before", "endless"),
    [
        (b"HTTP/1.1 200 ", b"reason"),
        (b"HTTP/1.1 200 OK\r\nname", b"name"),
        (b"HTTP/1.1 200 OK\r\na: ", b"value"),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        (b"", b"\r\n\r\n"),
        (CHUNKED + b"3;ext=", b"extension"),
        (CHUNKED + b"3\r\nabc\r\n0\r\n", b"x-trailer: x\r\n"),
        (CHUNKED + b"3\r\nabc\r\n0\r\nx-trailer: ", b"trailer"),
    ],
)
def test_an_endless_trickle_of_anything_but_body_ends(before: bytes, endless: bytes) -> None:
    bench = Bench()
    bench.hear(before)
    for _ in range(0, HEAD_BYTES + 10, len(endless)):
        bench.hear(endless)
    assert bench.sink.failure.kind in {"too_large", "nonsense"}
    assert not bench.reusable


def test_a_body_over_the_pools_limit_is_too_large_however_it_is_framed() -> None:
    for wire in (UNTIL_CLOSE, b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n"):
        bench = Bench(body_bytes=10)
        seen = bench.hear(wire + b"0123456789")
        assert seen.body == b"0123456789"
        assert not seen.endings
        assert bench.hear(b"!").failure.kind == "too_large"
        assert seen.body == b"0123456789"


# ---- answers without a body ----


def test_head_has_no_body_whatever_its_length_says() -> None:
    for more in (b"content-length: 5\r\n", b"transfer-encoding: chunked\r\n", b"content-length: 0\r\n", b""):
        bench = Bench("HEAD")
        seen = bench.hear(b"HTTP/1.1 200 OK\r\n" + more + b"\r\n")
        assert seen.whole
        assert not seen.pieces


@pytest.mark.parametrize("status", [b"204 No Content", b"304 Not Modified"])
@pytest.mark.parametrize("more", [b"", b"content-length: 5\r\n", b"transfer-encoding: chunked\r\n"])
def test_204_and_304_have_no_body_and_leave_the_connection_usable(status: bytes, more: bytes) -> None:
    bench = Bench()
    assert bench.hear(b"HTTP/1.1 " + status + b"\r\n" + more + b"\r\n").whole
    sink, _ = bench.ask()
    bench.hear(OK)
    assert sink.body == b"ok"


def test_an_answer_without_framing_ends_with_the_connection() -> None:
    bench = Bench()
    seen = bench.hear(UNTIL_CLOSE, b"some", b" text")
    assert not seen.endings
    assert bench.hear(eof=True).whole
    assert seen.body == b"some text"
    assert not bench.reusable


def test_an_answer_without_framing_that_is_reset_broke_off() -> None:
    bench = Bench()
    bench.hear(UNTIL_CLOSE, b"some")
    bench.wire.connection_lost(ConnectionResetError())
    assert bench.sink.failure.kind == "broke_off"


# ---- reuse ----


def test_one_connection_serves_many_requests_and_each_has_its_own_answer() -> None:
    bench = Bench()
    for number in range(5):
        body = b"answer %d" % number
        sink, connection = bench.ask() if number else (bench.sink, bench.connection)
        bench.wire.data_received(CHUNKED + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body))
        assert sink.whole
        assert sink.body == body
        assert sink.headers == [(b"transfer-encoding", b"chunked")]
        assert connection.reused == (number > 0)
    assert len(bench.shelf.kept) == 5


@pytest.mark.parametrize("version", [b"HTTP/1.0 200 OK\r\n", b"HTTP/1.1 200 OK\r\nconnection: close\r\n"])
def test_a_connection_whose_server_will_close_is_not_kept(version: bytes) -> None:
    bench = Bench()
    assert bench.hear(version + b"content-length: 2\r\n\r\nok").whole
    assert not bench.reusable


def test_an_answer_before_the_request_is_written_counts_but_its_connection_is_not_kept() -> None:
    bench = Bench()
    bench.line.unsent = 100_000
    seen = bench.hear(b"HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\n\r\nno")
    assert seen.whole
    assert seen.status == 413
    assert not bench.reusable


def test_a_failure_tells_whether_the_connection_had_served_before() -> None:
    bench = Bench()
    bench.hear(OK)
    sink, _ = bench.ask()
    bench.wire.connection_lost(ConnectionResetError())
    assert (sink.failure.kind, sink.failure.answer_begun, sink.failure.reused) == ("broke_off", False, True)


async def test_a_connection_lost_before_it_was_used_fails_what_is_sent_but_not_within_send() -> None:
    bench = Bench()
    bench.hear(OK)
    bench.wire.connection_lost(None)
    sink, _ = bench.ask()
    assert not sink.endings
    await asyncio.wait_for(sink.ended.wait(), 1)
    assert not sink.failure.answer_begun


def test_a_connection_takes_one_request() -> None:
    bench = Bench()
    with pytest.raises(RuntimeError, match="one request"):
        bench.connection.send(b"", b"", Seen())
    bench.hear(OK)
    with pytest.raises(RuntimeError, match="one request"):
        bench.connection.send(b"", b"", Seen())


def test_large_and_small_bodies_are_written_after_their_head() -> None:
    for size in (0, 10, 100_000):
        bench = Bench()
        bench.hear(OK)
        bench.line.written = b""
        Connection(bench.wire, reused=True).send(b"POST / HTTP/1.1\r\n\r\n", b"b" * size, Seen())
        assert bench.line.written == b"POST / HTTP/1.1\r\n\r\n" + b"b" * size


# ---- one read is one call ----


def test_all_that_one_read_brings_is_handed_on_in_one_piece_and_at_once() -> None:
    bench = Bench()
    seen = bench.hear(CHUNKED + b"1\r\na\r\n1\r\nb\r\n", b"1\r\nc\r\n1\r\nd\r\n1\r\n", b"e", b"\r\n0\r\n\r\n")
    assert seen.pieces == [b"ab", b"cd", b"e"]
    assert seen.whole


# ---- cancel, pause, resume ----


class Quits(Seen):
    """Cancels at its nth call."""

    bench: Bench

    def __init__(self, at: int) -> None:
        super().__init__()
        self.at = at

    def _called(self) -> None:
        super()._called()
        if self.calls == self.at:
            self.bench.connection.cancel()


@pytest.mark.parametrize(("at", "together"), [(1, True), (2, True), (1, False), (2, False), (3, False)])
def test_a_sink_that_cancels_in_the_middle_hears_nothing_more(at: int, together: bool) -> None:
    sink = Quits(at)
    sink.bench = Bench(sink=sink)
    pieces = [CHUNKED, b"1\r\na\r\n", b"1\r\nb\r\n", b"1\r\nc\r\n", b"0\r\n\r\n"]
    sink.bench.hear(*([b"".join(pieces)] if together else pieces), eof=True)
    sink.bench.wire.connection_lost(None)
    assert sink.calls == at
    assert sink.bench.line.closing
    assert not sink.bench.shelf.kept


def test_cancel_closes_at_once_and_any_number_of_times() -> None:
    bench = Bench()
    bench.hear(CHUNKED)
    bench.connection.cancel()
    bench.connection.cancel()
    bench.connection.pause()
    bench.connection.resume()
    assert bench.line.closing
    assert not bench.sink.endings


def test_a_late_word_of_the_last_user_does_not_reach_the_next() -> None:
    bench = Bench()
    late = bench.connection
    bench.hear(OK)
    sink, _ = bench.ask()
    late.pause()
    late.cancel()
    assert bench.line.reading
    bench.hear(OK)
    assert sink.whole
    assert bench.reusable


def test_pause_and_resume_are_safe_in_any_state() -> None:
    bench = Bench()
    for _ in range(2):
        bench.connection.pause()
        bench.connection.pause()
        assert not bench.line.reading
        bench.connection.resume()
        bench.connection.resume()
        assert bench.line.reading
    bench.connection.pause()
    bench.line.abort()
    bench.connection.resume()
    bench.connection.pause()
    bench.wire.connection_lost(None)
    bench.connection.resume()


def test_a_connection_left_paused_reads_again_when_it_goes_back() -> None:
    bench = Bench()
    bench.connection.pause()
    bench.hear(OK)
    assert bench.line.reading
    assert bench.reusable


class Fails(Seen):
    """Has a bug."""

    def on_data(self, data: bytes) -> None:
        raise ZeroDivisionError


def test_a_sink_with_a_bug_still_hears_the_end() -> None:
    bench = Bench(sink=Fails())
    with pytest.raises(ZeroDivisionError):
        bench.hear(CHUNKED + b"1\r\na\r\n")
    bench.wire.connection_lost(ZeroDivisionError())  # the event loop closes a connection whose protocol raised
    assert bench.sink.failure.kind == "broke_off"
