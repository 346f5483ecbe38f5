from __future__ import annotations

from hashlib import sha256
from typing import Any

import pytest

from gateway.admission.keys import Principal
from gateway.middleware.auth import OPEN, Auth
from tests.gateway.middleware.asgi import Inside, Seen, ask, live

TEAM = Principal("team", sha256(b"sk-team").hexdigest())


async def asked(
    *headers: tuple[bytes, bytes], keys: tuple[Principal, ...] = (TEAM,), **more: Any
) -> tuple[Inside, Seen]:
    inside = Inside()
    configuration = live(*keys)
    seen = await ask(Auth(inside, lambda: configuration), headers=headers, **more)
    return inside, seen


@pytest.mark.parametrize("sent", [b"Bearer sk-team", b"bearer sk-team", b"BEARER  sk-team "])
async def test_a_key_is_known_whatever_the_scheme_s_case(sent: bytes) -> None:
    inside, seen = await asked((b"authorization", sent))
    assert inside.scope is not None
    assert inside.scope["sluice.principal"].name == "team"
    assert seen.record.key == "team"
    assert seen.record.config_version == 3


@pytest.mark.parametrize(
    "sent", [b"Bearer sk-TEAM", b"Bearer", b"", b"Basic sk-team", b"sk-team", "Bearer sk-téam".encode(), b"Bearer \xff"]
)
async def test_whatever_is_not_a_key_of_ours_is_401_and_goes_no_further(sent: bytes) -> None:
    inside, seen = await asked((b"authorization", sent))
    assert inside.scope is None
    assert (seen.status, seen.error["code"]) == (401, "invalid_api_key")
    assert "sk-" not in seen.error["message"]


async def test_no_key_is_401_and_says_how_one_is_sent() -> None:
    _, seen = await asked()
    assert seen.status == 401
    assert "Authorization: Bearer" in seen.error["message"]


async def test_two_keys_are_none_at_all() -> None:
    inside, seen = await asked((b"authorization", b"Bearer sk-team"), (b"authorization", b"Bearer sk-other"))
    assert inside.scope is None
    assert seen.status == 401


async def test_without_configured_keys_anyone_may_call() -> None:
    inside, seen = await asked((b"authorization", b"Bearer whatever"), keys=())
    assert inside.scope is not None
    assert seen.record.key is None


@pytest.mark.parametrize("path", sorted(OPEN))
async def test_the_operator_s_routes_are_reached_without_a_key(path: str) -> None:
    for spelled in (path, f"{path}/"):
        inside, _ = await asked(path=spelled, method="GET")
        assert inside.scope is not None
        assert inside.scope["sluice.principal"] is None


async def test_x_api_key_is_anthropic_s_and_counts_on_its_routes_only() -> None:
    inside, _ = await asked((b"x-api-key", b"sk-team"), path="/v1/messages")
    assert inside.scope is not None
    inside, seen = await asked((b"x-api-key", b"sk-team"))
    assert inside.scope is None
    assert seen.status == 401


async def test_what_is_no_request_passes() -> None:
    reached = []

    async def inside(scope: Any, _receive: Any, _send: Any) -> None:
        reached.append(scope["type"])

    await Auth(inside, live)({"type": "lifespan"}, None, None)  # type: ignore[arg-type]
    assert reached == ["lifespan"]
