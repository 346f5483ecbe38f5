"""The end: readiness first, then the listener, and what runs may finish."""

from __future__ import annotations

import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.fakes.script import SILENCE, paced, says
from tests.fakes.vllm import FakeVLLM
from tests.harness import CHAT, HI, TEAM, Gateway, authorization, configuration, model, until
from tests.system.conftest import StartGateway

STREAM = {"model": "smollm2", "messages": HI, "stream": True}


@pytest.fixture
def gateway(fake: FakeVLLM, start_gateway: StartGateway) -> Gateway:
    return start_gateway(configuration([model("smollm2", fake.url)], drain_s=20))


def closed(gateway: Gateway) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", gateway.port)) != 0


def test_a_rollout_cuts_no_stream(fake: FakeVLLM, gateway: Gateway) -> None:
    """K8-01: the stream outlives the listener, and a request that comes just after the signal is served."""
    fake.script(says(*paced("word ", 70, 0.1)), says("late"))
    with ThreadPoolExecutor() as pool:
        running = pool.submit(gateway.post, CHAT, STREAM)
        fake.wait_for(1, route=CHAT)
        gateway.process.send_signal(signal.SIGTERM)
        until(lambda: gateway.get("/readyz").status_code == 503, 1)
        assert gateway.get("/livez").status_code == 200
        assert gateway.post(CHAT, {"model": "smollm2", "messages": HI}).status_code == 200
        until(lambda: closed(gateway), 8)
        assert not running.done()
        answer = running.result()
    assert answer.status_code == 200
    assert answer.text.count("word ") == 70
    assert answer.text.endswith("data: [DONE]\n\n")
    assert gateway.process.wait(5) == 0


def test_a_second_signal_ends_now(fake: FakeVLLM, gateway: Gateway) -> None:
    fake.script(says("word ", SILENCE))
    with httpx.stream("POST", gateway.url + CHAT, json=STREAM, headers=authorization(TEAM), timeout=10) as answer:
        pieces = answer.iter_raw()
        assert next(pieces)
        gateway.process.send_signal(signal.SIGTERM)
        until(lambda: gateway.get("/readyz").status_code == 503, 1)
        began = time.monotonic()
        gateway.process.send_signal(signal.SIGTERM)
        assert gateway.process.wait(5) != 0
        assert time.monotonic() - began < 3


def test_what_outlasts_the_drain_is_cut_off_and_the_engine_let_go(fake: FakeVLLM, start_gateway: StartGateway) -> None:
    gateway = start_gateway(configuration([model("smollm2", fake.url)], drain_s=0.5))
    fake.script(says("word ", SILENCE))
    with httpx.stream("POST", gateway.url + CHAT, json=STREAM, headers=authorization(TEAM), timeout=10) as answer:
        pieces = answer.iter_raw()
        assert next(pieces)
        gateway.process.send_signal(signal.SIGTERM)
        assert gateway.process.wait(8) == 0
    line = gateway.wait_log(lambda line: line["event"] == "request")
    assert line["outcome"] == "shutdown"


def test_idle_it_ends_within_a_moment(gateway: Gateway) -> None:
    began = time.monotonic()
    assert gateway.stop() == 0
    assert time.monotonic() - began < 3


def test_a_stream_that_outlives_the_drain_is_told_and_ends_properly(
    fake: FakeVLLM, start_gateway: StartGateway
) -> None:
    gateway = start_gateway(configuration([model("smollm2", fake.url)], drain_s=1))
    fake.script(says("word ", SILENCE))
    with httpx.stream("POST", gateway.url + CHAT, json=STREAM, headers=authorization(TEAM), timeout=10) as answer:
        pieces = answer.iter_raw()
        heard = next(pieces)
        gateway.process.send_signal(signal.SIGTERM)
        heard += b"".join(pieces)  # a body that is cut off raises here
    assert b'"code":"no_engine_available"' in heard
    assert b"[DONE]" not in heard
    assert gateway.process.wait(5) == 0
    assert not [line for line in gateway.log if "internal_error" in line]
