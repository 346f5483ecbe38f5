"""Rubbish, lies about lengths and endless heads are never taken for an answer."""

from __future__ import annotations

import pytest

from gateway.upstream.connection import HEAD_BYTES, HEAD_FIELDS
from tests.gateway.upstream.playing import CHUNKED, OK, UNTIL_CLOSE, Bench


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
