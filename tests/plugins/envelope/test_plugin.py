"""What the plugin asks of the engine, and for whom."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.record import Record
from gateway.sdk import Exchange
from plugins.envelope import Envelope
from tests.plugins.exchanges import chat
from tests.plugins.pages import example


def asked(plugin: Envelope, exchange: Exchange, *, mine: bool = True) -> dict[str, Any]:
    exchange.shape = plugin.shape if mine else None
    if "on_request" not in plugin.idle:
        plugin.on_request(exchange)
    return exchange.request


def envelope(**options: Any) -> Envelope:
    return Envelope(Envelope.Options.model_validate({"profile": "code_data", **options}))


def test_tokens_are_asked_for_where_they_will_be_told() -> None:
    assert asked(envelope(), chat("hi"))["logprobs"] is True
    assert "logprobs" not in asked(envelope(), chat("hi"), mine=False)
    assert "logprobs" not in asked(envelope(tokens=0), chat("hi"))
    assert "logprobs" not in asked(envelope(profile="result_meta"), chat("hi"))
    assert "logprobs" not in asked(envelope(profile="openai"), chat("hi"))


@pytest.mark.parametrize(("given", "sent"), [({}, 0), ({"logprobs": 3}, 3)])
def test_completions_have_a_number_there(given: dict[str, Any], sent: int) -> None:
    exchange = chat("hi")
    record = Record(route="/v1/completions")
    assert asked(envelope(), Exchange(record, {"prompt": "p", **given}, {}, exchange.host))["logprobs"] == sent


def test_another_plugin_that_takes_logprobs_out_leaves_them_to_the_envelope() -> None:
    exchange = chat("hi")
    exchange.show_logprobs = -1
    asked(envelope(), exchange)
    assert exchange.show_logprobs == 0


def test_the_default_is_openais_form() -> None:
    assert Envelope(Envelope.Options()).shape.name == "openai"


def test_the_example_on_its_page_is_true() -> None:
    options, (request, answer, refused) = example("envelope")
    record, shape = Record(model=request["model"]), envelope(**options).shape
    choice = {
        "message": {"content": "Two."},
        "logprobs": {"content": [{"token": "Two"}, {"token": "."}]},
    }
    body = {"object": "chat.completion", "model": request["model"], "choices": [choice]}
    for told, said in (
        (shape.answer(body, record), answer),
        (shape.failure({"code": "content_filter"}, 400, record)[1], refused),
    ):
        assert told["meta"].keys() == said["meta"].keys()
        assert {**told, "meta": {**told["meta"], "latency_ms": said["meta"]["latency_ms"]}} == said
