"""Every failure of the outside contract, as the OpenAI SDK's exception classes tell it to an application."""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.fakes.forms import Delta, error, error_event
from tests.fakes.script import CLOSE, RESET, Script, answers, delayed, says, streams, writes
from tests.fakes.vllm import FakeVLLM
from tests.harness import CHAT, HI, TEAM, Gateway, configuration, free_port, key, model
from tests.system.conftest import StartGateway

STREAMED_OR_WHOLE = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])


def ask(client: openai.OpenAI, name: str = "smollm2", *, stream: bool = False, **fields: Any) -> Any:
    given: dict[str, Any] = {"model": name, "messages": HI, "stream": stream}
    answer: Any = client.chat.completions.create(**given | fields)
    return list(answer) if stream else answer


def refused(
    client: openai.OpenAI, kind: type[openai.APIStatusError], code: object, **fields: Any
) -> openai.APIStatusError:
    """Ask, expect this exception with this code, and check the shape that every error has."""
    with pytest.raises(kind) as caught:
        ask(client, **fields)
    body = caught.value.response.json()
    assert list(body) == ["error"]
    assert set(body["error"]) == {"message", "type", "param", "code"}
    assert body["error"]["code"] == code
    assert body["error"]["message"]
    assert isinstance(body["error"]["type"], str)
    if caught.value.status_code in {429, 503}:
        assert int(caught.value.response.headers["retry-after"]) > 0
    return caught.value


@STREAMED_OR_WHOLE
def test_400_invalid_request_names_the_field(fake: FakeVLLM, gateway: Gateway, stream: bool) -> None:
    with gateway.client() as client:
        failure = refused(client, openai.BadRequestError, "invalid_request", stream=stream, n=9)
    assert failure.param == "n"
    assert fake.requests() == []


@STREAMED_OR_WHOLE
def test_400_content_filter_is_asked_once_and_never_quotes_the_word(
    fake: FakeVLLM, gateway: Gateway, stream: bool
) -> None:
    """EV-13: no retry, a fixed code, a generic message; the operator's log has the rule."""
    with gateway.client(max_retries=2) as client:
        messages = [{"role": "user", "content": "say forbiddenzebra"}]
        failure = refused(client, openai.BadRequestError, "content_filter", stream=stream, messages=messages)
    everything = failure.response.text + str(failure.response.headers)
    assert "zebra" not in everything
    assert "say " not in everything
    assert fake.requests() == []
    line = gateway.wait_record(failure.response.headers["x-request-id"])
    assert (line["status"], line["outcome"], line["plugin"]) == (400, "content_filter", "sensitive_words")
    assert line["rule"]
    assert "zebra" not in json.dumps(line)


def test_401_invalid_api_key(fake: FakeVLLM, gateway: Gateway) -> None:
    with gateway.client("sk-wrong") as client:
        refused(client, openai.AuthenticationError, "invalid_api_key")
    assert fake.requests() == []


def test_403_model_not_allowed(fake: FakeVLLM, start_gateway: StartGateway) -> None:
    models = [model("smollm2", fake.url), model("other", fake.url)]
    gateway = start_gateway(configuration(models, keys=[key("team", TEAM, models=["other"])]))
    with gateway.client() as client:
        refused(client, openai.PermissionDeniedError, "model_not_allowed")
        assert ask(client, "other").choices
    assert len(fake.requests()) == 1


def test_404_model_not_found_and_not_found(fake: FakeVLLM, gateway: Gateway) -> None:
    with gateway.client() as client:
        refused(client, openai.NotFoundError, "model_not_found", name="nope")
        with pytest.raises(openai.NotFoundError) as caught:
            client.images.generate(prompt="a")
        assert caught.value.code == "not_found"
    assert fake.requests() == []


def test_413_request_too_large(fake: FakeVLLM, gateway: Gateway) -> None:
    with gateway.client() as client:
        messages = [{"role": "user", "content": "a" * 10_485_760}]
        failure = refused(client, openai.APIStatusError, "request_too_large", messages=messages)
    assert failure.status_code == 413
    assert fake.requests() == []


def test_415_unsupported_encoding(fake: FakeVLLM, gateway: Gateway) -> None:
    with gateway.client() as client:
        headers = {"content-encoding": "br"}
        failure = refused(client, openai.APIStatusError, "unsupported_encoding", extra_headers=headers)
    assert failure.status_code == 415
    assert fake.requests() == []


