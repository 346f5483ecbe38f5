"""What leaves is told in the shape that path or key ask for, however it is cut; all else leaves as it came."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.middleware.shaped import Shaped
from gateway.pipeline import Chain, Link
from gateway.record import Record
from gateway.sdk import Plugin

JSON, STREAM = b"application/json", b"text/event-stream; charset=utf-8"


class Plain:
    """Tells the bare facts."""

    name, done = "plain", True

    def answer(self, body: dict[str, Any], record: Record) -> dict[str, Any]:
        return {"said": body}

    def event(self, chunk: dict[str, Any], record: Record) -> list[dict[str, Any]]:
        return [{"piece": choice["delta"].get("content")} for choice in chunk["choices"]]

    def last(self, body: dict[str, Any], record: Record) -> dict[str, Any]:
        return {"whole": body["choices"][0]["message"]["content"], "usage": body["usage"], "sluice": body.get("sluice")}

    def failure(self, error: dict[str, Any], status: int, record: Record) -> tuple[int, dict[str, Any]]:
        return 200, {"failed": error["code"], "status": status}


class Shaping(Plugin):
    """Has a shape."""

    shape = Plain()


def links(*, keys: frozenset[str] | None = None, shadow: bool = False) -> list[Link]:
    return [Link("envelope", Shaping(None), keys=keys, shadow=shadow)]


async def told(
    path: str,
    *pieces: bytes,
    chain: list[Link] | None = None,
    status: int = 200,
    kind: bytes = JSON,
    key: str | None = "a",
) -> tuple[dict[str, Any], bytes, str]:
    """Let an application answer in these pieces; return the head and the body that leave, and the path it was asked."""
    sent: list[dict[str, Any]] = []
    scope: dict[str, Any] = {"type": "http", "path": path, "raw_path": path.encode(), "sluice": Record()}
    scope["sluice.principal"] = SimpleNamespace(name=key) if key else None

    async def app(scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"content-type", kind), (b"content-length", b"9"), (b"x-a", b"b")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        for at, piece in enumerate(pieces):
            await send({"type": "http.response.body", "body": piece, "more_body": at + 1 < len(pieces)})

    async def send(message: Any) -> None:
        sent.append(message)

    live: Any = SimpleNamespace(chain=Chain(links() if chain is None else chain))
    await Shaped(app, lambda: live)(scope, None, send)  # type: ignore[arg-type] # nothing is received here
    return sent[0], b"".join(message["body"] for message in sent[1:]), scope["path"]


@pytest.mark.parametrize("cut", [1, 4, 100])
async def test_an_answer_is_told_whole_with_its_new_length(cut: int) -> None:
    raw = b'{"a":"b"}'
    head, body, path = await told("/b/plain/v1/x", *[raw[at : at + cut] for at in range(0, len(raw), cut)])
    assert path == "/v1/x"
    assert json.loads(body) == {"said": {"a": "b"}}
    assert dict(head["headers"]) == {b"content-type": JSON, b"content-length": b"%d" % len(body), b"x-a": b"b"}


async def test_a_failure_may_change_its_status() -> None:
    head, body, _ = await told("/b/plain/v1/x", b'{"error":{"code":"queue_full"}}', status=429)
    assert (head["status"], json.loads(body)) == (200, {"failed": "queue_full", "status": 429})


def frames(*events: Any) -> bytes:
    return b"".join(
        b"data: %b\n\n" % (event if isinstance(event, bytes) else json.dumps(event).encode()) for event in events
    )


def piece(text: str, **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {"content": text}}], **more}


@pytest.mark.parametrize("cut", [1, 7, 1000])
async def test_a_stream_is_told_the_same_however_it_is_cut(cut: int) -> None:
    used = {"choices": [], "usage": {"total_tokens": 3}, "sluice": {"tags": ["t"]}}
    raw = b": keep-alive\n\n" + frames(piece("a"), piece("b"), used, b"[DONE]")
    _, body, _ = await told("/b/plain/v1/x", *[raw[at : at + cut] for at in range(0, len(raw), cut)], kind=STREAM)
    last = {"whole": "ab", "usage": {"total_tokens": 3}, "sluice": {"tags": ["t"]}}
    *events, done = body.split(b"\n\n")[1:-1]
    assert body.startswith(b": keep-alive\n\n")
    assert [json.loads(event[6:]) for event in events] == [{"piece": "a"}, {"piece": "b"}, last]
    assert done == b"data: [DONE]"


@pytest.mark.parametrize(("code", "status"), [("engine_timeout", 504), (422, 422), ("strange", 500)])
async def test_a_failure_in_a_stream_has_the_status_of_its_code(code: Any, status: int) -> None:
    raw = frames(piece("a"), {"error": {"code": code}})
    _, body, _ = await told("/b/plain/v1/x", raw, kind=STREAM)
    assert json.loads(body.split(b"\n\n")[-2][6:]) == {"failed": code, "status": status}


@pytest.mark.parametrize("path", ["/v1/x", "/b/other/v1/x", "/b/plain/metrics", "/b/plain", "/metrics"])
async def test_other_paths_are_left_alone(path: str) -> None:
    head, body, asked = await told(path, b'{"a": 1}')
    assert (body, asked) == (b'{"a": 1}', path)
    assert dict(head["headers"])[b"content-length"] == b"9"


async def test_a_key_has_its_shape_on_v1_and_others_do_not() -> None:
    for key, is_told in (("a", True), ("b", False), (None, False)):
        _, body, _ = await told("/v1/x", b'{"a":1}', chain=links(keys=frozenset("a")), key=key)
        assert (b"said" in body) is is_told


async def test_a_wrong_key_is_told_so_in_the_shape_of_the_path() -> None:
    chain = links(keys=frozenset("a"))
    _, body, _ = await told("/b/plain/v1/x", b'{"error":{"code":"x"}}', status=401, key=None, chain=chain)
    assert b"failed" in body
    _, body, _ = await told("/b/plain/v1/x", b'{"a":1}', key="b", chain=chain)
    assert b"said" not in body


@pytest.mark.parametrize(("raw", "kind"), [(b"", JSON), (b"{", JSON), (b"[1]", JSON), (b"metrics", b"text/plain")])
async def test_what_is_no_answer_is_left_as_it_is(raw: bytes, kind: bytes) -> None:
    head, body, _ = await told("/b/plain/v1/x", raw, kind=kind)
    assert body == raw
    assert dict(head["headers"])[b"content-type"] == kind


async def test_a_shape_in_the_shadow_tells_nothing() -> None:
    _, _, path = await told("/b/plain/v1/x", b"{}", chain=links(shadow=True))
    assert path == "/b/plain/v1/x"


class Port:
    """The server's, which may only be asked for the body and told to close."""

    dropped = False

    def take(self) -> bytes:
        return b"{}"

    def drop(self) -> None:
        self.dropped = True


