"""A model is swapped and swapped back by an operator's commands, and no stream is cut or lost."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.fakes.script import Gate, paced, says
from tests.fakes.vllm import FakeVLLM
from tests.harness import CHAT, HI, OPERATOR, SLUICE, TEAM, Gateway, configuration, hear, model, until
from tests.system.conftest import StartGateway

WORDS = 12
TEXT = {name: f"{name} " * WORDS for name in ("blue", "green")}


@pytest.fixture(name="pair")
def _pair() -> Iterator[tuple[FakeVLLM, FakeVLLM]]:
    with FakeVLLM() as blue, FakeVLLM() as green:
        for fake, name in ((blue, "blue"), (green, "green")):
            fake.always(says(*paced(f"{name} ", WORDS, 0.02)))
        yield blue, green


def sluice(gateway: Gateway, *words: str, key: str = OPERATOR) -> subprocess.CompletedProcess[str]:
    """Run ``sluice engines …`` against the gateway."""
    environment = {**os.environ, "SLUICE_URL": gateway.url, "SLUICE_KEY": key}
    return subprocess.run(
        [str(SLUICE), "engines", *words], env=environment, capture_output=True, text=True, check=False, timeout=40
    )


def done(gateway: Gateway, *words: str) -> str:
    ran = sluice(gateway, *words)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def rows(gateway: Gateway) -> dict[str, dict[str, object]]:
    return {row["name"]: row for row in gateway.get("/admin/engines", OPERATOR).json()["engines"]}


class Callers:
    """Streams without a pause, as long as the test lasts."""

    def __init__(self, gateway: Gateway, count: int) -> None:
        self._gateway, self._stop = gateway, threading.Event()
        self.heard: list[str] = []
        self.faults: list[object] = []
        self._pool = ThreadPoolExecutor(count)
        self._running = [self._pool.submit(self._call) for _ in range(count)]

    def _call(self) -> None:
        while not self._stop.is_set():
            heard = hear(self._gateway, {})
            if heard.status != 200 or heard.errors or not heard.done or heard.text() not in TEXT.values():
                self.faults.append((heard.status, heard.raw[-300:]))
            self.heard.append(heard.text()[:5].strip())

    def end(self) -> None:
        self._stop.set()
        for each in self._running:
            each.result(20)
        self._pool.shutdown()

    def now(self, name: str, count: int = 8) -> None:
        """Wait until so many streams in a row were this engine's."""
        until(
            lambda: len(self.heard) >= count and set(self.heard[-count:]) == {name},
            15,
            f"not {name}: {self.heard[-20:]}",
        )


def test_blue_green_and_back_in_four_commands_each_under_running_streams(
    pair: tuple[FakeVLLM, FakeVLLM], start_gateway: StartGateway
) -> None:
    blue, green = pair
    config = configuration([{"name": "smollm2", "engines": [{"name": "blue", "url": blue.url}]}], workers=2)
    gateway = start_gateway(config, within=30)
    callers = Callers(gateway, 4)
    try:
        callers.now("blue")
        done(gateway, "add", "green", green.url)
        until(lambda: rows(gateway).get("green", {}).get("state") in {"up", "slow start"}, 10)
        assert "green" not in callers.heard
        done(gateway, "weight", "green", "1")
        done(gateway, "drain", "blue", "--wait", "20")
        callers.now("green")
        done(gateway, "remove", "blue")
        until(lambda: set(rows(gateway)) == {"green"}, 10)  # whichever worker is asked
        done(gateway, "restore", "blue")
        until(lambda: rows(gateway).get("blue", {}).get("state") in {"up", "slow start"}, 10)
        done(gateway, "drain", "green", "--wait", "20")
        callers.now("blue")
        done(gateway, "remove", "green")
    finally:
        callers.end()
    assert callers.faults == []
    assert len(callers.heard) > 40
    asked = [len(fake.requests()) for fake in pair]
    assert sum(asked) == len(callers.heard)  # none was sent twice


