from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import structlog

from gateway.record import Hit, Record
from gateway.telemetry.log import access_line, configure
from gateway.telemetry.output import Output

CANARY = "canary-7f3a 13800138000"


class Log:
    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def text(self) -> str:
        return self.path.read_text("utf-8")

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.text.splitlines()]


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    root, server = logging.getLogger(), logging.getLogger("uvicorn.error")
    before = root.handlers, root.level, server.level, server.filters, warnings.showwarning
    with (tmp_path / "log").open("wb") as file:
        configure(Output(file.fileno()))
        yield Log(tmp_path / "log")
    root.handlers, root.level, server.level, server.filters, warnings.showwarning = before
    structlog.reset_defaults()


def told(**facts: Any) -> dict[str, Any]:
    record = Record(request_id="req-1", method="POST", route="/v1/chat/completions", status=200)
    for name, fact in facts.items():
        setattr(record, name, fact)
    line = access_line(record)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    made: dict[str, Any] = json.loads(line)
    return made


def test_a_request_s_line_has_all_that_operators_ask_for() -> None:
    line = told(
        client="203.0.113.9",
        key="team-a",
        model="m",
        engine="m-0",
        stream=True,
        total_s=1.5,
        first_text_s=0.25,
        phases={"auth": 0.0000125, "connect": 0.002},
        prompt_tokens=5,
        completion_tokens=9,
        finish_reasons=["stop"],
        tags=["soft"],
        config_version=3,
    )
    now = datetime.fromisoformat(line.pop("time"))
    assert abs(datetime.now(UTC) - now) < timedelta(minutes=1)
    assert line == {
        "event": "request",
        "request_id": "req-1",
        "client": "203.0.113.9",
        "key": "team-a",
        "model": "m",
        "engine": "m-0",
        "route": "/v1/chat/completions",
        "method": "POST",
        "status": 200,
        "outcome": "ok",
        "stream": True,
        "total_ms": 1500.0,
        "first_text_ms": 250.0,
        "phases_ms": {"auth": 0.012, "connect": 2.0},
        "prompt_tokens": 5,
        "completion_tokens": 9,
        "finish_reasons": ["stop"],
        "tags": ["soft"],
        "config_version": 3,
    }


def test_what_is_not_known_is_null_and_what_does_not_apply_is_left_out() -> None:
    line = told()
    assert {"key", "model", "engine"} <= {name for name, fact in line.items() if fact is None}
    assert not {"plugin", "rule", "tags", "first_text_ms", "finish_reasons"} & set(line)


def test_a_block_names_plugin_and_rule() -> None:
    hit = Hit("words", "block.txt:17", "block", "request", where="messages[0].content", start=3, end=9)
    line = told(plugin="words", rule="block.txt:17", outcome="content_filter", status=400, hits=[hit])
    assert (line["plugin"], line["rule"], line["outcome"]) == ("words", "block.txt:17", "content_filter")


def test_what_shadow_mode_would_have_done_is_told_once_for_each_rule_and_bounded() -> None:
    hits = [Hit("words", f"block.txt:{number % 20}", "block", "request", shadow=True) for number in range(40)]
    line = told(hits=[Hit("words", "soft.txt:1", "tag", "request"), *hits])
    assert line["shadow"] == [f"words: block block.txt:{number}" for number in range(10)]
    assert "rule" not in line
    assert "shadow" not in told(hits=[Hit("words", "soft.txt:1", "tag", "request")])


def test_a_line_stays_small_enough_to_be_written_in_one_piece() -> None:
    line = access_line(Record(model="m" * 100_000, request_id="i" * 128))
    assert len(line) < 4096


def test_an_event_is_one_line_with_time_level_and_name_first(log: Log) -> None:
    structlog.get_logger().warning("engine_down", engine="m-0", failures=3)
    (line,) = log.lines
    assert list(line) == ["time", "level", "event", "engine", "failures"]
    assert (line["level"], line["event"], line["engine"]) == ("warning", "engine_down", "m-0")


def test_debug_events_are_off(log: Log) -> None:
    structlog.get_logger().debug("chunk", size=1)
    assert log.lines == []


def test_an_exception_is_told_by_kind_and_place_never_by_its_words(log: Log) -> None:
    try:
        json.loads(json.dumps({}))[CANARY]
    except KeyError:
        structlog.get_logger().exception("internal_error", request_id="req-1")
    (line,) = log.lines
    assert line["fault"] == "KeyError"
    assert line["at"][-1].startswith("telemetry/test_log.py:")
    assert "canary" not in log.text


def test_an_event_s_odd_values_are_named_by_their_kind(log: Log) -> None:
    structlog.get_logger().info("odd", thing=ValueError(CANARY))
    assert log.lines[0]["thing"] == "ValueError"


def test_libraries_are_heard_but_not_what_they_quote(log: Log) -> None:
    other = logging.getLogger("some.library")
    other.warning("could not read %s", CANARY)
    other.warning(f"could not read {CANARY}")
    other.info("chatter")
    try:
        int(CANARY)
    except ValueError:
        other.exception("failed")
    first, second, third = log.lines
    assert first["message"] == "could not read %s"
    assert (first["event"], first["level"], first["logger"]) == ("library", "warning", "some.library")
    assert "message" not in second
    assert (third["event"], third["level"], third["fault"]) == ("internal_error", "error", "ValueError")
    assert "canary" not in log.text


def test_the_server_s_own_lines_about_what_the_access_log_tells_are_dropped(log: Log) -> None:
    server = logging.getLogger("uvicorn.error")
    server.error("ASGI callable returned without completing response.")
    server.error("Exception in ASGI application\n", exc_info=ValueError(CANARY))
    server.warning("Invalid HTTP request received.")
    server.error("Exception in 'lifespan' protocol\n", exc_info=ValueError("x"))
    assert [line["fault"] for line in log.lines] == ["ValueError"]


def test_python_s_warnings_are_lines_without_their_words(log: Log) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning(UserWarning(CANARY), UserWarning, "/some/where/file.py", 3)
    (line,) = log.lines
    assert (line["event"], line["kind"], line["at"]) == ("python_warning", "UserWarning", ["where/file.py:3"])
    assert "canary" not in log.text
