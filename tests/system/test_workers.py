"""Several workers behind one port: one that dies is replaced, and none outlives the parent."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import httpx

from tests.fakes.script import paced, says
from tests.fakes.vllm import FakeVLLM
from tests.harness import CHAT, HI, TEAM, Gateway, authorization, configuration, model, until
from tests.system.conftest import StartGateway


def workers(gateway: Gateway) -> set[int]:
    pid = gateway.process.pid
    return {int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()}


def all_up(gateway: Gateway, count: int) -> bool:
    return len([name for name in gateway.metrics() if name.startswith("process_open_fds")]) == count


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_a_worker_that_dies_is_replaced_and_its_gauges_go_with_it(fake: FakeVLLM, start_gateway: StartGateway) -> None:
    gateway = start_gateway(configuration([model("smollm2", fake.url)], workers=2), within=30)
    until(lambda: all_up(gateway, 2), 20)
    before = workers(gateway)
    fake.script(says(*paced("word ", 300, 0.1)))
    body = {"model": "smollm2", "messages": HI, "stream": True}
    with httpx.stream("POST", gateway.url + CHAT, json=body, headers=authorization(TEAM), timeout=10) as answer:
        pieces = answer.iter_raw()
        assert next(pieces)
        gateway.wait_metric("sluice_in_flight", 1)
        for pid in before:
            os.kill(pid, signal.SIGKILL)
    until(lambda: len(workers(gateway) - before) == 2, 10)
    until(lambda: all_up(gateway, 2), 20)
    gateway.wait_metric("sluice_in_flight", 0)
    assert gateway.post(CHAT, {"model": "smollm2", "messages": HI}).status_code == 200
    assert {line["pid"] for line in gateway.records() if line["event"] == "worker_died"} == before
    assert gateway.stop() == 0


def test_no_worker_outlives_a_parent_that_was_killed(fake: FakeVLLM, start_gateway: StartGateway) -> None:
    gateway = start_gateway(configuration([model("smollm2", fake.url)], workers=2), within=30)
    until(lambda: all_up(gateway, 2), 20)
    pids = workers(gateway)
    gateway.process.kill()
    until(lambda: all(map(gone, pids)), 10, "a worker was left behind")
