"""``/v1/rerank`` and ``/v1/score``: which fields the gateway relies on, and where text sits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gateway.errors import InvalidRequest
from gateway.protocol import unread
from gateway.protocol.openai import Asked, Ceilings, _host
from gateway.protocol.places import _PARAMETERS, Table, _anything, _content, _under
from gateway.protocol.text import Text
from gateway.protocol.unread import _is_embedding, _numbers, _urls

RERANK = "/v1/rerank"
SCORE = "/v1/score"
#: What is weighed: a text, parts of a text ({"content": [...]}), or a list of such.
_SIDES = ("query", "documents", "queries", "items", "data_1", "data_2", "text_1", "text_2")


def ask(body: dict[str, Any], media_hosts: frozenset[str]) -> Asked:
    """Check the fields that the gateway relies on, and refuse what no engine is to be asked.

    Raises InvalidRequest naming the field.
    """
    model = body.get("model")
    if not isinstance(model, str) or not model:
        raise InvalidRequest("model must be a string: the name of a model (GET /v1/models lists them).", param="model")
    if (path := unread.forbidden(body)) is not None:
        raise InvalidRequest("A request may not bring a chat template of its own.", param=path)
    for place, part in _parts(body):
        for path, url in _urls(part, place):
            if url[:5].lower() != "data:" and _host(url) not in media_hosts:
                raise InvalidRequest(
                    "Media may come as data URLs, or from a host that the operator allows.", param=path
                )
    return Asked(model)


def clamp(body: dict[str, Any], asked: Asked, ceilings: Ceilings) -> None:
    """Hold a request to its model's ceiling of texts. Raises InvalidRequest."""
    del asked
    for field in _SIDES:
        value = body.get(field)
        if isinstance(value, list) and len(value) > ceilings.max_prompts:
            raise InvalidRequest(f"{field} may hold at most {ceilings.max_prompts} texts.", param=field)


def has_token_ids(body: dict[str, Any]) -> str | None:
    """Return the place of a text in numbers or embeddings, which carry no text to check; else None."""
    for field in _SIDES:
        if (place := _numbers(body.get(field), field)) is not None:
            return place
    return next((place for place, part in _parts(body) if any(map(_is_embedding, (*part, part.get("type"))))), None)


def _parts(body: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every content part of what is weighed."""
    for field in _SIDES:
        value = body.get(field)
        several = value if isinstance(value, list) else [value]
        for index, item in enumerate(several):
            place = f"{field}[{index}]" if isinstance(value, list) else field
            content = item.get("content") if isinstance(item, dict) else None
            for at, part in enumerate(content if isinstance(content, list) else ()):
                if isinstance(part, dict):
                    yield f"{place}.content[{at}]", part


def _side(found: list[Text], container: Any, at: Any, path: str, role: str | None) -> None:
    value = container[at]
    if isinstance(value, list):
        for index in range(len(value)):
            _side(found, value, index, f"{path}[{index}]", role)
    elif isinstance(value, dict):
        for field in value:
            reader = _content if field in {"content", "multi_modal"} else _anything
            reader(found, value, field, _under(path, field), role)
    elif isinstance(value, str):
        found.append(Text(container, at, path, role))


def _results(found: list[Text], container: Any, at: Any, path: str, role: str | None) -> None:
    """The documents again, best first."""
    results = container[at]
    for index, result in enumerate(results if isinstance(results, list) else ()):
        if isinstance(result, dict) and "document" in result:
            _side(found, result, "document", f"{path}[{index}].document", role)


REQUEST: Table = {**dict.fromkeys(_PARAMETERS), "*": _anything, **dict.fromkeys(_SIDES, _side)}
RERANKED: Table = {"results": _results}
SCORED: Table = {}
