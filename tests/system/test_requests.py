"""What reaches the engine: the caller's request, written anew, with ours added and what is not theirs removed."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fakes.script import says
from tests.fakes.vllm import FakeVLLM
from tests.harness import CHAT, HI, Gateway, configuration, model
from tests.system.conftest import StartGateway


def forwarded(fake: FakeVLLM, gateway: Gateway, body: dict[str, Any], path: str = CHAT) -> dict[str, Any]:
    """Ask, and return what the engine saw."""
    answer = gateway.post(path, {"model": "smollm2"} | body)
    assert answer.status_code == 200, answer.text
    return dict(fake.requests(route=path)[-1].body)


def test_fields_that_we_do_not_know_reach_the_engine(fake: FakeVLLM, gateway: Gateway) -> None:
    """AC-04."""
    extra: dict[str, Any] = {
        "top_k": 20,
        "min_p": 0.1,
        "chat_template_kwargs": {"enable_thinking": False},
        "structured_outputs": {"choice": ["a", "b"]},
        "foo_unknown": {"x": [1, None]},
    }
    with gateway.client() as client:
        client.chat.completions.create(model="smollm2", messages=HI, extra_body=extra)
    seen = fake.requests()[0].body
    assert {name: seen[name] for name in extra} == extra


def test_numbers_and_text_keep_every_digit_and_letter(fake: FakeVLLM, gateway: Gateway) -> None:
    odd = {"a": 12345678901234567890123, "b": 0.1, "c": 1e-07, "d": -0.0, "e": "\u2028 / 你好 🌍 \\u4f60", "": {"": []}}
    assert forwarded(fake, gateway, {"messages": HI, "odd": odd})["odd"] == odd


@pytest.mark.parametrize("field", ["json", "regex", "choice", "grammar"])
def test_guided_fields_become_structured_outputs(fake: FakeVLLM, gateway: Gateway, field: str) -> None:
    """vLLM 0.32 ignores ``guided_*`` without a word."""
    value: Any = {"type": "object"} if field == "json" else ["a"] if field == "choice" else "[ab]"
    seen = forwarded(fake, gateway, {"messages": HI, f"guided_{field}": value})
    assert seen["structured_outputs"] == {field: value}
    assert f"guided_{field}" not in seen


@pytest.mark.parametrize("stream", [False, True])
def test_an_alias_is_mapped_to_the_engine_and_back(fake: FakeVLLM, gateway: Gateway, stream: bool) -> None:
    answer = gateway.post(CHAT, {"model": "gpt-4o-mini", "messages": HI, "stream": stream})
    assert fake.requests()[0].body["model"] == "smollm2"
    assert '"model":"gpt-4o-mini"' in answer.text
    assert "smollm2" not in answer.text


def test_the_engines_own_name_for_the_model_stays_inside(fake: FakeVLLM, start_gateway: StartGateway) -> None:
    entry = model("public", fake.url)
    entry["engines"][0] |= {"served_model": "/models/inner", "api_key": "sk-engine"}
    gateway = start_gateway(configuration([entry]))
    for stream in (False, True):
        answer = gateway.post(CHAT, {"model": "public", "messages": HI, "stream": stream})
        assert '"model":"public"' in answer.text
        assert "inner" not in answer.text
    assert [received.body["model"] for received in fake.requests()] == ["/models/inner"] * 2
    assert {received.header("authorization") for received in fake.requests()} == {"Bearer sk-engine"}


def test_the_ceiling_of_tokens_is_kept_and_said(fake: FakeVLLM, start_gateway: StartGateway) -> None:
    gateway = start_gateway(configuration([model("smollm2", fake.url, max_output_tokens=50)]))
    answer = gateway.post(CHAT, {"model": "smollm2", "messages": HI, "max_tokens": 5000})
    assert "max_tokens_clamped" in answer.headers["x-sluice-tags"]
    assert "max_tokens_clamped" in answer.json()["sluice"]["tags"]
    answer = gateway.post(CHAT, {"model": "smollm2", "messages": HI, "max_completion_tokens": 5000, "max_tokens": 3})
    assert "max_tokens_clamped" in answer.headers["x-sluice-tags"]
    answer = gateway.post(CHAT, {"model": "smollm2", "messages": HI})
    assert "x-sluice-tags" not in answer.headers
    answer = gateway.post(CHAT, {"model": "smollm2", "messages": HI, "max_tokens": 7})
    assert "x-sluice-tags" not in answer.headers
    seen = [received.body for received in fake.requests()]
    limits = [body.get("max_completion_tokens") or body.get("max_tokens") for body in seen]
    assert limits == [50, 50, 50, 7]


@pytest.mark.parametrize("limit", [0, -1, 1, 10.0, "ten"])
def test_a_limit_that_is_not_over_the_ceiling_is_the_engines_to_judge(
    fake: FakeVLLM, gateway: Gateway, limit: Any
) -> None:
    """OpenAI's ``echo`` with ``max_tokens: 0`` asks for the logprobs of the prompt alone."""
    fake.always(says("x"))
    answer = gateway.post("/v1/completions", {"model": "smollm2", "prompt": "a", "max_tokens": limit, "echo": True})
    if limit in {"ten", -1}:  # -1: without end, to some engines
        assert answer.status_code == 400
    else:
        assert fake.requests()[0].body["max_tokens"] == limit


