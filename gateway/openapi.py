"""What callers may send and get, in OpenAPI's words: written by hand, as no model parses the data path's bodies."""

from __future__ import annotations

import json
from html import escape
from typing import Any

Json = dict[str, Any]

_TEXT: Json = {"type": "string"}
_NUMBER: Json = {"type": "number"}
_WHOLE: Json = {"type": "integer"}
_YES_NO: Json = {"type": "boolean"}
_OBJECT: Json = {"type": "object", "additionalProperties": True}

_MODEL: Json = {**_TEXT, "description": "A configured model's name or alias; GET /v1/models lists them."}
_OBJECTS: Json = {"type": "array", "items": _OBJECT}
_USER: Json = {"role": "user", "content": "Say hello."}
_SLUICE: Json = {**_OBJECT, "description": "What the gateway adds: tags, and what its plugins tell."}

_SAMPLING: dict[str, Json] = {
    "stream": {**_YES_NO, "description": "Send the answer piece by piece, as server-sent events."},
    "stream_options": {**_OBJECT, "description": "include_usage: true adds a last chunk with the token counts."},
    "max_tokens": {
        **_WHOLE,
        "description": "Above the model's ceiling it is lowered; the tag max_tokens_clamped says so.",
    },
    "temperature": _NUMBER,
    "top_p": _NUMBER,
    "n": {**_WHOLE, "description": "How many answers."},
    "stop": {"anyOf": [_TEXT, {"type": "array", "items": _TEXT}]},
    "seed": _WHOLE,
    "sluice": {**_OBJECT, "description": "What the gateway's plugins read, for example preset."},
}
_MESSAGE: Json = {
    "type": "object",
    "required": ["role"],
    "properties": {
        "role": _TEXT,
        "content": {"anyOf": [_TEXT, {"type": "array", "items": _OBJECT}, {"type": "null"}]},
        "tool_calls": {"type": "array", "items": _OBJECT},
        "tool_call_id": _TEXT,
    },
    "additionalProperties": True,
}
_ANTHROPIC: dict[str, Json] = {
    "system": {"anyOf": [_TEXT, _OBJECTS]},
    "stream": _SAMPLING["stream"],
    "temperature": _NUMBER,
    "stop_sequences": {"type": "array", "items": _TEXT},
    "tools": _OBJECTS,
    "sluice": _SAMPLING["sluice"],
}
_USAGE: Json = {
    "type": "object",
    "properties": {"prompt_tokens": _WHOLE, "completion_tokens": _WHOLE, "total_tokens": _WHOLE},
    "additionalProperties": True,
}
_ERROR: Json = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": _TEXT,
                "type": _TEXT,
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "integer", "null"]},
            },
        }
    },
}

#: What each status means, with the codes it comes with.
_FAILURES = {
    400: "invalid_request: cannot be understood or is not allowed. content_filter: a filter has blocked the request.",
    401: "invalid_api_key",
    403: "model_not_allowed",
    404: "model_not_found",
    408: "request_timeout: the body did not come to its end in time.",
    413: "request_too_large",
    415: "unsupported_encoding: the body may come as it is or as gzip.",
    429: "rate_limit_exceeded, queue_full: Retry-After says when to try again.",
    500: "internal_error: a fault of the gateway.",
    502: "engine_error: the engine failed before it answered.",
    503: "no_engine_available, filter_unavailable: Retry-After says when to try again.",
    504: "engine_timeout",
}


