"""One engine: the head of a request to it, and the ups and downs."""

from __future__ import annotations

import h11
import pytest

from gateway.upstream.client import Origin, Pool
from gateway.upstream.engine import FORGIVEN_S, LONGEST_S, OUT, Engine
from gateway.upstream.figures import Figures
from gateway.upstream.want import Preference, Want

CHAT = "/v1/chat/completions"


def engine(api_key: str | None = None) -> Engine:
    return Engine("e0", Pool(Origin.parse("http://engine:8000")), api_key=api_key)


def read(head: bytes) -> dict[str, str]:
    """Read a head as a server does."""
    server = h11.Connection(h11.SERVER)
    server.receive_data(head)
    request = server.next_event()
    assert isinstance(request, h11.Request)
    fields = [(name.decode(), value.decode()) for name, value in request.headers]
    assert len(dict(fields)) == len(fields)
    return {"target": request.target.decode(), **dict(fields)}


def test_a_head_carries_what_the_engine_needs_and_nothing_else() -> None:
    assert read(engine(api_key="sk-engine").head(CHAT, "req-1", 12, {})) == {
        "target": CHAT,
        "host": "engine:8000",
        "accept-encoding": "identity",
        "content-type": "application/json",
        "authorization": "Bearer sk-engine",
        "x-request-id": "req-1",
        "content-length": "12",
    }


def test_without_a_key_there_is_no_authorization() -> None:
    assert "authorization" not in read(engine().head(CHAT, "req-1", 0, {b"authorization": b"Bearer callers"}))


def test_of_the_callers_headers_only_trace_context_goes_along() -> None:
    callers = {
        b"traceparent": b"00-a-b-01",
        b"tracestate": b"x=y",
        b"x-vllm-priority": b"1",
        b"cookie": b"c",
        b"te": b"trailers",
    }
    sent = read(engine().head(CHAT, "r", 0, callers))
    assert (sent["traceparent"], sent["tracestate"]) == ("00-a-b-01", "x=y")
    assert not {"x-vllm-priority", "cookie", "te"} & set(sent)


@pytest.mark.parametrize("value", [b"", b" ", b"a\r\nx: y", b"a\x00", "é".encode(), b"a" * 513, b"a\n"])
def test_trace_context_that_is_not_plain_is_left_out(value: bytes) -> None:
    sent = read(engine().head(CHAT, "r", 0, {b"traceparent": value, b"tracestate": value}))
    assert not {"traceparent", "tracestate", "x"} & set(sent)


@pytest.mark.parametrize("request_id", ["a\r\nx: y", "a\x00", "a\n"])
def test_a_request_id_that_could_end_its_line_is_refused(request_id: str) -> None:
    with pytest.raises(ValueError, match="header"):
        engine().head(CHAT, request_id, 0, {})


def test_back_off_grows_up_to_its_limit_and_an_answer_ends_it() -> None:
    subject, now, waits = engine(), 1000.0, []
    for _ in range(8):
        subject.failed(now)
        waits.append(subject.shunned_until - now)
        now = subject.shunned_until
    assert waits == [2, 4, 8, 16, LONGEST_S, LONGEST_S, LONGEST_S, LONGEST_S]
    subject.answered()
    assert subject.fit(now - 1)
    subject.failed(now)
    assert subject.shunned_until == now + 2


def test_requests_that_fail_together_are_one_failure() -> None:
    subject = engine()
    for moment in range(20):
        subject.failed(1000.0 + moment / 100)
    assert subject.failures == 1


def test_a_failure_long_after_the_last_is_a_first_one() -> None:
    subject = engine()
    subject.failed(1000.0)
    subject.failed(1003.0)
    subject.failed(1003.0 + FORGIVEN_S + 1)
    assert subject.failures == 1


def test_busy_is_no_failure() -> None:
    subject = engine()
    subject.probed(up=True)
    for moment in range(10):
        subject.busy(1000.0 + moment)
        assert not subject.fit(1000.5 + moment)
        assert subject.available(1000.5 + moment)
    assert subject.failures == 0
    assert subject.fit(1010.5)


def test_an_engine_is_available_once_a_probe_found_it_and_while_it_does_not_fail_again_and_again() -> None:
    subject, now = engine(), 1000.0
    assert not subject.available(now)
    assert subject.probed(up=True)
    assert not subject.probed(up=True)
    for number in range(1, OUT + 1):
        subject.failed(now)
        assert subject.available(now) == (number < OUT)
        now = subject.shunned_until
    assert subject.available(now)
    subject.probed(up=False, trouble="no connection")
    assert not subject.available(now)
    assert subject.trouble == "no connection"


def test_an_engine_that_comes_up_starts_afresh() -> None:
    subject = engine()
    for moment in (1000.0, 1010.0, 1020.0):
        subject.failed(moment)
    subject.probed(up=False)
    subject.probed(up=True)
    assert subject.fit(1020.0)
    assert subject.available(1020.0)


def test_it_shows_its_name_only() -> None:
    assert repr(engine(api_key="sk-secret")) == "Engine('e0')"


def test_usable_is_who_gets_requests_now() -> None:
    subject = engine()
    assert not subject.usable(0)
    subject.probed(up=True)
    assert subject.usable(0)
    for name, value in (("draining", True), ("mirror", 0.1), ("weight", 0.0), ("warm", False), ("stalled", True)):
        before = getattr(subject, name)
        setattr(subject, name, value)
        assert not subject.usable(0), name
        setattr(subject, name, before)
    subject.weight, subject.preference = 0.0, Preference(frozenset({"k"}))
    assert subject.usable(0)


def test_work_is_given_back_as_it_was_taken() -> None:
    subject, wants = engine(), [Want(100, stream=True), Want(7), Want(50, stream=True)]
    for want in wants:
        subject.begin(want)
    assert (subject.in_flight, subject.work, subject.streams) == (3, 157, 2)
    for want in wants:
        subject.end(want)
    assert (subject.in_flight, subject.work, subject.streams) == (0, 0, 0)


def test_others_requests_weigh_as_much_as_ours_usually_do() -> None:
    subject = engine()
    for _ in range(200):
        subject.begin(Want(1000))
        subject.end(Want(1000))
    subject.told(Figures(running=3, waiting=1))
    assert 3900 < subject.foreign <= 4000
    subject.begin(Want(1000))
    subject.told(Figures(running=1))  # it is ours
    assert subject.foreign == 0
