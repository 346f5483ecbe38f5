"""The fields that the gateway relies on: read strictly, held to their ceilings, told to the engine in its words."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import InvalidRequest
from gateway.protocol.openai import CHAT, COMPLETIONS, EMBEDDINGS, Asked, Ceilings, check, clamp, for_engine, read
from gateway.protocol.surface import POSTED

CEILINGS = Ceilings(max_output_tokens=100, max_choices=4, max_prompts=3)
HI = [{"role": "user", "content": "hi"}]


def clamped(route: str, body: dict[str, Any], ceilings: Ceilings = CEILINGS) -> Asked:
    asked = read(route, body)
    clamp(route, body, asked, ceilings)
    return asked


def engine_body(
    body: dict[str, Any],
    route: str = CHAT,
    *,
    model: str | None = "served",
    stream: bool | None = None,
    cache_salt: str | None = None,
) -> dict[str, Any]:
    streams = bool(body.get("stream")) if stream is None else stream
    return for_engine(route, body, model=model, stream=streams, cache_salt=cache_salt)


def test_what_a_request_asks_for_is_read() -> None:
    body = {"model": "m", "stream": True, "stream_options": {"include_usage": True}}
    asked = read(CHAT, body)
    assert (asked.model, asked.stream, asked.want_usage) == ("m", True, True)
    assert not read(CHAT, {"model": "m", "stream": None}).stream


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "model"),
        ({"model": ""}, "model"),
        ({"model": ["m"]}, "model"),
        ({"model": "m", "stream": "true"}, "stream"),
        ({"model": "m", "stream": 1}, "stream"),
        ({"model": "m", "stream_options": []}, "stream_options"),
        ({"model": "m", "stream_options": {"include_usage": "yes"}}, "stream_options.include_usage"),
    ],
)
def test_what_the_gateway_would_misread_is_refused_and_named(body: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        read(CHAT, body)
    assert refusal.value.param == param


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"chat_template": "{{ x }}"}, "chat_template"),
        ({"chat_template_kwargs": {"chat_template": "{{ x }}"}}, "chat_template_kwargs.chat_template"),
    ],
)
def test_a_request_may_not_bring_a_template(body: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        check({"model": "m", **body}, frozenset())
    assert refusal.value.param == param


def picture(url: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}]}


@pytest.mark.parametrize(
    "url",
    [
        "data:image/png;base64,AA==",
        "DATA:image/png;base64,AA==",
        "https://pictures.example/a",
        "http://PICTURES.example",
    ],
)
def test_media_pass_as_data_or_from_a_host_that_is_listed(url: str) -> None:
    check(picture(url), frozenset({"pictures.example"}))


@pytest.mark.parametrize(
    "url",
    [
        "https://other.example/a",
        "https://pictures.example.other.example/a",
        "https://pictures.example@other.example/a",
        "https://other.example\\@pictures.example/a",
        "file:///etc/passwd",
        "//pictures.example/a",
        "pictures.example/a",
        "http://[::1",
        "",
    ],
)
def test_media_from_elsewhere_are_refused_and_named(url: str) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        check(picture(url), frozenset({"pictures.example"}))
    assert (refusal.value.param or "").startswith("messages[0].content[0]")


@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
def test_tokens_over_the_ceiling_are_clamped_and_it_is_said(field: str) -> None:
    body = {"model": "m", field: 5000}
    asked = clamped(CHAT, body)
    assert (body[field], asked.clamped, asked.output_tokens) == (100, True, 100)


@pytest.mark.parametrize("value", [1, 99, 100])
def test_tokens_up_to_the_ceiling_stay(value: int) -> None:
    body = {"model": "m", "max_tokens": value, "n": 2}
    asked = clamped(CHAT, body)
    assert (body["max_tokens"], asked.clamped, asked.output_tokens) == (value, False, 2 * value)


def test_the_ceiling_is_the_default_of_a_chat_and_without_one_the_engine_decides() -> None:
    body: dict[str, Any] = {"model": "m"}
    asked = clamped(CHAT, body)
    assert asked.output_tokens == body["max_tokens"] == 100
    assert asked.filled == ("max_tokens",), "so that nobody takes it for the caller's wish"
    body = {"model": "m"}
    assert not clamped(CHAT, body, Ceilings(None, 4, 3)).filled
    assert "max_tokens" not in body


@pytest.mark.parametrize("body", [{}, {"max_tokens": None}, {"max_completion_tokens": 50}])
def test_a_completion_that_names_no_limit_has_openais_on_every_engine(body: dict[str, Any]) -> None:
    body = {"model": "m", "prompt": "hi", **body}
    asked = clamped(COMPLETIONS, body)
    assert (body["max_tokens"], asked.filled) == (16, ("max_tokens",))
    assert asked.output_tokens == (body.get("max_completion_tokens") or 16)
    tight: dict[str, Any] = {"model": "m"}
    free: dict[str, Any] = {"model": "m"}
    assert clamped(COMPLETIONS, tight, Ceilings(9, 4, 3)).output_tokens == tight["max_tokens"] == 9
    assert clamped(COMPLETIONS, free, Ceilings(None, 4, 3)).output_tokens == 16
    assert "max_tokens" not in free, "without a ceiling the engine decides"


@pytest.mark.parametrize("value", [0, -5, 0.5])
@pytest.mark.parametrize(
    ("route", "field"),
    [
        (CHAT, "max_tokens"),
        (CHAT, "max_completion_tokens"),
        (COMPLETIONS, "max_tokens"),
        ("/v1/responses", "max_output_tokens"),
        ("/v1/messages", "max_tokens"),
    ],
)
def test_less_than_one_token_is_refused_and_named_on_every_route(route: str, field: str, value: float) -> None:
    for ceilings in (CEILINGS, Ceilings(None, 4, 3)):
        with pytest.raises(InvalidRequest) as refusal:
            POSTED[route].clamp({"model": "m", field: value}, Asked("m"), ceilings)
        assert refusal.value.param == field


def test_who_scores_a_prompt_asks_for_no_token() -> None:
    body = {"model": "m", "prompt": "hi", "echo": True, "max_tokens": 0}
    assert clamped(COMPLETIONS, body).output_tokens == body["max_tokens"] == 0
    with pytest.raises(InvalidRequest):
        clamped(CHAT, {"model": "m", "echo": True, "max_tokens": 0})


@given(st.sampled_from(["max_tokens", "n", "best_of"]), st.sampled_from([True, "5", [5], {"a": 5}]))
def test_what_is_no_number_is_refused_and_named(field: str, value: Any) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        clamped(COMPLETIONS, {"model": "m", "prompt": "hi", field: value})
    assert refusal.value.param == field


@pytest.mark.parametrize(
    ("route", "body", "param"),
    [
        (CHAT, {"n": 5}, "n"),
        (CHAT, {"n": 0}, "n"),
        (COMPLETIONS, {"prompt": "a", "best_of": 5}, "best_of"),
        (COMPLETIONS, {"prompt": ["a"] * 4}, "prompt"),
        (EMBEDDINGS, {"input": ["a"] * 4}, "input"),
    ],
)
def test_more_than_a_ceiling_of_choices_or_prompts_is_refused(route: str, body: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        clamped(route, {"model": "m", **body})
    assert refusal.value.param == param


def test_every_prompt_has_its_choices() -> None:
    assert clamped(COMPLETIONS, {"model": "m", "prompt": ["a", "b"], "n": 3, "max_tokens": 10}).choices == 6
    assert clamped(COMPLETIONS, {"model": "m", "prompt": [1, 2, 3, 4, 5]}).choices == 1  # token ids of one prompt


def test_the_engine_gets_its_own_name_for_the_model_and_every_unknown_field() -> None:
    body = {"model": "alias", "messages": HI, "seed": 2**70, "new_field": {"a": None}, "sluice": {"preset": "x"}}
    assert engine_body(body) == {"model": "served", "messages": HI, "seed": 2**70, "new_field": {"a": None}}
    assert body["model"] == "alias"
    assert engine_body(body, model=None)["model"] == "alias"


def test_usage_is_always_asked_for_in_a_stream() -> None:
    assert engine_body({"model": "m", "stream": True})["stream_options"] == {"include_usage": True}
    body = {"model": "m", "stream": True, "stream_options": {"include_usage": False, "other": 1}}
    assert engine_body(body)["stream_options"] == {"include_usage": True, "other": 1}
    assert body["stream_options"] == {"include_usage": False, "other": 1}


def test_a_stream_that_has_to_be_seen_whole_is_asked_for_whole() -> None:
    sent = engine_body({"model": "m", "stream": True, "stream_options": {"include_usage": True}}, stream=False)
    assert sent["stream"] is False
    assert "stream_options" not in sent


def test_guided_fields_are_told_in_today_s_words_and_a_salt_goes_along() -> None:
    sent = engine_body({"model": "m", "guided_choice": ["a", "b"]}, cache_salt="salt")
    assert sent["structured_outputs"] == {"choice": ["a", "b"]}
    assert "guided_choice" not in sent
    assert sent["cache_salt"] == "salt"


def test_what_generates_nothing_gets_no_generation_s_fields() -> None:
    assert engine_body({"model": "m", "input": "a"}, EMBEDDINGS, cache_salt="salt") == {"model": "served", "input": "a"}
