"""What options a model has, in words: for the command line and for the documentation."""

from __future__ import annotations

import json
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

_WORDS: dict[Any, str] = {
    str: "text", int: "integer", float: "number", bool: "true or false", Path: "path", SecretStr: "text",
    Any: "anything", list: "list", dict: "mapping",
}  # fmt: skip


class Option(NamedTuple):
    """One option: its kind and default as one would write them in the configuration."""

    name: str
    kind: str
    default: str
    description: str


def options(model: type[BaseModel]) -> list[Option]:
    """Return the options of a model, in its order."""
    return [
        Option(field.alias or name, kind(field.annotation), _default(field), field.description or "")
        for name, field in model.model_fields.items()
    ]


def kind(annotation: Any) -> str:
    """Return in words what may stand there."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is None:
        return _plain(annotation)
    if origin is Annotated:
        return kind(arguments[0])
    if origin is Literal:
        return " or ".join(map(str, arguments))
    if origin in {Union, types.UnionType}:
        return " or ".join(kind(each) for each in arguments if each is not type(None))
    return "mapping" if issubclass(origin, Mapping) else f"list of {kind(arguments[0])}"


def _plain(annotation: Any) -> str:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return f"{{{', '.join(annotation.model_fields)}}}"
    return _WORDS.get(annotation) or str(getattr(annotation, "__name__", annotation)).removeprefix("IPvAny").lower()


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    default = field.get_default(call_default_factory=True, validated_data={})
    plain = default.model_dump(mode="json") if isinstance(default, BaseModel) else default
    if isinstance(plain, frozenset | set):
        plain = sorted(plain)
    return json.dumps(plain, ensure_ascii=False, default=str)
