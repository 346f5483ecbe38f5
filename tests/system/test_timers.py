"""Four timers, the heartbeat, and the status that waits for the first event."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.fakes.forms import chunk, error_event, event
from tests.fakes.script import SILENCE, paced, says, streams
from tests.fakes.vllm import FakeVLLM
from tests.harness import HI, Gateway, RawCaller, configuration, hear, model, running_gateway
from tests.system.conftest import FRAGILE, StartGateway


@pytest.fixture(scope="module")
def patient(_engine: FakeVLLM, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """Heartbeats long before any timer."""
    timeouts = {"first_token_s": 1.0, "idle_s": 0.6, "total_s": 2.5}
    config = configuration([model(name, _engine.url) for name in FRAGILE], timeouts=timeouts, heartbeat_s=0.2)
    with running_gateway(config, tmp_path_factory.mktemp("patient")) as started:
        yield started


@pytest.fixture(scope="module")
def hasty(_engine: FakeVLLM, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """Timers long before any heartbeat, and idle_s long before the others."""
    timeouts = {"first_token_s": 0.8, "idle_s": 0.3, "total_s": 1.5}
    config = configuration([model(name, _engine.url) for name in FRAGILE], timeouts=timeouts)
    with running_gateway(config, tmp_path_factory.mktemp("hasty")) as started:
        yield started


def test_heartbeats_arrive_while_the_engine_is_silent(fake: FakeVLLM, patient: Gateway, fragile: str) -> None:
    """ST-04, second half: comments, and no ``id:`` field."""
    fake.always(says(0.7, "late"))
    body = {"model": fragile, "messages": HI, "stream": True}
    with RawCaller(patient.port) as caller:
        started = time.monotonic()
        caller.post("/v1/chat/completions", body)
        caller.until(b"\n: ")
        assert time.monotonic() - started < 0.6
        seen = caller.until(b"[DONE]")
    assert seen.count(b"\n: ") >= 2
    assert b"\nid:" not in seen
    with patient.client() as client:
        stream = client.chat.completions.create(model=fragile, messages=HI, stream=True)
        assert "".join(part.choices[0].delta.content or "" for part in stream) == "late"


def test_heartbeats_go_on_between_events_and_cut_none(fake: FakeVLLM, patient: Gateway, fragile: str) -> None:
    half = event(chunk("b"))
    fake.script(streams(chunk("a"), 0.5, half[:20], 0.5, half[20:], chunk("", finish="stop")))
    heard = hear(patient, {"model": fragile})
    assert heard.text() == "ab"
    assert heard.raw.count(b": keep-alive\n\n") >= 2
    assert heard.done


def test_the_status_waits_for_the_first_event(fake: FakeVLLM, gateway: Gateway, fragile: str) -> None:
    gate = fake.gate()
    fake.always(streams(gate, error_event(400, "bad grammar", "BadRequestError")))
    with RawCaller(gateway.port) as caller:
        caller.post("/v1/chat/completions", {"model": fragile, "messages": HI, "stream": True})
        fake.wait_for(1)
        caller.socket.settimeout(0.3)
        with pytest.raises(TimeoutError):
            caller.socket.recv(1)
        caller.socket.settimeout(5)
        gate.set()
        seen = caller.until(b"bad grammar")
    assert seen.startswith(b"HTTP/1.1 400 ")


def test_after_a_heartbeat_a_failure_is_one_event(fake: FakeVLLM, patient: Gateway, fragile: str) -> None:
    fake.always(streams(0.5, error_event(400, "bad grammar", "BadRequestError")))
    heard = hear(patient, {"model": fragile})
    assert heard.status == 200
    assert b": keep-alive\n\n" in heard.raw
    assert [error["message"] for error in heard.errors] == ["bad grammar"]
    assert not heard.done


def test_a_silent_stream_is_a_504_before_the_heartbeat(fake: FakeVLLM, hasty: Gateway, fragile: str) -> None:
    fake.always(says(SILENCE))
    started = time.monotonic()
    answer = hasty.post("/v1/chat/completions", {"model": fragile, "messages": HI, "stream": True})
    assert 0.7 < time.monotonic() - started < 1.4
    assert (answer.status_code, answer.json()["error"]["code"]) == (504, "engine_timeout")
    assert answer.headers["x-should-retry"] == "false"
    asked = fake.requests(model=fragile)
    assert len(asked) == 1  # a read timeout is not sent again
    asked[0].seconds_until_left(time.monotonic(), 3)


def test_a_silent_stream_is_an_event_after_the_heartbeat(fake: FakeVLLM, patient: Gateway, fragile: str) -> None:
    fake.always(says(SILENCE))
    heard = hear(patient, {"model": fragile})
    assert heard.status == 200
    assert [error["code"] for error in heard.errors] == ["engine_timeout"]
    assert (heard.finishes(), heard.done) == ([], False)


def test_a_stream_that_falls_silent_ends_after_idle_s(fake: FakeVLLM, hasty: Gateway, fragile: str) -> None:
    fake.always(streams(chunk("a"), SILENCE))
    started = time.monotonic()
    heard = hear(hasty, {"model": fragile})
    assert 0.2 < time.monotonic() - started < 0.8
    assert heard.text() == "a"
    assert [error["code"] for error in heard.errors] == ["engine_timeout"]
    fake.requests(model=fragile)[0].seconds_until_left(time.monotonic(), 3)


def test_a_stream_whose_choices_have_all_ended_loses_nothing_to_an_engine_that_then_hangs(
    fake: FakeVLLM, hasty: Gateway, fragile: str
) -> None:
    fake.always(says("one", " two", SILENCE))
    heard = hear(hasty, {"model": fragile})
    assert (heard.text(), heard.finishes(), heard.errors, heard.done) == ("one two", ["stop"], [], True)
    # it may end its body within a second of its own (attempt.LINGER_S)
    fake.requests(model=fragile)[0].seconds_until_left(time.monotonic(), 5)


def test_a_stream_that_goes_on_and_on_ends_after_total_s(fake: FakeVLLM, hasty: Gateway, fragile: str) -> None:
    fake.always(says(*paced("a", 100, 0.1)))
    started = time.monotonic()
    heard = hear(hasty, {"model": fragile})
    assert 1.3 < time.monotonic() - started < 2.2
    assert len(heard.text()) >= 5
    assert [error["code"] for error in heard.errors] == ["engine_timeout"]


def test_a_whole_answer_has_all_of_total_s(fake: FakeVLLM, hasty: Gateway, fragile: str) -> None:
    fake.script(says(0.8, "late"))
    body = {"model": fragile, "messages": HI}
    assert hasty.post("/v1/chat/completions", body).json()["choices"][0]["message"]["content"] == "late"
    fake.always(says(SILENCE))
    answer = hasty.post("/v1/chat/completions", body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (504, "engine_timeout")


def test_another_engine_is_tried_until_the_first_event(fake: FakeVLLM, start_gateway: StartGateway) -> None:
    with FakeVLLM() as second:
        second.always(says("second"))
        fake.always(streams(0.4, error_event(503, "no room", "Service Unavailable")))
        gateway = start_gateway(configuration([model("smollm2", fake.url, second.url)], heartbeat_s=0.1))
        texts = {hear(gateway, {}).text() for _ in range(4)}
    assert texts == {"second"}
    assert fake.requests()