def test_429_rate_limit_exceeded(fake: FakeVLLM, start_gateway: StartGateway) -> None:
    config = configuration([model("smollm2", fake.url)], keys=[key("team", TEAM, rpm=1)])
    with start_gateway(config).client() as client:
        ask(client)
        refused(client, openai.RateLimitError, "rate_limit_exceeded")


def test_429_queue_full_when_the_model_holds_all_it_can(fake: FakeVLLM, start_gateway: StartGateway) -> None:
    gateway = start_gateway(configuration([model("smollm2", fake.url, max_in_flight=1, queue={"length": 0})]))
    gate = fake.gate()
    fake.script(says("a", gate, "b"))
    with gateway.client() as client:
        held = client.chat.completions.create(model="smollm2", messages=HI, stream=True)
        next(iter(held))
        refused(client, openai.RateLimitError, "queue_full")
        gate.set()
        list(held)
        assert ask(client).choices


BROKEN: dict[str, Script] = {
    "its key is wrong": answers({"error": "Unauthorized"}, 401),
    "it forbids": answers({"detail": "Forbidden"}, 403),
    "it lacks the model": answers(error(404, "The model `x` does not exist.", "NotFoundError"), 404),
    "it lacks the method": answers({"detail": "Method Not Allowed"}, 405),
    "it failed": answers(error(500, "EngineCore encountered an issue at /opt/vllm/core.py."), 500),
    "it cannot": answers(error(501, "not implemented", "NotImplementedError"), 501),
    "a proxy before it": answers(b"<html>502 nginx at 10.0.0.7</html>", 502, {"content-type": "text/html"}),
    "a traceback": answers(b'Traceback (most recent call last): File "/opt/vllm/x.py"', 500),
    "nonsense": writes(b"SSH-2.0-OpenSSH_9.2p1\r\n", CLOSE),
    "not JSON": answers(b"oops"),
    "half an answer": writes(b"HTTP/1.1 200 OK\r\ncontent-type: text/json\r\ncontent-length: 99\r\n\r\n{", CLOSE),
}  # fmt: skip


@STREAMED_OR_WHOLE
@pytest.mark.parametrize("what", BROKEN)
def test_502_engine_error_hides_the_engine(
    fake: FakeVLLM, gateway: Gateway, fragile: str, what: str, stream: bool
) -> None:
    fake.always(BROKEN[what])
    with gateway.client() as client:
        failure = refused(client, openai.InternalServerError, "engine_error", name=fragile, stream=stream)
    assert failure.status_code == 502
    told = failure.response.text + str(failure.response.headers)
    for secret in (str(fake.port), "127.0.0.1", "/opt/", "Traceback", "nginx", "10.0.0.7"):
        assert secret not in told


@STREAMED_OR_WHOLE
def test_502_when_the_only_engine_resets_every_time(
    fake: FakeVLLM, gateway: Gateway, fragile: str, stream: bool
) -> None:
    fake.always(writes(RESET))
    with gateway.client() as client, pytest.raises(openai.InternalServerError) as caught:
        ask(client, fragile, stream=stream)
    assert (caught.value.status_code, caught.value.code) in {(502, "engine_error"), (503, "no_engine_available")}
    assert len(fake.requests(model=fragile)) <= 3


@STREAMED_OR_WHOLE
@pytest.mark.parametrize(
    "body", [error(503, "The engine is currently busy", "Service Unavailable"), {"error": "scaling"}]
)
def test_503_no_engine_available_when_the_engine_accepts_nothing(
    fake: FakeVLLM, gateway: Gateway, fragile: str, body: Any, stream: bool
) -> None:
    fake.always(answers(body, 503))
    with gateway.client() as client:
        refused(client, openai.InternalServerError, "no_engine_available", name=fragile, stream=stream)


def test_503_no_engine_available_when_nobody_listens(fake: FakeVLLM, start_gateway: StartGateway) -> None:
    dead = f"http://127.0.0.1:{free_port()}"
    gateway = start_gateway(configuration([model("smollm2", dead), model("alive", fake.url)]))
    with gateway.client() as client:
        failure = refused(client, openai.InternalServerError, "no_engine_available")
        assert dead.rpartition(":")[2] not in failure.response.text
        assert ask(client, "alive").choices


