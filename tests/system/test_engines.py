"""Engines that are dead, hung, busy or stuck are left alone, nothing is sent twice, and nobody sees any of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.fakes.forms import chunk, error
from tests.fakes.script import RESET, SILENCE, answers, says, streams, writes
from tests.fakes.vllm import FakeVLLM
from tests.harness import CHAT, HI, TEAM, Gateway, authorization, configuration, free_port, hear, model, until
from tests.system.conftest import StartGateway

CHATTING = {"model": "smollm2", "messages": HI, "max_tokens": 5}


@pytest.fixture(name="pair")
def _pair() -> Iterator[tuple[FakeVLLM, FakeVLLM]]:
    with FakeVLLM() as one, FakeVLLM() as two:
        two.always(says("two"))
        yield one, two


def asked_at_once(gateway: Gateway, count: int, together: int) -> Counter[int]:
    """Ask on kept connections and count the statuses."""
    with (
        httpx.Client(base_url=gateway.url, headers=authorization(TEAM), timeout=20) as client,
        ThreadPoolExecutor(together) as pool,
    ):
        return Counter(pool.map(lambda _: client.post(CHAT, json=CHATTING).status_code, range(count)))


def test_a_dead_and_a_hung_engine_hold_up_nobody_who_is_not_at_them(
    pair: tuple[FakeVLLM, FakeVLLM], start_gateway: StartGateway
) -> None:
    """LB-01."""
    hung, well = pair
    hung.always(says(SILENCE))
    dead = f"http://127.0.0.1:{free_port()}"
    gateway = start_gateway(
        configuration([model("smollm2", dead, hung.url, well.url)], timeouts={"first_token_s": 5.0})
    )
    with ThreadPoolExecutor(6) as pool:

        def ask(_: int) -> str:
            heard = hear(gateway, {})
            return heard.text() or str(heard.status)

        said = Counter(pool.map(ask, range(60)))
    assert set(said) == {"two", "504"}
    assert 1 <= said["504"] <= 12  # those that were at it when it was found out, and one trial after each pause
    served = [line for line in gateway.records() if line.get("engine") == "smollm2-2" and "total_ms" in line]
    assert len(served) == said["two"]
    assert max(line["total_ms"] for line in served) < 4000  # by the gateway's clock; the hung one takes 5 s
    before = len(hung.requests())
    assert {hear(gateway, {}).text() for _ in range(4)} == {"two"}
    assert len(hung.requests()) <= before + 1
    hung.always(says("back"))
    until(lambda: hear(gateway, {}).text() == "back", 30)


def test_a_refused_connection_is_nobodys_business(pair: tuple[FakeVLLM, FakeVLLM], start_gateway: StartGateway) -> None:
    """LB-03, A."""
    _, well = pair
    gateway = start_gateway(configuration([model("smollm2", f"http://127.0.0.1:{free_port()}", well.url)]))
    for _ in range(6):
        heard = hear(gateway, {})
        assert (heard.text(), heard.done, heard.errors) == ("two", True, [])
    assert len(well.requests()) == 6


@pytest.mark.parametrize("status", [429, 503])
def test_a_busy_engine_is_asked_once_and_then_the_other(
    pair: tuple[FakeVLLM, FakeVLLM], start_gateway: StartGateway, status: int
) -> None:
    """LB-03, D."""
    busy, well = pair
    busy.always(answers(error(status, "busy"), status))
    gateway = start_gateway(configuration([model("smollm2", busy.url, well.url)]))
    assert {gateway.post(CHAT, CHATTING).json()["choices"][0]["message"]["content"] for _ in range(3)} == {"two"}
    assert len(busy.requests()) == 1
    well.always(answers(error(status, "busy"), status))
    answer = gateway.post(CHAT, CHATTING)
    assert answer.status_code == status
    assert int(answer.headers["retry-after"]) > 0
    assert len(busy.requests()) + len(well.requests()) <= 6


def test_a_burst_at_a_busy_engine_finds_the_other_to_the_last_request(
    pair: tuple[FakeVLLM, FakeVLLM], start_gateway: StartGateway
) -> None:
    busy, well = pair
    busy.always(answers(error(503, "busy"), 503))
    gateway = start_gateway(configuration([model("smollm2", busy.url, well.url)]))
    assert asked_at_once(gateway, 30, 30) == {200: 30}


def test_nothing_is_sent_again_after_a_timeout_or_a_first_event(
    pair: tuple[FakeVLLM, FakeVLLM], start_gateway: StartGateway
) -> None:
    """LB-03, B and C."""
    gateway = start_gateway(
        configuration([model("smollm2", *(fake.url for fake in pair))], timeouts={"first_token_s": 0.6})
    )
    for fake in pair:
        fake.always(says(SILENCE))
    assert hear(gateway, {}).status == 504
    assert sum(len(fake.requests()) for fake in pair) == 1
    for fake in pair:
        fake.always(streams(chunk("once"), RESET))
    heard = hear(gateway, {})
    assert (heard.text(), len(heard.errors)) == ("once", 1)
    assert sum(len(fake.requests()) for fake in pair) == 2


def test_a_bad_hour_does_not_double_the_load(pair: tuple[FakeVLLM, FakeVLLM], start_gateway: StartGateway) -> None:
    gateway = start_gateway(configuration([model("smollm2", *(fake.url for fake in pair))]))
    for fake in pair:
        fake.always(writes(RESET))
    assert set(asked_at_once(gateway, 60, 8)) <= {502, 503}
    sent = sum(len(fake.requests()) for fake in pair)
    assert sent <= 60 * 1.2 + 3 + 15  # a kept connection that breaks says nothing, and probes keep some; without: 120


def test_a_burst_over_new_connections_is_spread_evenly(
    pair: tuple[FakeVLLM, FakeVLLM], start_gateway: StartGateway
) -> None:
    gateway = start_gateway(configuration([model("smollm2", *(fake.url for fake in pair))]))
    gates = [fake.gate() for fake in pair]
    for fake, gate in zip(pair, gates, strict=True):
        fake.always(says(gate, "done"))
    with ThreadPoolExecutor(20) as pool:
        asked = [pool.submit(gateway.post, CHAT, CHATTING) for _ in range(20)]
        for fake in pair:
            fake.wait_for(10)
        for gate in gates:
            gate.set()
        assert {each.result().status_code for each in asked} == {200}
    assert [len(fake.requests()) for fake in pair] == [10, 10]


def test_an_engine_that_gets_nowhere_is_passed_over_before_any_timeout(
    pair: tuple[FakeVLLM, FakeVLLM], start_gateway: StartGateway
) -> None:
    stuck, well = pair
    served = model("smollm2", stuck.url, well.url, stalled_after_s=1.0, slow_start_s=0)
    gateway = start_gateway(configuration([served]))
    stuck.script(says("a", SILENCE))
    with ThreadPoolExecutor(1) as pool:
        pool.submit(hear, gateway, {})
        until(lambda: gateway.metric("sluice_engine_up", engine="smollm2-0") == 0, 8)
        assert gateway.wait_log(lambda line: line.get("event") == "engine_down")["trouble"] == "no progress"
        assert {hear(gateway, {}).text() for _ in range(6)} == {"two"}
        assert gateway.get("/readyz").status_code == 200
        stuck.close_all()
    until(lambda: gateway.metric("sluice_engine_up", engine="smollm2-0") == 1, 8)


def test_an_engine_is_warmed_before_its_first_request_and_again_when_it_comes_back(
    pair: tuple[FakeVLLM, FakeVLLM], start_gateway: StartGateway
) -> None:
    one, _ = pair
    gateway = start_gateway(configuration([model("smollm2", one.url)]))

    def warmed() -> int:
        return sum((each.header("x-request-id") or "").startswith("sluice-warm-up-") for each in one.everything())

    assert warmed() == 1
    one.healthy = False
    until(lambda: gateway.get("/readyz").status_code == 503, 10)
    one.healthy = True
    until(lambda: gateway.get("/readyz").status_code == 200, 10)
    assert warmed() == 2
