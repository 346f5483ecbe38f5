"""Which paths exist, who may call them, and which headers pass in either direction."""

from __future__ import annotations

import contextlib
import json
import re

import httpx
import pytest

from tests.fakes.vllm import FakeVLLM
from tests.harness import CHAT, HI, TEAM, Gateway, RawCaller, configuration, key, model
from tests.system.conftest import StartGateway

GOOD = json.dumps({"model": "smollm2", "messages": HI}).encode()


def raw(gateway: Gateway, *lines: str | bytes, body: bytes = b"") -> tuple[int, bytes]:
    """Send these header lines and read one answer; return status and everything that came."""
    head = b"\r\n".join(line if isinstance(line, bytes) else line.encode() for line in lines)
    with RawCaller(gateway.port) as caller:
        seen = caller.send(head + b"\r\nhost: x\r\nconnection: close\r\n\r\n" + body).rest()
    found = re.match(rb"HTTP/1\.1 (\d+)", seen)
    assert found, seen
    return int(found[1]), seen


BAD_KEYS: list[bytes] = [
    b"authorization: Bearer caf\xe9",
    "authorization: Bearer “sk-1”".encode(),
    b"authorization: Bearer " + bytes(range(0x80, 0x100)),
    b"authorization: Bearer",
    b"authorization: Bearer  ",
    b"authorization:",
    b"authorization: Basic c2s6dGVzdA==",
    b"authorization: " + TEAM.encode(),
    b"authorization: Bearer " + TEAM.upper().encode(),
    b"authorization: Bearer " + TEAM.encode() + b"x",
    b"authorization: Bearer " + TEAM.encode() + b" x",
    b"authorization: Bearer " + TEAM[:-1].encode(),
    b"authorization: Bearer " + b"x" * 8000,
]


@pytest.mark.parametrize("header", BAD_KEYS)
def test_a_key_that_is_not_ours_is_a_401(fake: FakeVLLM, gateway: Gateway, header: bytes) -> None:
    """AU-01."""
    status, seen = raw(gateway, f"POST {CHAT} HTTP/1.1", header, f"content-length: {len(GOOD)}", body=GOOD)
    assert status == 401
    assert b'"code":"invalid_api_key"' in seen.replace(b" ", b"")
    assert b"Traceback" not in seen
    assert fake.requests() == []


@pytest.mark.parametrize("scheme", [b"Bearer", b"bearer", b"BEARER", b"Bearer "])
def test_the_scheme_is_case_insensitive_and_the_key_exact(fake: FakeVLLM, gateway: Gateway, scheme: bytes) -> None:
    header = b"authorization: " + scheme + b" " + TEAM.encode()
    assert raw(gateway, "GET /v1/models HTTP/1.1", header)[0] == 200


def test_two_keys_in_one_request_are_not_taken_for_a_good_one(fake: FakeVLLM, gateway: Gateway) -> None:
    headers = [f"authorization: Bearer {secret}" for secret in ("sk-wrong", TEAM)]
    assert raw(gateway, "GET /v1/models HTTP/1.1", *headers)[0] in {400, 401}


def test_a_configured_key_with_an_accent_works_as_the_same_bytes(fake: FakeVLLM, start_gateway: StartGateway) -> None:
    """AU-01, last part."""
    gateway = start_gateway(configuration([model("smollm2", fake.url)], keys=[key("café", "café")]))
    assert raw(gateway, "GET /v1/models HTTP/1.1", "authorization: Bearer café".encode())[0] == 200
    assert raw(gateway, "GET /v1/models HTTP/1.1", "authorization: Bearer café".encode("latin-1"))[0] == 401


CLOSED = [
    ("POST", "/invocations"),
    ("POST", "/tokenize"),
    ("POST", "/detokenize"),
    ("POST", "/v1/chat/completions"),
    ("POST", "/v1/completions"),
    ("POST", "/v1/embeddings"),
    ("POST", "/v1/load_lora_adapter"),
    ("POST", "/v1/chat/completions/render"),
    ("POST", "/v1/chat/completions/batch"),
    ("POST", "/scale_elastic_ep"),
    ("POST", "/inference/v1/generate"),
    ("POST", "/pooling"),
    ("POST", "/collective_rpc"),
    ("GET", "/v1/models"),
    ("GET", "/v1/models/smollm2"),
    ("GET", "/load"),
    ("GET", "/server_info"),
    ("GET", "/admin/config"),
    ("POST", "/admin/reload"),
    ("DELETE", "/v1/models/smollm2"),
    ("OPTIONS", "/v1/models"),
]  # fmt: skip


