"""How each route says what an answer has to be, and how a model is asked again: chats' way, and back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

RESPONSES = "/v1/responses"
MESSAGES = "/v1/messages"
ROUTES = frozenset({"/v1/chat/completions", "/v1/completions", RESPONSES, MESSAGES})


class Tool(NamedTuple):
    """A tool: its name, the schema of its arguments, and where that stands in the request."""

    name: str
    schema: Any
    place: str


class Form(NamedTuple):
    """What a request says of its answer's form, as a chat says it, and where."""

    said: Any
    place: str


def form_of(route: str, request: Mapping[str, Any]) -> Form:
    """Return what the answer has to be."""
    if route == RESPONSES:
        told = _format(request.get("text"))
        return Form(_as_chat(told, {"name": told.get("name")}) if isinstance(told, dict) else told, "text.format")
    if route == MESSAGES:
        told = _format(request.get("output_config"))
        return Form(_as_chat(told, {"name": "answer"}) if isinstance(told, dict) else told, "output_config.format")
    return Form(request.get("response_format"), "response_format")


def hold(route: str, request: dict[str, Any], schema: Any) -> None:
    """Ask the engine to hold the answer to a schema."""
    told = {"type": "json_schema", "name": "answer", "schema": schema}
    if route == RESPONSES:
        request["text"] = {**(request.get("text") or {}), "format": told}
    elif route == MESSAGES:
        del told["name"]
        request["output_config"] = {**(request.get("output_config") or {}), "format": told}
    else:
        request["response_format"] = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}


def tools_of(route: str, request: Mapping[str, Any]) -> Iterator[Tool]:
    """Go through the tools whose arguments have a schema; the engine says what it thinks of others."""
    tools = request.get("tools")
    for index, tool in enumerate(tools if isinstance(tools, list) else ()):
        holder, field, place = tool, "parameters", f"tools[{index}].parameters"
        if route == MESSAGES:
            field, place = "input_schema", f"tools[{index}].input_schema"
        elif route != RESPONSES and isinstance(tool, dict):
            holder, place = tool.get("function"), f"tools[{index}].function.parameters"
        if isinstance(holder, dict) and isinstance(holder.get(field), dict | bool):
            yield Tool(str(holder.get("name")), holder[field], place)


def calls_nothing(request: Mapping[str, Any]) -> bool:
    """Does the caller forbid calls?"""
    choice = request.get("tool_choice")
    return choice == "none" or (isinstance(choice, dict) and choice.get("type") == "none")


def dialogue(route: str, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Tell a chat's messages (what the model said, and what is said to it) as a route tells them."""
    if route == RESPONSES:
        return [item for message in messages for item in _items(message)]
    if route != MESSAGES:
        return messages
    told: list[dict[str, Any]] = []
    for message in messages:
        role, blocks = _blocks(message)
        if told and told[-1]["role"] == role:
            told[-1]["content"] += blocks
        else:
            told.append({"role": role, "content": blocks})
    return told


def _items(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if message["role"] == "tool":
        yield {"type": "function_call_output", "call_id": message["tool_call_id"], "output": message["content"]}
        return
    if message.get("content") or not message.get("tool_calls"):
        yield {"role": message["role"], "content": message.get("content") or ""}
    for call in message.get("tool_calls") or ():
        yield {"type": "function_call", "call_id": call["id"], **call["function"]}


def _blocks(message: dict[str, Any]) -> tuple[str, list[dict[str, Any]]]:
    if message["role"] == "tool":
        said = {"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": message["content"]}
        return "user", [{**said, "is_error": True}]
    calls = message.get("tool_calls") or ()
    blocks = [{"type": "text", "text": message["content"]}] if message.get("content") else []
    names = ((call["id"], call["function"]["name"]) for call in calls)
    # its arguments may be no JSON, which is why it is asked again
    blocks += [{"type": "tool_use", "id": call_id, "name": name, "input": {}} for call_id, name in names]
    return message["role"], blocks


def _format(holder: Any) -> Any:
    return holder.get("format") if isinstance(holder, dict) else None


def _as_chat(told: dict[str, Any], named: dict[str, Any]) -> dict[str, Any]:
    if told.get("type") != "json_schema":
        return told
    return {"type": "json_schema", "json_schema": {**named, "schema": told.get("schema")}}
