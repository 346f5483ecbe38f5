"""A number from 0 to 1 or null, never NaN, and no log probabilities for who asked for none."""

from __future__ import annotations

import json
from math import inf, log, nan
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from gateway.protocol import sse
from gateway.protocol.stream import StreamEditor
from gateway.protocol.whole import WholeAnswer
from gateway.testing import MESSAGES, RESPONSES, Played, play
from plugins.confidence import Confidence, margin, measure
from tests.plugins.pages import example

CHAT: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "q"}], "stream": False}
logprobs = st.floats() | st.none() | st.text(max_size=2) | st.integers()


def entry(token: str, *probabilities: float) -> dict[str, Any]:
    tops = [{"token": f"{token}{at}", "logprob": log(each), "bytes": []} for at, each in enumerate(probabilities)]
    return {"token": token, "logprob": log(probabilities[0]), "bytes": list(token.encode()), "top_logprobs": tops}


def said(*choices: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "object": "chat.completion",
        "model": "m",
        "choices": [
            {
                "index": index,
                "message": {"role": "assistant", "content": "".join(each["token"] for each in entries)},
                "logprobs": {"content": entries},
                "finish_reason": "stop",
            }
            for index, entries in enumerate(choices)
        ],
    }


SURE = [entry("Paris", 0.8, 0.1, 0.1), entry(".", 1.0)]
UNSURE = [entry("Rome", 0.4, 0.39, 0.01), entry(" or", 0.5, 0.2, 0.2)]


async def played(answer: Any, request: dict[str, Any] | None = None, **options: Any) -> Played:
    return await play(Confidence(Confidence.Options.model_validate(options)), {**CHAT, **(request or {})}, answer)


async def test_it_asks_for_logprobs_and_takes_them_out_again() -> None:
    answer = await played(said(SURE))
    assert answer.request is not None
    assert (answer.request["logprobs"], answer.request["top_logprobs"]) == (True, 3)
    assert answer.body["choices"][0]["logprobs"] is None
    assert answer.extra == {"confidence": 1.0}


async def test_a_caller_sees_as_many_as_it_asked_for() -> None:
    answer = await played(said(SURE), {"logprobs": True, "top_logprobs": 1})
    assert answer.request is not None
    assert answer.request["top_logprobs"] == 3
    assert [len(each["top_logprobs"]) for each in answer.body["choices"][0]["logprobs"]["content"]] == [1, 1]
    more = await played(said(SURE), {"logprobs": True, "top_logprobs": 5})
    assert more.request is not None
    assert more.request["top_logprobs"] == 5
    assert more.body == said(SURE)


async def test_several_choices_have_several_numbers() -> None:
    answer = await played(said(SURE, UNSURE), {"n": 2})
    assert answer.extra["confidence"] == [1.0, 0.0256]


async def test_the_other_metric_and_the_detail() -> None:
    assert (await played(said(UNSURE), metric="mean_probability")).extra == {"confidence": 0.45}
    detail = (await played(said(UNSURE), detail=True)).extra["confidence_detail"]
    assert (detail["margin"], detail["mean_probability"], detail["perplexity"]) == (0.0256, 0.45, 2.2361)
    assert detail["least_certain"] == [{"start": 0, "end": 7, "text": "Rome or", "probability": 0.4}]


async def test_the_mean_needs_no_alternatives() -> None:
    answer = await played(said(SURE), metric="mean_probability")
    assert answer.request is not None
    assert answer.request["top_logprobs"] == 0


async def test_low_confidence_is_tagged() -> None:
    answer = await played(said(UNSURE), threshold=0.5)
    assert (answer.tags, answer.hits[0].rule) == (["low_confidence"], "low_confidence")
    assert (await played(said(SURE), threshold=0.5)).tags == []


async def test_low_confidence_can_be_answered_otherwise() -> None:
    answer = await played(said(UNSURE), threshold=0.5, below="fallback")
    assert answer.failure is not None
    assert (answer.failure.status, answer.failure.code, answer.tags) == (502, "low_confidence", ["low_confidence"])


@pytest.mark.parametrize(
    "content",
    [
        [{"token": "a", "logprob": -inf, "top_logprobs": []}],
        [{"token": "a", "logprob": -9999.0, "top_logprobs": [{"token": "a", "logprob": -9999.0}]}],
        [{"token": "a", "logprob": nan, "top_logprobs": None}],
        [],
        None,
    ],
)
async def test_odd_numbers_become_numbers_or_null(content: Any) -> None:
    raw = {"index": 0, "message": {"content": "a"}, "logprobs": {"content": content}, "finish_reason": "stop"}
    answer = await played({"object": "chat.completion", "choices": [raw]}, detail=True)
    json.dumps(answer.extra, allow_nan=False)
    assert answer.extra["confidence"] is None


@given(st.lists(st.tuples(logprobs, st.lists(logprobs, max_size=4)), max_size=5))
def test_whatever_an_engine_says_it_is_a_number_from_0_to_1_or_null(entries: list[tuple[Any, list[Any]]]) -> None:
    content = [
        {"token": "a", "logprob": own, "top_logprobs": [{"logprob": each} for each in top]} for own, top in entries
    ]
    completion = {
        "tokens": ["a"] * len(entries),
        "token_logprobs": [own for own, _ in entries],
        "top_logprobs": [dict(enumerate(top)) for _, top in entries],
    }
    for said_so in ({"content": content}, completion):
        measured = measure({"logprobs": said_so})
        json.dumps(measured._asdict(), allow_nan=False)
        assert all(number is None or 0 <= number <= 1 for number in measured[:2])
        assert measured.perplexity is None or measured.perplexity >= 1


