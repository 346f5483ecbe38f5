from __future__ import annotations

import resource
import socket
from pathlib import Path

import pytest

from gateway import __version__
from gateway.serving import CannotListen, bind
from tests.gateway.serving.stub import served, until


def test_a_taken_port_is_one_line_with_the_mend() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            CannotListen, match=rf"^cannot listen on 127\.0\.0\.1:{port}: Address already in use\. .*--port"
        ):
            bind("127.0.0.1", port)


@pytest.mark.parametrize("host", ["192.0.2.1", "no.such.host.invalid"])
def test_an_address_that_is_not_ours_is_one_line(host: str) -> None:
    with pytest.raises(CannotListen, match=f"^cannot listen on {host}:0: ") as told:
        bind(host, 0)
    assert "\n" not in str(told.value)


def test_ipv6_is_listened_on_where_it_is_asked_for() -> None:
    with bind("::1", 0) as listener:
        assert listener.family is socket.AF_INET6


def test_at_no_address_of_ipv6_ipv4_is_answered_too() -> None:
    with bind("::", 0) as listener:
        port = listener.getsockname()[1]
        for host in ("127.0.0.1", "::1"):
            socket.create_connection((host, port), timeout=5).close()


def test_a_process_whose_port_is_taken_ends_with_3() -> None:
    with served() as first, served("--port", str(first.port), ready=False) as second:
        assert second.status() == 3
    assert second.errors.startswith("sluice: cannot listen on ")
    assert second.errors.count("\n") == 1


def test_the_start_is_told_to_people_and_to_machines() -> None:
    with served() as server:
        until(lambda: server.errors and server.events("started"))
        assert server.errors == f"Sluice {__version__} listens on {server.url}\n"
        (event,) = server.events("started")
        assert (event["address"], event["workers"], event["version"]) == (server.url, 1, __version__)


def test_there_are_files_enough_for_many_streams() -> None:
    with served() as server:
        limits = Path(f"/proc/{server.process.pid}/limits").read_text()
    (line,) = [line for line in limits.splitlines() if line.startswith("Max open files")]
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    assert int(line.split()[3]) >= min(65536, hard if hard > 0 else 65536)
