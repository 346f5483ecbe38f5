"""A collector in this process hears what a gateway sends; the engine hears whose child it is."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.fakes.script import says
from tests.fakes.vllm import FakeVLLM
from tests.harness import CHAT, TEAM, Gateway, authorization, configuration, free_port, model, running_gateway, until

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


class Collector(ThreadingHTTPServer):
    """Takes spans as OpenTelemetry's own collector does."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        self.raw = b""
        super().__init__(("127.0.0.1", 0), Heard)

    def named(self, name: str) -> list[Any]:
        return [span for span in self.spans if span.name == name]


class Heard(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        assert self.path == "/v1/traces"
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.raw += body
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            for scope in resource.scope_spans:
                self.server.spans.extend(scope.spans)
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:  # quiet
        pass


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with Collector() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture(scope="module")
def engine() -> Iterator[FakeVLLM]:
    with FakeVLLM() as fake:
        yield fake


@pytest.fixture(scope="module")
def traced(engine: FakeVLLM, collector: Collector, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    config = configuration([model("smollm2", engine.url)], traces=f"http://127.0.0.1:{collector.server_port}")
    environ = {"OTEL_BSP_SCHEDULE_DELAY": "100"}
    with running_gateway(config, tmp_path_factory.mktemp("gateway"), environment=environ) as gateway:
        yield gateway


def ask(gateway: Gateway, text: str, **headers: str) -> None:
    body = {"model": "smollm2", "messages": [{"role": "user", "content": text}], "stream": True}
    answer = httpx.post(gateway.url + CHAT, json=body, headers={**authorization(TEAM), **headers}, timeout=10)
    assert answer.status_code == 200


def test_an_exchange_is_a_span_and_so_is_each_of_its_phases(
    traced: Gateway, engine: FakeVLLM, collector: Collector
) -> None:
    engine.script(says("hello"))
    ask(traced, "hi")
    until(lambda: bool(collector.named(f"POST {CHAT}")), within=10)
    (root,) = collector.named(f"POST {CHAT}")
    children = {span.name: span for span in collector.spans if span.parent_span_id == root.span_id}
    assert {"auth", "connect", "first_token", "decode"} <= set(children)
    for child in children.values():
        assert child.trace_id == root.trace_id
        assert root.start_time_unix_nano <= child.start_time_unix_nano <= child.end_time_unix_nano
    told = {each.key: each.value for each in root.attributes}
    assert told["gen_ai.request.model"].string_value == "smollm2"
    assert told["sluice.outcome"].string_value == "ok"
    assert told["http.response.status_code"].int_value == 200


def test_the_engines_spans_are_children_of_ours_and_ours_of_the_callers(
    traced: Gateway, engine: FakeVLLM, collector: Collector
) -> None:
    collector.spans.clear()
    engine.reset()
    engine.script(says("hello"))
    ask(traced, "hi", traceparent=PARENT)
    until(lambda: bool(collector.named(f"POST {CHAT}")), within=10)
    (root,) = collector.named(f"POST {CHAT}")
    (received,) = engine.requests()
    assert root.trace_id.hex() == PARENT.split("-")[1]
    assert root.parent_span_id.hex() == PARENT.split("-")[2]
    sent = dict(received.headers)["traceparent"]
    assert sent == f"00-{root.trace_id.hex()}-{root.span_id.hex()}-01"


def test_no_text_and_no_key_is_in_a_span(traced: Gateway, engine: FakeVLLM, collector: Collector) -> None:
    collector.spans.clear()
    engine.script(says("canary-answer-5e21"))
    ask(traced, "canary-7f3a 13800138000")
    until(lambda: bool(collector.named(f"POST {CHAT}")), within=10)
    assert not re.search(rb"canary|13800138000|" + TEAM.encode(), collector.raw)


def test_a_collector_that_is_away_holds_nothing_up(engine: FakeVLLM, tmp_path: Path) -> None:
    config = configuration([model("smollm2", engine.url)], traces=f"http://127.0.0.1:{free_port()}")
    with running_gateway(config, tmp_path) as gateway:
        engine.script(says("hello"))
        ask(gateway, "hi")


def test_without_it_nothing_of_opentelemetry_is_imported() -> None:
    code = "import sys, gateway.app; print([name for name in sys.modules if name.startswith('opentelemetry.sdk')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
