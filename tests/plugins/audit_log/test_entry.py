"""An audit line says what its page says, and no text unless it was asked to."""

from __future__ import annotations

import hashlib
import json
from dataclasses import fields
from datetime import UTC, datetime

from gateway.record import Hit, Record, Run
from plugins.audit_log.entry import Entry, Said, gap, line
from plugins.audit_log.seal import Seal

HIT = {
    "plugin": "sensitive_words",
    "rule": "block.txt:3",
    "action": "block",
    "direction": "answer",
    "tag": "gambling",
    "where": "choices[0].content",
    "start": 4,
    "end": 6,
    "shadow": False,
}
ENDED = datetime(2026, 11, 29, 17, 8, 15, 250_000, tzinfo=UTC)


def record() -> Record:
    return Record(
        request_id="req-1", method="POST", route="/v1/chat/completions", key="team-a", model="smollm2",
        engine="smollm2-0", stream=True, status=200, phases={"queue": 0.0012345, "connect": 0.001},
        first_text_s=0.25, total_s=1.5, prompt_tokens=7, completion_tokens=9, prompt_chars=30, answer_chars=40,
        finish_reasons=["content_filter"], plugin="sensitive_words", rule="block.txt:3", config_version=4,
        lists={"sensitive_words/block.txt": "9f2c"},
        tries=2, asks=1, tags=["软性"],
        hits=[Hit("sensitive_words", "block.txt:3", "block", "answer", "gambling", "choices[0].content", 4, 6)],
        runs={"sensitive_words": Run("ran", 0.00002)},
    )  # fmt: skip


def test_a_line_holds_the_facts_of_an_exchange() -> None:
    raw = line(Entry(ENDED, record()))
    assert raw.endswith(b"}\n")
    assert raw.count(b"\n") == 1
    assert json.loads(raw) == {
        "time": "2026-11-29T17:08:15.250000Z",
        "request_id": "req-1",
        "client": "",
        "key": "team-a",
        "model": "smollm2",
        "engine": "smollm2-0",
        "route": "/v1/chat/completions",
        "stream": True,
        "status": 200,
        "outcome": "ok",
        "plugin": "sensitive_words",
        "rule": "block.txt:3",
        "prompt_chars": 30,
        "answer_chars": 40,
        "prompt_tokens": 7,
        "completion_tokens": 9,
        "finish_reasons": ["content_filter"],
        "tries": 2,
        "asks": 1,
        "total_ms": 1500.0,
        "first_text_ms": 250.0,
        "phases_ms": {"queue": 1.234, "connect": 1.0},
        "plugins": {"sensitive_words": {"outcome": "ran", "ms": 0.02}},
        "hits": [HIT],
        "tags": ["软性"],
        "config_version": 4,
        "lists": {"sensitive_words/block.txt": "9f2c"},
    }


def test_texts_are_hashed_and_written_only_where_that_is_switched_on() -> None:
    request, answer = [Said("messages[0].content", ["赌博"])], [Said("choices[0].content", ["a\n", "b\ud83c"])]
    hashed = line(Entry(ENDED, record(), request, answer))
    assert "赌博".encode() not in hashed
    sha256 = hashlib.sha256("赌博".encode()).hexdigest()
    assert json.loads(hashed)["request"] == [{"where": "messages[0].content", "chars": 2, "sha256": sha256}]
    full = json.loads(line(Entry(ENDED, record(), request, answer, full=True)))
    assert full["request"][0]["text"] == "赌博"
    assert full["answer"][0]["text"].startswith("a\nb")
    assert full["answer"][0]["chars"] == 4


def test_a_gap_says_how_many_are_missing() -> None:
    told = json.loads(gap(3))
    assert told["dropped"] == 3
    assert datetime.fromisoformat(told["time"]).tzinfo is not None


def test_a_secret_hides_which_text_a_hash_is_of() -> None:
    texts = [Said("messages[0].content", ["13800138000"])]
    (keyed,) = json.loads(line(Entry(ENDED, record(), texts), Seal("a secret of sixteen")))["request"]
    assert "sha256" not in keyed
    assert keyed["hmac"] != hashlib.sha256(b"13800138000").hexdigest()


def test_what_the_caller_was_told_is_kept_without_texts_unless_they_are_switched_on() -> None:
    told = {
        "fallback": {"reason": "engine_error", "model": "small", "said": "秘密"},
        "json": {"valid": False, "repaired": False, "attempts": 2, "error": "'秘密' is not a number"},
        "confidence": 0.5,
        "of_a_stranger": "秘密",
    }
    assert json.loads(line(Entry(ENDED, record(), told=told)))["told"] == {
        "fallback": {"reason": "engine_error", "model": "small"},
        "json": {"valid": False, "repaired": False, "attempts": 2},
        "confidence": 0.5,
    }
    assert "told" not in json.loads(line(Entry(ENDED, record(), told={"of_a_stranger": "秘密"})))
    assert json.loads(line(Entry(ENDED, record(), told=told, full=True)))["told"] == told


def test_evidence_is_hashed_and_told_in_full_only_where_texts_are_switched_on() -> None:
    evidence = [Said("choices[0].message.content", ['{"a": 秘密'], {"fault": "'秘密' is no value", "attempt": 1})]
    hashed = line(Entry(ENDED, record(), evidence=evidence))
    assert "秘密".encode() not in hashed
    assert json.loads(hashed)["evidence"][0].keys() == {"where", "chars", "sha256"}
    (full,) = json.loads(line(Entry(ENDED, record(), evidence=evidence, full=True)))["evidence"]
    assert full["text"] == '{"a": 秘密'
    assert full["facts"] == {"fault": "'秘密' is no value", "attempt": 1}


def test_no_fact_of_the_record_is_forgotten() -> None:
    told = json.loads(line(Entry(ENDED, record())))
    renamed = {"total_s": "total_ms", "first_text_s": "first_text_ms", "phases": "phases_ms", "runs": "plugins"}
    # The route says it, or it is for no reader of a file.
    left_out = {"method", "started", "limits", "worded", "sampling"}
    assert {renamed.get(field.name, field.name) for field in fields(Record)} - left_out <= set(told)
