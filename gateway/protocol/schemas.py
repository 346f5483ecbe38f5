"""The JSON Schemas that a request brings for its answer: refused where no engine could use them, or would go and fetch.

vLLM has crashed on some and answered 500 to others (vllm-project/vllm 35438, 17248). What an answer is held to is a
plugin's business; what reaches an engine is ours, whatever plugins there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from gateway.errors import InvalidRequest

#: A pattern that tries more ways than this is no pattern.
_BACKTRACKS = 100_000
_TOLD = 200


def check_schemas(body: dict[str, Any]) -> None:
    """Raises InvalidRequest naming the field."""
    for place, at, schema in _schemas(body):
        if not isinstance(schema, dict | bool):
            raise InvalidRequest(f"{at} must be a JSON Schema: an object.", param=place)
        if (fault := _fault(schema)) is not None:
            raise InvalidRequest(f"{at} is not a JSON Schema that can be used: {fault}.", param=place)


def _schemas(body: dict[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """Yield every schema with the field that brings it, and where in it."""
    form = body.get("response_format")
    if isinstance(form, dict) and form.get("type") == "json_schema":
        named = form.get("json_schema")
        if not isinstance(named, dict):
            message = "response_format.json_schema must be an object with a name and a schema."
            raise InvalidRequest(message, param="response_format")
        yield "response_format", "response_format.json_schema.schema", named.get("schema", named.get("json_schema"))
    text = body.get("text")
    said = text.get("format") if isinstance(text, dict) else None
    if isinstance(said, dict) and said.get("type") == "json_schema":
        yield "text.format", "text.format.schema", said.get("schema")
    outputs = body.get("structured_outputs")
    if isinstance(outputs, dict) and outputs.get("json") is not None:
        yield "structured_outputs.json", "structured_outputs.json", _read(outputs["json"])
    if body.get("guided_json") is not None:
        yield "guided_json", "guided_json", _read(body["guided_json"])


def _read(schema: Any) -> Any:
    """Return a schema that may come as its text, as vLLM takes it."""
    if not isinstance(schema, str):
        return schema
    try:
        return msgspec.json.decode(schema)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return None


def _fault(schema: dict[str, Any] | bool) -> str | None:
    """Say why it is no schema; references that lead out of it are none, for nothing is ever fetched."""
    import jsonschema_rs  # noqa: PLC0415 - 5 MB that most gateways never need

    patterns = jsonschema_rs.FancyRegexOptions(backtrack_limit=_BACKTRACKS)
    try:
        jsonschema_rs.validator_for(schema, offline=True, pattern_options=patterns)
    except jsonschema_rs.ValidationError as error:
        where = "".join(f"[{each!r}]" for each in error.instance_path)
        return " ".join(f"{where} {error.message}".split())[:_TOLD]
    except (ValueError, TypeError, OverflowError) as error:
        return " ".join(str(error).split())[:_TOLD]
    return None
