"""The fields of /v1/messages that the gateway relies on, and errors in Anthropic's shape."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.errors import (
    ContentFiltered,
    EngineError,
    EngineTimeout,
    Failure,
    InvalidKey,
    InvalidRequest,
    ModelNotAllowed,
    NoEngineAvailable,
    NotFound,
    QueueFull,
    Refused,
    RequestTooLarge,
)
from gateway.protocol.messages import (
    COUNT_TOKENS,
    MESSAGES,
    clamp,
    error_body,
    error_event,
    failure_event,
    for_engine,
    unclamped,
)
from gateway.protocol.openai import Ceilings
from gateway.protocol.surface import POSTED

CEILINGS = Ceilings(max_output_tokens=2000, max_choices=8, max_prompts=64)


def asked(route: str = MESSAGES, **fields: Any) -> Any:
    return POSTED[route].ask({"model": "m", "max_tokens": 5, "messages": [], **fields}, frozenset())


def image(url: str) -> dict[str, Any]:
    return {"type": "image", "source": {"type": "url", "url": url}}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"model": 5}, "model"),
        ({"stream": "true"}, "stream"),
        ({"chat_template_kwargs": {"chat_template": "x"}}, "chat_template_kwargs.chat_template"),
        ({"messages": [{"role": "user", "content": [image("http://a/")]}]}, "messages[0].content[0].source.url"),
        ({"messages": [{"role": "user", "content": [{"type": "tool_result", "content": [image("http://a/")]}]}]},
         "messages[0].content[0].content[0].source.url"),
    ],
)  # fmt: skip
def test_what_no_engine_is_to_be_asked_is_refused(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        asked(**fields)
    assert refused.value.param == param


def test_data_urls_pass_and_counting_never_streams() -> None:
    asked(messages=[{"role": "user", "content": [image("data:image/png;base64,AA")]}])
    assert asked(stream=True).stream
    assert not asked(COUNT_TOKENS, stream=True).stream


@pytest.mark.parametrize(("value", "sent", "clamped"), [(50, 50, False), (2000, 2000, False), (9999, 2000, True)])
def test_tokens_are_held_to_the_ceiling(value: int, sent: int, clamped: bool) -> None:
    body = {"max_tokens": value}
    held = asked()
    clamp(body, held, CEILINGS)
    assert (body["max_tokens"], held.output_tokens, held.clamped) == (sent, sent, clamped)


def test_a_budget_for_thinking_stays_below_a_clamped_ceiling() -> None:
    body: dict[str, Any] = {"max_tokens": 9999, "thinking": {"type": "enabled", "budget_tokens": 5000}}
    clamp(body, asked(), CEILINGS)
    assert body == {"max_tokens": 2000, "thinking": {"type": "enabled", "budget_tokens": 1999}}


def test_a_missing_or_odd_number_of_tokens() -> None:
    body: dict[str, Any] = {}
    clamp(body, asked(), CEILINGS)
    unclamped({"max_tokens": "x"}, asked(), CEILINGS)
    assert body == {}
    with pytest.raises(InvalidRequest):
        clamp({"max_tokens": True}, asked(), CEILINGS)


def test_the_engine_gets_its_own_name_and_no_word_of_ours() -> None:
    body = {"model": "claude", "stream": True, "sluice": {}}
    assert for_engine(body, model="m", stream=False, cache_salt="s") == {
        "model": "m",
        "stream": False,
        "cache_salt": "s",
    }
    assert for_engine(body, model=None, stream=True, cache_salt=None) == {"model": "claude", "stream": True}


@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (ContentFiltered("m"), "invalid_request_error"),
        (InvalidKey("m"), "authentication_error"),
        (ModelNotAllowed("m"), "permission_error"),
        (NotFound("m"), "not_found_error"),
        (RequestTooLarge("m"), "request_too_large"),
        (QueueFull("m"), "rate_limit_error"),
        (Refused("m", status=422), "invalid_request_error"),
        (Failure("m"), "api_error"),
        (EngineError("m"), "api_error"),
        (NoEngineAvailable("m"), "overloaded_error"),
        (EngineTimeout("m"), "timeout_error"),
    ],
)
def test_a_failure_is_told_in_anthropics_shape(failure: Failure, kind: str) -> None:
    assert error_body(failure) == {"type": "error", "error": {"type": kind, "message": "m"}}
    assert failure_event(failure).startswith(b'event: error\ndata: {"type":"error","error":{"type":"')


def test_an_error_event_is_a_failure_and_another_is_none() -> None:
    assert error_event(b'{"type":"message_stop"}') is None
    overloaded = error_event(b'{"type":"error","error":{"type":"overloaded_error","message":"x"}}')
    assert overloaded is not None
    assert overloaded.status == 503
    broken = error_event(b'{"error":"Unauthorized"}')
    assert broken is not None
    assert broken.status == 502
