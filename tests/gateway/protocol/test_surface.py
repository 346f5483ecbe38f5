"""The registry: every route that is served says where text sits, and is handled by one set of words."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gateway.errors import ContentFiltered, EngineError, NotFound, QueueFull
from gateway.protocol.openai import Ceilings
from gateway.protocol.surface import POSTED, SURFACES, Surface, answer_texts, error_body, request_texts, takes_shape
from tests.fakes.responses import Word

ANSWERS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"choices": [{"message": {"content": "papaya"}, "finish_reason": "stop"}]},
    "/v1/completions": {"choices": [{"text": "papaya", "finish_reason": "stop"}]},
    "/v1/responses": {
        "output": [{"type": "message", "content": [{"type": "output_text", "text": "papaya"}]}],
        "status": "completed",
    },
    "/v1/messages": {"content": [{"type": "text", "text": "papaya"}], "stop_reason": "end_turn"},
    "/v1/rerank": {"results": [{"index": 0, "document": {"text": "papaya"}}]},
    "/detokenize": {"prompt": "papaya"},
    "/v1/embeddings": {"data": [{"embedding": [0.5]}]},
    "/v1/score": {"data": [{"score": 0.5}]},
    "/v1/messages/count_tokens": {"input_tokens": 5},
    "/tokenize": {"count": 1, "tokens": [5]},
}


def test_every_route_is_known_by_its_own_name_and_an_unknown_one_by_none() -> None:
    assert {name: surface.route for name, surface in SURFACES.items()} == {name: name for name in SURFACES}
    assert POSTED.keys() == ANSWERS.keys()
    for find in (request_texts, answer_texts):
        with pytest.raises(KeyError):
            find("/invocations", {})


@pytest.mark.parametrize("surface", POSTED.values(), ids=POSTED)
def test_the_texts_that_a_plugin_sees_are_those_that_are_filtered(surface: Surface) -> None:
    raw = msgspec.json.encode({"model": "m", **ANSWERS[surface.route]})
    found = [text.text for text in answer_texts(surface.route, msgspec.json.decode(raw))]
    answer = surface.whole(raw)
    answer.filter(lambda *_: Word())
    told = answer.close("gpt", None)
    assert found == ["papaya"] * raw.count(b"papaya")
    assert told.count(b"******") == raw.count(b"papaya")
    assert b"papaya" not in told
    assert b'"model":"gpt"' in told
    assert surface.whole(raw).close("m", None) == raw


def test_an_answer_that_cannot_end_early_is_withheld() -> None:
    answer = SURFACES["/detokenize"].whole(b'{"prompt":"a zebra"}')
    with pytest.raises(ContentFiltered):
        answer.filter(lambda *_: Word())


@pytest.mark.parametrize("route", ["/v1/chat/completions", "/v1/responses", "/v1/messages"])
def test_what_is_no_answer_of_its_route_is_the_engines_failure(route: str) -> None:
    with pytest.raises(EngineError):
        SURFACES[route].whole(b'{"object":"other"}').filter(lambda *_: None)


@pytest.mark.parametrize("surface", POSTED.values(), ids=POSTED)
def test_a_request_is_asked_clamped_and_sent_under_the_engines_name(surface: Surface) -> None:
    body: dict[str, Any] = {"model": "gpt", "sluice": {"preset": "x"}}
    asked = surface.ask(body, frozenset())
    surface.clamp(body, asked, Ceilings(100, 2, 2))
    assert (asked.model, asked.stream, asked.output_tokens <= 100) == ("gpt", False, True)
    sent = surface.for_engine(body, model="m", stream=False, cache_salt=None)
    assert sent["model"] == "m"
    assert "sluice" not in sent


@pytest.mark.parametrize("surface", POSTED.values(), ids=POSTED)
def test_a_plugins_reply_is_told_whole_and_streamed(surface: Surface) -> None:
    chat = {"id": "chatcmpl-1", "object": "chat.completion", "model": "m", "created": 5,
            "choices": [{"index": 0, "message": {"role": "assistant", "content": "no"}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 1, "completion_tokens": 2}}  # fmt: skip
    told = surface.own(200, chat)
    assert "no" in str(told)
    assert b"no" in surface.as_stream(told, want_usage=False)


def test_a_failure_has_the_shape_of_where_it_happens() -> None:
    for path in ("/v1/messages", "/v1/messages/", "/v1/messages/count_tokens", "/v1/messages/batches"):
        assert error_body(path, NotFound("m")) == {
            "type": "error",
            "error": {"type": "not_found_error", "message": "m"},
        }
    for path in ("/v1/responses", "/v1/chat/completions", "/nowhere"):
        assert error_body(path, QueueFull("m"))["error"]["code"] == "queue_full"
    assert SURFACES["/v1/messages"].error_body(NotFound("m"))["type"] == "error"
    events = {route: surface.failure_event(NotFound("m")).partition(b"\n")[0] for route, surface in POSTED.items()}
    assert events["/v1/responses"] == b"event: response.failed"
    assert events["/v1/messages"] == b"event: error"
    assert events["/v1/chat/completions"].startswith(b'data: {"error":')


def test_only_what_has_choices_takes_another_shape() -> None:
    assert [route for route in SURFACES if not takes_shape(route)] == [
        route for route in SURFACES if route.startswith(("/v1/responses", "/v1/messages"))
    ]
