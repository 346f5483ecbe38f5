"""Where an engine is, and heads that nobody can bend."""

from __future__ import annotations

import ssl

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.upstream.origin import Origin, head_end, head_start, header_lines, request_head, tls_context

HOME = Origin.parse("http://engine:8100")


@pytest.mark.parametrize(
    ("url", "origin", "authority"),
    [
        ("http://127.0.0.1:8100", Origin("http", "127.0.0.1", 8100), "127.0.0.1:8100"),
        ("http://127.0.0.1:8100/", Origin("http", "127.0.0.1", 8100), "127.0.0.1:8100"),
        ("http://engine/v1", Origin("http", "engine", 80), "engine"),
        ("https://Engine.Example/team/v1/", Origin("https", "engine.example", 443, "/team"), "engine.example"),
        ("https://engine:8443/a/b", Origin("https", "engine", 8443, "/a/b"), "engine:8443"),
        ("http://[::1]:8100", Origin("http", "::1", 8100), "[::1]:8100"),
        ("http://bücher.example", Origin("http", "xn--bcher-kva.example", 80), "xn--bcher-kva.example"),
        ("unix:/run/vllm.sock", Origin("unix", socket="/run/vllm.sock"), "localhost"),
        ("unix:///run/vllm.sock", Origin("unix", socket="/run/vllm.sock"), "localhost"),
        ("http+unix://%2Frun%2Fvllm.sock/v1", Origin("unix", socket="/run/vllm.sock"), "localhost"),
    ],
)
def test_an_engine_is_named_by_any_of_the_usual_urls(url: str, origin: Origin, authority: str) -> None:
    assert Origin.parse(url) == origin
    assert origin.authority == authority


@pytest.mark.parametrize(
    "url",
    [
        "",
        "engine:8100",
        "ftp://engine",
        "http://",
        "http://engine:port",
        "http://engine:99999",
        "http://key@engine",
        "http://engine?x=1",
        "http://engine/#x",
        "http://engine\r\nx: y",
        "http://eng ine",
        "http://engine..example",
        "http://" + "e" * 64,
        "http://engine/a b",
        "http://engine/é",
        "http://[::1",
        "unix:vllm.sock",
        "http+unix://vllm.sock",
    ],
)
def test_a_wrong_url_is_refused_in_one_line_that_does_not_repeat_it(url: str) -> None:
    with pytest.raises(ValueError) as refusal:
        Origin.parse(url)
    assert "\n" not in str(refusal.value)
    assert "key" not in str(refusal.value).replace("a key goes into api_key", "")


def test_the_url_of_an_origin_leads_back_to_it() -> None:
    for url in ("http://127.0.0.1:8100", "https://engine.example/team", "http://[::1]:8100"):
        assert Origin.parse(url).url == url


def test_a_head_asks_for_identity_and_carries_the_length() -> None:
    base = Origin.parse("https://engine.example/team/v1")
    head = request_head("POST", "/v1/chat/completions", base, [(b"content-type", b"application/json")], 12)
    assert head == (
        b"POST /team/v1/chat/completions HTTP/1.1\r\nhost: engine.example\r\naccept-encoding: identity\r\n"
        b"content-type: application/json\r\ncontent-length: 12\r\n\r\n"
    )
    assert head == (
        head_start("POST", "/v1/chat/completions", base)
        + header_lines([(b"content-type", b"application/json")])
        + head_end(12)
    )


def test_a_get_carries_no_length_and_an_empty_post_does() -> None:
    assert b"content-length" not in request_head("GET", "/v1/models", HOME)
    assert b"content-length: 0\r\n" in request_head("POST", "/x", HOME)


@pytest.mark.parametrize("path", ["", "v1", "/a b", "/a\r\nx: y", "/a\n", "/\x00", "/é", "/a\t"])
def test_a_path_that_could_end_the_request_line_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match="percent-encoded path"):
        request_head("GET", path, HOME)


@pytest.mark.parametrize("method", ["", "get", "GET ", "GET\r\n", "G\x00T"])
def test_a_method_is_capital_letters(method: str) -> None:
    with pytest.raises(ValueError, match="a method"):
        request_head(method, "/", HOME)


@pytest.mark.parametrize(
    "field",
    [(b"a", b"b\r\nc: d"), (b"a", b"b\nc"), (b"a", b"b\x00"), (b"a: b\r\nc", b"d"), (b"", b"x"), (b"a b", b"x")],
)
def test_a_header_that_could_end_its_line_is_refused(field: tuple[bytes, bytes]) -> None:
    with pytest.raises(ValueError, match="not a header field"):
        request_head("GET", "/", HOME, [field])


@given(st.text(), st.lists(st.tuples(st.binary(max_size=8), st.binary(max_size=12)), max_size=3), st.integers(0, 10**9))
def test_what_is_not_refused_is_read_by_a_server_as_it_was_meant(
    path: str, headers: list[tuple[bytes, bytes]], length: int
) -> None:
    try:
        head = request_head("POST", "/" + path, HOME, headers, length)
    except ValueError:
        return
    server = h11.Connection(h11.SERVER)
    server.receive_data(head)
    try:
        request = server.next_event()
    except h11.RemoteProtocolError:
        assert any(name.lower() in {b"content-length", b"transfer-encoding", b"host"} for name, _ in headers)
        return
    assert isinstance(request, h11.Request)
    assert request.target == ("/" + path).encode()
    assert len(request.headers) == 3 + len(headers)


def test_tls_is_verified_unless_asked_otherwise() -> None:
    assert tls_context().verify_mode is ssl.CERT_REQUIRED
    assert tls_context().check_hostname
    assert tls_context(verify=False).verify_mode is ssl.CERT_NONE
