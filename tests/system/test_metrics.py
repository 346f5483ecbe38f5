"""What is counted: right with one worker and with several, and no caller makes a series."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor

import httpx
from prometheus_client.parser import text_string_to_metric_families

from tests.fakes.script import paced, says
from tests.fakes.vllm import FakeVLLM
from tests.harness import CHAT, HI, TEAM, Gateway, authorization, configuration, model, until
from tests.system.conftest import StartGateway


def chat(**more: object) -> dict[str, object]:
    return {"model": "smollm2", "messages": HI, **more}


def series(gateway: Gateway) -> set[str]:
    return {name for name in gateway.metrics() if name.startswith("sluice_")}


def test_the_text_is_prometheus_s_and_has_every_promised_metric(fake: FakeVLLM, gateway: Gateway) -> None:
    gateway.post(CHAT, chat())
    families = {family.name for family in text_string_to_metric_families(gateway.get("/metrics").text)}
    assert families >= {
        *("sluice_requests", "sluice_request_seconds", "sluice_in_flight", "sluice_tokens", "sluice_ttft_seconds"),
        *("sluice_chunk_gap_seconds", "sluice_phase_seconds", "sluice_queue_depth", "sluice_plugin_runs"),
        *(
            "sluice_plugin_seconds",
            "sluice_blocks",
            "sluice_config_reloads",
            "sluice_config_version",
            "sluice_engine_up",
        ),
    }


def test_a_stream_shows_in_each_of_its_metrics(fake: FakeVLLM, start_gateway: StartGateway) -> None:
    gateway = start_gateway(configuration([model("smollm2", fake.url)]))
    fake.script(says(*paced("word ", 5, 0.03)))
    gateway.post(CHAT, chat(stream=True))
    gateway.wait_metric("sluice_requests_total", 1, outcome="ok", route=CHAT, model="smollm2")
    assert gateway.metric("sluice_request_seconds_count", route=CHAT, model="smollm2") == 1
    assert gateway.metric("sluice_request_seconds_sum", route=CHAT, model="smollm2") >= 0.1
    assert gateway.metric("sluice_ttft_seconds_count") == 1
    assert gateway.metric("sluice_chunk_gap_seconds_count") >= 4
    assert gateway.metric("sluice_tokens_total", model="smollm2", kind="completion") > 0
    assert gateway.metric("sluice_tokens_total", model="smollm2", kind="prompt") > 0
    assert gateway.metric("sluice_plugin_runs_total", plugin="sensitive_words", outcome="ran") == 1
    for phase in ("auth", "chain_request", "connect", "first_token", "decode"):
        assert gateway.metric("sluice_phase_seconds_count", phase=phase) == 1, phase
    assert gateway.metric("sluice_engine_up", engine="smollm2-0") == 1
    assert gateway.metric("sluice_config_version") == 1


def test_requests_in_flight_are_counted_and_given_back(fake: FakeVLLM, gateway: Gateway) -> None:
    gate = fake.gate()
    fake.script(says(gate, "hello"))
    with ThreadPoolExecutor() as pool:
        answer = pool.submit(gateway.post, CHAT, chat())
        gateway.wait_metric("sluice_in_flight", 1, model="smollm2")
        gate.set()
        assert answer.result().status_code == 200
    gateway.wait_metric("sluice_in_flight", 0, model="smollm2")


def test_a_block_names_plugin_direction_and_tag(fake: FakeVLLM, gateway: Gateway) -> None:
    before = gateway.metric("sluice_blocks_total", plugin="sensitive_words", direction="request", tag="none")
    answer = gateway.post(CHAT, chat(messages=[{"role": "user", "content": "a forbiddenzebra"}]))
    assert answer.status_code == 400
    gateway.wait_metric("sluice_blocks_total", before + 1, plugin="sensitive_words", direction="request", tag="none")


def test_names_that_callers_make_up_make_no_series(fake: FakeVLLM, gateway: Gateway) -> None:
    """ML-01."""
    headers = authorization(TEAM)
    with httpx.Client(base_url=gateway.url, headers=headers) as client:
        client.post(CHAT, json=chat(model="junk"))
        client.get("/junk")
        before = series(gateway)
        for index in range(1000):
            client.post(CHAT, json=chat(model=f"junk-{index}"), headers={"x-request-id": uuid.uuid4().hex})
            client.get(f"/junk-{uuid.uuid4().hex}", headers={"x-request-id": f"id-{index}"})
    assert len(series(gateway) - before) <= 2
    assert not [name for name in series(gateway) if "junk" in name]


def test_counters_of_four_workers_are_one_sum_that_never_falls(fake: FakeVLLM, start_gateway: StartGateway) -> None:
    """ML-02."""
    gateway = start_gateway(configuration([model("smollm2", fake.url)], workers=4), within=30)
    until(lambda: len([name for name in gateway.metrics() if name.startswith("process_open_fds")]) == 4, 30)
    seen: list[dict[str, float]] = []

    with ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(gateway.post, CHAT, chat()) for _ in range(100)]
        seen.extend(gateway.metrics() for _ in range(20))
        assert {answer.result().status_code for answer in asked} == {200}
    gateway.wait_metric("sluice_requests_total", 100)
    assert gateway.metric("sluice_request_seconds_count") == 100
    gateway.wait_metric("sluice_in_flight", 0)
    seen.append(gateway.metrics())
    for name in seen[-1]:
        if "_total" in name or "_bucket" in name or "_count" in name:
            values = [scrape.get(name, 0.0) for scrape in seen]
            assert values == sorted(values), name


def test_a_scraper_s_key_has_to_be_an_operator_s_where_it_is_asked_for(
    fake: FakeVLLM, start_gateway: StartGateway
) -> None:
    gateway = start_gateway(configuration([model("smollm2", fake.url)], metrics="operator"))
    assert gateway.get("/metrics", None).status_code == 401
    assert gateway.get("/metrics", TEAM).status_code == 403
    assert gateway.metric("sluice_config_version") == 1
