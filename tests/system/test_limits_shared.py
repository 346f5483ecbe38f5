"""Several real gateways and workers with one Redis: limits hold over all of them, also when one is killed."""

from __future__ import annotations

import concurrent.futures
import signal
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests.fakes.script import SILENCE, says
from tests.fakes.vllm import FakeVLLM
from tests.harness import CHAT, HI, OPERATOR, TEAM, Gateway, RawCaller, configuration, key, model, until
from tests.redis_server import RedisServer, running_redis
from tests.system.conftest import StartGateway

BODY = {"model": "smollm2", "messages": HI, "max_tokens": 5}


@pytest.fixture(scope="module")
def redis_server() -> Iterator[RedisServer]:
    with running_redis() as server:
        yield server


def shared(fake: FakeVLLM, server: RedisServer, **limits: int) -> dict[str, Any]:
    keys = [key("team", TEAM, **limits), key("ops", OPERATOR, role="operator")]
    config = configuration([model("smollm2", fake.url)], keys=keys, chain=[])
    return {**config, "limits": {"redis": server.url, "lease_s": 2, "timeout_s": 1}}


def together(start_gateway: StartGateway, fake: FakeVLLM, server: RedisServer, **limits: int) -> list[Gateway]:
    """Start two gateways, one of them with two workers."""
    with server.client as client:
        client.flushall()
    first, second = shared(fake, server, **limits), shared(fake, server, **limits)
    second["server"]["workers"] = 2
    gateways = [start_gateway(first), start_gateway(second)]
    until(lambda: all(gateway.get("/readyz").json()["limits"] == "shared by 3" for gateway in gateways), 10)
    return gateways


def storm(gateways: list[Gateway], count: int) -> Counter[int]:
    """Ask all gateways at once."""
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        asked = [pool.submit(gateways[n % len(gateways)].post, CHAT, BODY) for n in range(count)]
        return Counter(each.result().status_code for each in asked)


def test_never_more_than_the_limit_passes(
    fake: FakeVLLM, redis_server: RedisServer, start_gateway: StartGateway
) -> None:
    gateways = together(start_gateway, fake, redis_server, rpm=20)
    assert storm(gateways, 60) == {200: 20, 429: 40}
    assert len(fake.requests()) == 20
    answer = gateways[1].post(CHAT, BODY)
    assert answer.headers["x-ratelimit-limit-requests"] == "20"
    assert answer.headers["x-ratelimit-remaining-requests"] == "0"


def test_nothing_leaks_when_a_gateway_is_killed(
    fake: FakeVLLM, redis_server: RedisServer, start_gateway: StartGateway
) -> None:
    lives, dies = together(start_gateway, fake, redis_server, max_in_flight=3, tokens_per_day=100_000)
    fake.always(says("a", SILENCE))
    callers = [RawCaller(dies.port).post(CHAT, {**BODY, "stream": True}) for _ in range(3)]
    fake.wait_for(3)
    assert lives.post(CHAT, BODY).status_code == 429
    dies.stop(signal.SIGKILL)
    for caller in callers:
        caller.close()
    fake.reset()
    fake.always(says("b"))
    until(lambda: lives.post(CHAT, BODY).status_code == 200, 10)
    with redis_server.client as client:
        until(lambda: client.zcard("{sluice}:team:leases") == 0)
        spent = int(client.hget("{sluice}:team:state", "Du") or 0)
    assert 0 < spent < 100  # what was answered, and nothing of those that were killed


def test_redis_away_is_told_and_survived(fake: FakeVLLM, start_gateway: StartGateway) -> None:
    with running_redis() as server:
        (gateway, other) = together(start_gateway, fake, server, rpm=300)
        assert storm([gateway, other], 4) == {200: 4}
        server.stop()
        until(lambda: gateway.get("/readyz").json()["limits"] == "in parts: Redis is away")
        gateway.wait_metric("sluice_limits_redis_away", 1)
        assert gateway.get("/readyz").status_code == 200
        answer = gateway.post(CHAT, BODY)
        assert answer.status_code == 200
        assert answer.headers["x-ratelimit-limit-requests"] == "100"  # its part of three
        server.start()
        until(lambda: gateway.get("/readyz").json()["limits"] == "shared by 3")
        gateway.wait_metric("sluice_limits_redis_away", 0)
        assert gateway.post(CHAT, BODY).headers["x-ratelimit-limit-requests"] == "300"
        gateway.wait_log(lambda line: line.get("event") == "limits_not_shared")
