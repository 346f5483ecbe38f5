"""The door before a model, from outside: who waits, in what order, what is told, and that nothing is ever kept."""

from __future__ import annotations

import concurrent.futures
import contextlib
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import openai
import pytest

from tests.fakes.script import RESET, SILENCE, Script, answers, says
from tests.fakes.vllm import FakeVLLM
from tests.harness import CHAT, HI, TEAM, Gateway, RawCaller, configuration, hear, key, model, until
from tests.system.conftest import StartGateway

BODY = {"model": "smollm2", "messages": HI, "max_tokens": 5}


def start(fake: FakeVLLM, start_gateway: StartGateway, **options: Any) -> Gateway:
    """One place at the model, and whatever else is asked for."""
    keys = options.pop("keys", [key("team", TEAM), key("other", "sk-other"), key("night", "sk-night", batch=True)])
    chain = options.pop("chain", [])
    models = [model("smollm2", fake.url, **{"max_in_flight": 1, **options})]
    return start_gateway(configuration(models, keys=keys, metrics="open", chain=chain))


@contextlib.contextmanager
def held(fake: FakeVLLM, gateway: Gateway, secret: str = TEAM) -> Iterator[Callable[[], None]]:
    """Keep the only place while the block runs; call what is given to free it earlier."""
    gate = fake.gate()
    fake.script(says("a", gate, "b"))
    caller = RawCaller(gateway.port).post(CHAT, {**BODY, "stream": True}, secret)
    caller.until(b'"a"')
    try:
        yield gate.set
    finally:
        gate.set()
        caller.close()


def test_who_finds_no_room_waits_for_it_and_is_told_how_long(fake: FakeVLLM, start_gateway: StartGateway) -> None:
    gateway = start(fake, start_gateway)
    with concurrent.futures.ThreadPoolExecutor(1) as pool, held(fake, gateway) as free:
        waits = pool.submit(gateway.post, CHAT, BODY)
        gateway.wait_metric("sluice_queue_depth", 1, model="smollm2")
        assert len(fake.requests()) == 1
        time.sleep(0.1)  # what will be told
        free()
        answer = waits.result(5)
    assert answer.status_code == 200
    (queued,) = re.findall(r"queue;dur=([0-9.]+)", answer.headers["server-timing"])
    assert float(queued) > 100
    gateway.wait_metric("sluice_queue_depth", 0)
    gateway.wait_metric("sluice_in_flight", 0)
    gateway.wait_metric("sluice_reserved_tokens", 0)


def test_a_caller_who_leaves_leaves_the_queue_at_once(fake: FakeVLLM, start_gateway: StartGateway) -> None:
    gateway = start(fake, start_gateway)
    with held(fake, gateway):
        callers = [RawCaller(gateway.port).post(CHAT, BODY) for _ in range(3)]
        gateway.wait_metric("sluice_queue_depth", 3)
        callers[1].reset()
        gateway.wait_metric("sluice_queue_depth", 2)
        callers[0].close()
        callers[2].close()
        gateway.wait_metric("sluice_queue_depth", 0)
    gateway.wait_metric("sluice_in_flight", 0)
    assert len(fake.requests()) == 1
    assert gateway.post(CHAT, BODY).status_code == 200


def test_interactive_goes_before_batch_and_keys_take_turns(fake: FakeVLLM, start_gateway: StartGateway) -> None:
    gateway = start(fake, start_gateway)
    order: list[tuple[str, str, dict[str, Any]]] = [
        ("sk-night", "batch", {}),
        (TEAM, "flex", {"service_tier": "flex"}),
        (TEAM, "one", {}),
        (TEAM, "two", {}),
        (TEAM, "late", {"priority": 5}),
        ("sk-other", "turn", {}),
    ]
    with held(fake, gateway) as free:
        callers = []
        for waiting, (secret, name, more) in enumerate(order, 1):
            body = {**BODY, "messages": [{"role": "user", "content": name}], **more}
            callers.append(RawCaller(gateway.port).post(CHAT, body, secret))
            gateway.wait_metric("sluice_queue_depth", waiting)
        free()
        seen = [each.body["messages"][0]["content"] for each in fake.wait_for(7)[1:]]
    assert seen[:3] == ["one", "turn", "two"]
    assert seen[3] == "late"
    assert set(seen[4:]) == {"batch", "flex"}
    for caller in callers:
        caller.until(b"200 OK")
        caller.close()


