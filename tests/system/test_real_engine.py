"""The real SDK, through the gateway, to a real vLLM."""

from __future__ import annotations

import asyncio
import json
import re
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest

from tests.engine_fixture import RealEngine
from tests.harness import CHAT, Gateway, RawCaller, configuration, hear, model, running_gateway, until
from tests.system.test_canaries import CANARY, Storm

pytestmark = pytest.mark.engine
QUESTION: list[Any] = [{"role": "user", "content": "What is the capital of France?"}]
ANSWER = "The capital of France is Paris."


@pytest.fixture(scope="module")
def real(real_engine: RealEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """The fixture configuration in front of the real engine."""
    config = configuration([model("smollm2", real_engine.url, aliases=["gpt-4o-mini"])])
    with running_gateway(config, tmp_path_factory.mktemp("real")) as started:
        yield started


@pytest.fixture
def client(real: Gateway) -> Iterator[openai.OpenAI]:
    with real.client(timeout=60) as client:
        yield client


def create(client: openai.OpenAI, **fields: Any) -> Any:
    given: dict[str, Any] = {"model": "smollm2", "messages": QUESTION, "max_tokens": 8, "temperature": 0}
    return client.chat.completions.create(**given | fields)


def running(engine: RealEngine) -> float:
    """Return how many requests vLLM itself says are running or waiting."""
    return engine.metric("vllm:num_requests_running") + engine.metric("vllm:num_requests_waiting")


def test_it_answers_with_the_sdk(client: openai.OpenAI) -> None:
    answer = create(client)
    assert answer.choices[0].message.content == ANSWER
    assert (answer.choices[0].finish_reason, answer.object) == ("stop", "chat.completion")
    assert answer.usage.completion_tokens == 8
    assert answer.usage.prompt_tokens > 20


def test_it_streams_with_the_sdk(client: openai.OpenAI) -> None:
    chunks = list(create(client, stream=True))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == ANSWER
    assert chunks[-1].choices[0].finish_reason == "stop"
    assert all(chunk.usage is None for chunk in chunks)


def test_it_streams_usage_when_asked(client: openai.OpenAI) -> None:
    chunks = list(create(client, stream=True, stream_options={"include_usage": True}))
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens == 8


def test_nothing_differs_from_vllm_itself(real_engine: RealEngine, real: Gateway) -> None:
    """What no plugin changed is what the engine said, streamed and whole, but for id and time."""
    body = {"messages": QUESTION, "max_tokens": 8, "temperature": 0, "stream_options": {"include_usage": True}}
    ours = hear(real, body)
    theirs = httpx.post(real_engine.url + CHAT, json={"model": "smollm2", "stream": True} | body, timeout=60)
    del body["stream_options"]
    whole = [
        httpx.post(real_engine.url + CHAT, json={"model": "smollm2"} | body, timeout=60),
        real.post(CHAT, {"model": "smollm2"} | body),
    ]
    for one, other in ((ours.raw, theirs.content), (whole[1].content, whole[0].content)):
        blank = [re.sub(rb'"id":"[^"]+"|"created":\d+', b"", text) for text in (one, other)]
        assert blank[0] == blank[1]


def test_two_choices_stream_apart(client: openai.OpenAI) -> None:
    texts = {0: "", 1: ""}
    finishes: list[tuple[int, str]] = []
    for chunk in create(client, n=2, stream=True, temperature=1, seed=7, max_tokens=5):
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
            finishes += [(choice.index, choice.finish_reason)] if choice.finish_reason else []
    assert sorted(index for index, _ in finishes) == [0, 1]
    assert all(texts.values())


def test_logprobs_come_with_their_tokens(client: openai.OpenAI) -> None:
    answer = create(client, logprobs=True, top_logprobs=2, max_tokens=3)
    entries = answer.choices[0].logprobs.content
    assert "".join(entry.token for entry in entries) == answer.choices[0].message.content
    assert [len(entry.top_logprobs) for entry in entries] == [2, 2, 2]
    streamed = create(client, logprobs=True, max_tokens=3, stream=True)
    tokens = [entry.token for chunk in streamed for entry in _logprobs(chunk)]
    assert tokens == [entry.token for entry in entries]


def _logprobs(chunk: Any) -> list[Any]:
    given = chunk.choices[0].logprobs
    return list(given.content or []) if given else []


def test_structured_output_is_what_the_schema_says(client: openai.OpenAI) -> None:
    schema = {
        "type": "object",
        "properties": {"capital": {"enum": ["Paris", "Rome"]}},
        "required": ["capital"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "json_schema": {"name": "capital", "schema": schema, "strict": True}}
    answer = create(client, response_format=form, max_tokens=30)
    assert json.loads(answer.choices[0].message.content)["capital"] in {"Paris", "Rome"}


def test_guided_fields_guide(client: openai.OpenAI) -> None:
    answer = create(client, extra_body={"guided_choice": ["violet", "orange"]})
    assert answer.choices[0].message.content in {"violet", "orange"}


def test_tools_are_passed_through(client: openai.OpenAI) -> None:
    """The engine has no parser for tool calls: it says so itself, and takes tools that nobody is to call."""
    parameters = {"type": "object", "properties": {"city": {"type": "string"}}}
    tools = [{"type": "function", "function": {"name": "weather", "parameters": parameters}}]
    with pytest.raises(openai.BadRequestError) as caught:
        create(client, tools=tools)
    assert "tool" in caught.value.message
    assert create(client, tools=tools, tool_choice="none", max_tokens=2).choices[0].message.content
    with pytest.raises(openai.BadRequestError) as caught:
        create(client, tools=tools, tool_choice={"type": "function", "function": {"name": "weather"}})
    assert "weather" in caught.value.message


def test_stop_strings_stop(client: openai.OpenAI) -> None:
    answer = create(client, stop=[" France"])
    assert answer.choices[0].message.content == "The capital of"
    assert answer.choices[0].finish_reason == "stop"


def test_a_seed_repeats_itself(client: openai.OpenAI) -> None:
    first, second = (create(client, temperature=1, seed=11, max_tokens=6) for _ in range(2))
    assert first.choices[0].message.content == second.choices[0].message.content


def test_completions_take_a_list_of_prompts(client: openai.OpenAI) -> None:
    prompts = ["One, two,", "Red, green,"]
    answer = client.completions.create(model="smollm2", prompt=prompts, max_tokens=3, temperature=0)
    assert [choice.index for choice in answer.choices] == [0, 1]
    texts = {0: "", 1: ""}
    for chunk in client.completions.create(model="smollm2", prompt=prompts, max_tokens=3, temperature=0, stream=True):
        for choice in chunk.choices:
            texts[choice.index] += choice.text
    assert texts == {choice.index: choice.text for choice in answer.choices}


async def test_the_asynchronous_sdk_streams(real: Gateway) -> None:
    async with real.async_client(timeout=60) as client:
        given: dict[str, Any] = {"model": "gpt-4o-mini", "messages": QUESTION, "max_tokens": 8, "temperature": 0}
        answer = await client.chat.completions.create(**given)
        assert (answer.choices[0].message.content, answer.model) == (ANSWER, "gpt-4o-mini")
        stream = await client.chat.completions.create(**given, stream=True)
        assert "".join([chunk.choices[0].delta.content or "" async for chunk in stream]) == ANSWER


def test_a_word_in_the_answer_is_masked_as_it_streams(
    real_engine: RealEngine, tmp_path_factory: pytest.TempPathFactory
) -> None:
    options = {"words": [{"word": "capital of France", "action": "mask"}], "directions": ["answer"]}
    chain = [{"plugin": "sensitive_words", "options": options}]
    config = configuration([model("smollm2", real_engine.url)], chain=chain)
    with running_gateway(config, tmp_path_factory.mktemp("masked")) as gateway:
        heard = hear(gateway, {"messages": QUESTION, "max_tokens": 8, "temperature": 0})
    assert heard.text() == "The ***************** is Paris."


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_vllm_stops_within_a_second_of_the_caller_leaving(real_engine: RealEngine, real: Gateway, stream: bool) -> None:
    until(lambda: running(real_engine) == 0, 20)
    caller = RawCaller(real.port)
    body = {"model": "smollm2", "messages": QUESTION, "max_tokens": 500, "ignore_eos": True, "stream": stream}
    caller.post(CHAT, body)
    until(lambda: running(real_engine) == 1, 20)
    if stream:
        caller.until(b'"content":"')
    left = time.monotonic()
    caller.close()
    until(lambda: running(real_engine) == 0, 3)
    assert time.monotonic() - left < 1.5  # a second, and vLLM's own step and count
    real.wait_metric("sluice_in_flight", 0)


ERRORS: list[tuple[type[openai.APIStatusError], str, dict[str, Any]]] = [
    (openai.BadRequestError, "context length", {"messages": [{"role": "user", "content": "a b " * 3000}]}),
    (openai.BadRequestError, "temperature", {"temperature": -1}),
    (openai.BadRequestError, "temperature", {"temperature": "hot"}),
    (openai.BadRequestError, "empty", {"messages": []}),
    (openai.BadRequestError, "", {"response_format": {"type": "json_schema", "schema": {"type": "object"}}}),
    (openai.BadRequestError, "", {"extra_body": {"structured_outputs": {"regex": "("}}}),
    (openai.NotFoundError, "nope", {"model": "nope"}),
]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize(("kind", "says", "fields"), ERRORS)
def test_its_refusals_come_through(
    client: openai.OpenAI, *, kind: type[openai.APIStatusError], says: str, fields: dict[str, Any], stream: bool
) -> None:
    with pytest.raises(kind) as caught:
        create(client, stream=stream, **fields)
    assert says in caught.value.message
    body = caught.value.response.json()
    assert set(body["error"]) == {"message", "type", "param", "code"}


def test_tokenize_and_detokenize_are_each_others_inverse(real: Gateway) -> None:
    tokens = real.post("/tokenize", {"model": "smollm2", "prompt": "Hello 你好"}).json()["tokens"]
    assert real.post("/detokenize", {"model": "smollm2", "tokens": tokens}).json()["prompt"] == "Hello 你好"


def test_models_tell_how_much_fits(real: Gateway) -> None:
    with real.client() as client:
        card = client.models.retrieve("smollm2").model_dump()
    assert card["max_model_len"] > 0


async def test_no_canary_is_ever_in_another_callers_answer(real: Gateway, real_engine: RealEngine) -> None:
    """The storm, on the real engine: random leaving, re-used connections, batches mixed by vLLM itself."""
    storm = Storm(5, ["smollm2"])
    await storm.rage(real, callers=6, requests=24)
    assert storm.strangers == []
    assert storm.finished > 5
    await asyncio.to_thread(until, lambda: running(real_engine) == 0, 5)
    assert not CANARY.search("\n".join(real.log))


def test_other_requests_go_on_while_one_is_silent(real: Gateway) -> None:
    """A long stream beside short ones: continuous batching shows through the gateway."""
    done = threading.Event()

    def long() -> None:
        hear(real, {"messages": QUESTION, "max_tokens": 40, "ignore_eos": True})
        done.set()

    thread = threading.Thread(target=long)
    thread.start()
    with real.client(timeout=60) as client:
        assert create(client, max_tokens=2).choices[0].message.content
    assert not done.is_set()
    thread.join(60)
