"""One line for every exchange, with texts as they were at the plugin's place in the chain."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from structlog.testing import LogCapture

from gateway.sdk import Channel, Exchange, Refused, Run
from plugins.audit_log import AuditLog
from plugins.audit_log.journal import Journal
from tests.plugins.exchanges import chat


def made(path: Path, **options: Any) -> AuditLog:
    plugin = AuditLog(AuditLog.Options.model_validate({"path": "audit.jsonl", **options}, context={"base": path}))
    plugin.name = "audit_log"
    return plugin


async def logged(plugin: AuditLog, folder: Path, *exchanges: Exchange) -> list[dict[str, Any]]:
    plugin.start()
    for exchange in exchanges:
        plugin.on_request(exchange)
        for kind, pieces in (("content", ["好", "的"]), ("reasoning", []), ("arguments", ["x"])):
            channel = plugin.text_filter(exchange, Channel(0, kind, 1))
            if channel is not None:
                assert [channel.feed(piece) for piece in pieces] == [(piece, ()) for piece in pieces]
                assert channel.finish() == ("", ())
        plugin.on_complete(exchange)
    await plugin.stop()
    return [json.loads(line) for line in (folder / "audit.jsonl").read_text("utf-8").splitlines()]


async def test_every_exchange_is_one_line_without_text(tmp_path: Path) -> None:
    lines = await logged(made(tmp_path), tmp_path, chat("你好", status=200), chat("秘密", outcome="content_filter"))
    assert [(line["request_id"], line["status"], line["outcome"]) for line in lines] == [
        ("req-1", 200, "ok"),
        ("req-1", 0, "content_filter"),
    ]
    assert [line["prompt_chars"] for line in lines] == [2, 2]
    assert "request" not in lines[0]
    assert "秘密" not in (tmp_path / "audit.jsonl").read_text("utf-8")


async def test_full_text_is_that_of_request_and_answer(tmp_path: Path) -> None:
    (line,) = await logged(made(tmp_path, text="full"), tmp_path, chat("你好", "再见"))
    assert [(said["where"], said["text"]) for said in line["request"]] == [
        ("messages[0].content", "你好"),
        ("messages[1].content", "再见"),
    ]
    assert [(said["where"], said["text"]) for said in line["answer"]] == [
        ("choices[0].content", "好的"),
        ("choices[0].tool_calls[1].arguments", "x"),
    ]


async def test_a_request_refused_before_it_came_here_is_told_too(tmp_path: Path) -> None:
    plugin = made(tmp_path, text="hash")
    plugin.start()
    plugin.on_complete(chat("你好"))
    await plugin.stop()
    (line,) = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text("utf-8").splitlines()]
    assert line["request"][0].keys() == {"where", "chars", "sha256"}
    assert line["answer"] == []


async def test_stopping_what_never_started_does_no_harm(tmp_path: Path) -> None:
    await made(tmp_path).stop()
    assert not (tmp_path / "audit.jsonl").exists()


@pytest.mark.parametrize(
    "options",
    [
        {"text": "some"},
        {"rotate_mb": 0},
        {"keep": 0},
        {"queue": 0},
        {"pth": "x"},
        {"when_full": "wait"},
        {"secret": "short"},
    ],
)
def test_wrong_options_are_refused(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        made(tmp_path, **options)


def test_a_path_that_is_no_file_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not a file"):
        AuditLog(AuditLog.Options(path=tmp_path))


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk takes nothing."""

    def refusing(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Journal, "append", refusing)


async def test_what_there_was_no_room_for_counts_as_failed(tmp_path: Path, full: None, log: LogCapture) -> None:
    del full
    plugin = made(tmp_path, queue=1)
    plugin.start()
    exchanges = [chat("a") for _ in range(20)]
    for exchange in exchanges:
        plugin.on_request(exchange)
        plugin.on_complete(exchange)
    await plugin.stop()
    failed = sum(exchange.record.runs.get("audit_log", Run()).outcome == "failed" for exchange in exchanges)
    assert failed >= 10
    assert log.entries[-1]["event"] == "audit_log_lost"


async def test_where_it_refuses_nothing_is_let_in_that_could_not_be_kept(
    tmp_path: Path, full: None, log: LogCapture
) -> None:
    del full, log
    plugin = made(tmp_path, queue=2, when_full="refuse")
    assert "on_request" not in plugin.idle
    plugin.start()
    let_in = [chat("a") for _ in range(5)]  # all in flight together
    for exchange in let_in:
        plugin.on_request(exchange)
    for exchange in let_in:
        plugin.on_complete(exchange)
    with pytest.raises(Refused) as caught:
        plugin.on_request(chat("b"))
    assert (caught.value.status, caught.value.code, caught.value.retry_after) == (503, "filter_unavailable", 1)
    assert not any(exchange.record.runs for exchange in let_in)
    await plugin.stop()


async def test_who_left_before_any_status_is_told_as_in_the_log(tmp_path: Path) -> None:
    (line,) = await logged(made(tmp_path), tmp_path, chat("a", outcome="client_left"))
    assert (line["status"], line["outcome"]) == (499, "client_left")


async def test_evidence_of_other_plugins_is_kept_where_texts_are(tmp_path: Path) -> None:
    exchange = chat("a")
    exchange.state["evidence"] = [{"plugin": "x", "where": "choices[0].content", "text": "{秘密", "fault": "not JSON"}]
    (line,) = await logged(made(tmp_path, text="full"), tmp_path, exchange)
    facts = {"plugin": "x", "fault": "not JSON"}
    assert [(each["text"], each["facts"]) for each in line["evidence"]] == [("{秘密", facts)]
    other = chat("a")
    other.state["evidence"] = exchange.state["evidence"]
    *_, line = await logged(made(tmp_path), tmp_path, other)
    assert "evidence" not in line


async def test_a_secret_keys_the_chain_and_is_never_shown(tmp_path: Path) -> None:
    plugin = made(tmp_path, secret="a secret of sixteen")
    (line,) = await logged(plugin, tmp_path, chat("a"))
    assert "hash" not in line
    assert len(line["hmac"]) == 64
    assert "sixteen" not in repr(plugin.options)