@pytest.mark.parametrize(("kind", "length"), [(JSON, 9), (STREAM, None)])
async def test_what_would_leave_by_the_servers_port_is_told_too(kind: bytes, length: int | None) -> None:
    sent: list[Any] = []
    port = Port()
    scope: dict[str, Any] = {"type": "http", "path": "/b/plain/v1/x", "sluice": Record(), "sluice.port": port}
    scope["sluice.principal"] = SimpleNamespace(name="a")
    raw = b'{"a":"b"}' if kind == JSON else frames(piece("a"))

    async def app(scope: Any, receive: Any, send: Any) -> None:
        mine = scope["sluice.port"]
        assert mine.take() == b"{}"
        mine.head(200, b"content-type: %b\r\nx-a: b\r\n" % kind, length)
        assert not mine.data(raw, more=False)
        await send({"type": "http.response.body", "body": raw, "more_body": False})
        mine.drop()

    async def send(message: Any) -> None:
        sent.append(message)

    live: Any = SimpleNamespace(chain=Chain(links()))
    await Shaped(app, lambda: live)(scope, None, send)  # type: ignore[arg-type] # nothing is received here
    head, body = sent
    counted = {} if length is None else {b"content-length": b"%d" % len(body["body"])}
    assert dict(head["headers"]) == {b"content-type": kind, b"x-a": b"b", **counted}
    assert body["body"] == (b'{"said":{"a":"b"}}' if kind == JSON else b'data: {"piece":"a"}\n\n')
    assert port.dropped
    assert "sluice.port" not in scope, "no circle is left to the collector"
