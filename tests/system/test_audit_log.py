"""What happened to every exchange stands in the audit log, and nobody can change it unseen."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from tests.fakes.forms import error
from tests.fakes.script import answers, says
from tests.fakes.vllm import FakeVLLM
from tests.harness import (
    CHAT,
    HI,
    ROOT,
    SLUICE,
    WORDS,
    Gateway,
    RawCaller,
    configuration,
    hear,
    model,
    until,
)

StartGateway = Callable[..., Gateway]
FITS = jsonschema_rs.validator_for(json.loads((ROOT / "docs" / "audit.schema.json").read_text("utf-8"))).is_valid
CANARY = "canary-7f3a 13800138000"


class Log:
    """The audit log of one gateway."""

    def __init__(self, gateway: Gateway) -> None:
        self.path = gateway.path.parent / "audit.jsonl"

    def lines(self) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self.path.read_bytes().splitlines()] if self.path.exists() else []
        assert all(map(FITS, lines))
        return lines

    def wait(self, request_id: str) -> dict[str, Any]:
        """Wait for the record of one request."""
        found: list[dict[str, Any]] = []

        def written() -> bool:
            found[:] = [line for line in self.lines() if line.get("request_id") == request_id]
            return bool(found)

        until(written, 5.0, f"no record of {request_id}")
        return found[0]

    def sluice_audit(self, *arguments: str, environ: Mapping[str, str] = os.environ) -> tuple[int, str]:
        """Run the command on it."""
        command = [str(SLUICE), "audit", str(self.path), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=dict(environ))
        return done.returncode, done.stdout + done.stderr


def audited(*urls: str, before: list[Any] | None = None, server: dict[str, Any] | None = None, **options: Any) -> Any:
    chain = [{"plugin": "audit_log", "options": {"path": "audit.jsonl", **options}}, *(before or []), WORDS]
    return configuration([model("smollm2", *urls)], chain=chain, timeouts={"connect_s": 1}, **(server or {}))


def ask(gateway: Gateway, **fields: Any) -> tuple[int, str]:
    answer = gateway.post(CHAT, {"model": "smollm2", "messages": HI, **fields})
    return answer.status_code, answer.headers["x-request-id"]


@pytest.fixture
def gateway_and_log(start_gateway: StartGateway, fake: FakeVLLM) -> tuple[Gateway, Log]:
    gateway = start_gateway(audited(fake.url))
    return gateway, Log(gateway)


def test_an_exchange_is_told_without_its_texts(gateway_and_log: tuple[Gateway, Log], fake: FakeVLLM) -> None:
    """ML-03: who, when, what was asked of whom, how long, how it ended; no prompt, no answer, no key."""
    gateway, log = gateway_and_log
    fake.script(says(f"{CANARY} softkiwi"))
    _, request_id = ask(gateway, messages=[{"role": "user", "content": CANARY}])
    told = log.wait(request_id)
    assert (told["key"], told["model"], told["engine"]) == ("team", "smollm2", "smollm2-0")
    assert (told["status"], told["outcome"], told["finish_reasons"], told["tries"]) == (200, "ok", ["stop"], 1)
    assert (told["prompt_chars"], told["answer_chars"]) == (len(CANARY), len(f"{CANARY} softkiwi"))
    assert told["total_ms"] > 0
    assert told["plugins"]["sensitive_words"]["outcome"] == "ran"
    (hit,) = told["hits"]
    assert (hit["action"], hit["tag"], hit["where"]) == ("tag", "soft", "choices[0].content")
    assert (hit["start"], hit["end"], hit["shadow"]) == (len(CANARY) + 1, len(f"{CANARY} softkiwi"), False)
    written = log.path.read_text("utf-8")
    assert "canary" not in written
    assert "sk-test" not in written


def test_blocks_both_ways_name_rule_place_and_span(gateway_and_log: tuple[Gateway, Log], fake: FakeVLLM) -> None:
    gateway, log = gateway_and_log
    status, request_id = ask(gateway, messages=[{"role": "user", "content": "a forbiddenzebra"}])
    told = log.wait(request_id)
    assert (status, told["status"], told["outcome"], told["engine"], told["tries"]) == (
        400,
        400,
        "content_filter",
        None,
        0,
    )
    assert [(hit["where"], hit["start"], hit["end"]) for hit in told["hits"]] == [("messages[0].content", 2, 16)]
    assert told["rule"] == told["hits"][0]["rule"]
    fake.script(says("well, ", "赌", "博"))
    heard = hear(gateway, {})
    told = log.wait(heard.headers["x-request-id"])
    assert (told["outcome"], told["finish_reasons"], told["stream"]) == ("content_filter", ["content_filter"], True)
    assert told["hits"][0]["direction"] == "answer"


@pytest.mark.parametrize("text", ["none", "full"])
def test_what_a_caller_is_refused_as_it_is_read_is_told(start_gateway: StartGateway, fake: FakeVLLM, text: str) -> None:
    gateway = start_gateway(audited(fake.url, text=text))
    log = Log(gateway)
    for body, status, code in [
        (b"{", 400, "invalid_request"),
        (b'{"model": "none", "messages": []}', 404, "model_not_found"),
        (b'{"model": "smollm2", "messages": [{"role": "user", "content": "hi"}], "n": 999}', 400, "invalid_request"),
    ]:
        answer = gateway.post(CHAT, content=body)
        told = log.wait(answer.headers["x-request-id"])
        assert (answer.status_code, told["status"], told["outcome"], told["key"]) == (status, status, code, "team")
        assert (told["route"], told["prompt_chars"], told["engine"], told["tries"]) == (CHAT, 0, None, 0)
    assert not fake.requests(CHAT)


def test_who_leaves_is_told(gateway_and_log: tuple[Gateway, Log], fake: FakeVLLM) -> None:
    gateway, log = gateway_and_log
    gate = fake.gate()
    fake.script(says("one", gate, "two"))
    caller = RawCaller(gateway.port).post(
        CHAT, {"model": "smollm2", "messages": HI, "stream": True}, x_request_id="left-1"
    )
    caller.until(b"one")
    caller.reset()
    assert log.wait("left-1")["outcome"] == "client_left"


def test_another_engine_and_a_fallback_are_told(start_gateway: StartGateway, fake: FakeVLLM) -> None:
    instead = {"plugin": "fallback", "options": {"text": "sorry"}}
    with FakeVLLM() as busy:
        busy.always(answers(error(503), 503))
        gateway = start_gateway(audited(busy.url, fake.url, before=[instead]))
        log = Log(gateway)
        told = [log.wait(ask(gateway)[1]) for _ in range(4)]
        assert {each["status"] for each in told} == {200}
        assert {each["tries"] for each in told} == {1, 2}, "a busy engine is passed over, and then left alone"
    fake.always(answers(error(500), 500))
    failed = log.wait(ask(gateway)[1])
    assert failed["told"] == {"fallback": {"reason": "engine_error"}}
    assert [hit["rule"] for hit in failed["hits"]] == ["fallback:engine_error"]


def test_raw_output_of_an_answer_that_is_no_json_is_kept_where_texts_are(
    start_gateway: StartGateway, fake: FakeVLLM
) -> None:
    json_answer = {"plugin": "json_answer", "options": {"retries": 1, "fallback": {"a": 0}}}
    gateway = start_gateway(audited(fake.url, text="full", before=[json_answer]))
    log = Log(gateway)
    fake.script(says('Sure: {"a": '), says("nothing"))
    _, request_id = ask(gateway, response_format={"type": "json_object"})
    told = log.wait(request_id)
    assert [(each["text"], each["facts"]["attempt"]) for each in told["evidence"]] == [
        ('Sure: {"a": ', 1),
        ("nothing", 2),
    ]
    assert all(each["facts"]["fault"] for each in told["evidence"])
    assert (told["asks"], told["told"]["fallback"]) == (1, {"reason": "invalid_json"})
    assert told["request"][0]["text"] == "hi"


def test_several_workers_write_one_chain_that_outlives_restarts(
    start_gateway: StartGateway, fake: FakeVLLM, tmp_path: Path
) -> None:
    environ = {"AUDIT_SECRET": "a secret of sixteen"}
    config = audited(fake.url, server={"workers": 2}, secret="${AUDIT_SECRET}")
    fake.always(says("ok"))
    for _ in range(2):
        gateway = start_gateway(config, folder=tmp_path, environment=environ)
        with ThreadPoolExecutor(8) as threads:
            ids = [request_id for _, request_id in threads.map(ask, [gateway] * 40)]
        gateway.stop()
        log = Log(gateway)
        assert set(ids) <= {line["request_id"] for line in log.lines()}, "a clean stop writes everything"
    lines = log.lines()
    assert len({line["chain"] for line in lines}) == 1
    assert [line["seq"] for line in lines] == list(range(1, len(lines) + 1))
    both = {**os.environ, **environ}
    assert log.sluice_audit("--verify", "--secret-env", "AUDIT_SECRET", environ=both)[0] == 0
    raw = log.path.read_bytes().splitlines(keepends=True)
    log.path.write_bytes(b"".join(raw[:10] + raw[11:]))
    code, said = log.sluice_audit("--verify", "--secret-env", "AUDIT_SECRET", environ=both)
    assert (code, said) == (1, f"sluice audit: {log.path}:11: line 11 is missing before it\n")
    code, said = log.sluice_audit("--count-by", "outcome")
    assert (code, json.loads(said)) == (0, {"outcome": "ok", "count": len(raw) - 1})


def test_where_the_disk_refuses_nothing_is_let_in_unaccounted(start_gateway: StartGateway, fake: FakeVLLM) -> None:
    """/dev/full takes nothing: requests are refused once that is seen, and let in again when there is room."""
    gateway = start_gateway(audited(fake.url, when_full="refuse"))
    log = Log(gateway)
    fake.always(says("ok"))
    assert log.wait(ask(gateway)[1])["status"] == 200
    full = log.path.rename(log.path.with_name("full"))
    log.path.symlink_to("/dev/full")
    until(lambda: ask(gateway)[0] == 503, 5.0, "nothing was refused")
    answer = gateway.post(CHAT, {"model": "smollm2", "messages": HI})
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "filter_unavailable")
    assert int(answer.headers["retry-after"]) > 0
    with contextlib.suppress(FileNotFoundError):
        log.path.unlink()
    full.rename(log.path)
    until(lambda: ask(gateway)[0] == 200, 10.0, "it never let anybody in again")
    code, said = log.sluice_audit("--verify")
    assert code == 0, said
