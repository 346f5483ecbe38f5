from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Iterator

import pytest

from tests.gateway.serving.stub import Served, served


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    with served() as running:
        yield running


def ask(server: Served, *pieces: bytes) -> bytes:
    """Send these bytes and read until the server closes or answers one head and body."""
    answer = b""
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as caller:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it may have heard enough
            for piece in pieces:
                caller.sendall(piece)
        with contextlib.suppress(TimeoutError, ConnectionResetError):
            while piece := caller.recv(65536):
                answer += piece
    return answer


def refused(answer: bytes) -> tuple[int, str]:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"connection: close" in head.lower()
    error = json.loads(body)["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return int(head.split()[1]), error["code"]


@pytest.mark.parametrize(
    "raw",
    [
        b"GET / HTTP/1.1\r\nno colon\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n",
        b"GET /%zz HTTP/9.1\r\nhost: x\r\n\r\n",
        b"GET http://[bad HTTP/1.1\r\nhost: x\r\n\r\n",
        b"CONNECT x:1 HTTP/1.1\r\nhost: x\r\n\r\n",
        b"POST /v1/models HTTP/1.1\r\nhost: x\r\ncontent-length: 6\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\nX",
        b"POST /v1/models HTTP/1.1\r\nhost: x\r\ncontent-length: 6\r\ncontent-length: 7\r\n\r\n0\r\n\r\nX",
        b"GET /livez HTTP/1.1\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nhost: x\r\nhost: y\r\n\r\n",
        b"CONNECT /livez HTTP/1.1\r\nhost: x\r\n\r\n",
        *(
            b"POST /livez HTTP/1.1\r\nhost: x\r\ntransfer-encoding: %b\r\n\r\n0\r\n\r\n" % coding
            for coding in (b"gzip, chunked", b"gzip", b"identity", b"identity\r\ntransfer-encoding: chunked")
        ),
    ],
)
def test_what_is_no_http_is_refused_in_our_shape(server: Served, raw: bytes) -> None:
    assert refused(ask(server, raw)) == (400, "invalid_request")


@pytest.mark.parametrize(
    "head",
    [
        b"x-long: " + b"a" * 70_000 + b"\r\n",
        b"".join(b"x-%d: a\r\n" % number for number in range(201)),
        b"".join(b"x-%d: %s\r\n" % (number, b"a" * 8000) for number in range(100)),
    ],
)
def test_a_head_that_is_too_long_is_refused(server: Served, head: bytes) -> None:
    assert refused(ask(server, b"GET /livez HTTP/1.1\r\nhost: x\r\n" + head + b"\r\n")) == (431, "request_too_large")


def test_a_url_that_is_too_long_is_refused(server: Served) -> None:
    assert refused(ask(server, b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nhost: x\r\n\r\n")) == (
        431,
        "request_too_large",
    )


def test_a_head_without_end_is_refused_before_it_fills_the_memory(server: Served) -> None:
    pieces = [b"GET /livez HTTP/1.1\r\n", *(b"x-%d: %s\r\n" % (number, b"a" * 8000) for number in range(30))]
    answer = ask(server, *pieces)
    assert answer == b"" or refused(answer) == (431, "request_too_large")
    assert server.get("/livez").status_code == 200


def test_a_head_of_ordinary_length_in_small_pieces_passes(server: Served) -> None:
    raw = b"GET /livez HTTP/1.1\r\nhost: x\r\nx-some: " + b"a" * 4000 + b"\r\nconnection: close\r\n\r\n"
    answer = ask(server, *(raw[at : at + 100] for at in range(0, len(raw), 100)))
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")


def test_a_long_body_before_the_next_request_is_no_long_head(server: Served) -> None:
    body = b"a" * 300_000
    first = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body) + body
    second = b"GET /livez HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
    answer = ask(server, first + second[:10], second[10:])
    assert answer.count(b"HTTP/1.1 200 OK\r\n") == 2


def test_rubbish_behind_a_request_is_refused_when_the_answer_is_out(server: Served) -> None:
    raw = b"GET /v1/chat/completions?pieces=5&pause=0.05 HTTP/1.1\r\nhost: x\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as caller:
        caller.sendall(raw)
        answer = caller.recv(65536)
        caller.sendall(b"\x00\x01rubbish\r\n\r\n")
        while piece := caller.recv(65536):
            answer += piece
    whole, _, rest = answer.partition(b"0\r\n\r\n")
    assert whole.count(b"data: x") == 5
    assert refused(rest) == (400, "invalid_request")


def test_the_server_does_not_name_its_software(server: Served) -> None:
    assert "server" not in server.get("/livez").headers


def test_an_answer_before_the_end_of_the_body_is_not_lost(server: Served) -> None:
    """Closing at once would reset the connection: a proxy that hands a body on while it comes would answer 502."""
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % (
        20 << 20
    )
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as caller:
        caller.sendall(head)
        time.sleep(0.2)  # the answer is on its way now
        for _ in range(20):
            caller.sendall(b"a" * (1 << 20))
        answer = b""
        while piece := caller.recv(65536):
            answer += piece
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert answer.endswith(b"0\r\n\r\n")