def test_503_no_engine_available_when_the_engine_does_not_accept_in_time(
    fake: FakeVLLM, start_gateway: StartGateway
) -> None:
    with socket.socket() as deaf:  # its queue of one is full: the kernel ignores who comes next
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        port = deaf.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)):
            models = [model("smollm2", f"http://127.0.0.1:{port}"), model("alive", fake.url)]
            gateway = start_gateway(configuration(models, timeouts={"connect_s": 0.3}))
            with gateway.client() as client:
                started = time.monotonic()
                refused(client, openai.InternalServerError, "no_engine_available")
                assert time.monotonic() - started < 3


BROKEN_PLUGIN = """
from gateway.sdk import Plugin

class Broken(Plugin):
    def on_request(self, exchange):
        raise RuntimeError("the words are at /etc/secret")
"""


def test_503_filter_unavailable_when_a_plugin_fails_closed(
    fake: FakeVLLM, start_gateway: StartGateway, tmp_path: Path
) -> None:
    (tmp_path / "broken_plugin.py").write_text(BROKEN_PLUGIN)
    about = tmp_path / "broken_plugin-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: broken-plugin\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[sluice.plugins]\nbroken = broken_plugin:Broken\n")
    config = configuration([model("smollm2", fake.url)], chain=[{"plugin": "broken"}])
    gateway = start_gateway(config, environment={"PYTHONPATH": str(tmp_path)})
    with gateway.client() as client:
        failure = refused(client, openai.InternalServerError, "filter_unavailable")
    assert failure.status_code == 503
    assert "secret" not in failure.response.text
    assert fake.requests() == []


def test_504_engine_timeout_is_not_tried_again(fake: FakeVLLM, start_gateway: StartGateway) -> None:
    gateway = start_gateway(configuration([model("smollm2", fake.url)], timeouts={"total_s": 0.5}))
    fake.always(delayed(says("late"), 5))
    with gateway.client(max_retries=2) as client:
        failure = refused(client, openai.InternalServerError, "engine_timeout")
    assert failure.status_code == 504
    assert failure.response.headers["x-should-retry"] == "false"
    assert len(fake.requests()) == 1


OWN_SHAPES: dict[str, tuple[Any, dict[str, Any]]] = {
    "vllm": (
        error(400, "too long", "BadRequestError", "input_tokens"),
        {"type": "BadRequestError", "param": "input_tokens"},
    ),
    "vllm before 0.10.1, SGLang": (
        {"object": "error", "message": "too long", "type": "BadRequestError", "param": None, "code": 400},
        {"type": "BadRequestError", "param": None},
    ),
    "a string": ({"error": "too long"}, {}),
    "TGI": ({"error": "too long", "error_type": "validation"}, {}),
    "transformers": ({"detail": "too long"}, {}),
    "a string for a code": (
        {"error": {"message": "too long", "type": "context", "param": None, "code": "context_length_exceeded"}},
        {"type": "context", "code": "context_length_exceeded"},
    ),
}  # fmt: skip


@STREAMED_OR_WHOLE
@pytest.mark.parametrize("status", [400, 413, 422])
@pytest.mark.parametrize("shape", OWN_SHAPES)
def test_the_engines_own_refusal_comes_through_in_our_shape(
    fake: FakeVLLM, gateway: Gateway, shape: str, status: int, stream: bool
) -> None:
    """AC-01: whatever shape it came in, message, type, param and code are where the SDK looks for them."""
    body, kept = OWN_SHAPES[shape]
    fake.always(answers(body, status))
    kind = {400: openai.BadRequestError, 422: openai.UnprocessableEntityError}.get(status, openai.APIStatusError)
    with gateway.client() as client, pytest.raises(kind) as caught:
        ask(client, stream=stream)
    assert caught.value.status_code == status
    told = caught.value.response.json()["error"]
    assert set(told) == {"message", "type", "param", "code"}
    assert told["message"] == "too long"
    assert isinstance(told["type"], str)
    assert told["type"]
    for name, value in kept.items():
        assert told[name] == value
    if shape.startswith("vllm"):
        assert str(told["code"]) == "400"


def test_an_engines_refusal_never_counts_against_it(fake: FakeVLLM, gateway: Gateway) -> None:
    fake.script(*[answers(error(400, "no"), 400)] * 12)
    with gateway.client() as client:
        for _ in range(12):
            with pytest.raises(openai.BadRequestError):
                ask(client)
        assert ask(client).choices