@pytest.mark.parametrize(("method", "path"), CLOSED)
def test_nothing_reaches_the_engine_without_a_key(fake: FakeVLLM, gateway: Gateway, method: str, path: str) -> None:
    """AU-03."""
    answer = httpx.request(method, gateway.url + path, content=GOOD, headers={"content-type": "application/json"})
    if method == "OPTIONS":
        assert answer.status_code in {200, 204, 401, 404, 405}
        assert not answer.content or "error" in answer.json()
    else:
        assert answer.status_code in {401, 404}, answer.text
        assert "error" in answer.json()
    assert [received for received in fake.everything() if received.method == method and received.route == path] == []


UNKNOWN = [
    "/invocations",
    "/v1/load_lora_adapter",
    "/scale_elastic_ep",
    "/v1/files",
    "/v1/audio/speech",
    "/",
    "/v2/embed",
]


@pytest.mark.parametrize("path", UNKNOWN)
def test_a_route_whose_text_we_do_not_check_does_not_exist(fake: FakeVLLM, gateway: Gateway, path: str) -> None:
    for answer in (gateway.post(path, {"model": "smollm2"}), gateway.get(path)):
        assert answer.status_code == 404
        assert answer.json()["error"]["code"] == "not_found"
    assert [received for received in fake.everything() if received.route == path] == []


def test_our_own_pages_answer_without_a_key(fake: FakeVLLM, gateway: Gateway) -> None:
    for path in ("/livez", "/readyz", "/health", "/version", "/metrics"):
        assert gateway.get(path, secret=None).status_code == 200, path
    assert "vllm:" not in gateway.get("/metrics", secret=None).text
    assert "/v1/chat/completions" in gateway.get("/openapi.json").json()["paths"]


TRICKS = [
    "/v1/../metrics",
    "/v1/%2e%2e/metrics",
    "/v1%2f..%2fmetrics",
    "/v1/models/..%2f..%2fmetrics",
    "/v1/models/../../metrics",
    "//evil.example/v1/models",
    "/V1/models",
    "/v1//models",
    "/v1/models;x=1",
    "/v1/models%00",
    "/v1/chat/completions/../../../tokenize",
    "/.",
    "/v1/models\\..\\..\\metrics",
]


@pytest.mark.parametrize("target", TRICKS)
def test_a_path_trick_leads_nowhere(fake: FakeVLLM, gateway: Gateway, target: str) -> None:
    """SE-03."""
    status, seen = raw(gateway, f"GET {target} HTTP/1.1", f"authorization: Bearer {TEAM}")
    assert status in {400, 404}, seen
    assert b"vllm:" not in seen
    assert b"sluice_" not in seen
    assert fake.everything() == [] or {received.route for received in fake.everything()} <= {"/health", "/v1/models"}
    status, seen = raw(gateway, f"GET {target} HTTP/1.1")  # the same path decides about the key
    assert status in {400, 401, 404}, seen


def test_a_query_is_no_path(fake: FakeVLLM, gateway: Gateway) -> None:
    answer = raw(gateway, "GET /v1/models?x=/../ HTTP/1.1", f"authorization: Bearer {TEAM}")
    assert answer[0] == 200
    assert b"smollm2" in answer[1]


def test_an_absolute_target_is_our_own(fake: FakeVLLM, gateway: Gateway) -> None:
    status, seen = raw(gateway, "GET http://evil.example/metrics HTTP/1.1")
    assert status in {200, 400, 404}
    assert b"vllm:" not in seen


@pytest.mark.parametrize("path", ["/v1/models", "/v1/models/smollm2", "/livez", "/readyz", "/metrics"])
def test_a_trailing_slash_changes_nothing(fake: FakeVLLM, gateway: Gateway, path: str) -> None:
    assert gateway.get(path + "/").status_code == gateway.get(path).status_code == 200
    answer = gateway.post(CHAT + "/", content=GOOD)
    assert answer.status_code == 200
    assert answer.history == []


