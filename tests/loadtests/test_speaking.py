"""What a caller tells Locust about each kind of answer: one process asks a fake server once for each."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.fakes.script import RESET, SILENCE, answers, paced, says, streams
from tests.fakes.vllm import FakeVLLM
from tests.harness import ROOT

CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "whole": (says("a", "b", "c"), {}),
    "late": (says("a", 0.1, "b"), {"deadline": 0.05}),
    "refused": (answers({"error": {"message": "full", "type": "x", "code": "queue_full"}}, 429), {}),
    "no json": (answers("<html>", 502), {}),
    "cut": (says("a", "b", RESET), {}),
    "no end": (says("a", "b", done=False), {}),
    "error event": (streams({"error": {"message": "no", "code": "engine_error"}}), {}),
    "blocked at once": (answers({"error": {"message": "no", "code": "content_filter"}}, 400), {}),
    "blocked on the way": (says("a", "b", finish="content_filter"), {}),
    "left": (says(*paced("a", 3, 0.01), SILENCE), {"leaves_after": 2}),
    "slow": (says("a", "b"), {"rest_s": 0.01}),
    "nobody there": (says("never asked"), {"url": "http://127.0.0.1:9"}),
}
MEASURED = [["POST", None], ["TTFT", None], ["ITL", None], ["ITL", None], ["tokens/s", None], ["goodput", None]]


@pytest.fixture(scope="module")
def server() -> Iterator[FakeVLLM]:
    with FakeVLLM() as fake:
        yield fake


@pytest.fixture(scope="module")
def told(server: FakeVLLM) -> dict[str, list[list[Any]]]:
    server.script(*(script for name, (script, _) in CASES.items() if name != "nobody there"))
    said = json.dumps([manners for _, manners in CASES.values()])
    command = [sys.executable, "-m", "tests.loadtests.asking", server.url, said]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return dict(zip(CASES, json.loads(done.stdout), strict=True))


def test_an_answer_is_measured_in_all_ways(told: dict[str, Any]) -> None:
    assert told["whole"] == MEASURED


def test_an_answer_after_the_deadline_is_no_goodput(told: dict[str, Any]) -> None:
    assert told["late"][0] == ["POST", None]
    assert told["late"][-1] == ["goodput", "late"]


@pytest.mark.parametrize(
    ("case", "kind"),
    [
        ("refused", "429 queue_full"),
        ("no json", "502"),
        ("no end", "cut"),
        ("error event", "event:engine_error"),
        ("nobody there", "ConnectionRefusedError"),
    ],
)
def test_a_failure_is_told_by_its_kind_and_is_no_goodput(told: dict[str, Any], case: str, kind: str) -> None:
    assert told[case] == [["POST", kind], ["goodput", kind]]


def test_a_connection_that_breaks_is_a_failure(told: dict[str, Any]) -> None:
    assert [(kind, bool(failure)) for kind, failure in told["cut"]] == [("POST", True), ("goodput", True)]


def test_a_block_is_counted_as_one_and_is_no_failure(told: dict[str, Any]) -> None:
    assert told["blocked at once"] == [["block", None], ["POST", None], ["goodput", None]]
    assert told["blocked on the way"][:2] == [["block", None], ["POST", None]]
    assert all(failure is None for _, failure in told["blocked on the way"])


def test_who_leaves_counts_as_left_and_closes_the_connection(told: dict[str, Any], server: FakeVLLM) -> None:
    assert told["left"] == [["left", None]]
    left = server.requests()[list(CASES).index("left")]
    assert left.left.wait(5)


def test_a_slow_reader_is_measured_like_others(told: dict[str, Any]) -> None:
    assert [kind for kind, _ in told["slow"]] == ["POST", "TTFT", "ITL", "tokens/s", "goodput"]
