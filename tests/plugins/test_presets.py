"""A preset fills in what the caller leaves open, and nothing that the caller has said; ceilings hold for everyone."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from structlog.testing import LogCapture

from gateway.sdk import Refused
from gateway.testing import CHAT, COMPLETIONS, MESSAGES, RESPONSES, Played, play
from plugins.presets import SHIPPED, Presets

PARAMETERS = {
    "temperature": st.floats(0, 2),
    "top_p": st.floats(0.1, 1),
    "repetition_penalty": st.floats(1, 2),
    "max_tokens": st.integers(1, 4000),
    "seed": st.integers(0, 9),
}


def presets(**options: Any) -> Presets:
    return Presets(Presets.Options.model_validate(options))


def request(preset: str | None = None, **fields: Any) -> dict[str, Any]:
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi."}], **fields}
    return body if preset is None else {**body, "sluice": {"preset": preset}}


def sent(played: Played) -> dict[str, Any]:
    assert played.request is not None, played.failure
    return {name: value for name, value in played.request.items() if name not in {"model", "messages", "sluice"}}


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("customer_service", {"temperature": 0.3}),
        ("factual", {"temperature": 0.2}),
        ("creative", {"temperature": 0.95, "top_p": 0.9, "max_tokens": 1024}),
        ("code", {"temperature": 0.2, "repetition_penalty": 1.2}),
        ("chat", {"temperature": 0.7, "top_p": 0.9, "repetition_penalty": 1.1, "max_tokens": 512}),
        ("deterministic", {"temperature": 0, "seed": 0}),
    ],
)
@pytest.mark.parametrize("route", [CHAT, COMPLETIONS])
async def test_a_shipped_preset_is_there_for_the_asking_and_the_answer_names_it(
    name: str, parameters: dict[str, Any], route: str
) -> None:
    body = request(name) if route == CHAT else {"model": "m", "prompt": "Hi.", "sluice": {"preset": name}}
    played = await play(presets(), body, route=route)
    assert played.request is not None
    assert {field: played.request.get(field) for field in parameters} == parameters
    assert played.extra == {"preset": name}


@given(own=st.fixed_dictionaries({}, optional=PARAMETERS), preset=st.fixed_dictionaries({}, optional=PARAMETERS))
async def test_explicit_parameters_of_the_caller_win(own: dict[str, Any], preset: dict[str, Any]) -> None:
    played = await play(presets(presets={"mine": preset}), request("mine", **own))
    assert sent(played) == {**preset, **own}


async def test_null_is_no_wish_and_the_newer_name_of_max_tokens_is_one() -> None:
    assert sent(await play(presets(), request("factual", temperature=None))) == {"temperature": 0.2}
    creative = sent(await play(presets(), request("creative", max_completion_tokens=7)))
    assert creative == {"temperature": 0.95, "top_p": 0.9, "max_completion_tokens": 7}


@pytest.mark.parametrize(("ceiling", "expected"), [(2000, 512), (100, 100)])
async def test_what_the_gateway_filled_in_is_no_wish_of_the_caller_but_still_a_ceiling(
    ceiling: int, expected: int
) -> None:
    played = await play(presets(), request("chat", max_tokens=ceiling), filled=["max_tokens"])
    assert sent(played)["max_tokens"] == expected
    assert not played.tags


async def test_the_16_tokens_of_a_completion_are_no_ceiling() -> None:
    asked = {"model": "m", "prompt": "q", "sluice": {"preset": "chat"}, "max_tokens": 16}
    played = await play(presets(), asked, route=COMPLETIONS, filled=["max_tokens"])
    assert sent(played)["max_tokens"] == 512


async def test_the_caller_chooses_before_the_key_the_key_before_the_model_the_model_before_the_default() -> None:
    plugin = presets(default="factual", models={"m": "code"}, keys={"team": "creative"})
    other = {**request(), "model": "other"}
    assert (await play(plugin, request("deterministic"), key="team")).extra == {"preset": "deterministic"}
    assert (await play(plugin, request(), key="team")).extra == {"preset": "creative"}
    assert (await play(plugin, request(), key="another")).extra == {"preset": "code"}
    assert (await play(plugin, other)).extra == {"preset": "factual"}
    nothing = await play(presets(), request())
    assert (sent(nothing), nothing.extra) == ({}, {})


@pytest.mark.parametrize(
    ("ours", "param"),
    [({"preset": "crative"}, "sluice.preset"), ({"preset": ["chat"]}, "sluice.preset"), ("chat", "sluice")],
)
async def test_an_unknown_preset_is_refused_and_the_known_ones_are_named(ours: Any, param: str) -> None:
    played = await play(presets(presets={"mine": {"seed": 1}}), {**request(), "sluice": ours})
    assert isinstance(played.failure, Refused)
    assert (played.failure.status, played.failure.code, played.failure.param) == (400, "invalid_request", param)
    assert param == "sluice" or all(name in played.failure.message for name in (*SHIPPED, "mine"))
    assert played.request is None


async def test_other_keys_under_sluice_and_other_routes_are_left_alone() -> None:
    assert sent(await play(presets(), {**request(), "sluice": {"other": 1}})) == {}
    body = {"model": "m", "input": "x"}
    assert (await play(presets(default="chat"), body, {"data": []}, route="/v1/embeddings")).request == body


async def test_a_preset_of_a_shipped_name_takes_its_place() -> None:
    assert sent(await play(presets(presets={"chat": {"top_k": 40, "stop": ["\n"]}}), request("chat"))) == {
        "top_k": 40,
        "stop": ["\n"],
    }


ALL = {"max_tokens": 100, "n": 2, "top_logprobs": 5, "best_of": 3}


async def test_what_is_over_a_ceiling_is_lowered_and_said() -> None:
    body = request(max_tokens=65535, max_completion_tokens=65535, n=9, best_of=10, top_logprobs=20, prompt_logprobs=-1)
    played = await play(presets(ceilings=ALL), body)
    assert sent(played) == {**ALL, "max_completion_tokens": 100, "prompt_logprobs": 5}
    assert played.tags == ["max_tokens_clamped", "n_clamped", "best_of_clamped", "top_logprobs_clamped"]


async def test_what_is_under_a_ceiling_stays_and_nothing_is_said() -> None:
    body = request(max_tokens=100, n=2, best_of=3, top_logprobs=0, logprobs=True)
    played = await play(presets(ceilings=ALL), body)
    assert sent(played) == sent(await play(presets(), body))
    assert played.tags == []


async def test_a_chat_without_a_wish_gets_the_ceiling_silently() -> None:
    played = await play(presets(ceilings={"max_tokens": 100}), request())
    assert (sent(played), played.tags) == ({"max_tokens": 100}, [])
    completion = await play(presets(ceilings=ALL), {"model": "m", "prompt": "x", "logprobs": 9}, route=COMPLETIONS)
    assert completion.request == {"model": "m", "prompt": "x", "logprobs": 5}, "an engine's own default is 16"


async def test_a_ceiling_holds_for_presets_too() -> None:
    played = await play(presets(ceilings={"max_tokens": 100}), request("creative"))
    assert (sent(played)["max_tokens"], played.tags) == (100, ["max_tokens_clamped"])


async def test_no_more_answers_are_asked_for_than_there_are_to_choose_from() -> None:
    played = await play(presets(ceilings={"best_of": 2}), request(n=4, best_of=8))
    assert (sent(played), played.tags) == ({"n": 2, "best_of": 2}, ["best_of_clamped", "n_clamped"])


async def test_what_is_no_number_is_left_to_the_engine() -> None:
    body = request(n="3", best_of=True, top_logprobs=[1])
    assert sent(await play(presets(ceilings=ALL), body)) == {**sent(await play(presets(), body)), "max_tokens": 100}


def test_what_will_be_regretted_is_warned_of_at_load(log: LogCapture) -> None:
    presets(presets={"hard": {"repetition_penalty": 1.31}, "beams": {"use_beam_search": True}, "fine": {"seed": 1}})
    hard, beams = (entry["said"] for entry in log.entries)
    assert hard.startswith("preset hard: repetition_penalty 1.31 is over 1.3")
    assert beams.startswith("preset beams: beams cost")
    presets(presets={"edge": {"repetition_penalty": 1.3}})
    assert len(log.entries) == 2, "nor is there anything to say of the shipped ones"


@pytest.mark.parametrize(
    ("options", "place"),
    [({"default": "x"}, "default"), ({"keys": {"team": "x"}}, "keys.team"), ({"models": {"m": "x"}}, "models.m")],
)
def test_a_name_without_a_preset_is_refused_at_load(options: dict[str, Any], place: str) -> None:
    with pytest.raises(ValueError, match=f"{place}: there is no preset 'x'; there are customer_service"):
        presets(**options)


@pytest.mark.parametrize(
    "options",
    [
        {"presets": {"x": {"temprature": 1}}},
        {"presets": {"x": {"temperature": 3}}},
        {"presets": {"x": {"n": 2}}},
        {"ceilings": {"tokens": 1}},
        {"ceilings": {"n": 0}},
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        presets(**options)


ASKED = {
    RESPONSES: {"model": "m", "input": "Hi.", "stream": False},
    MESSAGES: {"model": "m", "max_tokens": 900, "messages": [{"role": "user", "content": "Hi."}], "stream": False},
}
MINE = {"temperature": 0.5, "top_p": 0.9, "max_tokens": 700, "stop": "END", "seed": 3, "repetition_penalty": 1.1}


@pytest.mark.parametrize(
    ("route", "expected"),
    [
        (
            RESPONSES,
            {"temperature": 0.5, "top_p": 0.9, "max_output_tokens": 700, "stop": "END", "seed": 3}
            | {"repetition_penalty": 1.1, "reasoning": {"effort": "low"}},
        ),
        (MESSAGES, {"temperature": 0.5, "top_p": 0.9, "max_tokens": 900, "stop_sequences": ["END"]}),
    ],
)
async def test_a_preset_is_told_in_the_fields_of_the_route(route: str, expected: dict[str, Any]) -> None:
    plugin = presets(presets={"mine": {**MINE, "reasoning_effort": "low"}})
    played = await play(plugin, {**ASKED[route], "sluice": {"preset": "mine"}}, route=route)
    assert played.request is not None, played.failure
    added = {name: value for name, value in played.request.items() if name not in {"model", "input", "messages"}}
    assert {name: value for name, value in added.items() if name not in {"sluice", "stream"}} == expected
    assert played.extra == {"preset": "mine"}


@pytest.mark.parametrize(
    ("route", "more", "field"),
    [(RESPONSES, {"max_output_tokens": 900}, "max_output_tokens"), (MESSAGES, {}, "max_tokens")],
)
async def test_the_ceiling_of_tokens_holds_by_any_name(route: str, more: dict[str, Any], field: str) -> None:
    plugin = presets(ceilings={"max_tokens": 100, "top_logprobs": 2})
    played = await play(plugin, {**ASKED[route], **more, "top_logprobs": 5}, route=route)
    assert played.request is not None
    assert played.request[field] == 100
    assert played.request["top_logprobs"] == (2 if route == RESPONSES else 5)
    assert played.tags[0] == "max_tokens_clamped"
