"""Tool calls through the chain: indexes stay, arguments stay JSON, and no argument carries a word past the filter."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.fakes.forms import Delta, tool_call
from tests.fakes.script import cut, says
from tests.fakes.vllm import FakeVLLM
from tests.harness import CHAT, HI, Gateway, Heard, hear


def rebuilt(heard: Heard) -> dict[int, dict[str, str]]:
    """Put the calls of choice 0 together, as an SDK does."""
    calls: dict[int, dict[str, str]] = {}
    for choice in heard.choices():
        for part in choice["delta"].get("tool_calls") or []:
            call = calls.setdefault(part["index"], {"id": "", "name": "", "arguments": ""})
            call["id"] += part.get("id") or ""
            for field in ("name", "arguments"):
                call[field] += part.get("function", {}).get(field) or ""
    return calls


def test_parallel_calls_keep_their_indexes(fake: FakeVLLM, gateway: Gateway) -> None:
    """TS-02."""
    pieces = [
        tool_call(0, "a", "f"),
        tool_call(1, "b", "g"),
        tool_call(1, arguments='{"y":2}'),
        tool_call(0, arguments='{"x":1}'),
    ]
    fake.script(says(*pieces, finish="tool_calls"))
    heard = hear(gateway, {})
    assert rebuilt(heard) == {
        0: {"id": "a", "name": "f", "arguments": '{"x":1}'},
        1: {"id": "b", "name": "g", "arguments": '{"y":2}'},
    }
    assert heard.finishes() == ["tool_calls"]
    deltas = [choice["delta"]["tool_calls"] for choice in heard.choices() if choice["delta"].get("tool_calls")]
    assert [[part["index"] for part in delta] for delta in deltas] == [[0], [1], [1], [0]]


def test_the_sdk_accumulates_them(fake: FakeVLLM, gateway: Gateway) -> None:
    fake.always(says(tool_call(0, "a", "f", ""), tool_call(0, arguments='{"x":'), tool_call(0, arguments="1}")))
    with gateway.client() as client, client.chat.completions.stream(model="smollm2", messages=HI) as stream:
        calls = stream.get_final_completion().choices[0].message.tool_calls or []
    assert [(call.function.name, call.function.arguments) for call in calls] == [("f", '{"x":1}')]


def test_a_surrogate_pair_cut_between_deltas_survives(fake: FakeVLLM, gateway: Gateway) -> None:
    """ST-11: the characters of the escape, in two deltas."""
    fake.script(
        says(tool_call(0, "a", "f", ""), tool_call(0, arguments='{"m":"\\ud83d'), tool_call(0, arguments='\\ude00"}'))
    )
    heard = hear(gateway, {})
    arguments = rebuilt(heard)[0]["arguments"]
    assert arguments == '{"m":"\\ud83d\\ude00"}'
    assert json.loads(arguments)["m"] == "😀"
    assert "\ufffd" not in heard.raw.decode()


def test_arguments_split_at_every_byte_arrive_whole(fake: FakeVLLM, gateway: Gateway) -> None:
    """ST-02, the same for tool calls."""
    pieces = [tool_call(0, arguments=letter) for letter in '{"m":"你好🌍"}']
    fake.script(cut(says(tool_call(0, "a", "f", ""), *pieces), 1))
    assert rebuilt(hear(gateway, {}))[0]["arguments"] == '{"m":"你好🌍"}'


WRITTEN = {
    "one piece": ['{"note":"a maskpapaya b","n":5}'],
    "three pieces": ['{"note":"a mask', "papa", 'ya b","n":5}'],
    "letters": list('{"note":"a maskpapaya b","n":5}'),
    "an escape inside": ['{"note":"a mask\\u0070', 'apaya b","n":5}'],
    "spaces around": ['{ "note" : "a maskpapaya b" , "n" : 5 }'],
}


@pytest.mark.parametrize("how", WRITTEN)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_a_masked_argument_is_still_json(fake: FakeVLLM, gateway: Gateway, how: str, stream: bool) -> None:
    """TS-05, the word: keys and numbers stay, the text is masked."""
    fake.script(says(tool_call(0, "a", "f", ""), *[tool_call(0, arguments=piece) for piece in WRITTEN[how]]))
    if stream:
        arguments = rebuilt(hear(gateway, {}))[0]["arguments"]
    else:
        answer = gateway.post(CHAT, {"model": "smollm2", "messages": HI}).json()
        arguments = answer["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"]
    assert json.loads(arguments) == {"note": "a ********** b", "n": 5}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_a_hard_word_in_an_argument_ends_the_answer(fake: FakeVLLM, gateway: Gateway, stream: bool) -> None:
    """TS-05 C."""
    pieces = [tool_call(0, arguments=piece) for piece in ('{"q":"forb', "iddenze", 'bra"}')]
    fake.script(says(tool_call(0, "a", "f", ""), *pieces, finish="tool_calls"))
    if stream:
        heard = hear(gateway, {})
        assert heard.finishes() == ["content_filter"]
        assert "forb" not in rebuilt(heard).get(0, {}).get("arguments", "")
        assert heard.done
    else:
        answer = gateway.post(CHAT, {"model": "smollm2", "messages": HI})
        assert "zebra" not in answer.text
        assert answer.json()["choices"][0]["finish_reason"] == "content_filter"


def test_arguments_in_the_history_are_checked(fake: FakeVLLM, gateway: Gateway) -> None:
    def history(arguments: str) -> dict[str, Any]:
        call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": arguments}}
        tool = {"role": "tool", "tool_call_id": "a", "content": "ok"}
        return {"model": "smollm2", "messages": [*HI, {"role": "assistant", "tool_calls": [call]}, tool]}

    assert gateway.post(CHAT, history('{"q":"forbiddenzebra"}')).json()["error"]["code"] == "content_filter"
    assert gateway.post(CHAT, history('{"q":"a maskpapaya","n":1}')).status_code == 200
    seen = fake.requests()[-1].body["messages"][1]["tool_calls"][0]["function"]["arguments"]
    assert json.loads(seen) == {"q": "a **********", "n": 1}


def test_arguments_that_are_no_json_are_filtered_all_the_same(fake: FakeVLLM, gateway: Gateway) -> None:
    fake.always(
        says(tool_call(0, "a", "f", ""), tool_call(0, arguments="say forbid"), tool_call(0, arguments="denzebra"))
    )
    assert "zebra" not in hear(gateway, {}).raw.decode()
    assert "zebra" not in gateway.post(CHAT, {"model": "smollm2", "messages": HI}).text


def test_calls_of_two_choices_do_not_mix(fake: FakeVLLM, gateway: Gateway) -> None:
    pieces = [Delta(index, tool_call(0, f"c{index}", "f", "")) for index in (0, 1)]
    pieces += [Delta(0, tool_call(0, arguments='{"a":"mask')), Delta(1, tool_call(0, arguments='{"a":"papaya"}'))]
    pieces += [Delta(0, tool_call(0, arguments='et"}'))]
    fake.script(says(*pieces, finish="tool_calls"))
    heard = hear(gateway, {"n": 2})
    joined = {
        index: "".join(
            part["function"].get("arguments") or ""
            for choice in heard.choices(index)
            for part in choice["delta"].get("tool_calls") or []
        )
        for index in (0, 1)
    }
    assert joined == {0: '{"a":"masket"}', 1: '{"a":"papaya"}'}


def test_tools_reach_the_engine_as_they_are(fake: FakeVLLM, gateway: Gateway) -> None:
    parameters = {"type": "object", "properties": {"a": {"type": "number", "default": 1e-07}}, "x-odd": [None]}
    tools = [{"type": "function", "function": {"name": "f", "parameters": parameters, "strict": True}}]
    gateway.post(CHAT, {"model": "smollm2", "messages": HI, "tools": tools, "tool_choice": "auto"})
    seen = fake.requests()[0].body
    assert (seen["tools"], seen["tool_choice"]) == (tools, "auto")
