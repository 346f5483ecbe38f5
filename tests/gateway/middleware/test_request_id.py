from __future__ import annotations

from ipaddress import ip_address, ip_network
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.middleware.request_id import RequestId, caller
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


PROXIES = [ip_network("10.0.0.0/8"), ip_network("2001:db8::/32")]


@pytest.mark.parametrize(
    ("peer", "forwarded", "address"),
    [
        ("203.0.113.9", ["198.51.100.1"], "203.0.113.9"),  # not one of ours: its word counts nothing
        ("10.0.0.1", ["198.51.100.1"], "198.51.100.1"),
        ("10.0.0.1", ["1.2.3.4, 198.51.100.1, 10.0.0.2"], "198.51.100.1"),  # what is left of it the caller wrote itself
        ("10.0.0.1", ["1.2.3.4", "198.51.100.1"], "198.51.100.1"),  # two fields are one list
        ("10.0.0.1", ["10.0.0.3, 10.0.0.2"], "10.0.0.3"),
        ("10.0.0.1", ["198.51.100.1, <script>"], "10.0.0.1"),
        ("2001:db8::1", ["2001:DB8:0::5, 2001:db9::1"], "2001:db9::1"),
        ("unix", ["198.51.100.1"], "unix"),
        ("::ffff:10.0.0.1", ["198.51.100.1, ::ffff:10.0.0.2"], "198.51.100.1"),  # IPv4 that came over IPv6
        ("10.0.0.1", ["::ffff:198.51.100.1"], "198.51.100.1"),
        ("10.0.0.1", ["1.2.3.4, 198.51.100.1:443"], "198.51.100.1"),  # some proxies write the port
        ("10.0.0.1", ["[2001:db9::1]:443, [2001:db8::2]"], "2001:db9::1"),
        ("10.0.0.1", ["198.51.100.1:443:1"], "10.0.0.1"),
    ],
)
def test_the_caller_is_the_right_most_address_that_is_no_trusted_proxys(
    peer: str, forwarded: list[str], address: str
) -> None:
    headers = [(b"x-forwarded-for", entry.encode()) for entry in forwarded]
    assert caller(peer, [(b"host", b"x"), *headers], PROXIES) == address


@given(
    st.lists(st.binary(max_size=20).filter(lambda raw: b"\r" not in raw and b"\n" not in raw), min_size=1, max_size=4)
)
def test_nothing_that_a_caller_writes_is_taken_for_an_address_that_is_none(fields: list[bytes]) -> None:
    ip_address(caller("10.0.0.1", [(b"x-forwarded-for", field) for field in fields], PROXIES))
