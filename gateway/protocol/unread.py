"""What a request holds beside text: token ids and embeddings, which nobody can read, media, and its own template."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_IDS = ("prompt_embeds", "prompt_token_ids", "input_ids", "input_embeds")
_NUMBERS = frozenset({int, float, bool})  # engines read 12.0 as a token id too


def has_token_ids(body: dict[str, Any]) -> str | None:
    """Return the place of a prompt in token ids or embeddings, which carry no text to check; else None."""
    for at, holder in _holders(body):
        for field in _IDS:
            if holder.get(field):
                return f"{at}{field}"
    for field in ("prompt", "input"):
        place = _numbers(body.get(field), field)
        if place is not None:
            return place
    return next((place for place, part in _parts(body) if any(map(_is_embedding, (*part, part.get("type"))))), None)


def _holders(body: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the body, and the prompts in it that are objects (vLLM's way of giving ids with their cache)."""
    yield "", body
    for field in ("prompt", "input"):
        value = body.get(field)
        if isinstance(value, dict):
            yield f"{field}.", value
        elif isinstance(value, list):
            yield from ((f"{field}[{at}].", item) for at, item in enumerate(value) if isinstance(item, dict))


def nowhere(body: dict[str, Any]) -> None:
    """Find no token ids: for a request whose answer is their text, and is checked."""
    del body


def forbidden(body: dict[str, Any]) -> str | None:
    """Return the place of a chat template, which no caller may send, on whatever route; else None."""
    if body.get("chat_template") is not None:
        return "chat_template"
    arguments = body.get("chat_template_kwargs")
    if isinstance(arguments, dict) and arguments.get("chat_template") is not None:
        return "chat_template_kwargs.chat_template"
    return None


def media_urls(body: dict[str, Any]) -> list[tuple[str, str]]:
    """Return place and URL of all media that an engine would fetch, data URLs among them."""
    return [found for place, part in _parts(body) for found in _urls(part, place)]


def _is_embedding(name: object) -> bool:
    return isinstance(name, str) and name.endswith("_embeds")


def _numbers(prompt: object, path: str) -> str | None:
    """Find the first prompt that is made of numbers: the whole list, or one of several."""
    if not isinstance(prompt, list):
        return None
    kinds = set(map(type, prompt))
    if kinds & _NUMBERS:
        return path
    if list in kinds:
        for index, item in enumerate(prompt):
            if isinstance(item, list) and not _NUMBERS.isdisjoint(map(type, item)):
                return f"{path}[{index}]"
    return None


def _parts(body: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every content part of every message."""
    for field in ("messages", "input"):
        yield from _parts_of(body.get(field), field)


def _parts_of(messages: object, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    if not isinstance(messages, list) or {dict, list}.isdisjoint(map(type, messages)):
        return
    for index, message in enumerate(messages):
        if isinstance(message, dict):
            content = message.get("content")
            parts = content if isinstance(content, list) else (content,)
            yield from ((f"{path}[{index}].content[{at}]", part) for at, part in enumerate(parts) if type(part) is dict)
        elif path in {"messages", "input"}:  # several conversations (embeddings)
            yield from _parts_of(message, f"{path}[{index}]")


def _urls(part: dict[str, Any], path: str) -> Iterator[tuple[str, str]]:
    """Yield the strings under a name that says URL, at any depth of a part."""
    waiting: list[tuple[str, object, bool]] = [(path, part, False)]
    while waiting:
        path, value, is_url = waiting.pop()
        if isinstance(value, str):
            if is_url:
                yield path, value
        elif isinstance(value, dict):
            members = [(f"{path}.{name}", child, _says_url(name)) for name, child in value.items()]
            waiting += reversed(members)
        elif isinstance(value, list):
            waiting += [(f"{path}[{at}]", value[at], is_url) for at in range(len(value) - 1, -1, -1)]


def _says_url(name: str) -> bool:
    return name == "url" or name.endswith("_url") or name == "input_image"
