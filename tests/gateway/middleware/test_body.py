from __future__ import annotations

import gzip
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.middleware.body import Body
from tests.gateway.middleware.asgi import Inside, Seen, ask, live

LIMIT = 1000
GZIP = (b"content-encoding", b"gzip")


async def asked(*headers: tuple[bytes, bytes], **more: Any) -> tuple[bytes | None, Seen]:
    inside = Inside()
    seen = await ask(Body(inside), headers=headers, scope={"sluice.live": live(max_body_bytes=LIMIT)}, **more)
    return None if inside.scope is None else inside.scope["sluice.body"], seen


@given(st.lists(st.binary(max_size=200), min_size=1, max_size=5))
async def test_a_body_arrives_whole_however_it_was_cut(parts: list[bytes]) -> None:
    body, _ = await asked(parts=parts)
    assert body == b"".join(parts)


@pytest.mark.parametrize("size", [LIMIT - 1, LIMIT])
async def test_a_body_up_to_the_limit_passes(size: int) -> None:
    body, _ = await asked(parts=[b"x" * size])
    assert body is not None


async def test_a_longer_body_is_413_and_the_connection_is_not_used_again() -> None:
    body, seen = await asked(parts=[b"x" * 600, b"x" * 600])
    assert body is None
    assert (seen.status, seen.error["code"]) == (413, "request_too_large")
    assert seen.headers[b"connection"] == b"close"


async def test_a_length_that_is_too_long_is_refused_before_it_is_read() -> None:
    _, seen = await asked((b"content-length", b"1001"), parts=[b""])
    assert seen.status == 413


@pytest.mark.parametrize("name", [b"gzip", b"GZIP", b"x-gzip"])
async def test_gzip_is_unpacked(name: bytes) -> None:
    body, _ = await asked((b"content-encoding", name), parts=[gzip.compress(b'{"a": 1}')])
    assert body == b'{"a": 1}'


async def test_several_gzip_members_are_one_body() -> None:
    body, _ = await asked(GZIP, parts=[gzip.compress(b"one") + gzip.compress(b"two")])
    assert body == b"onetwo"


async def test_the_limit_counts_unpacked_bytes_and_a_bomb_is_never_unpacked() -> None:
    bomb = gzip.compress(b"\0" * 50_000_000)
    packed = gzip.compress(b"\0" * 300_000)
    assert len(packed) < LIMIT
    _, seen = await asked(GZIP, parts=[packed])
    assert seen.status == 413
    _, seen = await asked(GZIP, parts=[bomb])
    assert seen.status == 413


@pytest.mark.parametrize("broken", [b"no gzip", gzip.compress(b"{}")[:-4], zlib.compress(b"{}")])
async def test_what_only_says_it_is_gzip_is_400(broken: bytes) -> None:
    body, seen = await asked(GZIP, parts=[broken])
    assert body is None
    assert (seen.status, seen.error["code"]) == (400, "invalid_request")


@pytest.mark.parametrize("name", [b"br", b"deflate", b"zstd", b"gzip, gzip"])
async def test_other_encodings_are_415(name: bytes) -> None:
    _, seen = await asked((b"content-encoding", name))
    assert (seen.status, seen.error["code"]) == (415, "unsupported_encoding")


@pytest.mark.parametrize("kind", [b"application/json", b"application/json; charset=utf-8", b"application/x+json", b""])
async def test_json_by_any_of_its_names_passes(kind: bytes) -> None:
    body, _ = await asked((b"content-type", kind))
    assert body == b"{}"


async def test_a_form_is_400() -> None:
    _, seen = await asked((b"content-type", b"application/x-www-form-urlencoded"))
    assert seen.status == 400
    assert "application/json" in seen.error["message"]


async def test_a_caller_that_leaves_before_its_body_is_complete_is_noted_and_nobody_is_asked() -> None:
    body, seen = await asked(parts=[b"{"], leaves=True)
    assert body is None
    assert seen.status == 0
    assert seen.record.outcome == "client_left"


async def test_a_get_has_no_body_to_read() -> None:
    inside = Inside()
    await ask(Body(inside), method="GET", scope={"sluice.live": live()})
    assert inside.scope is not None
    assert "sluice.body" not in inside.scope
