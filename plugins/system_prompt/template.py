"""A text with named places in it, and nothing else: no expression, no attribute, no call."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

_place = re.compile(r"\{\{([A-Za-z_][A-Za-z0-9_.]*)\}\}|\{([A-Za-z_][A-Za-z0-9_.]*)\}")

Value = Callable[[], str]


def compile_template(text: str, names: tuple[str, ...]) -> Callable[[Mapping[str, Value]], str]:
    """Make the function that fills in the places of ``text``: ``{name}``, for the given names.

    ``{{name}}`` stands for ``{name}`` itself; any other brace is a brace, so JSON can be written as it is. Values are
    put in as they are and never looked at again. Raises ValueError for an unknown name.
    """
    parts: list[str] = []  # text and name by turns
    done = 0
    for match in _place.finditer(text):
        literal, name = match.groups()
        if literal is not None:
            continue
        if name not in names:
            known = ", ".join(f"{{{each}}}" for each in names)
            raise ValueError(f"{{{name}}} is not known; known are {known}; write {{{{{name}}}}} for the word in braces")
        parts += [_plain(text[done : match.start()]), name]
        done = match.end()
    parts.append(_plain(text[done:]))

    def fill(values: Mapping[str, Value]) -> str:
        return "".join([values[part]() if index % 2 else part for index, part in enumerate(parts)])

    return fill


def _plain(text: str) -> str:
    return _place.sub(lambda match: f"{{{match[1]}}}", text)
