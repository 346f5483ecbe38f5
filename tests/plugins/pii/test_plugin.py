"""Requests and answers lose their personal data; what was found is recorded by kind, never by value."""

from __future__ import annotations

import asyncio
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest
from pydantic import ValidationError

from gateway.registry import build_chain
from gateway.sdk import Refused
from gateway.settings import ChainEntry, ConfigurationError
from gateway.testing import play
from plugins.pii import Pii
from tests.plugins.exchanges import chat, contents


def made(**options: Any) -> Pii:
    plugin = Pii(Pii.Options.model_validate(options))
    plugin.name = "pii"
    return plugin


def test_a_request_is_masked_and_recorded_by_kind() -> None:
    exchange = chat("电话13800138000", "hello", "mail user@example.com")
    assert made().on_request(exchange) is None
    assert contents(exchange) == ["电话138****8000", "hello", "mail u***@example.com"]
    assert [(hit.rule, hit.action, hit.where, hit.start, hit.end) for hit in exchange.record.hits] == [
        ("pii:phone_cn", "mask", "messages[0].content", 2, 13),
        ("pii:email", "mask", "messages[2].content", 5, 21),
    ]
    assert "13800138000" not in repr(exchange.record)


def test_a_value_over_adjacent_parts_is_one() -> None:
    parts = [{"type": "text", "text": "电话1380013"}, {"type": "text", "text": "8000。"}]
    exchange = chat(parts)
    made().on_request(exchange)
    assert [part["text"] for part in contents(exchange)[0]] == ["电话138****", "8000。"]


def test_a_request_can_be_refused_without_a_word_of_it() -> None:
    plugin = made(action="block")
    assert plugin.blocks_requests
    with pytest.raises(Refused) as caught:
        plugin.on_request(chat("hi", "电话13800138000"))
    failure = caught.value
    assert (failure.status, failure.code, failure.param) == (400, "content_filter", "messages[1].content")
    assert "138" not in str(failure)
    assert not made().blocks_requests


def test_a_request_can_be_tagged_only() -> None:
    exchange = chat("电话13800138000 a@example.com")
    made(action="tag").on_request(exchange)
    assert contents(exchange) == ["电话13800138000 a@example.com"]
    assert exchange.record.tags == ["pii:phone_cn", "pii:email"]


def test_each_kind_can_have_its_own_action() -> None:
    exchange = chat("电话13800138000 li@example.com")
    made(kinds=["phone_cn", {"kind": "email", "action": "tag"}]).on_request(exchange)
    assert contents(exchange) == ["电话138****8000 li@example.com"]
    assert exchange.record.tags == ["pii:email"]


def test_directions_can_be_switched_off() -> None:
    exchange = chat("电话13800138000")
    assert made(directions=["answer"]).on_request(exchange) is None
    assert contents(exchange) == ["电话13800138000"]
    assert made(directions=["request"]).text_filter(exchange, None) is None  # type: ignore[arg-type]  # not looked at
    assert made(kinds=[]).text_filter(exchange, None) is None  # type: ignore[arg-type]  # not looked at


async def test_an_answer_is_masked_streamed_and_whole() -> None:
    pieces = ["Call 138", "0013", "8000 or write to us", "er@example", ".com."]
    streamed = await play(made(), "hi", pieces)
    whole = await play(made(), {"messages": [], "stream": False}, "".join(pieces))
    assert streamed.shown == whole.shown == "Call 138****8000 or write to u***@example.com."
    assert [hit.rule for hit in streamed.record.hits] == [hit.rule for hit in whole.record.hits]


async def test_a_long_hostile_request_does_not_hold_up_the_others() -> None:  # SE-11
    exchange = chat("4444 " * 60_000 + "13800138000")
    waiting = made().on_request(exchange)
    assert waiting is not None
    gaps = []

    async def others() -> None:
        while True:
            began = perf_counter()
            await asyncio.sleep(0)
            gaps.append(perf_counter() - began)

    other = asyncio.create_task(others())
    await waiting
    other.cancel()
    assert sorted(gaps)[int(len(gaps) * 0.99)] < 0.2
    assert contents(exchange)[0].endswith("4444 138****8000")


def test_what_fires_is_explained_to_the_operator() -> None:
    assert list(made().explain("call 13800138000")) == ["pii:phone_cn: mask: '13800138000' at 5 to 16"]


@pytest.mark.parametrize(
    "options",
    [
        {"kinds": ["phone"]},
        {"keep_head": -1},
        {"mask_char": ""},
        {"patterns": [{"name": "A b", "pattern": "x"}]},
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        made(**options)


def test_what_is_named_twice_is_refused_in_one_line() -> None:
    twice = ChainEntry(plugin="pii", options={"kinds": [{"kind": "email", "action": "block"}, "phone_cn", "email"]})
    with pytest.raises(ConfigurationError) as caught:
        build_chain([twice], Path())
    (line,) = caught.value.lines
    assert line == "configuration: chain[0].options.kinds: email is named 2 times; name it once"
    with pytest.raises(ValidationError):
        made(patterns=[{"name": "x", "pattern": "a"}, {"name": "x", "pattern": "b"}])
