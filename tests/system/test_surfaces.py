"""Every field of every route, over sockets: what is blocked in one is blocked in all, what is not served is a 404."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.fakes.forms import tool_call
from tests.fakes.script import answers, says
from tests.fakes.vllm import FakeVLLM
from tests.harness import CHAT, HI, Gateway, hear

WORD = "forbiddenzebra"
MESSAGES, RESPONSES = "/v1/messages", "/v1/responses"
FUNCTION = {"name": "f", "description": WORD, "parameters": {"type": "object"}}
PROPERTY = {"type": "object", "properties": {"city": {"description": WORD}}}
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": json.dumps({"to": WORD})}}
SPLIT = [{"type": "text", "text": "forbidden"}, {"type": "text", "text": "zebra"}]
INPUTS = [{"type": "input_text", "text": "forbidden"}, {"type": "input_text", "text": "zebra"}]


def said(**message: Any) -> dict[str, Any]:
    return {"messages": [*HI, {"role": "user", **message}]}


def item(**fields: Any) -> dict[str, Any]:
    return {"input": [{"role": "user", "content": "hi"}, fields]}


def claude(*blocks: Any, **more: Any) -> dict[str, Any]:
    return {"max_tokens": 5, "messages": [{"role": "user", "content": list(blocks) or "hi"}], **more}


REQUESTS: list[tuple[str, dict[str, Any]]] = [
    (CHAT, said(content=WORD)),
    (CHAT, said(content=SPLIT)),
    (CHAT, said(content="hi", name=WORD)),
    (CHAT, said(role="tool", content=WORD, tool_call_id="c")),
    (CHAT, said(role="system", content=WORD)),
    (CHAT, said(role="assistant", content=None, tool_calls=[CALL])),
    (CHAT, said(role="assistant", content="x", reasoning=WORD)),
    (CHAT, said(role="assistant", content="x", refusal=WORD)),
    (CHAT, {"messages": HI, "tools": [{"type": "function", "function": FUNCTION}]}),
    (CHAT, {"messages": HI, "tools": [{"type": "function", "function": {"name": "f", "parameters": PROPERTY}}]}),
    (CHAT, {"messages": HI, "prediction": {"type": "content", "content": WORD}}),
    (CHAT, {"messages": HI, "documents": [{"title": WORD, "text": "x"}]}),
    (CHAT, {"messages": HI, "chat_template_kwargs": {"persona": WORD}}),
    (CHAT, {"messages": HI, "response_format": {"type": "json_schema", "json_schema": {"schema": PROPERTY}}}),
    (CHAT, {"messages": HI, "guided_choice": ["a", WORD]}),
    ("/v1/completions", {"prompt": WORD}),
    ("/v1/completions", {"prompt": ["a", WORD]}),
    ("/v1/completions", {"prompt": "a", "suffix": WORD}),
    ("/v1/embeddings", {"input": WORD}),
    ("/v1/embeddings", {"input": ["a", WORD]}),
    ("/v1/embeddings", said(content=WORD)),
    ("/tokenize", {"prompt": WORD}),
    ("/tokenize", said(content=WORD)),
    (RESPONSES, {"input": WORD}),
    (RESPONSES, {"input": "hi", "instructions": WORD}),
    (RESPONSES, item(role="user", content=WORD)),
    (RESPONSES, item(role="user", content=INPUTS)),
    (RESPONSES, item(type="message", role="system", content=WORD)),
    (RESPONSES, item(type="function_call_output", call_id="c", output=WORD)),
    (RESPONSES, item(type="function_call_output", call_id="c", output=INPUTS)),
    (RESPONSES, item(type="function_call", call_id="c", name="f", arguments=json.dumps({"to": WORD}))),
    (RESPONSES, item(type="function_call", call_id="c", name=WORD, arguments="{}")),
    (RESPONSES, item(type="reasoning", id="r", summary=[{"type": "summary_text", "text": WORD}])),
    (RESPONSES, item(type="reasoning", id="r", summary=[], content=[{"type": "reasoning_text", "text": WORD}])),
    (RESPONSES, item(type="custom_tool_call", call_id="c", name="f", input=WORD)),
    (RESPONSES, item(type="message", role="assistant", content=[{"type": "refusal", "refusal": WORD}])),
    (RESPONSES, {"input": "hi", "tools": [{"type": "function", **FUNCTION}]}),
    (RESPONSES, {"input": "hi", "text": {"format": {"type": "json_schema", "name": "n", "schema": PROPERTY}}}),
    (RESPONSES, {"input": "hi", "previous_input_messages": [{"role": "user", "content": WORD}]}),
    (RESPONSES, {"input": "hi", "prompt": {"id": "p", "variables": {"city": WORD}}}),
    (MESSAGES, claude({"type": "text", "text": WORD})),
    (MESSAGES, claude(*SPLIT)),
    (MESSAGES, claude(system=WORD)),
    (MESSAGES, claude(system=SPLIT)),
    (MESSAGES, claude({"type": "tool_result", "tool_use_id": "c", "content": WORD})),
    (MESSAGES, claude({"type": "tool_result", "tool_use_id": "c", "content": [{"type": "text", "text": WORD}]})),
    (MESSAGES, claude({"type": "tool_use", "id": "c", "name": "f", "input": {"to": WORD}})),
    (MESSAGES, claude({"type": "thinking", "thinking": WORD, "signature": "s"})),
    (MESSAGES, claude({"type": "document", "source": {"type": "text", "data": WORD}, "title": "t"})),
    (MESSAGES, claude({"type": "document", "source": {"type": "text", "data": "x"}, "title": WORD})),
    (MESSAGES, claude(tools=[{"name": "f", "description": WORD, "input_schema": {"type": "object"}}])),
    (MESSAGES, claude(tools=[{"name": "f", "input_schema": PROPERTY}])),
    ("/v1/messages/count_tokens", claude({"type": "text", "text": WORD})),
    ("/v1/messages/count_tokens", claude(system=WORD)),
    ("/v1/rerank", {"query": WORD, "documents": ["a"]}),
    ("/v1/rerank", {"query": "a", "documents": ["b", WORD]}),
    ("/v1/rerank", {"query": "a", "documents": [{"content": [{"type": "text", "text": WORD}]}]}),
    ("/v1/score", {"queries": WORD, "documents": "a"}),
    ("/v1/score", {"text_1": "a", "text_2": ["b", WORD]}),
    ("/v1/score", {"data_1": "a", "data_2": WORD}),
]


@pytest.mark.parametrize(("route", "fields"), REQUESTS, ids=[f"{route} {at}" for at, (route, _) in enumerate(REQUESTS)])
def test_a_blocked_word_in_any_field_of_any_route_is_a_400_and_no_engine_is_asked(
    fake: FakeVLLM, gateway: Gateway, route: str, fields: dict[str, Any]
) -> None:
    """EV-09."""
    answer = gateway.post(route, {"model": "smollm2", **fields})
    assert answer.status_code == 400
    assert WORD not in answer.text
    error = answer.json()["error"]
    if route.startswith(MESSAGES):
        assert (answer.json()["type"], error["type"]) == ("error", "invalid_request_error")
    else:
        assert error["code"] == "content_filter"
    assert not [request for request in fake.everything() if request.method == "POST" and WORD in str(request.raw)]


UNSERVED = [
    *("/v1/chat/completions/batch", "/invocations", "/generative_scoring", "/v1/chat/completions/render", "/rerank"),
    *("/v2/rerank", "/score", "/pooling", "/classify", "/v1/audio/transcriptions", "/v1/load_lora_adapter"),
    *(
        "/scale_elastic_ep",
        "/v1/messages/batches",
        "/v1/responses/x/input_items",
        "/v2/embed",
        "/inference/v1/generate",
    ),
    *("/v1/responses/x/cancel/y", "/reset_prefix_cache", "/sleep"),
]


@pytest.mark.parametrize("path", UNSERVED)
def test_what_is_not_checked_is_not_served(fake: FakeVLLM, gateway: Gateway, path: str) -> None:
    """EV-09, AU-03."""
    for slash in ("", "/"):
        answer = gateway.post(path + slash, {"model": "smollm2", "input": WORD, **said(content=WORD)})
        assert answer.status_code == 404
        assert answer.json()["error"]["type"] == "not_found_error"
    assert not [request for request in fake.everything() if WORD in str(request.raw)]


@pytest.mark.parametrize("path", [RESPONSES, MESSAGES, "/v1/rerank", "/v1/score", "/v1/messages/count_tokens"])
def test_nobody_gets_in_without_a_key(fake: FakeVLLM, gateway: Gateway, path: str) -> None:
    """AU-03."""
    for answer in (gateway.post(path, {"model": "smollm2"}, None), gateway.get(f"{RESPONSES}/resp_1", None)):
        assert answer.status_code == 401
    assert not fake.requests(path)


def texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for member in value.values():
            yield from texts(member)
    elif isinstance(value, list):
        for member in value:
            yield from texts(member)
    elif isinstance(value, str):
        yield value


BODIES: dict[str, dict[str, Any]] = {
    CHAT: {"messages": HI},
    "/v1/completions": {"prompt": "hi"},
    RESPONSES: {"input": "hi"},
    MESSAGES: {"messages": HI, "max_tokens": 9},
}
ANSWERS: list[tuple[str, Any]] = [
    *((route, ("it is ", "forbidden", "zebra", " ok")) for route in BODIES),
    *((route, ({"reasoning": "forbidden"}, {"reasoning": "zebra"}, "fine")) for route in (CHAT, RESPONSES, MESSAGES)),
    *((route, ("x", tool_call(0, "c", "f", '{"to": "forbidden'), tool_call(0, arguments='zebra"}')))
      for route in (CHAT, RESPONSES, MESSAGES)),
]  # fmt: skip


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize(("route", "pieces"), ANSWERS, ids=[f"{route} {at}" for at, (route, _) in enumerate(ANSWERS)])
def test_the_word_never_leaks_out_of_any_place_of_an_answer(
    fake: FakeVLLM, gateway: Gateway, route: str, pieces: Any, stream: bool
) -> None:
    fake.script(says(*pieces))
    answer = gateway.post(route, {"model": "smollm2", "stream": stream, **BODIES[route]})
    assert answer.status_code == 200
    assert "zebra" not in answer.text
    assert any(end in answer.text for end in ('"content_filter"', '"refusal"'))


def test_a_document_that_comes_back_is_withheld(fake: FakeVLLM, gateway: Gateway) -> None:
    fake.script(
        answers({"model": "smollm2", "results": [{"index": 0, "document": {"text": WORD}}]}), route="/v1/rerank"
    )
    answer = gateway.post("/v1/rerank", {"model": "smollm2", "query": "a", "documents": ["b"]})
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "content_filter"
    assert WORD not in answer.text


@pytest.mark.parametrize(
    ("route", "fields", "param"),
    [
        ("/v1/completions", {"prompt": [1, 2]}, "prompt"),
        ("/v1/embeddings", {"input": [[1], [2]]}, "input[0]"),
        (RESPONSES, {"input": [1, 2]}, "input"),
        ("/v1/rerank", {"query": [1, 2], "documents": ["a"]}, "query"),
        ("/v1/score", {"queries": "a", "documents": [[1, 2]]}, "documents[0]"),
    ],
)
def test_token_ids_are_refused_while_a_filter_blocks(
    fake: FakeVLLM, gateway: Gateway, route: str, fields: dict[str, Any], param: str
) -> None:
    answer = gateway.post(route, {"model": "smollm2", **fields})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)
    assert not fake.requests(route)


@pytest.mark.parametrize("route", ["/v1/rerank", "/v1/score", "/v1/messages/count_tokens"])
def test_what_is_clean_passes_as_the_engine_told_it(fake: FakeVLLM, gateway: Gateway, route: str) -> None:
    fields = {"query": "a", "queries": "a", "documents": ["b", "c"], "messages": HI}
    answer = gateway.post(route + "/", {"model": "gpt-4o-mini", **fields})
    assert answer.status_code == 200
    (asked,) = fake.requests(route)
    assert asked.body["documents"] == ["b", "c"]
    if route == "/v1/rerank":
        assert [each["document"]["text"] for each in answer.json()["results"]] == ["b", "c"]
    assert answer.json().get("model", "gpt-4o-mini") == "gpt-4o-mini"


def test_a_masked_document_comes_back_masked(fake: FakeVLLM, gateway: Gateway) -> None:
    answer = gateway.post("/v1/rerank", {"model": "smollm2", "query": "a", "documents": ["a maskpapaya"]})
    assert "papaya" not in str(fake.requests("/v1/rerank")[0].body)
    assert answer.json()["results"][0]["document"]["text"] == "a **********"


def test_a_stream_that_is_no_chat_is_heard_to_its_end(fake: FakeVLLM, gateway: Gateway) -> None:
    fake.script(says("a", "b"))
    assert "event: response.completed" in hear(gateway, {"input": "hi"}, RESPONSES).raw.decode()