SMUGGLED = {
    "both lengths": (["content-length: 6", "transfer-encoding: chunked"], b"0\r\n\r\nX"),
    "two lengths": (["content-length: 5", "content-length: 60"], GOOD),
    "two lengths in one": (["content-length: 5, 60"], GOOD),
    "a tab after chunked": (["transfer-encoding: chunked\t"], b"0\r\n\r\nX"),
    "a space before the colon": (["content-length : 5"], GOOD),
    "chunked twice": (["transfer-encoding: chunked, chunked"], b"0\r\n\r\nX"),
    "another coding": (["transfer-encoding: gzip, chunked"], b"0\r\n\r\nX"),
    "another coding alone": (["transfer-encoding: gzip"], GOOD),
    "two hosts": (["host: y", f"content-length: {len(GOOD)}"], GOOD),
    "identity and chunked": (["transfer-encoding: identity", "transfer-encoding: chunked"], b"0\r\n\r\nX"),
    "a signed length": (["content-length: +5"], GOOD),
    "a hexadecimal length": (["content-length: 0x5"], GOOD),
    "a bad chunk": (["transfer-encoding: chunked"], b"5;x\nabcde\r\n0\r\n\r\n"),
    "a folded header": (["x-a: b\r\n c: d", "content-length: 5"], GOOD),
    "a null in a header": (["x-a: b\0c", f"content-length: {len(GOOD)}"], GOOD),
}  # fmt: skip


@pytest.mark.parametrize("what", SMUGGLED)
def test_a_smuggled_request_never_reaches_the_engine(fake: FakeVLLM, gateway: Gateway, what: str) -> None:
    """SE-01, the first three and their kind: the hidden request would ask for ``smuggled``."""
    lines, body = SMUGGLED[what]
    hidden = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nx-smuggled: 1\r\nauthorization: Bearer "
    hidden += TEAM.encode() + b"\r\ncontent-length: %d\r\n\r\n" % len(GOOD) + GOOD
    head = "\r\n".join([f"POST {CHAT} HTTP/1.1", "host: x", f"authorization: Bearer {TEAM}", *lines]) + "\r\n\r\n"
    with RawCaller(gateway.port) as caller:
        caller.send(head.encode() + body + hidden)
        caller.socket.settimeout(1)
        with contextlib.suppress(TimeoutError):
            caller.rest()
    statuses = re.findall(rb"HTTP/1\.1 (\d+)", caller.seen)
    assert set(statuses) == {b"400"}, caller.seen
    assert fake.requests() == []


def test_pipelined_requests_are_answered_one_by_one(fake: FakeVLLM, gateway: Gateway) -> None:
    one = f"POST {CHAT} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {TEAM}\r\ncontent-type: application/json\r\n"
    request = one.encode() + b"content-length: %d\r\n\r\n" % len(GOOD) + GOOD
    with RawCaller(gateway.port) as caller:
        caller.send(request * 3)
        while caller.seen.count(b"fake engine.") < 3:
            caller.seen += caller.socket.recv(65536)
    assert len(fake.requests()) == 3


@pytest.mark.parametrize("upgrade", ["h2c", "websocket"])
@pytest.mark.parametrize("together", [True, False])
def test_who_asks_for_another_protocol_is_answered_in_this_one(
    fake: FakeVLLM, gateway: Gateway, *, together: bool, upgrade: str
) -> None:
    """As Java's HttpClient and ``curl --http2`` do on every request without TLS."""
    lines = [f"POST {CHAT} HTTP/1.1", "host: x", f"authorization: Bearer {TEAM}", f"content-length: {len(GOOD)}"]
    lines += ["connection: Upgrade, HTTP2-Settings", f"upgrade: {upgrade}", "http2-settings: AAEAAEAA"]
    head = "\r\n".join(lines).encode() + b"\r\n\r\n"
    with RawCaller(gateway.port) as caller:
        for turn in (1, 2):
            if together:
                caller.send(head + GOOD)
            else:
                caller.send(head)
                gateway.get("/livez")  # it came later, so the head has been read
                caller.send(GOOD)
            while caller.seen.count(b"fake engine.") < turn:
                caller.seen += caller.socket.recv(65536)
    assert caller.seen.count(b"HTTP/1.1 200 ") == 2
    assert [received.body["messages"] for received in fake.requests()] == [HI, HI]


