"""Both of the newer surfaces, through their own clients and the gateway, to a real vLLM."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import anthropic
import httpx
import openai
import pytest

from tests.engine_fixture import RealEngine
from tests.harness import TEAM, Gateway, configuration, model, running_gateway

pytestmark = pytest.mark.engine
QUESTION = "What is the capital of France?"
ANSWER = "The capital of France is Paris."
HI: list[Any] = [{"role": "user", "content": QUESTION}]
WORDS: dict[str, Any] = {"plugin": "sensitive_words", "options": {"words": ["Paris", "forbiddenzebra"]}}


@pytest.fixture(scope="module")
def real(real_engine: RealEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """Two names for one model: under the second a word of the answer is blocked."""
    blocked = {**WORDS, "models": ["strict"]}
    models = [model("smollm2", real_engine.url), model("strict", real_engine.url)]
    models[1]["engines"][0]["served_model"] = "smollm2"
    with running_gateway(configuration(models, chain=[blocked]), tmp_path_factory.mktemp("real")) as started:
        yield started


@pytest.fixture
def responses(real: Gateway) -> Iterator[Any]:
    with real.client(timeout=60) as client:
        yield client.responses


@pytest.fixture
def messages(real: Gateway) -> Iterator[Any]:
    with anthropic.Anthropic(base_url=real.url, api_key=TEAM, max_retries=0, timeout=60) as client:
        yield client.messages


def test_a_response_whole_and_streamed_says_the_same(responses: Any) -> None:
    asked: dict[str, Any] = {"model": "smollm2", "input": QUESTION, "max_output_tokens": 16, "temperature": 0}
    whole = responses.create(**asked)
    assert (whole.output_text, whole.status) == (ANSWER, "completed")
    with responses.stream(**asked) as stream:
        events = list(stream)
        final = stream.get_final_response()
    assert (final.output_text, final.usage.output_tokens) == (ANSWER, whole.usage.output_tokens)
    assert [event.sequence_number for event in events] == list(range(len(events)))


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_a_blocked_response_ends_before_the_word(real: Gateway, stream: bool) -> None:
    asked = {"model": "strict", "input": QUESTION, "max_output_tokens": 16, "temperature": 0, "stream": stream}
    told = real.post("/v1/responses", asked).text
    assert "The capital of France is " in told or '"delta":" is"' in told
    assert "Paris" not in told
    assert '"content_filter"' in told
    assert '"model":"strict"' in told


def test_a_message_whole_and_streamed_says_the_same(messages: Any) -> None:
    asked: dict[str, Any] = {"model": "smollm2", "messages": HI, "max_tokens": 16, "extra_body": {"temperature": 0}}
    whole = messages.create(**asked)
    assert (whole.content[0].text, whole.stop_reason, whole.model) == (ANSWER, "end_turn", "smollm2")
    with messages.stream(**asked) as stream:
        assert "".join(stream.text_stream) == ANSWER
        assert stream.get_final_message().usage.output_tokens == whole.usage.output_tokens
    assert messages.count_tokens(model="smollm2", messages=HI).input_tokens == whole.usage.input_tokens


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_a_blocked_message_ends_before_the_word(real: Gateway, stream: bool) -> None:
    asked = {"model": "strict", "messages": HI, "max_tokens": 16, "temperature": 0, "stream": stream}
    told = real.post("/v1/messages", asked).text
    assert "Paris" not in told
    assert '"stop_reason":"refusal"' in told


def test_what_the_engine_refuses_is_told_in_each_clients_words(responses: Any, messages: Any) -> None:
    with pytest.raises(openai.APIStatusError):
        responses.create(model="smollm2", input=QUESTION, temperature=-5)
    with pytest.raises(openai.NotFoundError):
        responses.retrieve("resp_" + "0" * 48)
    with pytest.raises(anthropic.BadRequestError):
        messages.create(model="smollm2", messages=HI, max_tokens=16, extra_body={"temperature": -5})


def test_what_an_engine_does_not_serve_is_our_502(real: Gateway) -> None:
    fields = {"query": "a", "queries": "a", "documents": ["b"]}
    for path in ("/v1/rerank", "/v1/score"):
        answer: httpx.Response = real.post(path, {"model": "smollm2", **fields})
        assert answer.status_code in {400, 502}
