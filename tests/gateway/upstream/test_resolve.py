"""Names with several addresses."""

from __future__ import annotations

import asyncio
import socket

import pytest

from gateway.upstream.client import Origin
from gateway.upstream.resolve import addresses, is_name


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("http://vllm.models.svc.cluster.local:8000", True),
        ("http://localhost:8000", False),
        ("http://127.0.0.1:8000", False),
        ("http://[::1]:8000", False),
        ("unix:/run/vllm.sock", False),
    ],
)
def test_only_a_name_of_another_machine_is_looked_up(url: str, *, name: bool) -> None:
    assert is_name(Origin.parse(url)) is name


async def test_all_addresses_of_one_family_are_returned_once_each(monkeypatch: pytest.MonkeyPatch) -> None:
    v4, v6 = socket.AF_INET, socket.AF_INET6
    found: list[tuple[object, ...]] = [
        (v6, 1, 6, "", ("fd00::1", 80, 0, 0)),
        *((v4, 1, 6, "", (ip, 80)) for ip in ("10.0.0.2", "10.0.0.1", "10.0.0.2")),
    ]

    async def told(*_: object, **__: object) -> list[tuple[object, ...]]:
        return found

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", told, raising=False)
    try:
        assert await addresses("x", 80) == ("10.0.0.1", "10.0.0.2")
        del found[1:]
        assert await addresses("x", 80) == ("fd00::1",)
    finally:
        monkeypatch.undo()


async def test_this_machine_is_found() -> None:
    assert await addresses("localhost", 80) in {("127.0.0.1",), ("::1",)}