def test_drain_waits_for_the_last_stream_and_says_when_it_has_no_time(
    pair: tuple[FakeVLLM, FakeVLLM], start_gateway: StartGateway
) -> None:
    blue, green = pair
    gateway = start_gateway(configuration([model("smollm2", blue.url, green.url)]))
    gates: list[Gate] = [fake.gate() for fake in pair]
    for fake, gate in zip(pair, gates, strict=True):
        fake.script(says("first ", gate, "last"))
    with ThreadPoolExecutor(2) as pool:
        streams = [pool.submit(hear, gateway, {}) for _ in range(2)]
        blue.wait_for()
        green.wait_for()
        until(lambda: gateway.metric("sluice_engine_in_flight", engine="smollm2-0") == 1)
        late = sluice(gateway, "drain", "smollm2-0", "--wait", "0.5")
        assert (late.returncode, "requests are still at smollm2-0" in late.stderr) == (3, True)
        assert {hear(gateway, {}).text() for _ in range(4)} == {TEXT["green"]}
        gates[0].set()
        done(gateway, "drain", "smollm2-0", "--wait", "20")
        gates[1].set()
        assert [stream.result().text() for stream in streams] == ["first last"] * 2


def test_orders_outlive_a_reload_and_a_worker(pair: tuple[FakeVLLM, FakeVLLM], start_gateway: StartGateway) -> None:
    blue, green = pair
    config = configuration([model("smollm2", blue.url, green.url)], workers=2)
    gateway = start_gateway(config, within=30)
    done(gateway, "weight", "smollm2-0", "0")
    gateway.write({**config, "models": [model("smollm2", blue.url, green.url, aliases=["other"])]})
    until(lambda: gateway.get("/v1/models/other").status_code == 200, 12)
    assert {hear(gateway, {}).text() for _ in range(12)} == {TEXT["green"]}
    again = [{"name": "smollm2-0", "url": blue.url, "weight": 2}, {"name": "smollm2-1", "url": green.url, "weight": 0}]
    gateway.write({**config, "models": [{"name": "smollm2", "engines": again}]})
    until(lambda: {hear(gateway, {}).text() for _ in range(4)} == {TEXT["blue"]}, 12)


def test_who_is_no_operator_and_what_cannot_be_gets_one_line(
    pair: tuple[FakeVLLM, FakeVLLM], start_gateway: StartGateway
) -> None:
    gateway = start_gateway(configuration([model("smollm2", *(fake.url for fake in pair))]))
    for words, key, code, said in (
        (("list",), TEAM, 2, "is for operators"),
        (("list",), "sk-wrong", 2, "key"),
        (("weight", "red", "1"), OPERATOR, 2, "There is no engine 'red'."),
        (("add", "smollm2-0", "http://127.0.0.1:1"), OPERATOR, 2, "There is an engine 'smollm2-0' already."),
        (("list", "--url", "http://127.0.0.1:1"), OPERATOR, 3, "no connection"),
        (("list", "--url", "nonsense"), OPERATOR, 2, "URL"),
        (("list", "--url", pair[0].url), OPERATOR, 2, "no gateway of ours"),
        (("weight", "smollm2-0", "much"), OPERATOR, 2, "invalid float"),
    ):
        ran = sluice(gateway, *words, key=key)
        assert (ran.returncode, ran.stdout) == (code, ""), words
        assert ran.stderr.count("\n") == 1
        assert said in ran.stderr
    assert {row["name"] for row in json.loads(done(gateway, "list", "--json"))} == {"smollm2-0", "smollm2-1"}
    listing = done(gateway, "list").splitlines()
    assert listing[0].split()[:4] == ["model", "name", "state", "weight"]
    assert [line.split()[1] for line in listing[1:]] == ["smollm2-0", "smollm2-1"]
    assert gateway.post(CHAT, {"model": "smollm2", "messages": HI}).status_code == 200
