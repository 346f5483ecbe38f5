"""Unix sockets and TLS work like any other connection."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path

import pytest

from gateway.upstream.client import Broken, Origin, Pool, fetch, tls_context
from tests.gateway.upstream.playing import CHUNKED, Caller, Seen, Serve, always_ok, ask, until

# ---- Unix sockets and TLS ----


async def test_a_unix_socket_works_like_a_port(serve: Serve, tmp_path: Path) -> None:
    server = serve(always_ok)
    pool = Pool(await server.unix(f"{tmp_path}/engine.sock"))
    for _ in range(3):
        assert (await fetch(pool, "POST", "/", b"{}")).body == b"ok"
    assert server.opened == 1
    await pool.close()


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Make a self-signed certificate for localhost."""
    folder = tmp_path_factory.mktemp("tls")
    made, key = f"{folder}/cert.pem", f"{folder}/key.pem"
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    make = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    subprocess.run([*make, "-days", "2", "-keyout", key, "-out", made, *names], check=True, capture_output=True)
    return made, key


def server_side(certificate: tuple[str, str]) -> ssl.SSLContext:
    """Return a TLS server's context."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    return context


async def test_https_with_an_authority_of_ones_own(serve: Serve, certificate: tuple[str, str]) -> None:
    async def echo(caller: Caller) -> None:
        while True:
            _, body = await caller.request()
            await caller.say(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body), body)

    server = serve(echo)
    pool = Pool(await server.tcp(server_side(certificate)), tls=tls_context(certificate[0]))
    for size in (2, 1_000_000, 3):
        assert len((await fetch(pool, "POST", "/", bytes(size), limit=2_000_000)).body) == size
    assert server.opened == 1
    await pool.close()


async def test_https_is_refused_where_the_certificate_does_not_verify(
    serve: Serve, certificate: tuple[str, str]
) -> None:
    server = serve(always_ok)
    origin = await server.tcp(server_side(certificate))
    with pytest.raises(Broken) as failure:
        await fetch(Pool(origin), "GET", "/")
    assert failure.value.kind == "refused"
    assert str(failure.value).startswith("no TLS: self")
    other_name = Origin.parse(f"https://127.0.0.1:{origin.port}")
    with pytest.raises(Broken, match="no TLS"):
        await fetch(Pool(other_name, tls=tls_context(certificate[0])), "GET", "/")
    trusting = Pool(other_name, tls=tls_context(verify=False))
    assert (await fetch(trusting, "GET", "/")).body == b"ok"
    await trusting.close()


async def test_a_cancel_over_tls_reaches_the_server_at_once(serve: Serve, certificate: tuple[str, str]) -> None:
    async def pour(caller: Caller) -> None:
        await caller.request()
        await caller.say(CHUNKED)
        while True:
            await caller.say(b"2710\r\n" + bytes(10_000) + b"\r\n")

    server = serve(pour)
    pool = Pool(await server.tcp(server_side(certificate)), tls=tls_context(certificate[0]))
    sink = Seen()
    connection = await ask(pool, sink)
    await until(lambda: len(sink.body) > 50_000)
    connection.pause()
    connection.resume()
    connection.cancel()
    read = len(sink.body)
    await until(lambda: server.open == 0)
    assert len(sink.body) == read
    assert not sink.endings


async def test_a_body_until_close_over_tls_ends_well(serve: Serve, certificate: tuple[str, str]) -> None:
    async def until_close(caller: Caller) -> None:
        await caller.request()
        await caller.say(b"HTTP/1.1 200 OK\r\n\r\nhello")

    pool = Pool(await serve(until_close).tcp(server_side(certificate)), tls=tls_context(certificate[0]))
    assert (await fetch(pool, "GET", "/")).body == b"hello"
