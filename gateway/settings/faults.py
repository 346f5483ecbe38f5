"""What is wrong with a configuration, told in one line each: the place, what, and the mend."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

Where = tuple[str | int, ...]

#: What pydantic's own words leave unclear, by the type of its error.
_SAID = {
    "missing": "is missing",
    "int_type": "has to be a whole number",
    "int_parsing": "has to be a whole number",
    "int_from_float": "has to be a whole number",
    "float_type": "has to be a number",
    "float_parsing": "has to be a number",
    "finite_number": "has to be a finite number",
    "bool_type": "has to be true or false",
    "bool_parsing": "has to be true or false",
    "list_type": "has to be a list",
    "tuple_type": "has to be a list",
    "frozen_set_type": "has to be a list",
    "dict_type": "has to be a mapping (key: value)",
    "model_type": "has to be a mapping (key: value)",
    "model_attributes_type": "has to be a mapping (key: value)",
    "path_type": "has to be a path",
    "invalid_key": "is no option: names are text",
    "ip_any_network": "has to be an address or a network such as 10.0.0.0/8",
}


class ConfigurationError(Exception):
    """The configuration cannot be used. ``lines`` holds one fault each, ready to be shown.

    ``files`` are those that it names: a change of one of them may mend it.
    """

    def __init__(self, lines: Sequence[str], files: Iterable[Path] = ()) -> None:
        super().__init__("\n".join(lines))
        self.lines = tuple(lines)
        self.files = frozenset(files)


@dataclass(frozen=True, slots=True)
class Source:
    """Where a configuration came from. ``origins``: places that an option or a variable has set, by its name."""

    name: str = "configuration"
    lines: Mapping[Where, int] = field(default_factory=dict)
    origins: Mapping[Where, str] = field(default_factory=dict)

    def line(self, where: Where) -> int | None:
        """Return the line on which a value stands, or what it would stand in."""
        return next((self.lines[where[:end]] for end in range(len(where), -1, -1) if where[:end] in self.lines), None)

    def fault(self, where: Where, message: str) -> str:
        """Return the line that tells one fault."""
        if where in self.origins:
            return f"{self.origins[where]}: {message}"
        line = self.line(where)
        place = self.name if line is None else f"{self.name}:{line}"
        return f"{place}: {path(where)}: {message}" if where else f"{place}: {message}"

    def faults(self, found: Iterable[tuple[Where, str]]) -> list[str]:
        """Return the lines that tell faults, in the order of the file."""
        return [self.fault(*fault) for fault in sorted(found, key=lambda fault: self.line(fault[0]) or 0)]


def path(where: Where) -> str:
    """Write a place as people do: models[0].engines[1].url."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in where).removeprefix(".")


def did_you_mean(word: str, known: Collection[str]) -> str:
    """Return the nearest known word as a question, or else the known words."""
    near = difflib.get_close_matches(word, known, n=1)
    if near:
        return f"did you mean {near[0]!r}?"
    return f"known here: {', '.join(sorted(known))}" if known else "nothing is known here"


def explain(error: ValidationError, model: type[BaseModel], data: Any, at: Where = ()) -> list[tuple[Where, str]]:
    """Return the faults in ``data``, which lies ``at`` a place of the configuration, as places and messages.

    The input never shows: it may be a secret. Of a value that may have several shapes the faults are told as one, or
    only those of the shape that got furthest.
    """
    said: dict[Where, list[str]] = {}
    for detail in error.errors(include_url=False, include_input=True):
        where = _inside(detail, data)
        message = _message(detail, where, model)
        if message not in said.setdefault(where, []):
            said[where].append(message)
    return [
        ((*at, *where), _joined(messages))
        for where, messages in said.items()
        if not any(other != where and other[: len(where)] == where for other in said)
    ]


def truths(values: Any, data: Any, at: Where = ()) -> Iterator[tuple[Where, str]]:
    """Yield the places of ``data`` where true or false became a number in ``values``: pydantic takes them for 1 and 0.

    Text stays allowed: what comes from the environment is never anything else.
    """
    if isinstance(data, bool):
        if isinstance(values, int | float) and not isinstance(values, bool):
            yield at, "has to be a number"
    elif isinstance(data, dict):
        fields = type(values).model_fields if isinstance(values, BaseModel) else {}
        inside = values if isinstance(values, Mapping) else {}
        made = {**inside, **{each.alias or name: getattr(values, name) for name, each in fields.items()}}
        for key, value in data.items():
            yield from truths(made.get(key), value, (*at, key))
    elif isinstance(data, list) and isinstance(values, list | tuple):
        for index, (made, value) in enumerate(zip(values, data, strict=False)):
            yield from truths(made, value, (*at, index))


def _joined(messages: Sequence[str]) -> str:
    begin = "has to be "
    if all(message.startswith(begin) for message in messages):
        return begin + " or ".join(message.removeprefix(begin) for message in messages)
    return "; ".join(messages)


def _inside(detail: Mapping[str, Any], data: Any) -> Where:
    """Keep of an error's place what exists in the data: pydantic puts the names of a union's members between."""
    where: list[str | int] = []
    for step in detail["loc"]:
        there = step in data if isinstance(data, dict) else isinstance(data, list) and isinstance(step, int)
        if there or (isinstance(data, dict) and detail["type"] == "missing" and step == detail["loc"][-1]):
            where.append(step)
        data = data[step] if there else data
    return tuple(where)


def _message(detail: Mapping[str, Any], where: Where, model: type[BaseModel]) -> str:
    kind = detail["type"]
    if kind == "extra_forbidden":
        return f"unknown key; {did_you_mean(str(detail['loc'][-1]), known_at(model, where[:-1]))}"
    if kind == "string_type":
        plain = isinstance(detail["input"], bool | int | float)
        return "has to be text (put it into quotes)" if plain else "has to be text"
    if kind == "value_error":
        return str(detail["ctx"]["error"])
    return _SAID.get(kind) or detail["msg"].replace("Input should be", "has to be").replace("Value", "it")


def known_at(model: type[BaseModel], where: Where) -> set[str]:
    """Return the keys that are known at a place of a model."""
    models = {model}
    for step in where:
        if isinstance(step, str):
            fields = [each.model_fields[step] for each in models if step in each.model_fields]
            models = {found for each in fields for found in _models_in(each.annotation)}
    return {each.alias or name for found in models for name, each in found.model_fields.items()}


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models_in(argument)
