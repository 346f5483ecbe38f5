"""What an answer has to be: read from a request's ``response_format`` and tools, checked by a compiled JSON Schema."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import jsonschema_rs
import msgspec

from gateway.sdk import Refused
from plugins.json_answer.forms import Tool

_ERRORS = 3  # told of one answer
_MESSAGE = 200  # characters of each
#: A pattern that tries more ways than this on one string has failed.
_PATTERNS = jsonschema_rs.FancyRegexOptions(backtrack_limit=100_000)
_TYPES = frozenset({"text", "json_object", "json_schema", "structural_tag"})
_OBJECT: dict[str, Any] = {"type": "object"}

Schema = dict[str, Any] | bool


class Checker:
    """A compiled schema. Nothing is ever fetched: only references inside the schema and to the drafts are known.

    Raises ValueError, one line, where it is no schema.
    """

    __slots__ = ("_validator",)

    def __init__(self, schema: Schema) -> None:
        try:
            self._validator = jsonschema_rs.validator_for(schema, offline=True, pattern_options=_PATTERNS)
        except jsonschema_rs.ValidationError as error:
            raise ValueError(f"{_place(error.instance_path)}: {_line(error.message)}") from None
        except (ValueError, TypeError, OverflowError) as error:
            raise ValueError(_line(str(error))) from None

    def fault(self, text: str) -> str | None:
        """Say what is wrong with an answer, None where nothing is."""
        try:
            value = decoded(text)
        except ValueError as error:
            return f"it is not JSON: {_line(str(error))}"
        try:
            if self._validator.is_valid(value):
                return None
            errors = [error for error, _ in zip(self._validator.iter_errors(value), range(_ERRORS), strict=False)]
        except (ValueError, OverflowError) as error:
            return _line(str(error))
        return "; ".join(f"{_place(error.instance_path)}: {_line(error.message)}" for error in errors)


@dataclass(frozen=True, slots=True)
class Plan:
    """What the answers to one request are held to."""

    content: Checker | None
    tools: Mapping[str, Checker]


def decoded(text: str) -> Any:
    """Read strict JSON. Raises ValueError."""
    try:
        return msgspec.json.decode(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except (msgspec.DecodeError, UnicodeEncodeError):
        pass  # a lone surrogate and 1e400 are JSON, too
    try:
        return json.loads(text, parse_constant=_refuse)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def content_checker(form: Any, place: str = "response_format") -> Checker | None:
    """Read a ``response_format``, told at ``place``; None where it asks for no JSON that could be checked.

    Raises Refused, for engines have answered bad ones with 500 and worse.
    """
    if form is None:
        return None
    if not isinstance(form, dict) or form.get("type") not in _TYPES:
        _refuse_form(place, "must be an object whose type is text, json_object or json_schema")
    if form["type"] == "json_object":
        return Checker(_OBJECT)
    if form["type"] != "json_schema":
        return None
    inner = ".json_schema" if place == "response_format" else ""
    named = form.get("json_schema")
    if not isinstance(named, dict):
        _refuse_form(place, ".json_schema must be an object with a name and a schema")
    schema = named.get("schema")
    if not isinstance(schema, dict | bool):
        _refuse_form(place, f"{inner}.schema must be a JSON Schema: an object")
    try:
        checker = Checker(schema)
    except ValueError as error:
        _refuse_form(place, f"{inner}.schema is not a JSON Schema that can be used: {error}")
    if not isinstance(named.get("name"), str):
        _refuse_form(place, f"{inner}.name must be a string")
    return checker


def tool_checkers(tools: Iterable[Tool]) -> dict[str, Checker]:
    """Compile the schemas of tools' arguments, by the tools' names. Raises Refused."""
    checkers = {}
    for tool in tools:
        try:
            checkers[tool.name] = Checker(tool.schema)
        except ValueError as error:
            message = f"{tool.place} is not a JSON Schema that can be used: {error}."
            raise Refused(message, param=tool.place) from None
    return checkers


def _refuse_form(place: str, message: str) -> NoReturn:
    raise Refused(f"{place}{message if message.startswith('.') else f' {message}'}.", param=place)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number")


def _place(path: list[str | int]) -> str:
    return "$" + "".join(f"[{each}]" if isinstance(each, int) else f".{_line(each)}" for each in path)


def _line(message: str) -> str:
    return " ".join(message.split())[:_MESSAGE]