def test_a_full_queue_and_a_long_wait_are_429_queue_full_with_a_time(
    fake: FakeVLLM, start_gateway: StartGateway
) -> None:
    gateway = start(fake, start_gateway, queue={"length": 1, "timeout_s": 2})
    with held(fake, gateway), concurrent.futures.ThreadPoolExecutor(1) as pool:
        waits = pool.submit(gateway.post, CHAT, BODY)
        gateway.wait_metric("sluice_queue_depth", 1)
        for answer in (gateway.post(CHAT, BODY), waits.result(5)):
            assert (answer.status_code, answer.json()["error"]["code"]) == (429, "queue_full")
            assert int(answer.headers["retry-after"]) >= 1
    assert gateway.metric("sluice_requests_total", outcome="queue_full") == 2


def test_the_engine_s_kv_cache_is_never_promised_twice(fake: FakeVLLM, start_gateway: StartGateway) -> None:
    figures = (
        'vllm:cache_config_info{block_size="16",engine="0",kv_cache_size_tokens="400",num_gpu_blocks="25"} 1.0\n'
        'vllm:num_requests_running{engine="0"} 0.0\n'
    )
    fake.always(answers(figures.encode(), headers={"content-type": "text/plain"}), route="/metrics")
    gateway = start(fake, start_gateway, max_in_flight=50, queue={"kv_headroom": 0.5})
    gateway.wait_metric("sluice_capacity_tokens", 200, within=10)
    gate = fake.gate()
    fake.always(says("a", gate))
    body = {**BODY, "max_tokens": 60}  # with the prompt somewhat more than 80
    with concurrent.futures.ThreadPoolExecutor(5) as pool:
        asked = [pool.submit(gateway.post, CHAT, body) for _ in range(5)]
        fake.wait_for(2)
        gateway.wait_metric("sluice_queue_depth", 3)
        until(lambda: 150 < gateway.metric("sluice_reserved_tokens") <= 200)
        gate.set()
        assert [each.result(5).status_code for each in asked] == [200] * 5
    gateway.wait_metric("sluice_reserved_tokens", 0)


def test_a_request_s_priority_is_bounded_by_its_key_and_told_to_who_orders_by_it(
    fake: FakeVLLM, start_gateway: StartGateway
) -> None:
    models = [
        model("smollm2", fake.url),
        {"name": "ordered", "engines": [{"url": fake.url, "scheduling": "priority", "served_model": "smollm2"}]},
    ]
    gateway = start_gateway(configuration(models, keys=[key("team", TEAM, priority=3)], chain=[]))
    for name, more in (("smollm2", {}), ("smollm2", {"priority": -9}), ("ordered", {}), ("ordered", {"priority": 8})):
        assert gateway.post(CHAT, {**BODY, "model": name, **more}).status_code == 200
    assert [each.body.get("priority") for each in fake.requests()] == [None, 3, 3, 8]
    refused = gateway.post(CHAT, {**BODY, "priority": "urgent"})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "priority")


AFTER: dict[str, tuple[Script, dict[str, Any], int]] = {
    "an engine that failed": (answers({"detail": "x"}, 500), {}, 502),
    "an engine that reset": (says(RESET), {}, 502),
    "an engine that took too long": (says(SILENCE), {"stream": True}, 504),
    "an engine's refusal": (
        answers({"error": {"message": "m", "type": "t", "param": None, "code": 400}}, 400),
        {},
        400,
    ),
    "a blocked answer": (says("forbidden", "zebra"), {}, 200),
    "an answer that fits no schema": (says("no json"), {"response_format": {"type": "json_object"}}, 200),
    "an answer": (says("fine"), {}, 200),
}


