"""JSON that is checked and prompts that are cut, through a running gateway: what caller and engine get of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.fakes.forms import tool_call
from tests.fakes.script import answers, says, streams
from tests.fakes.vllm import FakeVLLM
from tests.harness import CHAT, HI, Gateway, configuration, hear, model, running_gateway

FAMILY = "👨\u200d👩\u200d👧"
JSON: dict[str, Any] = {"response_format": {"type": "json_object"}}
#: A short limit for each model, as its name says; ``json`` is checked, ``plain`` has no plugin at all.
LIMITS: dict[str, dict[str, Any]] = {
    "three": {"max_characters": 3, "strategy": "head"},
    "four": {"max_characters": 4, "strategy": "tail"},
    "nine": {"max_characters": 9, "strategy": "tail", "mark": ""},
    "window": {},
}


@pytest.fixture(scope="module")
def held(_engine: FakeVLLM, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """One gateway, a model for each way of being held."""
    chain: list[dict[str, Any]] = [
        {"plugin": "length", "options": options, "models": [name]} for name, options in LIMITS.items()
    ]
    chain += [{"plugin": "json_answer", "models": ["json"]}, {"plugin": "confidence", "models": ["sure"]}]
    models = [model(name, _engine.url, max_output_tokens=100_000) for name in (*LIMITS, "json", "sure", "plain")]
    with running_gateway(configuration(models, chain=chain), tmp_path_factory.mktemp("held")) as started:
        yield started


def asked(fake: FakeVLLM, gateway: Gateway, name: str, messages: list[Any]) -> list[Any]:
    """Return the messages that the engine gets of these."""
    answer = gateway.post(CHAT, {"model": name, "messages": messages})
    assert answer.status_code == 200, answer.text
    return list(fake.requests()[-1].body["messages"])


def told(gateway: Gateway, name: str = "json", **fields: Any) -> dict[str, Any]:
    """Ask for JSON; return the whole answer, which has to be strict JSON."""
    answer = gateway.post(CHAT, {"model": name, "messages": HI, **fields})
    body: dict[str, Any] = json.loads(answer.content, parse_constant=pytest.fail)
    assert answer.status_code == 200, body
    return body


def text_of(body: dict[str, Any]) -> str:
    return str(body["choices"][0]["message"]["content"])


# -- length ------------------------------------------------------------------------------------------------------------

CUT = {
    ("three", f"ab{FAMILY}cd"): "ab",
    ("three", "e\u0301" * 4): "e\u0301",
    ("three", "🇨🇳🇺🇸"): "🇨🇳",
    ("three", "a👍🏽b"): "a👍🏽",
    ("three", "ab👍🏽"): "ab",
    ("three", "각각각"): "각각각",
    ("four", f"ab{FAMILY}cd"): "cd",
    ("four", "क्षिक्षि"): "क्षि",
    ("nine", f"{FAMILY}{FAMILY}xyz"): f"{FAMILY}xyz",
}


@pytest.mark.parametrize(("name", "text"), CUT, ids=ascii)
def test_a_cut_is_between_characters_never_inside_one(fake: FakeVLLM, held: Gateway, name: str, text: str) -> None:
    """TR-01, in characters: what no character of the text can be cut to is left out whole."""
    (message,) = asked(fake, held, name, [{"role": "user", "content": text}])
    assert message["content"] == CUT[name, text]
    assert "\ufffd" not in fake.requests()[-1].raw.decode("utf-8")


def call(*names: str) -> dict[str, Any]:
    calls = [{"id": name, "type": "function", "function": {"name": "f", "arguments": "{}"}} for name in names]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def result(name: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": name, "content": "found"}


SYSTEM, FIRST, LAST = (
    {"role": role, "content": text} for role, text in (("system", "s"), ("user", "f"), ("user", "q"))
)
HISTORIES = {
    "the case": [SYSTEM, FIRST, call("a", "b"), result("a"), result("b"), LAST],
    "results in another order": [SYSTEM, FIRST, call("a", "b"), result("b"), result("a"), LAST],
    "two calls in a row": [SYSTEM, FIRST, call("a"), result("a"), call("b"), result("b"), LAST],
    "an answer after the results": [SYSTEM, FIRST, call("a"), result("a"), {"role": "assistant", "content": "x"}, LAST],
    "the system message says developer": [
        {"role": "developer", "content": "s"},
        FIRST,
        call("a"),
        result("a"),
        LAST,
    ],
}


@pytest.mark.parametrize("what", HISTORIES)
def test_a_call_and_its_results_are_cut_together(fake: FakeVLLM, held: Gateway, what: str) -> None:
    """TR-02."""
    history = HISTORIES[what]
    assert asked(fake, held, "nine", history) == [history[0], LAST]


@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_more_tokens_than_the_window_holds_are_clamped_and_it_is_said(
    fake: FakeVLLM, held: Gateway, field: str, stream: bool
) -> None:
    """TR-03: the engine's window is 2048."""
    messages = [{"role": "user", "content": "word " * 400}]
    answer = held.post(CHAT, {"model": "window", "messages": messages, field: 65535, "stream": stream})
    assert (answer.status_code, answer.headers["x-sluice-tags"]) == (200, "max_tokens_clamped")
    assert '"max_tokens_clamped"' in answer.text
    assert 0 < fake.requests()[-1].body[field] <= 2048 - 400