@pytest.mark.parametrize(
    ("path", "fields", "param"),
    [
        (CHAT, {"messages": HI, "n": 9}, "n"),
        ("/v1/completions", {"prompt": "hi", "n": 9}, "n"),
        (CHAT, {"messages": HI, "max_tokens": 0}, "max_tokens"),
        ("/v1/completions", {"prompt": "hi", "max_tokens": -1}, "max_tokens"),
        ("/v1/responses", {"input": "hi", "max_output_tokens": 0}, "max_output_tokens"),
        ("/v1/completions", {"prompt": ["hi"] * 65}, "prompt"),
        (CHAT, {"messages": HI, "chat_template": "{{ messages }}"}, "chat_template"),
        (CHAT, {"messages": HI, "chat_template_kwargs": {"chat_template": "x"}}, "chat_template_kwargs.chat_template"),
        ("/tokenize", {"messages": HI, "chat_template": "x"}, "chat_template"),
    ],
)
def test_what_no_caller_may_ask_is_refused_before_the_engine(
    fake: FakeVLLM, gateway: Gateway, path: str, fields: dict[str, Any], param: str
) -> None:
    answer = gateway.post(path, {"model": "smollm2"} | fields)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["param"] == param
    assert fake.requests(route=path) == []


MEDIA = [
    "http://169.254.169.254/x",
    "http://127.0.0.1:9/",
    "http://[::ffff:10.0.0.1]/",
    "http://2130706433/",
    "file:///etc/passwd",
    "https://ok.example/redirects-to-10.0.0.1",
    "http://0x7f000001/",
    "http://localhost/",
    "ftp://ok.example/a.png",
    " http://ok.example/",
    "/etc/passwd",
    "https://ok.example/a.png",
    "HTTPS://OK.EXAMPLE/a.png",
    "//ok.example/a.png",
]


@pytest.mark.parametrize("url", MEDIA)
def test_no_url_makes_the_engine_fetch(fake: FakeVLLM, gateway: Gateway, url: str) -> None:
    """SE-05: no host is listed."""
    for part in ({"type": "image_url", "image_url": {"url": url}}, {"type": "image_url", "image_url": url}):
        answer = gateway.post(CHAT, {"model": "smollm2", "messages": [{"role": "user", "content": [part]}]})
        assert answer.status_code == 400, answer.text
    assert fake.requests() == []


def test_data_urls_pass(fake: FakeVLLM, gateway: Gateway) -> None:
    """SE-05."""
    part = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    seen = forwarded(fake, gateway, {"messages": [{"role": "user", "content": [part]}]})
    assert seen["messages"][0]["content"] == [part]


def test_what_is_the_engines_alone_is_not_the_callers_to_set(fake: FakeVLLM, start_gateway: StartGateway) -> None:
    gateway = start_gateway(configuration([model("smollm2", fake.url, isolate_prefix_cache=True)]))
    for salt in ({}, {"cache_salt": "mine"}):
        gateway.post(CHAT, {"model": "smollm2", "messages": HI, **salt})
    salts = [received.body["cache_salt"] for received in fake.requests()]
    assert salts[0] == salts[1] != "mine"
    assert 0 < len(salts[0]) <= 128


def test_a_prompt_of_token_ids_is_refused_while_a_blocking_filter_is_on(fake: FakeVLLM, gateway: Gateway) -> None:
    bodies: list[tuple[str, dict[str, Any]]] = [
        ("/v1/completions", {"prompt": [1, 2, 3]}),
        ("/v1/completions", {"prompt": [[1, 2], [3]]}),
        ("/v1/completions", {"prompt_embeds": "AAAA"}),
        ("/v1/embeddings", {"input": [1, 2]}),
    ]
    for path, body in bodies:
        answer = gateway.post(path, {"model": "smollm2"} | body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_request"), body
    assert fake.requests() == []


def test_token_ids_pass_where_nothing_blocks(fake: FakeVLLM, start_gateway: StartGateway) -> None:
    gateway = start_gateway(configuration([model("smollm2", fake.url)], chain=[]))
    assert forwarded(fake, gateway, {"prompt": [1, 2, 3]}, "/v1/completions")["prompt"] == [1, 2, 3]


def test_detokenize_is_filtered_where_it_says_text(fake: FakeVLLM, gateway: Gateway) -> None:
    answer = gateway.post("/detokenize", {"model": "smollm2", "tokens": [ord(letter) for letter in "a maskpapaya"]})
    assert answer.json() == {"prompt": "a **********"}
    answer = gateway.post("/detokenize", {"model": "smollm2", "tokens": [ord(letter) for letter in "forbiddenzebra"]})
    assert "zebra" not in answer.text
    answer = gateway.post("/tokenize", {"model": "smollm2", "prompt": "ab"})
    assert answer.json()["tokens"] == [97, 98]
    assert gateway.post("/tokenize", {"model": "smollm2", "prompt": "forbiddenzebra"}).status_code == 400
