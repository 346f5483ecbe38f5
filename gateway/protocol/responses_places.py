"""Where text sits in requests and answers of ``/v1/responses``: tables for ``places``, and the walk over an item."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gateway.protocol.parts import Place
from gateway.protocol.places import (
    _MESSAGE,
    _PARAMETERS,
    _ROLES,
    Reader,
    Table,
    _anything,
    _choice_of_tool,
    _content,
    _id,
    _is_id,
    _json,
    _messages,
    _prediction,
    _structured,
    _under,
)
from gateway.protocol.text import Key, Number, Text
from gateway.protocol.unread import _is_embedding, _numbers, _urls

#: Of an item of the conversation: what gateway, engine and caller know it by, never written by a model.
_LABELS = frozenset({"id", "type", "status", "call_id", "object", "phase", "container_id", "approval_request_id"})
#: By which a template may name a call.
_CALLED = frozenset({"call_id", "tool_call_id"})
#: More that is no text in an answer: a caller's program goes by a name, nobody can read what is encrypted.
_NO_TEXT = _LABELS | {"name", "namespace", "role", "server_label", "encrypted_content", "logprobs", "agent", "caller"}
_SAID_BY = {"reasoning": "assistant", "function_call": "assistant", "custom_tool_call": "assistant"}


def _input(found: list[Text], container: Any, at: Any, path: str, role: str | None) -> None:
    """A text, or items: messages, calls of tools, what came of them, reasoning."""
    items = container[at]
    if not isinstance(items, list):
        _anything(found, container, at, path, role)
        return
    for index, item in enumerate(items):
        place = f"{path}[{index}]"
        if isinstance(item, dict):
            _item(found, item, place)
        else:
            _anything(found, items, index, place, role)


def _item(found: list[Text], item: dict[str, Any], path: str) -> None:
    kind, said = item.get("type", "message"), item.get("role")
    role = said if isinstance(said, str) else _SAID_BY.get(kind, "tool") if isinstance(kind, str) else None
    for field, value in item.items():
        if field == "encrypted_content" or (field == "role" and isinstance(value, str) and value in _ROLES):
            continue
        if field in _LABELS - _CALLED and _is_id(value):
            continue
        reader = _ITEM.get(field)
        if field in _CALLED and _is_id(value):
            _id(found, item, field, f"{path}.{field}", role)
        elif reader is not None:
            reader(found, item, field, _under(path, field), role)
        else:
            _anything(found, item, field, _under(path, field), role)


def _form(found: list[Text], container: Any, at: Any, path: str, role: str | None) -> None:
    """The form that the answer's text is to have: a model may read all of a schema."""
    text = container[at]
    if not isinstance(text, dict):
        _anything(found, container, at, path, role)
        return
    for field in text:
        if field != "verbosity":
            _anything(found, text, field, _under(path, field), role)


_ITEM: dict[str, Reader] = {
    **_MESSAGE,
    **dict.fromkeys(("content", "output", "summary"), _content),
    "arguments": _json,
}

REQUEST: Table = {
    **dict.fromkeys(_PARAMETERS),
    **dict.fromkeys(("background", "previous_response_id", "reasoning", "truncation", "mm_payload")),
    "*": _anything,
    "input": _input,
    "messages": _messages,
    "prediction": _prediction,
    "previous_input_messages": _messages,
    "structured_outputs": _structured,
    "text": _form,
    "tool_choice": _choice_of_tool,
}


PARTS = {"reasoning_text": "reasoning", "summary_text": "reasoning", "refusal": "refusal"}
_WHOLE = {"arguments": "arguments", "input": "code", "code": "code"}


def item_places(item: dict[str, Any]) -> Iterator[Place]:
    """Yield every text of an item of ``output``; what no table names is text too, in a group of its own."""
    for field, value in item.items():
        if field == "name" and isinstance(value, str):
            yield Place("name", "name", 0, item, field)
        if field in _NO_TEXT or value is None:
            continue
        if field in {"content", "summary"} and isinstance(value, list):
            for number, part in enumerate(value):
                if isinstance(part, dict):
                    yield from part_places(part, field, number)
                elif isinstance(part, str):
                    yield Place("content", field, number, value, number)
        elif field in _WHOLE and isinstance(value, str):
            yield Place(_WHOLE[field], "call", 0, item, field)
        else:
            yield from _rest(item, field)


def part_places(part: dict[str, Any], group: str, number: int) -> Iterator[Place]:
    """Yield the texts of one content part, or of one part of a reasoning's summary."""
    kind = PARTS.get(str(part.get("type")), "content")
    for field, value in part.items():
        if field == ("refusal" if kind == "refusal" else "text") and isinstance(value, str):
            yield Place(kind, group, number, part, field)
        elif field not in _NO_TEXT:
            yield from _rest(part, field)


def _rest(holder: dict[str, Any], field: str) -> Iterator[Place]:
    texts: list[Text] = []
    if isinstance(holder[field], str | dict | list):
        _anything(texts, holder, field, field, None)
    for text in texts:
        if not isinstance(text, Key | Number) and not (text._at in _NO_TEXT and _is_id(text.text)):  # noqa: SLF001 - a Text
            yield Place("rest", text.path, 0, text._container, text._at)  # noqa: SLF001 - where it stands


def _output(found: list[Text], container: Any, at: Any, path: str, role: str | None) -> None:
    items = container[at]
    for index, item in enumerate(items if isinstance(items, list) else ()):
        for place in item_places(item) if isinstance(item, dict) else ():
            where = f"{path}[{index}].{place.field if place.group == 'call' else place.group}"
            if place.group in {"content", "summary"}:
                where += f"[{place.number}].{place.field}" if isinstance(place.field, str) else f"[{place.number}]"
            if place.kind == "name":
                continue
            if place.kind == "arguments":
                _json(found, place.holder, place.field, where, role)
            else:
                found.append(Text(place.holder, place.field, where, role))


ANSWER: Table = {"output": _output}


def has_token_ids(body: dict[str, Any]) -> str | None:
    """Return the place of a prompt in numbers or embeddings, which carry no text to check; else None."""
    place = _numbers(body.get("input"), "input")
    if place is not None:
        return place
    return next((place for place, part in _parts(body) if any(map(_is_embedding, (*part, part.get("type"))))), None)


def media_urls(body: dict[str, Any]) -> list[tuple[str, str]]:
    """Return place and URL of all that an engine would fetch, or speak to as a tool's server; data URLs among them."""
    found = [url for place, part in _parts(body) for url in _urls(part, place)]
    tools = body.get("tools")
    for index, tool in enumerate(tools if isinstance(tools, list) else ()):
        if isinstance(tool, dict) and isinstance(tool.get("server_url"), str):
            found.append((f"tools[{index}].server_url", tool["server_url"]))
    return found


def _parts(body: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every part of every item: of a message, and of what came of a tool call."""
    for field in ("input", "messages", "previous_input_messages"):
        items = body.get(field)
        for index, item in enumerate(items if isinstance(items, list) else ()):
            for name in ("content", "output") if isinstance(item, dict) else ():
                held, path = item.get(name), f"{field}[{index}].{name}"
                parts = held if isinstance(held, list) else (held,)
                yield from ((f"{path}[{at}]", part) for at, part in enumerate(parts) if type(part) is dict)
