"""The fields of ``/v1/responses`` that the gateway relies on, the ids it gives to responses, and the route's errors."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import Any
from uuid import uuid4

import msgspec

from gateway.errors import Failure, InvalidRequest, NotFound
from gateway.protocol import failures, responses_places, unread
from gateway.protocol.guided import GUIDED, translate_guided
from gateway.protocol.named import Numbers
from gateway.protocol.openai import Asked, Ceilings, _host, tokens
from gateway.protocol.schemas import check_schemas

RESPONSES = "/v1/responses"
#: Of a request, what no engine gets: vLLM would name the response by the second (and so another's), the third would
#: repeat all as the engine sees it.
_ID = re.compile("resp_([0-9a-f]{32})([0-9a-f]{8})([0-9a-f]{8})")
_OURS = ("sluice", "request_id", "enable_response_messages")


def ask(body: dict[str, Any], media_hosts: frozenset[str]) -> Asked:
    """Check the fields that the gateway relies on, and refuse what no engine is to be asked.

    Raises InvalidRequest naming the field.
    """
    model = body.get("model")
    if not isinstance(model, str) or not model:
        raise InvalidRequest("model must be a string: the name of a model (GET /v1/models lists them).", param="model")
    for field in ("stream", "background", "store"):
        if not isinstance(body.get(field), bool | None):
            raise InvalidRequest(f"{field} must be true or false.", param=field)
    earlier = body.get("previous_response_id")
    if earlier is not None and not isinstance(earlier, str):
        raise InvalidRequest("previous_response_id must be the id of a response.", param="previous_response_id")
    if (path := unread.forbidden(body)) is not None:
        raise InvalidRequest("A request may not bring a chat template of its own.", param=path)
    for path, url in responses_places.media_urls(body):
        if url[:5].lower() != "data:" and _host(url) not in media_hosts:
            raise InvalidRequest("Media may come as data URLs, or from a host that the operator allows.", param=path)
    check_schemas(body)
    return Asked(model, bool(body.get("stream")), want_usage=True)


def clamp(body: dict[str, Any], asked: Asked, ceilings: Ceilings) -> None:
    """Hold a request to its model's ceiling of tokens, in place. Raises InvalidRequest."""
    value, ceiling = tokens(body, "max_output_tokens"), ceilings.max_output_tokens
    if ceiling is not None and (value is None or value > ceiling):
        asked.clamped, asked.filled = value is not None, ("max_output_tokens",) if value is None else ()
        body["max_output_tokens"] = value = ceiling
    asked.output_tokens = int(value or 0)


def for_engine(body: dict[str, Any], *, model: str | None, stream: bool, cache_salt: str | None) -> dict[str, Any]:
    """Return the body that the engine gets. Raises InvalidRequest."""
    sent = {**body, "model": model} if model is not None else dict(body)
    for ours in _OURS:
        sent.pop(ours, None)
    if not GUIDED.isdisjoint(sent):
        translate_guided(sent)
    if body.get("stream") and not stream:
        sent["stream"] = False
        sent.pop("stream_options", None)
    if cache_salt is not None:
        sent["cache_salt"] = cache_salt
    return sent


def response_id(unique: str, engine: str, owner: str) -> str:
    """Make a response's id from 32 random hex digits: it says which engine keeps it and whose it is, to us only."""
    return f"resp_{unique}{_tag(engine)}{_tag(owner, unique)}"


def stamp(sent: dict[str, Any], engine: str, owner: str) -> str | None:
    """Give the response of a request that is sent its id, in place: vLLM takes the request's.

    Returns the path at which its engine is asked to stop, for what is answered in the background; else None.
    """
    made = sent["request_id"] = response_id(uuid4().hex, engine, owner)
    return f"{RESPONSES}/{made}/cancel" if sent.get("background") else None


def earlier(body: dict[str, Any]) -> str | None:
    """Return the id of the response that a request goes on from; None where it begins anew."""
    return body.get("previous_response_id")


def keeper(response_id: str, engines: Iterable[str], owner: str) -> str | None:
    """Return the name of the engine that keeps a response; None where none does, or where it is another owner's."""
    if (said := _ID.fullmatch(response_id)) is None:
        return None
    unique, engine, whose = said.groups()
    if whose != _tag(owner, unique):
        return None
    return next((name for name in engines if _tag(name) == engine), None)


def _tag(*words: str) -> str:
    return hashlib.sha256("\0".join(words).encode()).hexdigest()[:8]


def not_found(response_id: str, param: str = "response_id") -> NotFound:
    """Return the failure for an id that no engine knows."""
    return NotFound(f"Response with id '{response_id[:100]}' not found.", param=param)


def from_engine(status: int, body: bytes, retry_after: str | None) -> Failure:
    """Turn an engine's answer that is none into a failure: that it does not know a response is the caller's to hear."""
    if status == 404:
        try:
            error = msgspec.json.decode(body)["error"]
            if error["param"] in {"response_id", "previous_response_id"}:
                return NotFound("The response was not found.", param=error["param"])
        except (ValueError, KeyError, TypeError):
            pass
    return failures.from_engine(status, body, retry_after)


def error_event(payload: bytes) -> Failure | None:
    """Turn an event that says that the engine failed into a failure; None where it is none of that kind."""
    try:
        told = msgspec.json.decode(payload)
    except (ValueError, RecursionError):
        return None
    if not isinstance(told, dict):
        return None
    response = told.get("response")
    if told.get("type") == "response.failed" and isinstance(response, dict):
        said = response.get("error")
        return failures.from_event({"error": said if isinstance(said, dict) else {}})
    if told.get("type") == "error" and not isinstance(told.get("error"), dict):  # OpenAI's own: flat
        return failures.from_event({"error": {**told, "type": told.get("code")}})
    return failures.from_event(told)


def failure_event(
    failure: Failure,
    response: dict[str, Any] | None = None,
    output: list[dict[str, Any]] | None = None,
    numbers: Numbers | None = None,
) -> bytes:
    """Write the event that ends a stream which has begun; ``response`` is what the caller has been told of it."""
    told: dict[str, Any] = {
        "id": "",
        "object": "response",
        "created_at": 0,
        "model": "",
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        **(response or {}),
        "status": "failed",
        "error": {"code": str(failure.code), "message": failure.message},
        "output": output or [],
    }
    first = {} if response else {"sequence_number": 0}
    return (numbers or Numbers()).write({"type": "response.failed", "response": told, **first})
