from __future__ import annotations

from typing import Any

import pytest

from gateway.middleware.request_id import RequestId
from gateway.record import Record


async def record_of(path: str = "/", *headers: tuple[bytes, bytes], middleware: RequestId | None = None) -> Record:
    scope: dict[str, Any] = {"type": "http", "method": "POST", "path": path, "headers": list(headers)}
    await (middleware or RequestId(nothing))(scope, nothing, nothing)
    record: Record = scope["sluice"]
    return record


async def nothing(*_: Any) -> Any:
    return None


@pytest.mark.parametrize("ours", [b"a", b"req_1.2-3", b"0123456789abcdef" * 8])
async def test_a_caller_s_own_id_is_kept(ours: bytes) -> None:
    assert (await record_of("/", (b"x-request-id", ours))).request_id == ours.decode()


@pytest.mark.parametrize("bad", [b"", b"a b", b"a" * 129, "é".encode(), b"a\nb", b"<script>", b"a,b", b"a\n"])
async def test_an_id_that_could_do_harm_is_replaced(bad: bytes) -> None:
    record = await record_of("/", (b"x-request-id", bad))
    assert record.request_id.startswith("req-")


async def test_minted_ids_are_unique_also_over_processes() -> None:
    one, other = RequestId(nothing), RequestId(nothing)
    ids = [(await record_of(middleware=middleware)).request_id for middleware in (one, other) for _ in range(100)]
    assert len(set(ids)) == 200
    assert all(len(each) <= 128 for each in ids)


@pytest.mark.parametrize(
    ("path", "route"),
    [
        ("/v1/chat/completions", "/v1/chat/completions"),
        ("/v1/chat/completions/", "/v1/chat/completions"),
        ("/v1/models/org/name", "/v1/models"),
        ("/readyz", "/readyz"),
        ("/v1/../metrics", "other"),
        ("/V1/models", "other"),
        ("/wp-login.php", "other"),
        ("", "other"),
    ],
)
async def test_only_known_routes_are_named(path: str, route: str) -> None:
    assert (await record_of(path)).route == route


async def test_method_and_start_are_noted() -> None:
    record = await record_of("/v1/models")
    assert record.method == "POST"
    assert record.started > 0


async def test_what_is_no_request_passes_by() -> None:
    scope: dict[str, Any] = {"type": "lifespan"}
    await RequestId(nothing)(scope, nothing, nothing)
    assert "sluice" not in scope
