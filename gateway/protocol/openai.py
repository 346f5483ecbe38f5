"""The OpenAI fields that the gateway itself relies on: checked when a request comes, set when it goes to an engine.

Everything else in a body belongs to the caller and the engine. What is checked here is what the gateway would otherwise
misread: vLLM's models are lax ("true" streams, "5000" is a number), ours are not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import msgspec

from gateway.errors import InvalidRequest
from gateway.protocol import unread
from gateway.protocol.guided import GUIDED, translate_guided
from gateway.protocol.schemas import check_schemas

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
EMBEDDINGS = "/v1/embeddings"
GENERATES = frozenset({CHAT, COMPLETIONS})
#: What a chat template reads beside the messages: a count of their tokens needs it too.
TEMPLATED = (
    *("add_generation_prompt", "chat_template_kwargs", "continue_final_message", "media_io_kwargs"),
    *("mm_processor_kwargs", "tools"),
)


@dataclass(frozen=True, slots=True)
class Ceilings:
    """What one request may ask of a model."""

    max_output_tokens: int | None  # None: the engine's own
    max_choices: int
    max_prompts: int


@dataclass(slots=True)
class Asked:
    """What a request asks for, as far as the gateway has to know."""

    model: str
    stream: bool = False
    want_usage: bool = False
    choices: int = 1
    output_tokens: int = 0  # over all choices, at most
    clamped: bool = False
    filled: tuple[str, ...] = ()  # fields that were set here
    plain: bool = False  # a chat of texts without anything unusual


class _Message(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    role: str
    content: str


class _StreamOptions(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    include_usage: bool | None = None


class _PlainChat(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """A chat request as nearly all are: nothing in it has to be looked for, and its types are right."""

    model: str
    messages: list[_Message]
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    n: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    user: str | None = None


def ask(route: str, body: dict[str, Any], media_hosts: frozenset[str]) -> Asked:
    """Check the fields that the gateway relies on, and refuse what no engine is to be asked.

    Raises InvalidRequest naming the field.
    """
    if route == CHAT:
        try:
            plain = msgspec.convert(body, _PlainChat)
        except msgspec.ValidationError:
            pass  # nothing wrong: only something that has to be looked at
        else:
            options = plain.stream_options
            usage = bool(options and options.include_usage)
            return Asked(plain.model, bool(plain.stream), usage, plain=bool(plain.model))
    asked = read(route, body)
    check(body, media_hosts)
    return asked


def read(route: str, body: dict[str, Any]) -> Asked:
    """Check the fields every request has. Raises InvalidRequest naming the field."""
    model = body.get("model")
    if not isinstance(model, str) or not model:
        raise InvalidRequest("model must be a string: the name of a model (GET /v1/models lists them).", param="model")
    if route not in GENERATES:
        return Asked(model)
    stream = body.get("stream")
    if stream is not None and stream is not True and stream is not False:
        raise InvalidRequest("stream must be true or false.", param="stream")
    options = body.get("stream_options")
    if options is not None and not isinstance(options, dict):
        raise InvalidRequest("stream_options must be an object.", param="stream_options")
    usage = options.get("include_usage") if options else None
    if usage is not None and not isinstance(usage, bool):
        raise InvalidRequest(
            "stream_options.include_usage must be true or false.", param="stream_options.include_usage"
        )
    return Asked(model, bool(stream), bool(usage))


def check(body: dict[str, Any], media_hosts: frozenset[str]) -> None:
    """Refuse what no engine is to be asked. Raises InvalidRequest naming the field."""
    if (path := unread.forbidden(body)) is not None:
        raise InvalidRequest("A request may not bring a chat template of its own.", param=path)
    for path, url in unread.media_urls(body):
        if url[:5].lower() != "data:" and _host(url) not in media_hosts:
            raise InvalidRequest("Media may come as data URLs, or from a host that the operator allows.", param=path)
    check_schemas(body)


def _host(url: str) -> str | None:
    try:
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or "@" in parts.netloc or "\\" in url:
            return None
        return parts.hostname
    except ValueError:
        return None


def clamp(route: str, body: dict[str, Any], asked: Asked, ceilings: Ceilings) -> None:
    """Hold a request to its model's ceilings, in place: too many choices or prompts are refused, tokens are clamped.

    Raises InvalidRequest.
    """
    if route == EMBEDDINGS:
        _list_of_texts(body, "input", ceilings.max_prompts)
    if route not in GENERATES:
        return
    choices = _count(body, "n", ceilings.max_choices) if "n" in body else 1
    if route == COMPLETIONS:
        _count(body, "best_of", ceilings.max_choices)
        choices *= _list_of_texts(body, "prompt", ceilings.max_prompts)
    _clamp_tokens(route, body, asked, ceilings.max_output_tokens)
    asked.choices, asked.output_tokens = choices, asked.output_tokens * choices


def _clamp_tokens(route: str, body: dict[str, Any], asked: Asked, ceiling: int | None) -> None:
    """Hold each choice to so many tokens. A completion that only echoes its prompt (to score it) may ask for none."""
    default = 16 if route == COMPLETIONS else None  # OpenAI's and vLLM's; others go on for ever
    named = None
    for field in ("max_completion_tokens", "max_tokens"):
        value = tokens(body, field, least=0 if default and body.get("echo") is True else 1)
        if value is None:
            continue
        if ceiling is not None and value > ceiling:
            body[field] = value = ceiling
            asked.clamped = True
        named = max(named or 0, int(value))
    if named is None or (default and body.get("max_tokens") is None):
        filled = ceiling if default is None or ceiling is None else min(default, ceiling)
        named = max(named or 0, filled or default or 0)
        if filled is not None:
            body["max_tokens"] = filled
            asked.filled = ("max_tokens",)
    asked.output_tokens = named


def tokens(body: dict[str, Any], field: str, *, least: int = 1) -> float | None:
    """Return how many tokens an answer may have, None where the field says nothing. Raises InvalidRequest naming it."""
    value = body.get(field)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidRequest(f"{field} must be a whole number.", param=field)
    if value < least:
        raise InvalidRequest(f"{field} must be at least {least}.", param=field)
    return value


def _list_of_texts(body: dict[str, Any], field: str, ceiling: int) -> int:
    """Return how many texts (or lists of token ids) the field holds."""
    value = body.get(field)
    if not isinstance(value, list) or not value or isinstance(value[0], int):
        return 1
    if len(value) > ceiling:
        raise InvalidRequest(f"{field} may hold at most {ceiling} texts.", param=field)
    return len(value)


def _count(body: dict[str, Any], field: str, ceiling: int) -> int:
    value = body.get(field)
    if value is None:
        return 1
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidRequest(f"{field} must be a whole number of at least 1.", param=field)
    if value > ceiling:
        raise InvalidRequest(f"{field} may be at most {ceiling}.", param=field)
    return value


def for_engine(
    route: str, body: dict[str, Any], *, model: str | None, stream: bool, cache_salt: str | None
) -> dict[str, Any]:
    """Return the body that the engine gets: its own name for the model, usage asked for, guided fields translated.

    Raises InvalidRequest.
    """
    sent = {**body, "model": model} if model is not None else dict(body)
    sent.pop("sluice", None)  # ours
    if route not in GENERATES:
        return sent
    if not GUIDED.isdisjoint(sent):
        translate_guided(sent)
    if stream:
        sent["stream_options"] = {**(sent.get("stream_options") or {}), "include_usage": True}
    elif body.get("stream"):
        sent["stream"] = False
        sent.pop("stream_options", None)
    if cache_salt is not None:
        sent["cache_salt"] = cache_salt
    return sent
