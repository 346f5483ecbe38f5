"""Templates: JSON values in which a string ``$name`` stands for a fact, ``$name.field[0]`` for a part of one."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from difflib import get_close_matches
from typing import Any

Look = Callable[[str], Any]
"""Gives the fact of a name."""

_reference = re.compile(r"\$([a-z_]+)((?:\.[A-Za-z0-9_-]+|\[[0-9]{1,6}\])*)").fullmatch
_step = re.compile(r"\.([^.\[]+)|\[([0-9]+)\]").findall


def check(template: Any, known: Collection[str], where: str = "") -> None:
    """Raise ValueError, naming the place, where a template refers to what there is not."""
    for path, text in _strings(template, where):
        if not text.startswith("$") or text.startswith("$$"):
            continue
        found = _reference(text)
        if found is None:
            raise ValueError(f"{path}: {text!r} is no $name or $name.field[0]; a text that begins with $ is written $$")
        if found[1] not in known:
            near = get_close_matches(found[1], known, 1)
            mend = f"did you mean ${near[0]}?" if near else f"known here: {', '.join(sorted(known))}"
            raise ValueError(f"{path}: there is no ${found[1]} here; {mend}")


def names(template: Any) -> set[str]:
    """Return the facts that a template refers to."""
    return {found[1] for _, text in _strings(template) if (found := _reference(text))}


def fill(template: Any, look: Look) -> Any:
    """Return the template with every reference replaced; a part that is not there is null."""
    if isinstance(template, str):
        if not template.startswith("$"):
            return template
        found = _reference(template)
        return template[1:] if found is None else _part(look(found[1]), found[2])
    if isinstance(template, Mapping):
        return {key: fill(value, look) for key, value in template.items()}
    if isinstance(template, list | tuple):
        return [fill(value, look) for value in template]
    return template


def _part(value: Any, path: str) -> Any:
    for field, index in _step(path):
        if field:
            value = value.get(field) if isinstance(value, Mapping) else None
        else:
            value = value[int(index)] if isinstance(value, list) and int(index) < len(value) else None
    return value


def _strings(template: Any, where: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(template, str):
        yield where, template
    elif isinstance(template, Mapping):
        for key, value in template.items():
            yield from _strings(value, f"{where}.{key}" if where else str(key))
    elif isinstance(template, list | tuple):
        for index, value in enumerate(template):
            yield from _strings(value, f"{where}[{index}]")
