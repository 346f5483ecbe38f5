"""A new version gets its share of the work, or whom it is for; or copies that nobody sees."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.fakes.forms import error
from tests.fakes.script import RESET, SILENCE, Script, answers, says, writes
from tests.fakes.vllm import FakeVLLM
from tests.harness import CHAT, HI, OPERATOR, TEAM, Gateway, configuration, hear, key, until
from tests.system.conftest import StartGateway

IMPORTANT = "sk-test-important"


@pytest.fixture(name="pair")
def _pair() -> Iterator[tuple[FakeVLLM, FakeVLLM]]:
    with FakeVLLM() as main, FakeVLLM() as canary:
        main.always(says("main"))
        canary.always(says("canary"))
        yield main, canary


def started(start: StartGateway, pair: tuple[FakeVLLM, FakeVLLM], main: Any = (), canary: Any = ()) -> Gateway:
    engines = [
        {"name": "main", "url": pair[0].url, **dict(main)},
        {"name": "canary", "url": pair[1].url, **dict(canary)},
    ]
    keys = [
        key("team", TEAM),
        key("ops", OPERATOR, role="operator"),
        key("important", IMPORTANT, priority=-10),
    ]
    return start(configuration([{"name": "smollm2", "engines": engines, "slow_start_s": 0}], keys=keys))


def said(gateway: Gateway, secret: str = TEAM, **headers: str) -> str:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    answer = gateway.post(CHAT, {"model": "smollm2", "messages": HI, "max_tokens": 5}, secret, headers=named)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["choices"][0]["message"]["content"])


def test_a_canary_gets_five_percent(pair: tuple[FakeVLLM, FakeVLLM], start_gateway: StartGateway) -> None:
    gateway = started(start_gateway, pair, {"weight": 95}, {"weight": 5})
    assert Counter(said(gateway) for _ in range(100)) == {"main": 95, "canary": 5}


def test_whom_an_engine_is_for_goes_there_by_key_header_or_priority_and_nobody_else(
    pair: tuple[FakeVLLM, FakeVLLM], start_gateway: StartGateway
) -> None:
    gateway = started(start_gateway, pair, {}, {"weight": 0, "headers": {"X-Canary": "1"}, "priority": -10})
    assert {said(gateway) for _ in range(4)} == {"main"}
    assert {said(gateway, x_canary="1") for _ in range(4)} == {"canary"}
    assert {said(gateway, x_canary="0") for _ in range(4)} == {"main"}
    assert {said(gateway, IMPORTANT) for _ in range(4)} == {"canary"}
    pair[1].always(answers(error(503, "busy"), 503))
    assert {said(gateway, IMPORTANT) for _ in range(4)} == {"main"}
    gateway = started(start_gateway, pair, {}, {"weight": 0, "keys": ["team"]})
    pair[1].always(says("canary"))
    assert (said(gateway), said(gateway, IMPORTANT)) == ("canary", "main")


def test_a_session_stays_where_it_is(pair: tuple[FakeVLLM, FakeVLLM], start_gateway: StartGateway) -> None:
    gateway = started(start_gateway, pair)
    homes = {session: {said(gateway, x_session_id=session) for _ in range(4)} for session in map(str, range(12))}
    assert all(len(home) == 1 for home in homes.values())
    assert set.union(*homes.values()) == {"main", "canary"}


@pytest.mark.parametrize(
    ("fate", "became"),
    [
        (says("copy"), "ok"),
        (answers(error(500, "broke"), 500), "status_5xx"),
        (writes(RESET), "broken"),
        (says(SILENCE), None),
    ],
)
def test_a_mirror_gets_copies_and_harms_nobody(
    pair: tuple[FakeVLLM, FakeVLLM], start_gateway: StartGateway, fate: Script, became: str | None
) -> None:
    gateway = started(start_gateway, pair, {}, {"mirror": 1})
    pair[1].always(fate)
    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(lambda _: said(gateway), range(6))) == {"main"}
    heard = hear(gateway, {})
    assert (heard.text(), heard.done) == ("main", True)
    assert [len(fake.wait_for(7)) for fake in pair] == [7, 7]
    assert sorted(each.raw for each in pair[0].requests()) == sorted(each.raw for each in pair[1].requests())
    gateway.wait_metric("sluice_mirror_requests_total", 7, engine="canary", side="original", outcome="ok")
    assert gateway.metric("sluice_mirror_tokens_total", engine="canary", side="original") > 0
    if became is not None:
        gateway.wait_metric("sluice_mirror_requests_total", 7, engine="canary", side="copy", outcome=became)


def test_a_mirror_alone_makes_no_gateway_ready(pair: tuple[FakeVLLM, FakeVLLM], start_gateway: StartGateway) -> None:
    gateway = started(start_gateway, pair, {}, {"mirror": 1})
    pair[0].healthy = False
    until(lambda: gateway.get("/readyz").status_code == 503, 10)
