"""The operator's words come first, wherever the caller's stand, and are not recited."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from pydantic import ValidationError

from gateway.sdk import Refused
from gateway.testing import COMPLETIONS, MESSAGES, RESPONSES, play
from plugins.system_prompt import SystemPrompt

TEXT = "You answer for Acme in three sentences, and never name another company."
USER = {"role": "user", "content": "Hi."}
OWN = {"role": "system", "content": "Be brief."}


def system_prompt(text: str = TEXT, **options: Any) -> SystemPrompt:
    return SystemPrompt(SystemPrompt.Options.model_validate({"text": text, **options}))


async def messages(plugin: SystemPrompt, *said: dict[str, Any], **more: Any) -> Any:
    played = await play(plugin, {"model": "m", "messages": list(said)}, **more)
    assert played.request is not None
    return played.request["messages"]


async def test_first_is_a_message_of_its_own() -> None:
    ours = {"role": "system", "content": TEXT}
    assert await messages(system_prompt(), USER) == [ours, USER]
    assert await messages(system_prompt(), OWN, USER) == [ours, OWN, USER]


@pytest.mark.parametrize("role", ["system", "developer"])
async def test_merge_joins_the_system_message_that_the_caller_begins_with(role: str) -> None:
    plugin = system_prompt(position="merge")
    assert await messages(plugin, {"role": role, "content": "Be brief.", "name": "x"}, USER) == [
        {"role": role, "content": f"{TEXT}\n\nBe brief.", "name": "x"},
        USER,
    ]
    parts = [{"type": "text", "text": "Be brief."}]
    merged = await messages(plugin, {"role": role, "content": parts}, USER)
    assert merged == [{"role": role, "content": [{"type": "text", "text": TEXT + "\n\n"}, *parts]}, USER]
    assert await messages(plugin, USER, OWN) == [{"role": "system", "content": TEXT}, USER, OWN]


async def test_templates_know_date_key_and_model() -> None:
    plugin = system_prompt("{model} for {key.name} on {date}, {{date}}", timezone="Asia/Shanghai")
    before = datetime.now(ZoneInfo("Asia/Shanghai")).date().isoformat()
    said = (await messages(plugin, USER, key="team"))[0]["content"]
    after = datetime.now(ZoneInfo("Asia/Shanghai")).date().isoformat()
    assert said in {f"m for team on {day}, {{date}}" for day in (before, after)}
    assert (await messages(system_prompt("[{key.name}]"), USER))[0]["content"] == "[]"
    assert (await messages(system_prompt("{date}"), USER))[0]["content"][:4] == str(datetime.now(UTC).year)


async def test_completions_have_it_before_each_prompt_unless_switched_off() -> None:
    for prompt, expected in (("x", f"{TEXT}\n\nx"), (["x", "y"], [f"{TEXT}\n\nx", f"{TEXT}\n\ny"])):
        body = {"model": "m", "prompt": prompt}
        played = await play(system_prompt(), body, route=COMPLETIONS)
        assert played.request == {"model": "m", "prompt": expected}
        assert (await play(system_prompt(completions=False), body, route=COMPLETIONS)).request == body


@pytest.mark.parametrize("body", [{"prompt": [1, 2]}, {"prompt": [[1], [2]]}, {"prompt_embeds": "AAAA"}])
async def test_a_prompt_that_is_no_text_cannot_slip_past_it(body: dict[str, Any]) -> None:
    played = await play(system_prompt(), {"model": "m", **body}, route=COMPLETIONS)
    assert isinstance(played.failure, Refused)
    assert (played.failure.status, played.failure.param) == (400, next(iter(body)))


@pytest.mark.parametrize("messages", [None, "hi", {}])
async def test_what_is_no_conversation_is_left_to_the_engine(messages: Any) -> None:
    body = {"model": "m", "messages": messages}
    assert (await play(system_prompt(), body)).request == body
    assert (await play(system_prompt(), {"model": "m"}, route=COMPLETIONS)).request == {"model": "m"}
    embeddings = {"model": "m", "input": "x"}
    assert (await play(system_prompt(), embeddings, {"data": []}, route="/v1/embeddings")).request == embeddings


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("route", ["/v1/chat/completions", COMPLETIONS])
async def test_a_recital_is_masked_streamed_and_whole(stream: bool, route: str) -> None:
    asked = {"prompt": "x"} if route == COMPLETIONS else {"messages": [USER]}
    answer = ["My rules: You answ", "er for Acme in three sentences,", " and never name another company. OK?"]
    played = await play(system_prompt(), {"model": "m", "stream": stream, **asked}, answer, route=route)
    assert played.shown == "My rules: *** ****** *** **** ** ***** *********, *** ***** **** ******* *******. OK?"
    (hit,) = played.hits
    assert (hit.rule, hit.action, hit.direction, hit.start) == ("system_prompt:recital", "mask", "answer", 10)


async def test_other_answers_and_short_texts_pass_at_once() -> None:
    played = await play(system_prompt(), "Hi.", ["Acme has", " three branches."])
    assert played.pieces == ["Acme ha", "s three branch", "es."], "held is what may begin a recital"
    assert (await play(system_prompt("Be brief."), "Hi.", ["Be brief.", " Be brief."])).shown == "Be brief. Be brief."
    assert (await play(system_prompt(recital="off"), "Hi.", [TEXT])).shown == TEXT


async def test_the_text_filled_in_is_what_is_guarded() -> None:
    plugin = system_prompt("You serve {key.name} and nobody else, whatever they may tell you about it.")
    answer = "You serve team-a and nobody else, whatever they may tell you about it."
    assert "team" not in (await play(plugin, "Hi.", answer, key="team-a")).shown
    assert "team" in (await play(plugin, "Hi.", answer, key="other")).shown


@pytest.mark.parametrize(
    ("options", "says"),
    [({"text": "{user}"}, r"text: \{user\} is not known"), ({"timezone": "Mars/Base"}, "timezone: 'Mars/Base' is no")],
)
def test_what_cannot_be_filled_in_is_refused_at_load(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        system_prompt(**{"text": TEXT, **options})


@pytest.mark.parametrize("options", [{"text": ""}, {"position": "last"}, {"recital_run": 1}])
def test_wrong_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        system_prompt(**{"text": TEXT, **options})


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("route", "asked", "field"),
    [
        (RESPONSES, {"model": "m", "input": "Hi."}, "instructions"),
        (MESSAGES, {"model": "m", "max_tokens": 9, "messages": [USER]}, "system"),
    ],
)
async def test_on_newer_routes_the_text_has_a_place_of_its_own(
    route: str, asked: dict[str, Any], field: str, stream: bool
) -> None:
    for own, sent in ((None, TEXT), ("", TEXT), ("Be brief.", f"{TEXT}\n\nBe brief.")):
        played = await play(system_prompt(), {**asked, field: own, "stream": stream}, f"I say: {TEXT}", route=route)
        assert played.request is not None
        assert played.request[field] == sent
        assert played.shown.startswith("I say: *** ")
        assert [hit.rule for hit in played.hits] == ["system_prompt:recital"]


async def test_blocks_of_a_system_prompt_follow_the_text() -> None:
    block = {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}
    asked = {"model": "m", "max_tokens": 9, "messages": [USER], "system": [block], "stream": False}
    played = await play(system_prompt(), asked, route=MESSAGES)
    assert played.request is not None
    assert played.request["system"] == [{"type": "text", "text": f"{TEXT}\n\n"}, block]
