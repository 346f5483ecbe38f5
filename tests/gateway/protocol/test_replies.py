"""What a plugin says as a chat is told in the form of another route, and nothing of it is lost."""

from __future__ import annotations

from typing import Any

from openai.types.responses import Response

from gateway.protocol.replies import as_it_is, as_message, as_response

CALL = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}


def chat(finish: str = "stop", **message: Any) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
    used = {"prompt_tokens": 3, "completion_tokens": 2}
    head = {"id": "chatcmpl-7", "object": "chat.completion", "created": 5, "model": "m"}
    return {**head, "choices": [choice], "usage": used, "sluice": {"fallback": True}}


def test_a_text_is_a_response_that_openais_client_reads() -> None:
    told = as_response(200, chat(content="no", reasoning="hm"))
    read = Response.model_validate(told)
    assert (read.output_text, read.status, read.id) == ("no", "completed", "resp_7")
    assert [item.type for item in read.output] == ["reasoning", "message"]
    assert told["sluice"] == {"fallback": True}
    assert told["usage"]["total_tokens"] == 5


def test_calls_and_refusals_are_items_and_parts() -> None:
    told = Response.model_validate(as_response(200, chat("tool_calls", content=None, tool_calls=[CALL])))
    assert [item.type for item in told.output] == ["function_call"]
    refused = as_response(200, chat(refusal="never"))["output"][0]["content"]
    assert refused == [{"type": "refusal", "refusal": "never"}]


def test_an_end_that_was_too_soon_is_incomplete() -> None:
    told = as_response(200, chat("length", content="half"))
    assert (told["status"], told["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})


def test_a_message_has_the_same_blocks() -> None:
    told = as_message(200, chat("tool_calls", content="so", reasoning="hm", tool_calls=[CALL]))
    assert [block["type"] for block in told["content"]] == ["thinking", "text", "tool_use"]
    assert told["content"][2]["input"] == {"a": 1}
    assert (told["stop_reason"], told["usage"]) == ("tool_use", {"input_tokens": 3, "output_tokens": 2})
    assert as_message(200, chat("length", content="half"))["stop_reason"] == "max_tokens"
    assert as_message(200, chat(content=None))["content"] == [{"type": "text", "text": ""}]
    broken = {**CALL, "function": {"name": "f", "arguments": "{"}}
    assert as_message(200, chat(content=None, tool_calls=[broken]))["content"][0]["input"] == {}


def test_an_error_of_a_plugins_own_has_anthropics_shape() -> None:
    body = {"error": {"message": "no", "type": "x"}}
    assert as_message(403, body) == {"type": "error", "error": {"type": "permission_error", "message": "no"}}
    assert as_response(403, body) is body
    assert as_it_is(403, body) is body


def test_what_is_no_chat_stays_as_it_is() -> None:
    bodies: list[dict[str, Any]] = [{"output": []}, {"choices": []}, {"choices": [5]}]
    for body in bodies:
        assert as_response(200, body) is body
        assert as_message(200, body) is body
