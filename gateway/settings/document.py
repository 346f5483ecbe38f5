"""A YAML file as data that remembers on which line each value stands, with the environment's values filled in."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import yaml

from gateway.settings.faults import Where

_TAG = "tag:yaml.org,2002:"
_REFERENCE = re.compile(r"\$(\$?)\{([^}]*)\}")
_NAME = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.DOTALL)


#: Values of a file with its aliases written out; a few lines of aliases of aliases make more than any memory holds.
NODES = 1_000_000


def _size(node: yaml.Node, known: dict[int, int]) -> int:
    """Count the values in a node, each alias as often as it stands there."""
    if not isinstance(node, yaml.CollectionNode):
        return 1
    if id(node) not in known:
        known[id(node)] = 1  # of an alias to what it is part of; the reader tells of that
        parts = [part for item in node.value for part in (item if isinstance(item, tuple) else (item,))]
        known[id(node)] = 1 + sum(_size(part, known) for part in parts)
    return known[id(node)]


class _Loader(yaml.SafeLoader):
    """YAML 1.2's plain values: ``width: off`` is the word off, not false; 010 and 1:30 are no numbers."""


_Loader.yaml_implicit_resolvers = {}
for _kind, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", [*"tTfF"]),
    ("int", r"[-+]?(?:0|[1-9][0-9]{0,30})", [*"-+0123456789"]),
    ("float", r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?", [*"-+.0123456789"]),
    ("merge", r"<<", ["<"]),
):
    _Loader.add_implicit_resolver(_TAG + _kind, re.compile(rf"(?:{_pattern})\Z"), _first)


class Document:
    """What a file says. ``faults`` are places and messages; a file with faults may still be looked at further."""

    def __init__(self, text: str, environ: Mapping[str, str]) -> None:
        self.environ = environ
        self.lines: dict[Where, int] = {}
        self.faults: list[tuple[Where, str]] = []
        self._open: set[int] = set()
        try:
            self._loader = _Loader(text)
            node = self._loader.get_single_node()
            if node is not None and _size(node, {}) > NODES:
                value = self._fault((), f"holds more than {NODES} values, its aliases written out", {})
            else:
                value = {} if node is None else self._value(node, ())
        except yaml.reader.ReaderError as error:
            self.lines[()] = text.count("\n", 0, error.position) + 1
            value = self._fault((), f"is not YAML: there is a control character (U+{error.character:04X})", {})
        except yaml.MarkedYAMLError as error:
            value = self._not_yaml(error)
        except RecursionError:
            value = self._fault((), "is nested too deeply", {})
        if value is not None and not isinstance(value, dict):
            value = self._fault((), "has to be a mapping (key: value), such as server: and models:", {})
        self.data: dict[str, Any] = value or {}

    def _fault(self, where: Where, message: str, value: Any = None) -> Any:
        self.faults.append((where, message))
        return value

    def _not_yaml(self, error: yaml.MarkedYAMLError) -> Any:
        mark = error.problem_mark or error.context_mark
        if mark is not None:
            self.lines[()] = mark.line + 1
        column = f" (column {mark.column + 1})" if mark else ""
        hint = "; indent with spaces" if "\\t" in (error.problem or "") else ""
        return self._fault((), f"is not YAML: {error.problem}{column}{hint}", {})

    def _value(self, node: yaml.Node, where: Where) -> Any:
        if node.tag not in self._plain_tags(node):
            return self._fault(where, f"the tag {node.tag} is not understood here: leave it out")
        if isinstance(node, yaml.ScalarNode):
            value = self._loader.construct_object(node)
            return self._filled_in(value, where) if isinstance(value, str) else value
        build: Callable[[Any, Where], Any] = self._mapping if isinstance(node, yaml.MappingNode) else self._sequence
        if id(node) in self._open:
            return self._fault(where, "an anchor (&) contains itself")
        self._open.add(id(node))
        try:
            return build(node, where)
        finally:
            self._open.remove(id(node))

    def _plain_tags(self, node: yaml.Node) -> set[str]:
        """Return the tags under which a value is what it looks like."""
        if isinstance(node, yaml.ScalarNode):
            plain = self._loader.resolve(yaml.ScalarNode, node.value, (True, False))  # type: ignore[no-untyped-call] # stubs
            return {_TAG + "str", plain}
        return {_TAG + "map", _TAG + "seq"}

    def _sequence(self, node: yaml.SequenceNode, where: Where) -> list[Any]:
        for index, item in enumerate(node.value):
            self.lines[*where, index] = item.start_mark.line + 1
        return [self._value(item, (*where, index)) for index, item in enumerate(node.value)]

    def _mapping(self, node: yaml.MappingNode, where: Where) -> dict[Any, Any]:
        own: dict[Any, Any] = {}
        merged: dict[Any, Any] = {}
        for key_node, value_node in node.value:
            if key_node.tag == _TAG + "merge":
                for each in value_node.value if isinstance(value_node, yaml.SequenceNode) else [value_node]:
                    value = self._value(each, where)
                    merged = {**(value if isinstance(value, dict) else {}), **merged}
                continue
            plain = isinstance(key_node, yaml.ScalarNode) and key_node.tag in self._plain_tags(key_node)
            key = self._loader.construct_object(key_node) if plain else None
            step = key if isinstance(key, str) else str(key)
            line = key_node.start_mark.line + 1
            if key is None:
                self._fault(where, f"a key has to be plain text (line {line})")
            elif key in own:
                first = self.lines[*where, step]
                self._fault((*where, step), f"stands twice, on lines {first} and {line}: keep one")
            else:
                self.lines[*where, step] = line
                own[key] = self._value(value_node, (*where, step))
        return {**merged, **own}

    def _filled_in(self, text: str, where: Where) -> str:
        """Put the environment's values for ``${NAME}`` and ``${NAME:-default}``; ``$${`` is a plain ``${``."""

        def value(reference: re.Match[str]) -> str:
            escaped, inside = reference.groups()
            if escaped:
                return f"${{{inside}}}"
            parts = _NAME.fullmatch(inside)
            if parts is None:
                return str(self._fault(where, "${…} has to hold a variable's name; for a plain ${ write $${", ""))
            name, default = parts.groups()
            found = self.environ.get(name)
            if found is None and default is None:
                mend = f"set it, or give a default: ${{{name}:-…}}"
                return str(self._fault(where, f"the environment variable {name} is not set: {mend}", ""))
            return found or default or ""

        return _REFERENCE.sub(value, text) if "${" in text else text
