from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterator, MutableMapping
from pathlib import Path
from typing import Any

import pytest
import structlog

from gateway.errors import InvalidKey, RateLimited
from gateway.middleware.access_log import AccessLog
from gateway.record import Record
from gateway.telemetry.log import configure
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.output import Output
from gateway.telemetry.table import Table

Message = MutableMapping[str, Any]
App = Callable[[Any, Any, Any], Coroutine[Any, Any, None]]
CHAT = "/v1/chat/completions"
CANARY = "canary-7f3a 13800138000"


class House:
    """AccessLog around an application, what it sent, wrote and counted."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file = path.open("wb")
        self.output = Output(self.file.fileno())
        self.metrics = Metrics(Table())
        self.metrics.known(models=["m"])
        self.sent: list[Message] = []

    async def send(self, message: Message) -> None:
        self.sent.append(message)

    async def receive(self) -> Message:
        return {"type": "http.disconnect"}

    async def call(self, app: App, route: str = CHAT) -> Record:
        record = Record(request_id="req-1", method="POST", route=route, started=1.0)
        await AccessLog(app, self.metrics, self.output)(
            {"type": "http", "path": "/", "sluice": record}, self.receive, self.send
        )
        return record

    @property
    def lines(self) -> list[dict[str, Any]]:
        self.output.flush()
        return [json.loads(line) for line in self.path.read_text("utf-8").splitlines()]

    @property
    def head(self) -> dict[bytes, bytes]:
        return dict(self.sent[0]["headers"])

    @property
    def error(self) -> Any:
        return json.loads(self.sent[1]["body"])["error"]


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    made = House(tmp_path / "log")
    structlog.configure(processors=[], logger_factory=structlog.ReturnLoggerFactory())
    yield made
    structlog.reset_defaults()
    made.file.close()


def answering(status: int = 200, **facts: Any) -> App:
    async def app(scope: Any, _: Any, send: Any) -> None:
        for name, fact in facts.items():
            setattr(scope["sluice"], name, fact)
        await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", b"text/plain")]})
        await send({"type": "http.response.body", "body": b"a", "more_body": True})
        await send({"type": "http.response.body", "body": b"b"})

    return app


def raising(fault: BaseException, *, begun: bool = False) -> App:
    async def app(_: Any, __: Any, send: Any) -> None:
        if begun:
            await send({"type": "http.response.start", "status": 200})
        raise fault

    return app


async def test_every_answer_carries_its_id_and_its_times(house: House) -> None:
    await house.call(answering(phases={"auth": 0.0000125, "first_token": 0.25}))
    assert house.head == {
        b"content-type": b"text/plain",
        b"x-request-id": b"req-1",
        b"server-timing": b"auth;dur=0.013, first_token;dur=250.000",
    }
    assert [message.get("body") for message in house.sent] == [None, b"a", b"b"]


async def test_each_request_is_one_line_and_one_count(house: House) -> None:
    record = await house.call(answering(model="m", prompt_tokens=3))
    (line,) = house.lines
    assert (line["status"], line["outcome"], line["model"], line["prompt_tokens"]) == (200, "ok", "m", 3)
    assert line["total_ms"] > 0
    assert record.total_s > 0
    assert (
        'sluice_requests_total{model="m",outcome="ok",route="/v1/chat/completions"} 1.0'
        in house.metrics.render().decode()
    )


async def test_probes_are_neither_logged_nor_counted(house: House) -> None:
    for route in ("/livez", "/readyz", "/health", "/metrics"):
        await house.call(answering(), route)
    assert house.lines == []
    assert "sluice_requests_total{" not in house.metrics.render().decode()
    assert house.head[b"x-request-id"] == b"req-1"


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (400, "invalid_request"),
        (401, "invalid_api_key"),
        (404, "not_found"),
        (422, "invalid_request"),
        (504, "engine_timeout"),
        (599, "internal_error"),
    ],
)
async def test_an_outcome_nobody_named_follows_from_the_status(house: House, status: int, outcome: str) -> None:
    assert (await house.call(answering(status))).outcome == outcome


async def test_a_named_outcome_stays(house: House) -> None:
    assert (await house.call(answering(429, outcome="queue_full"))).outcome == "queue_full"


async def test_a_failure_raised_below_is_answered_in_our_shape(house: House) -> None:
    record = await house.call(raising(RateLimited("slow down", retry_after=7)))
    assert house.sent[0]["status"] == 429
    assert house.head[b"retry-after"] == b"7"
    assert house.head[b"x-request-id"] == b"req-1"
    assert house.error["code"] == "rate_limit_exceeded"
    assert record.outcome == "rate_limit_exceeded"
    assert (await house.call(raising(InvalidKey("no")))).status == 401


async def test_a_bug_is_a_500_whose_words_stay_here(house: House) -> None:
    configure(house.output)
    record = await house.call(raising(ValueError(CANARY)))
    assert house.sent[0]["status"] == 500
    assert house.error["code"] == "internal_error"
    event, line = house.lines
    assert (event["event"], event["request_id"], event["fault"]) == ("internal_error", "req-1", "ValueError")
    assert (line["event"], line["outcome"]) == ("request", "internal_error")
    assert "canary" not in house.path.read_text() + str(house.sent)
    assert record.status == 500


async def test_a_bug_after_the_answer_has_begun_sends_nothing_more(house: House) -> None:
    record = await house.call(raising(ValueError("x"), begun=True))
    assert len(house.sent) == 1
    assert (record.status, record.outcome) == (200, "internal_error")
    assert len(house.lines) == 1


async def test_a_caller_that_left_before_it_heard_anything_is_told_apart(house: House) -> None:
    async def app(*_: Any) -> None:
        return None

    record = await house.call(app)
    assert (record.status, record.outcome) == (499, "client_left")


async def test_what_is_cut_off_at_the_end_of_the_drain_is_told_to_try_again(house: House) -> None:
    with pytest.raises(asyncio.CancelledError):
        await house.call(raising(asyncio.CancelledError()))
    assert house.sent[0]["status"] == 503
    assert b"retry-after" in house.head
    assert house.lines[0]["outcome"] == "shutdown"


async def test_after_the_head_a_send_is_the_server_s_own(house: House) -> None:
    """It is driven without a task, so nothing of ours may stand between."""

    def send(message: Message) -> Any:
        return message["type"]

    handed: list[Any] = []

    async def app(_: Any, __: Any, told: Any) -> None:
        handed.append(told({"type": "http.response.start", "status": 200}))
        handed.append(told({"type": "http.response.body"}))

    record = Record()
    await AccessLog(app, house.metrics, house.output)(
        {"type": "http", "path": "/", "sluice": record}, house.receive, send
    )
    assert handed == ["http.response.start", "http.response.body"]


async def test_what_is_no_request_passes_by(house: House) -> None:
    seen: list[Any] = []

    async def app(scope: Any, *_: Any) -> None:
        seen.append(scope)

    await AccessLog(app, house.metrics, house.output)({"type": "lifespan"}, house.receive, house.send)
    assert seen == [{"type": "lifespan"}]
    assert house.lines == []


async def test_a_line_that_is_dropped_is_counted(house: House) -> None:
    AccessLog(answering(), house.metrics, house.output)
    assert house.output.on_drop is not None
    house.output.on_drop()
    assert "sluice_log_lines_dropped_total 1.0" in house.metrics.render().decode()