def test_only_an_allow_list_of_headers_reaches_the_engine(fake: FakeVLLM, gateway: Gateway) -> None:
    """SE-01, last part: hop-by-hop headers, what Connection names, credentials, what steers vLLM."""
    headers = {
        "connection": "x-secret, keep-alive",
        "x-secret": "1",
        "proxy-authorization": "Basic eDp5",
        "te": "trailers",
        "upgrade": "h2c",
        "keep-alive": "timeout=5",
        "cookie": "a=b",
        "x-forwarded-for": "203.0.113.9",
        "forwarded": "for=203.0.113.9",
        "x-vllm-priority": "-100",
        "x-data-parallel-rank": "5",
        "x-api-key": "sk-other",
        "endpoint-load-metrics-format": "json",
        "openai-organization": "org",
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "tracestate": "a=b",
        "x-request-id": "the-id",
    }
    assert gateway.post(CHAT, content=GOOD, headers=headers).status_code == 200
    seen = dict(fake.requests()[0].headers)
    passed = {"host", "content-type", "content-length", "traceparent", "tracestate", "x-request-id"}
    harmless = {"accept", "accept-encoding", "user-agent", "connection"}
    assert set(seen) <= passed | harmless, seen
    assert (seen["x-request-id"], seen["tracestate"]) == ("the-id", "a=b")
    assert seen["traceparent"].startswith("00-0af7651916cd43dd8448eb211c80319c-")
    assert seen.get("connection", "keep-alive") == "keep-alive"
    assert TEAM not in str(seen)


def test_every_answer_has_a_request_id(fake: FakeVLLM, gateway: Gateway) -> None:
    ids = [gateway.post(CHAT, content=GOOD).headers["x-request-id"] for _ in range(2)]
    assert len(set(ids)) == 2
    assert [received.header("x-request-id") for received in fake.requests()] == ids
    for answer in (gateway.post(CHAT, content=b"{"), gateway.get("/nope"), gateway.get("/v1/models", "sk-wrong")):
        assert answer.headers["x-request-id"]


@pytest.mark.parametrize("given", ["a b", "x" * 500, "<script>", "é".encode("latin-1").decode("latin-1"), '"', "a\tb"])
def test_a_request_id_that_is_not_one_is_replaced(fake: FakeVLLM, gateway: Gateway, given: str) -> None:
    answer = gateway.post(CHAT, content=GOOD, headers={"x-request-id": given.encode("latin-1")})
    assert answer.status_code == 200
    assert answer.headers["x-request-id"] != given
    assert re.fullmatch(r"[A-Za-z0-9._:\-]{1,128}", answer.headers["x-request-id"])
    assert fake.requests()[0].header("x-request-id") == answer.headers["x-request-id"]


def test_the_engines_headers_stay_inside(fake: FakeVLLM, gateway: Gateway) -> None:
    answer = gateway.post(CHAT, content=GOOD)
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers.get("server", "").lower() != "uvicorn"
    phases = dict(re.findall(r"([a-z_]+);dur=([0-9.]+)", answer.headers["server-timing"]))
    assert {"connect", "first_token"} <= set(phases) or len(phases) >= 3, answer.headers["server-timing"]
    stream = gateway.post(CHAT, {"model": "smollm2", "messages": HI, "stream": True})
    assert "dur=" in stream.headers["server-timing"]


def test_a_wrong_content_type_is_no_500(fake: FakeVLLM, gateway: Gateway) -> None:
    for kind in ("text/plain", "multipart/form-data; boundary=x", "", "application/json; charset=utf-8"):
        assert gateway.post(CHAT, content=GOOD, headers={"content-type": kind}).status_code in {200, 400, 415}
    assert {received.header("content-type") for received in fake.requests()} == {"application/json"}


def test_a_huge_head_is_refused(fake: FakeVLLM, gateway: Gateway) -> None:
    with RawCaller(gateway.port) as caller:
        try:
            caller.send(b"GET /v1/models HTTP/1.1\r\nhost: x\r\nx-a: " + b"a" * 2_000_000 + b"\r\n\r\n")
            seen = caller.rest()
        except ConnectionError:
            seen = b""
    assert seen == b"" or re.match(rb"HTTP/1\.1 (4\d\d) ", seen)
    assert gateway.get("/v1/models").status_code == 200
