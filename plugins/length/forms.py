"""Conversations of every route as chat messages, and back: what is counted and cut is the same everywhere.

A message of ours remembers under ``_at`` what it was made of. What was not cut goes back as it was.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeGuard

Message = dict[str, Any]

CHAT = "/v1/chat/completions"
RESPONSES = "/v1/responses"
MESSAGES = "/v1/messages"
_AT = "_at"


class Conversed(NamedTuple):
    """A conversation: its messages, the tools beside it where they have another form, and how others are put back."""

    param: str
    messages: list[Message]
    tools: list[Any] | None
    put: Callable[[Sequence[Message]], None]


def conversed(route: str, request: dict[str, Any]) -> Conversed | None:
    """Return the conversation of a request; None where there is none, or one that the engine will refuse."""
    reader = _READERS.get(route)
    return None if reader is None else reader(request)


def plain(messages: Sequence[Message]) -> list[Message]:
    """Return messages as an engine knows them."""
    return [{name: _plain(value) for name, value in each.items() if name != _AT} for each in messages]


def _plain(content: Any) -> Any:
    if isinstance(content, list):
        return [{k: v for k, v in part.items() if k != _AT} if isinstance(part, dict) else part for part in content]
    return content


def _chat(request: dict[str, Any]) -> Conversed | None:
    messages = request.get("messages")
    if not _are_objects(messages):
        return None
    return Conversed("messages", messages, None, lambda kept: request.update(messages=list(kept)))


def _are_objects(items: Any) -> TypeGuard[list[Message]]:
    return isinstance(items, list) and bool(items) and all(isinstance(item, dict) for item in items)


# ---- /v1/responses ----


def _responses(request: dict[str, Any]) -> Conversed | None:
    given = request.get("input")
    instructions = request.get("instructions")
    system = [{"role": "system", "content": instructions}] if isinstance(instructions, str) else []
    tools = _tools(request.get("tools"), "parameters")
    if isinstance(given, str):
        asked = {"role": "user", "content": given}
        return Conversed("input", [*system, asked], tools, lambda kept: request.update(input=kept[-1]["content"]))
    if not _are_objects(given):
        return None
    messages = list(_of_items(given))

    def put(kept: Sequence[Message]) -> None:
        whole = {id(message) for message in messages}
        request["input"] = [
            given[at] if id(message) in whole or at != message[_AT][-1] else _item(given[at], message)
            for message in kept
            if _AT in message
            for at in message[_AT]
        ]

    return Conversed("input", [*system, *messages], tools, put)


def _of_items(items: Sequence[Message]) -> Iterator[Message]:
    """Go through items; what a model thought goes with what it did or said next."""
    before: list[int] = []
    for at, item in enumerate(items):
        kind = item.get("type", "message")
        if kind == "reasoning":
            before.append(at)
            continue
        message = {**_of_item(kind, item), _AT: [*before, at]}
        before = []
        yield message
    if before:
        yield {"role": "assistant", "content": None, _AT: before}


def _of_item(kind: Any, item: Message) -> Message:
    if kind == "function_call":
        return {"role": "assistant", "content": None, "tool_calls": [_call(item.get("call_id"), item)]}
    if kind == "function_call_output":
        return {"role": "tool", "tool_call_id": item.get("call_id"), "content": _parts(item.get("output"))}
    role = item.get("role")
    return {"role": role if isinstance(role, str) else "assistant", "content": _parts(item.get("content"))}


def _item(item: Message, message: Message) -> Message:
    """Return an item with the texts of a message."""
    field = "output" if "output" in item else "content"
    kind = "output_text" if message["role"] == "assistant" else "input_text"
    return {**item, field: _unparted(message["content"], kind)}


# ---- /v1/messages ----


def _anthropic(request: dict[str, Any]) -> Conversed | None:
    given = request.get("messages")
    if not _are_objects(given):
        return None
    told = request.get("system")
    system = [{"role": "system", "content": _parts(told)}] if told else []
    messages = [each for at, message in enumerate(given) for each in _of_message(at, message)]

    def put(kept: Sequence[Message]) -> None:
        request["messages"] = list(_messages(given, messages, [each for each in kept if _AT in each]))

    return Conversed("messages", [*system, *messages], _tools(request.get("tools"), "input_schema"), put)


def _of_message(at: int, message: Message) -> Iterator[Message]:
    """Part a message into results, each on its own, and the rest: what a model did, or what was said."""
    content, role = message.get("content"), message.get("role")
    blocks = content if isinstance(content, list) else []
    results = [block for block in blocks if isinstance(block, dict) and block.get("type") == "tool_result"]
    for block in results:
        said = {"role": "tool", "tool_call_id": block.get("tool_use_id"), "content": _parts(block.get("content"))}
        yield {**said, _AT: (at, block)}
    if results and len(results) == len(blocks):
        return
    calls = [block for block in blocks if isinstance(block, dict) and block.get("type") == "tool_use"]
    rest = [block for block in blocks if not any(block is each for each in (*results, *calls))]
    said = {"role": role if isinstance(role, str) else "user", "content": _parts(rest) if blocks else content}
    if calls:
        said["tool_calls"] = [_call(block.get("id"), {**block, "arguments": block.get("input")}) for block in calls]
    yield {**said, _AT: (at, None)}


def _messages(given: Sequence[Message], made: Sequence[Message], kept: Sequence[Message]) -> Iterator[Message]:
    """Put messages together again of what was kept of them."""
    same = {id(message) for message in made}
    for at, message in enumerate(given):
        parts = [each for each in kept if each[_AT][0] == at]
        if not parts:
            continue
        if len(parts) == sum(each[_AT][0] == at for each in made) and all(id(each) in same for each in parts):
            yield message
            continue
        content = [block for each in parts for block in _blocks(message, each)]
        yield {**message, "content": content if isinstance(message["content"], list) else parts[0]["content"]}


def _blocks(message: Message, part: Message) -> list[Any]:
    block = part[_AT][1]
    if block is not None:
        return [{**block, "content": _unparted(part["content"], "text")}]
    if not isinstance(message["content"], list):
        return []
    calls = [each for each in message["content"] if isinstance(each, dict) and each.get("type") == "tool_use"]
    return [*_unparted(part["content"], "text"), *calls]


# ---- texts, calls and tools ----


def _parts(content: Any) -> Any:
    """Return a content with its texts as a chat has them; a part remembers its own type."""
    if not isinstance(content, list):
        return content
    return [
        {**part, "type": "text", _AT: part.get("type")}
        if isinstance(part, dict) and isinstance(part.get("text"), str)
        else part
        for part in content
    ]


def _unparted(content: Any, kind: str) -> Any:
    if not isinstance(content, list):
        return content
    return [
        {**{name: value for name, value in part.items() if name != _AT}, "type": part.get(_AT, kind)}
        if isinstance(part, dict) and isinstance(part.get("text"), str)
        else part
        for part in content
    ]


def _call(call_id: Any, told: Mapping[str, Any]) -> dict[str, Any]:
    arguments = told.get("arguments")
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False)
    return {"id": call_id, "type": "function", "function": {"name": told.get("name"), "arguments": arguments}}


def _tools(tools: Any, schema: str) -> list[Any] | None:
    """Return tools as a chat has them."""
    if not isinstance(tools, list) or not tools:
        return None
    return [
        {
            "type": "function",
            "function": {
                "name": tool.get("name"),
                "description": tool.get("description"),
                "parameters": tool.get(schema),
            },
        }
        for tool in tools
        if isinstance(tool, dict) and isinstance(tool.get("name"), str)
    ]


_READERS: Mapping[str, Callable[[dict[str, Any]], Conversed | None]] = {
    CHAT: _chat,
    RESPONSES: _responses,
    MESSAGES: _anthropic,
}