def test_every_end_gives_the_slots_back(fake: FakeVLLM, start_gateway: StartGateway) -> None:
    words = {"plugin": "sensitive_words", "options": {"words": ["forbiddenzebra"]}}
    schema = {"plugin": "json_answer", "options": {"retries": 1}}
    models = [model("smollm2", fake.url, max_in_flight=1, queue={"length": 0})]
    keys = [key("team", TEAM, max_in_flight=1, rpm=1000, tpm=100_000)]
    times = {"first_token_s": 0.5}
    gateway = start_gateway(configuration(models, keys=keys, chain=[words, schema], timeouts=times, metrics="open"))
    for what, (script, more, status) in AFTER.items():
        fake.script(script, script, script)
        assert gateway.post(CHAT, {**BODY, **more}).status_code == status, what
        fake.reset()
        gateway.wait_metric("sluice_in_flight", 0)
        caller = RawCaller(gateway.port)
        fake.script(says("one two three ", SILENCE))
        caller.post(CHAT, {**BODY, "stream": True})
        fake.wait_for(1)
        assert gateway.post(CHAT, BODY).status_code == 429  # which holds no slot
        caller.reset()
        gateway.wait_metric("sluice_in_flight", 0)
        until(lambda: gateway.post(CHAT, BODY).status_code == 200, 10)


def test_an_aborted_stream_is_charged_for_its_prompt_and_what_was_generated(
    fake: FakeVLLM, start_gateway: StartGateway
) -> None:
    gateway = start(fake, start_gateway, max_in_flight=9, keys=[key("team", TEAM, tpm=10_000)])
    fake.script(says("a", "b", "c", "d", SILENCE))
    caller = RawCaller(gateway.port).post(CHAT, {**BODY, "stream": True})
    caller.until(b'"c"')
    caller.reset()
    until(lambda: gateway.metric("sluice_key_tokens_total", key="team", kind="completion") in {3, 4})
    assert gateway.metric("sluice_key_tokens_total", key="team", kind="prompt") > 5
    charged = gateway.metric("sluice_key_tokens_total", key="team")
    answer = gateway.post(CHAT, {**BODY, "max_tokens": 1})
    left = int(answer.headers["x-ratelimit-remaining-tokens"])
    assert 10_000 - charged - 100 < left < 10_000 - charged


def test_a_refused_retry_waits_as_long_as_it_is_told(fake: FakeVLLM, start_gateway: StartGateway) -> None:
    gateway = start(fake, start_gateway, max_in_flight=9, keys=[key("team", TEAM, rpm=1)])
    assert gateway.post(CHAT, BODY).status_code == 200
    refused = gateway.post(CHAT, BODY)
    assert (refused.status_code, refused.json()["error"]["type"]) == (429, "rate_limit_error")
    assert 55 <= int(refused.headers["retry-after"]) <= 60
    assert refused.headers["x-ratelimit-remaining-requests"] == "0"
    assert len(fake.requests()) == 1
    with pytest.raises(openai.RateLimitError):
        gateway.client().chat.completions.create(model="smollm2", messages=HI)


def test_the_engine_s_own_429_comes_through_and_the_sdk_waits(fake: FakeVLLM, start_gateway: StartGateway) -> None:
    gateway = start(fake, start_gateway, max_in_flight=9)
    busy = answers({"error": {"message": "busy", "type": "x", "param": None, "code": 429}}, 429, {"retry-after": "1"})
    fake.script(busy, says("at last"))
    began = time.monotonic()
    client = gateway.client(max_retries=1)
    answer = client.chat.completions.create(model="smollm2", messages=HI)
    assert answer.choices[0].message.content == "at last"
    assert time.monotonic() - began >= 0.9


def test_how_a_key_stands_is_told_with_streams_too(fake: FakeVLLM, start_gateway: StartGateway) -> None:
    gateway = start(fake, start_gateway, max_in_flight=9, keys=[key("team", TEAM, rpm=10, tpm=5000)])
    headers = hear(gateway, {"max_tokens": 5}).headers
    assert headers["x-ratelimit-limit-requests"] == "10"
    assert headers["x-ratelimit-remaining-requests"] == "9"
    assert headers["x-ratelimit-reset-requests"] == "1m0s"
    assert headers["x-ratelimit-limit-tokens"] == "5000"
    assert 4900 < int(headers["x-ratelimit-remaining-tokens"]) < 5000
    assert httpx.Headers(headers)["x-request-id"]
