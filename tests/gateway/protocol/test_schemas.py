"""Schemas of a request's answer, with no plugin at all."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.errors import InvalidRequest
from gateway.protocol.schemas import check_schemas

REMOTE = {"$ref": "http://169.254.169.254/x.json"}
BAD: list[Any] = [
    {"type": "object", "properties": {"foo": "bar"}},
    REMOTE,
    {"type": "object", "properties": {"a": {"items": REMOTE}}},
    {"$ref": "file:///etc/passwd"},
    {"$ref": "#/$defs/nowhere"},
    {"$schema": "http://169.254.169.254/draft", "type": "object"},
    {"type": "objekt"},
    {"type": "string", "pattern": "("},
    "object",
    None,
    [],
]
GOOD: list[Any] = [
    {"type": "object", "properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"type": "integer"}}},
    {"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "array", "items": {"type": "string"}},
    {"title": "X", "x-order": 3, "description": "fields that are none of JSON Schema's", "type": "object"},
    {},
    True,
]


def bodies(schema: Any) -> dict[str, dict[str, Any]]:
    named = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    return {
        "response_format": {"response_format": named},
        "text.format": {"text": {"format": {"type": "json_schema", "name": "x", "schema": schema}}},
    }


@pytest.mark.parametrize("schema", BAD, ids=str)
def test_what_no_engine_could_use_is_refused_at_its_field(schema: Any) -> None:
    """TS-03: also a schema that would have to be fetched."""
    for place, body in bodies(schema).items():
        with pytest.raises(InvalidRequest) as refusal:
            check_schemas(body)
        assert refusal.value.param == place


@pytest.mark.parametrize("schema", GOOD, ids=str)
def test_what_is_a_schema_passes(schema: Any) -> None:
    for body in bodies(schema).values():
        check_schemas(body)


@pytest.mark.parametrize("field", ["structured_outputs", "guided_json"])
@pytest.mark.parametrize("schema", ['{"$ref": "http://169.254.169.254/x"}', "{", {"type": "objekt"}, 3], ids=str)
def test_vllms_own_fields_are_looked_at_too(field: str, schema: Any) -> None:
    body = {field: {"json": schema}} if field == "structured_outputs" else {field: schema}
    with pytest.raises(InvalidRequest) as refusal:
        check_schemas(body)
    assert (refusal.value.param or "").startswith(field)


def test_other_formats_are_the_engines_business() -> None:
    for form in (None, {"type": "text"}, {"type": "json_object"}, {"type": "structural_tag", "format": {}}, "x"):
        check_schemas({"response_format": form})
    check_schemas({"structured_outputs": {"regex": "a"}, "text": {"verbosity": "low"}})


def test_a_format_without_its_schema_is_refused() -> None:
    for form in ({"type": "json_schema"}, {"type": "json_schema", "schema": {"type": "object"}}):
        with pytest.raises(InvalidRequest, match="json_schema must be an object"):
            check_schemas({"response_format": form})
