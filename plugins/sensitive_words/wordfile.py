"""Word files: text with an entry a line, or YAML; every fault is named with its line."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import yaml

from plugins.sensitive_words.wordlist import Entry, Source

VERSION_DIGITS = 8  # two different lists of one name hardly ever share 32 bits
_TOLD = 20  # faults of one file

_KNOWN = ("word", "action", "tag", "replacement")


class Row(NamedTuple):
    """What a file says of one entry, not yet looked at."""

    number: int
    word: str
    action: str | None = None
    tag: str | None = None
    replacement: str | None = None


def version_of(content: bytes) -> str:
    """Return what a list's content is known by: the first digits of its SHA-256."""
    return hashlib.sha256(content).hexdigest()[:VERSION_DIGITS]


def read(path: Path, source: Source, encoding: str = "utf-8") -> list[Entry]:
    """Read a word file, ``.yaml`` or lines of text, and give the source its version; warns in the log.

    Raises ValueError: one line for each fault (a few at most), naming file and line.
    """
    entries, faults = examine(path, source, encoding)
    if faults:
        raise ValueError("\n".join(told(source, faults)))
    source.warn()
    return entries


def told(source: Source, faults: Sequence[str]) -> list[str]:
    """Return the first faults of a file, and how many more there are."""
    more = len(faults) - _TOLD
    return [*faults[:_TOLD], f"{source.path}: and {more} faults more"] if more > 0 else list(faults)


def examine(path: Path, source: Source, encoding: str = "utf-8") -> tuple[list[Entry], list[str]]:
    """Read a word file; return what can be used of it, and a line for each fault."""
    source.path = str(path)
    entries: list[Entry] = []
    faults: list[str] = []
    try:
        text = _text(path, source, encoding)
        parse = _yaml_rows if path.suffix in {".yaml", ".yml"} else _text_rows
        for number, *said in parse(text, source, faults):
            try:
                entry = source.entry(said[0] or "", number, *said[1:])
            except ValueError as fault:
                faults.append(str(fault))
            else:
                if entry is not None:
                    entries.append(entry)
    except ValueError as fault:
        faults.append(str(fault))
    return entries, faults


def _text(path: Path, source: Source, encoding: str) -> str:
    if path.exists() and not path.is_file():  # a pipe or a device would keep whoever reads it waiting for ever
        raise ValueError(f"{path}: is not a file")
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror or error}") from error
    source.version = version_of(raw)
    try:
        text = raw.decode(encoding)
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ValueError(f"{source.at(line)}: not {encoding}; save the list as UTF-8 or say its encoding") from error
    if "\0" in text:  # UTF-16 of Latin words is valid UTF-8, and would match nothing
        line = text.count("\n", 0, text.index("\0")) + 1
        raise ValueError(f"{source.at(line)}: a NUL byte, so this is not {encoding}; save the list as UTF-8")
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


def _text_rows(text: str, source: Source, faults: list[str]) -> Iterator[Row]:
    for number, line in enumerate(text.removesuffix("\n").split("\n") if text else [], 1):
        if line.startswith("#"):
            continue
        word, *rest = line.split("\t")
        if len(rest) > 2:
            faults.append(f"{source.at(number)}: more than entry, action and tag between tabs")
        elif rest:
            yield Row(number, word, *[part.strip() or None for part in rest])
        else:
            yield Row(number, word)


def _yaml_rows(text: str, source: Source, faults: list[str]) -> Iterator[Row]:
    """Yield the entries of a list. Raises ValueError where it is no list of anything."""
    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)  # plain nodes: every scalar is text, also 69 and no
    try:
        root = yaml.compose(text, Loader=loader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ValueError(f"{source.at(line)}: not YAML: {error.problem}") from error
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(f"{source.at(1)}: not YAML") from error
    if root is None:
        return
    if not isinstance(root, yaml.SequenceNode):
        raise ValueError(f"{source.at(1)}: a list of entries is expected")  # noqa: TRY004 - a fault in a file
    for node in root.value:
        number = node.start_mark.line + 1
        if isinstance(node, yaml.ScalarNode):
            yield Row(number, node.value)
            continue
        try:
            yield _mapped(node, number, source)
        except ValueError as fault:
            faults.append(str(fault))


def _mapped(node: yaml.Node, number: int, source: Source) -> Row:
    """Make a row of ``{word, action, tag, replacement}``."""
    pairs = node.value if isinstance(node, yaml.MappingNode) else []
    if not pairs or not all(isinstance(part, yaml.ScalarNode) for pair in pairs for part in pair):
        raise ValueError(f"{source.at(number)}: an entry is a word or {{{', '.join(_KNOWN)}}}")
    values = {key.value: value.value for key, value in pairs}
    if unknown := values.keys() - set(_KNOWN):
        raise ValueError(f"{source.at(number)}: unknown {min(unknown)[:20]!r}; an entry has {', '.join(_KNOWN)}")
    if "word" not in values:
        raise ValueError(f"{source.at(number)}: an entry needs its word")
    action, tag = (None if values.get(name) in {None, "", "null", "~"} else values[name] for name in ("action", "tag"))
    return Row(number, values["word"], action, tag, values.get("replacement"))
