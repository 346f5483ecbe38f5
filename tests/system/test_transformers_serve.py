"""transformers serve, run for real: the transparent engine that one debugs with, swapped for vLLM without a trace."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.engine_fixture import ENGINE_PYTHON, default_model
from tests.harness import Gateway, configuration, free_port, running_gateway, until

pytestmark = pytest.mark.engine
ASKED = "What is the capital of France?"
SAID = "The capital of France is Paris."


@pytest.fixture(scope="module", name="served")
def _served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Its address and the name it has for its model: the folder."""
    model, port = str(default_model()), free_port()
    command = [
        str(Path(ENGINE_PYTHON).with_name("transformers")),
        "serve",
        model,
        "--device",
        "cpu",
        "--port",
        str(port),
    ]
    log = tmp_path_factory.mktemp("transformers") / "log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, env={**os.environ, "HF_HUB_OFFLINE": "1"}, stdout=out, stderr=subprocess.STDOUT
        )
        url = f"http://127.0.0.1:{port}"

        def up() -> bool:
            assert process.poll() is None, log.read_text(errors="replace")[-2000:]
            with contextlib.suppress(httpx.TransportError):
                return httpx.get(f"{url}/health", timeout=2).status_code == 200
            return False

        try:
            until(up, 120)
            yield url, model
        finally:
            process.terminate()
            process.wait(10)


@pytest.fixture(scope="module", name="transparent")
def _transparent(served: tuple[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    url, model = served
    engine = {"url": url, "served_model": model, "dialect": "transformers"}
    chain = [{"plugin": "sensitive_words", "options": {"words": [{"word": "Paris", "action": "mask"}], "max_skip": 0}}]
    entry = {"name": "smollm2", "engines": [engine], "sampling": {"temperature": 0}}
    masked = {**entry, "name": "masked"}
    masked["engines"] = [{**engine, "name": "again"}]
    chain[0]["models"] = ["masked"]
    config = configuration([entry, masked], chain=chain)
    with running_gateway(config, tmp_path_factory.mktemp("gateway"), within=60) as gateway:
        yield gateway


def test_a_whole_answer_is_as_vllms(transparent: Gateway) -> None:
    answer = transparent.client().chat.completions.create(
        model="smollm2", messages=[{"role": "user", "content": ASKED}], max_completion_tokens=8
    )
    assert (answer.model, answer.choices[0].message.content) == ("smollm2", SAID)
    assert answer.choices[0].finish_reason in {"stop", "length"}
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 8


def test_what_only_vllm_knows_is_left_out_and_not_refused(transparent: Gateway) -> None:
    answer = transparent.client().chat.completions.create(
        model="smollm2",
        messages=[{"role": "user", "content": ASKED}],
        max_tokens=8,
        user="somebody",
        metadata={"a": "b"},
        extra_body={"top_k": 5, "min_p": 0.1, "priority": 3, "cache_salt": "x", "ignore_eos": False},
    )
    assert answer.choices[0].message.content == SAID


def test_a_stream_ends_as_an_sdk_expects_with_usage_where_asked(transparent: Gateway) -> None:
    for asked in (False, True):
        with transparent.client() as client:
            chunks = list(
                client.chat.completions.create(
                    model="smollm2",
                    messages=[{"role": "user", "content": ASKED}],
                    max_tokens=8,
                    stream=True,
                    stream_options={"include_usage": asked},
                )
            )
        text = "".join(each.choices[0].delta.content or "" for each in chunks if each.choices)
        assert text == SAID
        assert not asked or chunks[-1].usage is not None
        assert {each.model for each in chunks} == {"smollm2"}


def test_its_answers_are_filtered_alike(transparent: Gateway) -> None:
    with transparent.client() as client:
        chunks = client.chat.completions.create(
            model="masked", messages=[{"role": "user", "content": ASKED}], max_tokens=8, stream=True
        )
        text = "".join(each.choices[0].delta.content or "" for each in chunks if each.choices)
    assert text == SAID.replace("Paris", "*****")


def test_what_it_refuses_is_told_in_our_form(transparent: Gateway) -> None:
    body = {"model": "smollm2", "messages": [{"role": "user", "content": ASKED}], "temperature": "hot"}
    answer = transparent.post("/v1/chat/completions", body)
    assert answer.status_code in {400, 502}
    assert set(answer.json()["error"]) == {"message", "type", "param", "code"}
