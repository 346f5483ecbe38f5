from __future__ import annotations

import os
import signal
import tempfile
import time
from pathlib import Path

import httpx

from tests.gateway.serving.stub import CHAT, Served, served, until


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def all_up(server: Served, count: int) -> list[int]:
    until(lambda: len(server.children()) == count)
    until(lambda: server.get("/metrics").text.count("process_open_fds{") == count, 20)
    return server.children()


def test_counters_are_the_sum_of_all_workers_and_never_fall() -> None:
    with served("--workers", "4") as server:
        all_up(server, 4)
        seen: list[float] = []
        pids = set()
        for number in range(100):
            pids.add(server.get(CHAT).headers["x-pid"])  # a connection each
            if number % 5 == 0:
                seen.append(server.metric("sluice_requests_total"))
        until(lambda: server.metric("sluice_requests_total") == 100)
        assert seen == sorted(seen)
        assert len(pids) > 1
        assert server.metric("sluice_in_flight") == 0
        server.signal(signal.SIGTERM)
        assert server.status() == 0


def test_a_worker_that_dies_is_replaced_and_what_it_counted_stays() -> None:
    with served("--workers", "2") as server:
        before = all_up(server, 2)
        with httpx.stream("GET", f"{server.url}{CHAT}?pieces=1000&pause=0.1") as answer:
            victim = int(answer.headers["x-pid"])
            for _ in range(10):
                server.get(CHAT)
            until(lambda: server.metric("sluice_in_flight") == 1)
            until(lambda: server.metric("sluice_requests_total") == 10)
            os.kill(victim, signal.SIGKILL)
        until(lambda: set(server.children()) - set(before), 10)
        after = all_up(server, 2)
        assert victim not in after
        assert server.metric("sluice_requests_total") == 10
        assert server.metric("sluice_in_flight") == 0
        assert server.events("worker_died")[0] | {"pid": victim, "status": -9} == server.events("worker_died")[0]
        assert server.get("/livez").status_code == 200


def test_no_worker_outlives_a_parent_that_was_killed() -> None:
    with served("--workers", "2") as server:
        workers = all_up(server, 2)
        server.process.kill()
        until(lambda: not any(map(alive, workers)), 10, "a worker was left behind")


def test_all_workers_end_in_peace_and_a_second_signal_ends_them_now() -> None:
    with served("--workers", "2") as server:
        workers = all_up(server, 2)
        with httpx.stream("GET", f"{server.url}{CHAT}?pieces=100000&pause=0.05") as answer:
            pieces = answer.iter_raw()
            next(pieces)
            server.signal(signal.SIGTERM)
            until(lambda: len(server.events("stopping")) == 3)
            next(pieces)
            began = time.monotonic()
            server.signal(signal.SIGTERM)
            assert server.status() == 128 + signal.SIGTERM
            assert time.monotonic() - began < 4
        assert not any(map(alive, workers))


def test_a_worker_with_a_wrong_configuration_ends_it_all_at_once() -> None:
    with served("--workers", "2", "--fault", "exit", ready=False) as server:
        assert server.status() == 2


def test_sighup_reaches_every_worker() -> None:
    with served("--workers", "2") as server:
        all_up(server, 2)
        server.signal(signal.SIGHUP)
        until(lambda: len(server.events("reload asked")) == 2)


def test_the_directory_of_the_metrics_is_gone_at_the_end_and_so_are_those_of_killed_parents() -> None:
    shared = Path("/dev/shm")
    stale, fresh = (Path(tempfile.mkdtemp(prefix="sluice-metrics-", dir=shared)) for _ in range(2))
    os.utime(stale, (0, 0))
    before = set(shared.glob("sluice-metrics-*"))
    with served("--workers", "2") as server:
        all_up(server, 2)
        assert not stale.exists()
        server.signal(signal.SIGTERM)
        assert server.status() == 0
    assert set(shared.glob("sluice-metrics-*")) <= before
    fresh.rmdir()