def describe(version: str) -> Json:
    """Return the OpenAPI 3.1 document."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Sluice",
            "version": version,
            "description": "An OpenAI-compatible gateway in front of vLLM. Fields that are not named here pass through "
            "in both directions. Every answer carries x-request-id.",
        },
        "paths": {**_data_paths(), **_operator_paths()},
        "components": {
            "schemas": {"Error": _ERROR, "Message": _MESSAGE, "Usage": _USAGE},
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def _data_paths() -> Json:
    messages: Json = {"type": "array", "items": _ref("Message"), "minItems": 1}
    texts: Json = {"anyOf": [_TEXT, {"type": "array", "items": _TEXT}]}
    chat = {
        **_SAMPLING,
        "max_completion_tokens": _WHOLE,
        "response_format": {**_OBJECT, "description": "json_object, or json_schema with a schema."},
        "tools": {"type": "array", "items": _OBJECT},
        "tool_choice": {"anyOf": [_TEXT, _OBJECT]},
        "logprobs": _YES_NO,
        "top_logprobs": _WHOLE,
    }
    return {
        "/v1/chat/completions": _post(
            "Answer a conversation",
            {"messages": messages, **chat},
            {"messages": [_USER]},
            _answer("chat.completion"),
            stream=True,
        ),
        "/v1/completions": _post(
            "Go on with a text",
            {"prompt": texts, **_SAMPLING, "echo": _YES_NO, "logprobs": _WHOLE},
            {"prompt": "Once upon a time", "max_tokens": 32},
            _answer("text_completion"),
            stream=True,
        ),
        **_response_paths(),
        **_message_paths(),
        **_scoring_paths(),
        "/v1/embeddings": _post("Embed texts", {"input": texts}, {"input": "some text"}, _list()),
        "/v1/models": {"get": _operation("List the models", _list(), (401,))},
        "/v1/models/{id}": {
            "get": {
                **_operation("Show one model", _object(id=_TEXT, object=_TEXT), (401, 404)),
                "parameters": [{"name": "id", "in": "path", "required": True, "schema": _TEXT}],
            }
        },
        "/tokenize": _post(
            "Count and list a text's tokens",
            {"prompt": _TEXT, "messages": messages},
            {"prompt": "some text"},
            _object(count=_WHOLE, tokens={"type": "array", "items": _WHOLE}, max_model_len=_WHOLE),
            required=(),
        ),
        "/detokenize": _post(
            "Turn tokens into text",
            {"tokens": {"type": "array", "items": _WHOLE}},
            {"tokens": [1, 2, 3]},
            _object(prompt=_TEXT),
        ),
    }


def _response_paths() -> Json:
    response = _object(id=_TEXT, object=_TEXT, model=_TEXT, status=_TEXT, output=_OBJECTS, usage=_OBJECT)
    fields: Json = {
        "input": {"anyOf": [_TEXT, _OBJECTS]},
        "instructions": _TEXT,
        "max_output_tokens": _SAMPLING["max_tokens"],
        "previous_response_id": {**_TEXT, "description": "Goes on from a response of the same key."},
        "background": _YES_NO,
        "store": _YES_NO,
        "tools": _OBJECTS,
        **{name: _SAMPLING[name] for name in ("stream", "temperature", "top_p", "sluice")},
    }
    asked = _operation("Show a stored response", response, (400, 401, 404, 502, 503, 504))
    known = [{"name": "id", "in": "path", "required": True, "schema": _TEXT}]
    query = [
        {"name": name, "in": "query", "schema": kind}
        for name, kind in (("stream", _YES_NO), ("starting_after", _WHOLE))
    ]
    stopped = {**_operation("Stop a response", response, (400, 401, 404, 502, 503, 504)), "parameters": known}
    return {
        "/v1/responses": _post("Answer in items", fields, {"input": "Say hello."}, response, stream=True),
        "/v1/responses/{id}": {"get": {**asked, "parameters": [*known, *query]}},
        "/v1/responses/{id}/cancel": {"post": stopped},
    }


def _message_paths() -> Json:
    messages: Json = {"type": "array", "items": _ref("Message"), "minItems": 1}
    return {
        "/v1/messages": _post(
            "Answer a conversation, in Anthropic's form",
            {"max_tokens": _WHOLE, "messages": messages, **_ANTHROPIC},
            {"max_tokens": 64, "messages": [_USER]},
            _object(id=_TEXT, type=_TEXT, role=_TEXT, content=_OBJECTS, stop_reason=_TEXT, usage=_OBJECT),
            stream=True,
            required=("max_tokens", "messages"),
        ),
        "/v1/messages/count_tokens": _post(
            "Count a conversation's tokens, in Anthropic's form",
            {"messages": messages, **_ANTHROPIC},
            {"messages": [_USER]},
            _object(input_tokens=_WHOLE),
        ),
    }


def _scoring_paths() -> Json:
    texts: Json = {"anyOf": [_TEXT, {"type": "array", "items": _TEXT}]}
    return {
        "/v1/rerank": _post(
            "Sort documents by how well they fit a query",
            {"query": _TEXT, "documents": {"type": "array", "items": {"anyOf": [_TEXT, _OBJECT]}}, "top_n": _WHOLE},
            {"query": "capital of France", "documents": ["Paris is the capital.", "Berlin is big."]},
            _object(id=_TEXT, model=_TEXT, results=_OBJECTS, usage=_ref("Usage")),
            required=("query", "documents"),
        ),
        "/v1/score": _post(
            "Say how well texts fit each other",
            {"queries": texts, "documents": texts},
            {"queries": "capital of France", "documents": ["Paris is the capital.", "Berlin is big."]},
            _list(),
            required=("queries", "documents"),
        ),
    }


def _operator_paths() -> Json:
    health = _object(status=_TEXT, models=_OBJECT)
    ready = {
        **_operation("Is there an engine to use?", health, ()),
        "security": [],
    }
    ready["responses"]["503"] = {"description": "No usable engine, or shutting down.", "content": _json(health)}
    text = {"200": {"description": "Prometheus text", "content": {"text/plain": {"schema": _TEXT}}}}
    return {
        "/livez": {"get": {**_operation("Is the gateway alive?", _object(status=_TEXT), ()), "security": []}},
        "/readyz": {"get": ready},
        "/metrics": {"get": {"summary": "Show the metrics", "tags": ["operator"], "responses": text}},
        "/version": {"get": {**_operation("Show the version", _object(version=_TEXT), ()), "security": []}},
    }


def _ref(name: str) -> Json:
    return {"$ref": f"#/components/schemas/{name}"}


def _object(**properties: Json) -> Json:
    return {"type": "object", "properties": properties, "additionalProperties": True}


def _list() -> Json:
    return _object(object=_TEXT, data={"type": "array", "items": _OBJECT})


def _answer(kind: str) -> Json:
    choices: Json = {"type": "array", "items": _OBJECT}
    named: Json = {**_TEXT, "const": kind}
    return _object(
        id=_TEXT, object=named, created=_WHOLE, model=_TEXT, choices=choices, usage=_ref("Usage"), sluice=_SLUICE
    )


def _json(schema: Json) -> Json:
    return {"application/json": {"schema": schema}}


def _operation(summary: str, answer: Json, failures: tuple[int, ...]) -> Json:
    responses: Json = {"200": {"description": "Fine", "content": _json(answer)}}
    for status in failures:
        responses[str(status)] = {"description": _FAILURES[status], "content": _json(_ref("Error"))}
    return {"summary": summary, "security": [{"key": []}], "responses": responses}


def _post(
    summary: str,
    fields: dict[str, Json],
    example: Json,
    answer: Json,
    *,
    stream: bool = False,
    required: tuple[str, ...] | None = None,
) -> Json:
    operation = _operation(summary, answer, tuple(_FAILURES))
    if stream:
        operation["responses"]["200"]["content"]["text/event-stream"] = {"schema": _TEXT}
    body = _object(model=_MODEL, **fields)
    body["required"] = ["model", *(tuple(example)[:1] if required is None else required)]
    content = {"application/json": {"schema": body, "example": {"model": "smollm2", **example}}}
    return {"post": {**operation, "requestBody": {"required": True, "content": content}}}


def page(document: Json) -> str:
    """Show the document as one plain page."""
    parts = [
        f"<h1>{escape(document['info']['title'])} {escape(document['info']['version'])}</h1>",
        f"<p>{escape(document['info']['description'])}</p>",
        "<p>The same for machines: <a href='/openapi.json'>openapi.json</a>.</p>",
    ]
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            parts.append(f"<h2><code>{method.upper()} {escape(path)}</code></h2><p>{escape(operation['summary'])}.</p>")
            if "requestBody" in operation:
                parts += _body(operation["requestBody"]["content"]["application/json"])
            rows = "".join(_row(status, told["description"]) for status, told in operation["responses"].items())
            parts.append(f"<table>{rows}</table>")
    return _PAGE.format("\n".join(parts))


def _body(content: Json) -> list[str]:
    schema = content["schema"]
    rows = [
        _row(name + (" *" if name in schema["required"] else ""), _type(field), field.get("description", ""))
        for name, field in schema["properties"].items()
    ]
    return [f"<table>{''.join(rows)}</table>", f"<pre>{escape(json.dumps(content['example'], indent=2))}</pre>"]


def _type(schema: Json) -> str:
    if "anyOf" in schema:
        return " or ".join(map(_type, schema["anyOf"]))
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    inner = f" of {_type(schema['items'])}" if "items" in schema else ""
    return f"{schema['type']}{inner}"


def _row(*cells: str) -> str:
    return "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>"


_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Sluice</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 56rem; margin: 2rem auto; padding: 0 1rem; }}
td {{ padding: .1rem 1rem .1rem 0; vertical-align: top; }}
td:first-child {{ white-space: nowrap; font-family: monospace; }}
h2 {{ margin-top: 2.5rem; border-top: 1px solid #ccc; padding-top: 1rem; }}
pre {{ background: #f4f4f4; padding: .6rem; }}
</style>
{}
</html>
"""
