"""Beside the real nginx and the real promtool. Where one is not installed its tests are listed as not run."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.fakes.script import says
from tests.fakes.vllm import FakeVLLM
from tests.harness import CHAT, HI, Gateway, authorization, free_port, hear
from tests.tools import needs, running_nginx, tool

#: As people write it: nothing is set for streams, so buffering is on until a response says otherwise.
CONFIGURATION = """
daemon off;
pid {folder}/pid;
error_log stderr warn;
events {{}}
http {{
  access_log off;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  server {{
    listen 127.0.0.1:{port};
    location / {{ proxy_pass {gateway}; proxy_http_version 1.1; proxy_set_header Connection ""; }}
  }}
}}
"""


@pytest.fixture
def proxy(gateway: Gateway, tmp_path: Path) -> Iterator[str]:
    """An nginx in front of the gateway: its address."""
    port = free_port()
    with running_nginx(CONFIGURATION.format(folder=tmp_path, port=port, gateway=gateway.url), port, tmp_path):
        yield f"http://127.0.0.1:{port}"


def asking(proxy: str) -> contextlib.AbstractContextManager[httpx.Response]:
    body = {"model": "smollm2", "messages": HI, "stream": True}
    return httpx.stream("POST", proxy + CHAT, json=body, headers=authorization("sk-test-team"), timeout=10)


@needs("nginx")
def test_nginx_as_it_comes_holds_no_event_of_a_stream_back(fake: FakeVLLM, proxy: str) -> None:
    gate = fake.gate()
    fake.script(says("first", gate, "last"))
    with asking(proxy) as answer:
        lines = answer.iter_lines()
        assert any("first" in line for line in lines)  # while the engine waits at the gate
        gate.set()
        assert "data: [DONE]" in list(lines)


@needs("nginx")
def test_a_caller_that_leaves_nginx_stops_the_engine(fake: FakeVLLM, proxy: str) -> None:
    fake.script(says("first", fake.gate(), "last"))
    with asking(proxy) as answer:
        lines = answer.iter_lines()
        assert any("first" in line for line in lines)
        (received,) = fake.requests()
        assert not received.left.is_set()
        left = time.monotonic()
    assert received.seconds_until_left(left, 2) < 1


@needs("promtool")
def test_promtool_finds_no_fault_in_the_metrics(fake: FakeVLLM, gateway: Gateway) -> None:
    assert hear(gateway, {}).done
    metrics = gateway.get("/metrics").content
    assert b"sluice_requests_total" in metrics
    done = subprocess.run([tool("promtool"), "check", "metrics"], input=metrics, capture_output=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, b"")
