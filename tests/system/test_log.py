"""The log: one JSON line a request whatever becomes of it, and no prompt, answer, key or address in it."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tests.fakes.script import CLOSE, RESET, answers, paced, says
from tests.fakes.vllm import FakeVLLM
from tests.harness import CHAT, HI, OPERATOR, Gateway, RawCaller, configuration, free_port, key, model
from tests.system.conftest import StartGateway

WORD, PHONE, SECRET = "canary-7f3a", "13800138000", "sk-canary-9b1c"
PROMPT = [{"role": "user", "content": f"{WORD} {PHONE}"}]
CANARIES = (WORD, PHONE, SECRET)


def lines_of(gateway: Gateway, request_id: str) -> list[dict[str, Any]]:
    return [line for line in gateway.records() if line.get("request_id") == request_id and line["event"] == "request"]


def test_a_request_is_one_line_that_says_what_became_of_it(fake: FakeVLLM, gateway: Gateway) -> None:
    fake.script(says(*paced("word ", 3, 0.02)))
    answer = gateway.post(
        CHAT, {"model": "smollm2", "messages": HI, "stream": True}, headers={"x-request-id": "line-1"}
    )
    line = gateway.wait_record("line-1")
    assert answer.headers["x-request-id"] == "line-1"
    assert (line["key"], line["model"], line["engine"]) == ("team", "smollm2", "smollm2-0")
    assert (line["route"], line["method"], line["status"], line["outcome"]) == (CHAT, "POST", 200, "ok")
    assert line["stream"] is True
    assert line["prompt_tokens"] > 0
    assert line["completion_tokens"] > 0
    assert line["total_ms"] >= line["first_text_ms"] > 0
    assert {"auth", "chain_request", "connect", "first_token", "decode"} <= set(line["phases_ms"])
    assert line["finish_reasons"] == ["stop"]
    assert len(lines_of(gateway, "line-1")) == 1


def test_server_timing_tells_the_caller_where_the_time_went(fake: FakeVLLM, gateway: Gateway) -> None:
    timing = gateway.post(CHAT, {"model": "smollm2", "messages": HI}).headers["server-timing"]
    phases = {part.partition(";dur=")[0]: float(part.partition(";dur=")[2]) for part in timing.split(", ")}
    assert {"auth", "chain_request", "connect", "first_token"} <= set(phases)
    assert all(0 <= milliseconds < 5000 for milliseconds in phases.values())


@pytest.mark.parametrize("sent", ["", "with space", "a" * 129, "<script>"])
def test_an_id_that_could_do_harm_is_replaced_everywhere(fake: FakeVLLM, gateway: Gateway, sent: str) -> None:
    answer = gateway.post(CHAT, {"model": "smollm2", "messages": HI}, headers={"x-request-id": sent})
    minted = answer.headers["x-request-id"]
    assert minted != sent
    assert gateway.wait_record(minted)["status"] == 200


def test_a_block_names_its_rule_and_not_its_word(fake: FakeVLLM, gateway: Gateway) -> None:
    body = {"model": "smollm2", "messages": [{"role": "user", "content": "a forbiddenzebra"}]}
    gateway.post(CHAT, body, headers={"x-request-id": "block-1"})
    line = gateway.wait_record("block-1")
    assert (line["outcome"], line["status"], line["plugin"]) == ("content_filter", 400, "sensitive_words")
    assert line["rule"]
    assert "zebra" not in json.dumps(line)


def test_a_caller_that_leaves_is_one_line_too(fake: FakeVLLM, gateway: Gateway) -> None:
    fake.script(says(*paced("word ", 200, 0.02)))
    with RawCaller(gateway.port) as caller:
        caller.post(CHAT, {"model": "smollm2", "messages": HI, "stream": True}, x_request_id="left-1").until(b"word")
        caller.reset()
    line = gateway.wait_record("left-1")
    assert (line["status"], line["outcome"]) == (200, "client_left")
    assert len(lines_of(gateway, "left-1")) == 1


@pytest.mark.parametrize(
    ("path", "body", "status", "outcome"),
    [
        ("/nowhere", "{}", 404, "not_found"),
        (CHAT, "{", 400, "invalid_request"),
        (CHAT, '{"model": "nobody", "messages": []}', 404, "model_not_found"),
    ],
)
def test_a_refusal_is_one_line_too(gateway: Gateway, path: str, body: str, status: int, outcome: str) -> None:
    answer = gateway.post(path, content=body.encode())
    assert answer.status_code == status
    line = gateway.wait_record(answer.headers["x-request-id"])
    assert (line["status"], line["outcome"]) == (status, outcome)
    assert line["route"] in {CHAT, "other"}


def test_probes_leave_the_log_alone(gateway: Gateway) -> None:
    ids = [gateway.get(path).headers["x-request-id"] for path in ("/livez", "/readyz", "/health", "/metrics")]
    last = gateway.get("/v1/models").headers["x-request-id"]
    gateway.wait_record(last)
    assert not [line for line in gateway.records() if line.get("request_id") in ids]


def test_prompts_answers_and_keys_are_nowhere(fake: FakeVLLM, start_gateway: StartGateway) -> None:
    """ML-03."""
    gateway = start_gateway(
        configuration(
            [
                model("smollm2", fake.url),
                {"name": "gone", "engines": [{"url": f"http://127.0.0.1:{free_port()}", "api_key": "${CANARY}"}]},
            ],
            keys=[key("team", SECRET), key("ops", OPERATOR, role="operator")],
            chain=[{"plugin": "sensitive_words", "options": {"words": [f"{WORD} block"]}}],
        ),
        environment={"CANARY": SECRET},
    )
    told: list[str] = []

    def ask(name: str, secret: str = SECRET, **more: Any) -> httpx.Response:
        body = {"model": name, "messages": PROMPT, **more}
        answer = gateway.post(CHAT, body, secret)
        told.append(str(answer.headers) + answer.text)
        return answer

    assert ask("smollm2").status_code == 200
    fake.script(says(f"{WORD} {PHONE}"))
    gateway.post(CHAT, {"model": "smollm2", "messages": HI, "stream": True}, SECRET)
    block = [{"role": "user", "content": f"{WORD} block {PHONE}"}]
    assert ask("smollm2", messages=block).status_code == 400
    for fault in (
        answers({"error": {"message": f"{WORD} {PHONE}"}}, 500),
        says("a", RESET),
        says(CLOSE),
        answers(b"{"),
    ):
        fake.script(fault)
        ask("smollm2")
        fake.script(fault)
        ask("smollm2", stream=True)
    assert ask("gone").status_code in {502, 503}
    assert ask("smollm2", f"{SECRET}x").status_code == 401
    ask("smollm2", messages=[{"role": "user", "content": {WORD: PHONE}}])
    told.append(gateway.get(f"/v1/models?key={SECRET}&q={WORD}", SECRET).text)
    gateway.get(f"/{WORD}?{PHONE}", SECRET)
    told.append(gateway.get("/metrics", OPERATOR).text)
    last = gateway.get("/v1/models", SECRET).headers["x-request-id"]
    gateway.wait_record(last)
    gateway.stop()
    for canary in CANARIES:
        assert canary not in "\n".join(gateway.log)
        assert canary not in "\n".join(told[1:])  # the first is the model's own answer
    assert '"event":"stopped"' in "\n".join(gateway.log)