@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
def test_without_the_clamp_the_engine_s_refusal_comes_through(fake: FakeVLLM, held: Gateway, field: str) -> None:
    """TR-03, the other way."""
    refusal = {"message": "max_tokens is too large", "type": "BadRequestError", "param": field, "code": 400}
    fake.script(answers({"error": refusal}, 400))
    answer = held.post(CHAT, {"model": "plain", "messages": HI, field: 65535})
    assert (answer.status_code, answer.json()["error"]) == (400, refusal)
    assert fake.requests()[-1].body[field] == 65535


# -- JSON --------------------------------------------------------------------------------------------------------------

CASE = (
    r'{"a":"x \"y\", z","p":"C:\\dir\\","n":12345678901234567890,"e":1e10,"c":"m\nrollback: (r: R, s: S) => void;",'
    '"q":"她说“好”，走了"}'
)
VALID = [
    CASE,
    r'{"a":"\ud83d\ude00 \/ \u4f60","b":[1.0,-0,1E-7,""],"":{"":null},"code":"if (a) { return [\"}\"]; }","t":"a,}"}',
    '  {"a": "```json\\n{}\\n```",\n\t"b": "<think>x</think>", "c": "it\'s NaN, True, None" }\n',
    '{"a":1,"a":2}',
]


@pytest.mark.parametrize("said", VALID)
def test_json_that_is_valid_is_not_touched(fake: FakeVLLM, held: Gateway, said: str) -> None:
    """JR-01: not a byte, and nobody is asked again; streamed too."""
    fake.always(says(said))
    body = told(held, **JSON)
    assert text_of(body) == said
    assert body["sluice"]["json"] == {"valid": True, "repaired": False, "attempts": 1}
    assert len(fake.requests()) == 1
    assert hear(held, {"model": "json", **JSON}).text() == said


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ('Sure:\n```json\n{"a":1}\n```\nDone.', '{"a":1}'),
        ('<think>maybe {"a":2}</think>\n{"a":1}', '{"a":1}'),
        ('Here you are: {"a":1} Anything else?', '{"a":1}'),
        ('```\n{"a":1}\n```', '{"a":1}'),
        ('~~~json\n{"a":1}\n~~~', '{"a":1}'),
        ('<think>```json\n{"a":2}\n```</think>```json\n{"a":1}\n```', '{"a":1}'),
        ('当然：\n```json\n{"a":1}\n```\n以上。', '{"a":1}'),
        ('\ufeff{"a":1}', '{"a":1}'),
        ('json\n{"a":1}', '{"a":1}'),
        ('```JSON\r\n{"a":1}\r\n```', '{"a":1}'),
        ('</think>{"a":1}', '{"a":1}'),
    ],
)
def test_what_stands_around_the_json_falls_away(fake: FakeVLLM, held: Gateway, said: str, meant: str) -> None:
    """JR-02."""
    fake.script(says(said))
    body = told(held, **JSON)
    assert text_of(body) == meant
    assert body["sluice"]["json"] == {"valid": True, "repaired": True, "attempts": 1}


@pytest.mark.parametrize("said", ["<think>cut off", '<think>cut off {"a":1}', "I cannot.", "```json\n", ""])
def test_no_object_is_invented(fake: FakeVLLM, held: Gateway, said: str) -> None:
    """JR-02, the third: asked again to no avail, the answer is what the model said, and is said to be invalid."""
    fake.always(says(said))
    body = told(held, **JSON)
    assert (body["choices"][0]["message"]["content"] or "") == said
    assert body["sluice"]["json"]["valid"] is False


def test_quotes_that_can_be_read_two_ways_lose_nothing(fake: FakeVLLM, held: Gateway) -> None:
    """JR-05 A: it is invalid, and asked for again."""
    doubtful = '{"notes":"sent to the "team", waiting"}'
    better = r'{"notes":"sent to the \"team\", waiting"}'
    fake.script(says(doubtful), says(better))
    body = told(held, **JSON)
    assert (text_of(body), body["sluice"]["json"]["attempts"]) == (better, 2)
    fake.always(says(doubtful))
    body = told(held, **JSON)
    assert (text_of(body), body["sluice"]["json"]["valid"]) == (doubtful, False)


