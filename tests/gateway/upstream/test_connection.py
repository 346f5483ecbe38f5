"""One connection without a socket: whose answer it is, when it can be used again, and how it is let go."""

from __future__ import annotations

import asyncio
import gc

import pytest

from gateway.upstream.client import Connection
from gateway.upstream.connection import Wire
from tests.gateway.upstream.playing import CHUNKED, OK, UNTIL_CLOSE, Bench, Seen

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


def test_a_connection_that_is_gone_is_freed_without_the_garbage_collector() -> None:
    def alive() -> int:
        return sum(type(thing) is Wire for thing in gc.get_objects())

    gc.collect()
    gc.disable()
    try:
        before = alive()
        bench = Bench()
        bench.hear(OK)
        bench.wire.connection_lost(None)
        bench.shelf.kept.clear()
        bench.shelf.gone.clear()
        del bench
        assert alive() == before
    finally:
        gc.enable()