@pytest.mark.parametrize(
    ("probabilities", "expected"),
    [
        ([], None),
        ([1.0], 1.0),
        ([0.5, 0.5], 0.0),
        ([0.2, 0.2, 0.2], 0.0),
        ([0.6, 0.3, 0.1], 0.6),
        ([0.1, 0.3, 0.6], 0.6),
    ],
)
def test_the_margin_is_what_the_documentation_says(probabilities: list[float], expected: float | None) -> None:
    assert margin(map(log, probabilities)) == expected


async def test_completions_have_a_form_of_their_own() -> None:
    told = {
        "tokens": [" Paris", "."],
        "token_logprobs": [log(0.8), None],
        "top_logprobs": [{" Paris": log(0.8), " Rome": log(0.2)}, None],
    }
    choice = {"index": 0, "text": " Paris.", "logprobs": told, "finish_reason": "stop"}
    body = {"object": "text_completion", "choices": [choice]}
    plugin = Confidence(Confidence.Options())
    answer = await play(plugin, {"model": "m", "prompt": "q"}, body, route="/v1/completions")
    assert (answer.request or {})["logprobs"] == 3
    assert answer.extra == {"confidence": 0.75}
    assert answer.body["choices"][0]["logprobs"] is None
    kept = await play(plugin, {"model": "m", "prompt": "q", "logprobs": 0}, body, route="/v1/completions")
    assert kept.body["choices"][0]["logprobs"]["top_logprobs"] == [{" Paris": log(0.8)}, None]
    echo = await play(plugin, {"model": "m", "prompt": "q", "echo": True}, body, route="/v1/completions")
    assert ((echo.request or {}).get("logprobs"), echo.extra) == (None, {})


@pytest.mark.parametrize("wrong", [{"logprobs": "yes"}, {"logprobs": True, "top_logprobs": -1}, {"top_logprobs": "3"}])
async def test_what_the_engine_will_refuse_is_left_to_it(wrong: dict[str, Any]) -> None:
    answer = await played(said(SURE), wrong)
    assert answer.request is not None
    assert {name: answer.request[name] for name in wrong} == wrong
    assert answer.extra == {}


def chunk(entries: list[dict[str, Any]], finish: str | None = None) -> bytes:
    delta = {"content": "".join(each["token"] for each in entries)}
    choice = {"index": 0, "delta": delta, "logprobs": {"content": entries}, "finish_reason": finish}
    return sse.encode(json.dumps({"model": "m", "choices": [choice]}).encode())


@pytest.mark.parametrize(("shown", "kept"), [(-1, None), (0, [0, 0]), (None, [3, 1])])
def test_a_stream_shows_what_was_asked_for_and_is_measured_by_all(shown: int | None, kept: list[int] | None) -> None:
    editor = StreamEditor(lambda *_: None, model="m", choices=1, want_usage=False, merge=True, show_logprobs=shown)
    out = editor.feed(chunk(SURE[:1])) + editor.feed(chunk(SURE[1:], "stop")) + editor.close(None)
    told = [json.loads(frame[6:])["choices"][0]["logprobs"] for frame in out.split(b"\n\n")[:-2]]
    assert measure(editor.merged()["choices"][0]).margin == 1.0
    if kept is None:
        assert told == [None, None]
    else:
        assert [len(each["content"][0]["top_logprobs"]) for each in told] == kept


def test_without_the_plugin_the_engine_s_bytes_are_left_alone() -> None:
    raw = json.dumps(said(SURE)).encode()
    assert WholeAnswer(raw).close("m", None) == raw


@pytest.mark.parametrize("options", [{"metric": "entropy"}, {"threshold": 2}, {"limit": 1}])
def test_wrong_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Confidence.Options.model_validate(options)


async def test_the_example_of_its_page_is_what_happens() -> None:
    options, (request, told) = example("confidence")
    answer = await play(Confidence(Confidence.Options.model_validate(options)), request, said(UNSURE))
    assert {**answer.extra, "tags": answer.tags} == told


TOLD = "message.output_text.logprobs"


@pytest.mark.parametrize(
    ("asked", "sent", "shown"),
    [
        ({}, {"include": [TOLD], "top_logprobs": 3}, -1),
        ({"include": ["x"]}, {"include": ["x", TOLD], "top_logprobs": 3}, -1),
        ({"include": [TOLD], "top_logprobs": 1}, {"include": [TOLD], "top_logprobs": 3}, 1),
        ({"include": [TOLD], "top_logprobs": 5}, {"include": [TOLD], "top_logprobs": 5}, None),
    ],
)
async def test_a_response_is_measured_and_told_without_what_nobody_asked_for(
    asked: dict[str, Any], sent: dict[str, Any], shown: int | None
) -> None:
    part = {"type": "output_text", "text": "Hi", "annotations": [], "logprobs": [entry("Hi", 0.8, 0.1, 0.05)]}
    item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [part]}
    body = {"id": "resp_1", "object": "response", "model": "m", "status": "completed", "output": [item]}
    plugin = Confidence(Confidence.Options())
    plugin.name = "confidence"
    played = await play(plugin, {"model": "m", "input": "q", "stream": False, **asked}, body, route=RESPONSES)
    assert played.request is not None
    assert {name: played.request[name] for name in sent} == sent
    assert played.extra["confidence"] == round(0.7 / 0.75, 4)
    (told,) = played.body["output"][0]["content"]
    tops = [len(each["top_logprobs"]) for each in told.get("logprobs") or []]
    assert tops == {-1: [], 1: [1], None: [3]}[shown]


async def test_messages_know_no_logprobs_and_are_left_alone() -> None:
    asked = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "q"}], "stream": False}
    played = await play(Confidence(Confidence.Options()), asked, "a", route=MESSAGES)
    assert (played.request, played.extra) == (asked, {})