@pytest.mark.parametrize(
    "cut", ['{"steps":["a","b', '{"steps":["a","b"', '{"steps":["a","b"]', '{"a":1,', '```json\n{"a":"x']
)
@pytest.mark.parametrize("finish", ["length", "stop"])
def test_json_that_was_cut_off_is_said_to_be_and_not_completed(
    fake: FakeVLLM, held: Gateway, cut: str, finish: str
) -> None:
    """JR-05 B."""
    fake.always(says(cut, finish=finish))
    body = told(held, **JSON)
    assert (text_of(body), body["choices"][0]["finish_reason"]) == (cut, finish)
    assert body["sluice"]["json"]["valid"] is False
    heard = hear(held, {"model": "json", **JSON})
    assert (heard.text(), heard.finishes()) == (cut, [finish])
    assert heard.events[-1]["sluice"]["json"]["valid"] is False


@pytest.mark.parametrize("cut", ['{"path":"/tmp/x","body":"rm', '{"path":"/tmp/x"', '{"path":', "{"])
def test_a_call_that_was_cut_off_is_not_closed(fake: FakeVLLM, held: Gateway, cut: str) -> None:
    """JR-05 C."""
    fake.always(says(tool_call(0, "a", "f", cut), finish="length"))
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    body = told(held, tools=tools)
    (choice,) = body["choices"]
    assert choice["message"]["tool_calls"][0]["function"]["arguments"] == cut
    assert (choice["finish_reason"], body["sluice"]["json"]["valid"]) == ("length", False)


RAW = {
    "minus infinity": b"-Infinity",
    "infinity": b"Infinity",
    "not a number": b"NaN",
    "the floor": b"-9999.0",
}


@pytest.mark.parametrize("name", ["plain", "sure"])
@pytest.mark.parametrize("value", RAW)
def test_a_logprob_that_is_no_number_leaves_strict_json(fake: FakeVLLM, held: Gateway, value: str, name: str) -> None:
    """JR-06, whole and streamed, with a plugin that reads it and without."""
    entry = b'{"token":"a","logprob":%b,"bytes":[97],"top_logprobs":[]}' % RAW[value]
    choice = b'"logprobs":{"content":[%b]},"finish_reason":"stop"}' % entry
    whole = b'{"object":"chat.completion","choices":[{"index":0,"message":{"content":"a"},%b]}' % choice
    fake.script(answers(whole), streams(b'data: {"choices":[{"index":0,"delta":{"content":"a"},%b]}\n\n' % choice))
    body = told(held, name, logprobs=True)
    (found,) = body["choices"][0]["logprobs"]["content"]
    assert found["logprob"] is None or abs(found["logprob"]) < 10_000
    sure = body.get("sluice", {}).get("confidence")
    assert sure is None or 0 <= sure <= 1
    heard = hear(held, {"model": name, "logprobs": True})
    assert heard.text() == "a"
    for payload in heard.payloads[:-1]:
        json.loads(payload, parse_constant=pytest.fail)


@pytest.mark.parametrize("number", [b"-1e999", b"1e400", b"9" * 5000])
def test_a_number_that_no_reader_holds_takes_no_answer_down(fake: FakeVLLM, held: Gateway, number: bytes) -> None:
    """JR-06: the grammar has it, so it comes as JSON; whoever reads it finds null."""
    choice = b'"logprobs":{"content":[{"token":"a","logprob":%b,"top_logprobs":[]}]},"finish_reason":"stop"}' % number
    whole = b'{"object":"chat.completion","choices":[{"index":0,"message":{"content":"a"},%b]}' % choice
    fake.script(answers(whole), streams(b'data: {"choices":[{"index":0,"delta":{"content":"a"},%b]}\n\n' % choice))
    body = told(held, "sure", logprobs=True)
    assert (text_of(body), body["sluice"]["confidence"]) == ("a", None)
    assert body["choices"][0]["logprobs"]["content"][0]["logprob"] is None
    heard = hear(held, {"model": "sure", "logprobs": True})
    assert (heard.text(), heard.finishes(), heard.errors) == ("a", ["stop"], [])


@pytest.mark.parametrize("logprobs", [b'{"content":[]}', b"null", b'{"content":null}', b"{}"])
def test_without_tokens_there_is_no_confidence_and_no_failure(fake: FakeVLLM, held: Gateway, logprobs: bytes) -> None:
    """JR-06."""
    fake.script(
        answers(
            b'{"object":"chat.completion","choices":[{"index":0,"message":{"content":"a"},"logprobs":%b,'
            b'"finish_reason":"stop"}]}' % logprobs
        )
    )
    assert told(held, "sure")["sluice"]["confidence"] is None