def test_a_validation_list_becomes_one_message(fake: FakeVLLM, gateway: Gateway) -> None:
    detail = [{"type": "missing", "loc": ["body", "messages"], "msg": "Field required", "input": {}}]
    fake.script(answers({"detail": detail}, 422))
    with gateway.client() as client, pytest.raises(openai.UnprocessableEntityError) as caught:
        ask(client)
    assert "Field required" in caught.value.response.json()["error"]["message"]


def test_the_engines_429_comes_through_with_its_retry_after(fake: FakeVLLM, gateway: Gateway, fragile: str) -> None:
    fake.always(answers({"error": "Model is overloaded", "error_type": "overloaded"}, 429, {"retry-after": "7"}))
    with gateway.client() as client, pytest.raises(openai.RateLimitError) as caught:
        ask(client, fragile)
    assert caught.value.response.headers["retry-after"] == "7"


@pytest.mark.parametrize(
    ("status", "kind", "code"),
    [
        (400, openai.BadRequestError, 400),
        (500, openai.InternalServerError, "engine_error"),
        (503, openai.InternalServerError, "no_engine_available"),
    ],
)
def test_a_failure_in_the_first_event_becomes_a_real_status(
    fake: FakeVLLM, gateway: Gateway, *, fragile: str, status: int, kind: type[openai.APIStatusError], code: object
) -> None:
    fake.always(streams(error_event(status, "data_parallel_rank 5 is out of range [0, 1).", "BadRequestError")))
    with gateway.client() as client, pytest.raises(kind) as caught:
        ask(client, fragile, stream=True)
    assert str(caught.value.response.json()["error"]["code"]) == str(code)
    assert caught.value.response.headers["content-type"] == "application/json"


def test_the_sdk_retries_a_503_and_then_has_its_answer(fake: FakeVLLM, gateway: Gateway, fragile: str) -> None:
    fake.script(answers(error(503, "busy"), 503))
    with gateway.client(max_retries=3) as client:
        assert ask(client, fragile).choices[0].message.content == "Hello from a fake engine."


def test_an_answer_that_the_engine_itself_gave_up_is_a_failure(fake: FakeVLLM, gateway: Gateway, fragile: str) -> None:
    """vLLM that drains answers 200 with ``finish_reason: "abort"`` and no text."""
    fake.always(says("", finish="abort"))
    with gateway.client() as client:
        failure = refused(client, openai.InternalServerError, "engine_error", name=fragile)
    assert failure.status_code == 502


async def test_the_asynchronous_sdk_is_told_the_same(fake: FakeVLLM, gateway: Gateway) -> None:
    async with gateway.async_client("sk-wrong") as client:
        with pytest.raises(openai.AuthenticationError):
            await client.chat.completions.create(model="smollm2", messages=HI)
    async with gateway.async_client() as client:
        answer = await client.chat.completions.create(model="smollm2", messages=HI)
        assert answer.choices[0].message.content == "Hello from a fake engine."
        stream = await client.chat.completions.create(model="smollm2", messages=HI, stream=True)
        pieces = [chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices]
        assert "".join(pieces) == "Hello from a fake engine."


def test_embeddings_completions_and_models_answer_the_sdk(fake: FakeVLLM, gateway: Gateway) -> None:
    with gateway.client() as client:
        vectors = client.embeddings.create(model="smollm2", input=["a", "bb"], encoding_format="float").data
        assert [entry.embedding for entry in vectors] == [[1.0, 0.0, 0.5], [2.0, 1.0, 0.5]]
        two = client.completions.create(model="smollm2", prompt=["a", "b"], max_tokens=2)
        assert [(choice.index, choice.text) for choice in two.choices] == [(0, "Hello from"), (1, "Hello from")]
        fake.script(says(Delta(0, {"content": "x"}), Delta(1, {"content": "y"})))
        assert [choice.message.content for choice in ask(client, n=2).choices] == ["x", "y"]
        assert "smollm2" in [entry.id for entry in client.models.list()]


def test_errors_have_a_request_id_that_the_log_knows(fake: FakeVLLM, gateway: Gateway) -> None:
    answer = gateway.post(CHAT, {"model": "nope", "messages": HI}, headers={"x-request-id": "my-id-1"})
    assert answer.headers["x-request-id"] == "my-id-1"
    line = gateway.wait_record("my-id-1")
    assert (line["status"], line["outcome"]) == (404, "model_not_found")
