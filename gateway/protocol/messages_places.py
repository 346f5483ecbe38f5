"""Where text sits in requests and answers of ``/v1/messages`` and ``/v1/messages/count_tokens`` (Anthropic's form)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gateway.protocol.adjacent import Run, left_out, runs
from gateway.protocol.parts import Place
from gateway.protocol.places import (
    _MEDIA,
    _PARAMETERS,
    _ROLES,
    Table,
    _anything,
    _content,
    _id,
    _is_id,
    _join,
    _under,
)
from gateway.protocol.text import Key, Number, Text

#: Of a block: what a caller's program knows it by, and what nobody can read.
_LABELS = frozenset({"id", "type", "tool_use_id", "cache_control", "signature", "caller"})
#: Blocks that engines read apart from a message's texts, or not at all without their text.
_ELSEWHERE = frozenset({"text", "thinking", "redacted_thinking", "tool_use", "tool_result", "tool_reference"})
_OPAQUE = _LABELS | {"name", "data", "source", "is_error", "file_id", "encrypted_content", "encrypted_index"}


def _system(found: list[Text], container: Any, at: Any, path: str, role: str | None) -> None:
    _blocks(found, container, at, path, role, joined=bool(_merged(container)))


def _merged(body: dict[str, Any]) -> Run:
    """Return the pieces of the system text where messages add to it: vLLM joins them, with nothing between, for chat
    templates that have one system message, the first.
    """
    messages = body.get("messages")
    inline = [each for each in messages if _is_system(each)] if isinstance(messages, list) else []
    run: Run = []
    for holder, at in ((body, "system"), *((message, "content") for message in inline)) if inline else ():
        said = holder.get(at)
        if isinstance(said, str) and not left_out(said):
            run.append((holder, at))
        elif isinstance(said, list):
            run += [(block, "text") for block in said if _field(block, system=True) == "text"]
    return run if len(run) > 1 else []


def _is_system(message: Any) -> bool:
    return isinstance(message, dict) and message.get("role") == "system"


def _messages(found: list[Text], container: Any, at: Any, path: str, role: str | None) -> None:
    messages = container[at]
    if not isinstance(messages, list):
        _anything(found, container, at, path, role)
        return
    merged = _merged(container)
    _join(found, merged, "system" if "system" in container else path, "system")
    for index, message in enumerate(messages):
        place = f"{path}[{index}]"
        if not isinstance(message, dict):
            _anything(found, messages, index, place, role)
            continue
        said = message.get("role")
        for field, value in message.items():
            if field == "content":
                joined = bool(merged) and said == "system"
                _blocks(
                    found, message, field, f"{place}.content", said if isinstance(said, str) else None, joined=joined
                )
            elif not (field == "role" and isinstance(value, str) and value in _ROLES):
                _anything(found, message, field, _under(place, field), role)


def _blocks(found: list[Text], container: Any, at: Any, path: str, role: str | None, *, joined: bool = False) -> None:
    """Content blocks: adjacent text blocks are one text, and what engines tell elsewhere does not part them.

    ``joined``: their texts have been read already, as pieces of a longer one.
    """
    blocks = container[at]
    if isinstance(blocks, list):
        _several(found, blocks, [_parts_texts(block) for block in blocks], path, role, joined=joined)
    elif not (joined and isinstance(blocks, str) and not left_out(blocks)):
        _anything(found, container, at, path, role)


def _several(
    found: list[Text], blocks: list[Any], parting: list[bool], path: str, role: str | None, *, joined: bool = False
) -> None:
    system = role == "system" or path == "system"
    fields = [_field(block, system=system) for block in blocks]
    begun: list[tuple[int, Run]] = []
    for own in ("thinking",) if joined else ("text", "thinking"):
        its = [field if field == own else None for field in fields]
        begun += runs(blocks, its, parting if own == "text" else [False] * len(blocks))
    starts = dict(begun)
    for index, (block, field) in enumerate(zip(blocks, fields, strict=True)):
        if index in starts:
            _join(found, starts[index], f"{path}[{index}].{field}", role)
        if isinstance(block, dict):
            _block(found, block, field or "", f"{path}[{index}]", role)
        else:
            _anything(found, blocks, index, f"{path}[{index}]", role)


def _field(block: Any, *, system: bool) -> str | None:
    """Name the field that holds a block's text; None where it has none, or one that vLLM leaves out."""
    kind = block.get("type") if isinstance(block, dict) else None
    field = "thinking" if kind == "thinking" else "text"
    if not isinstance(block, dict) or kind in ("image", "document") or not isinstance(block.get(field), str):
        return None
    return None if system and left_out(block[field]) else field


def _parts_texts(block: Any) -> bool:
    kind = block.get("type") if isinstance(block, dict) else "text"
    return not isinstance(kind, str) or kind not in _ELSEWHERE


def _block(found: list[Text], block: dict[str, Any], told: str, path: str, role: str | None) -> None:
    """What a block holds beside its text: the input of a tool, what came of it, a tool that is added."""
    for field, value in block.items():
        if field == told or field in {"signature", "cache_control"}:
            continue
        if field in _LABELS and _is_id(value):
            if field in {"id", "tool_use_id"}:
                _id(found, block, field, f"{path}.{field}", role)
        elif field == "source" and isinstance(value, dict):
            _source(found, value, f"{path}.source", role)
        elif field == "content" and block.get("type") == "tool_result" and isinstance(value, list):
            _several(found, value, [False] * len(value), f"{path}.content", "tool")  # pictures are shown after it
        elif field == "content":
            _content(found, block, field, f"{path}.content", "tool" if block.get("type") == "tool_result" else role)
        elif field not in _MEDIA:
            _anything(found, block, field, _under(path, field), role)


def _source(found: list[Text], source: dict[str, Any], path: str, role: str | None) -> None:
    """Where a picture or a document comes from: of a document it may be the text itself."""
    for field in source:
        if field == "content":
            _content(found, source, field, f"{path}.{field}", role)
        elif field == "data" and source.get("type") == "text":
            _anything(found, source, field, f"{path}.{field}", role)


def _output_config(found: list[Text], container: Any, at: Any, path: str, role: str | None) -> None:
    config = container[at]
    if not isinstance(config, dict):
        _anything(found, container, at, path, role)
        return
    for field in config:
        if field != "effort":
            _anything(found, config, field, _under(path, field), role)


def _tool_choice(found: list[Text], container: Any, at: Any, path: str, role: str | None) -> None:
    choice = container[at]
    if not isinstance(choice, dict):
        _anything(found, container, at, path, role)
        return
    for field in choice:
        if field != "type":
            _anything(found, choice, field, _under(path, field), role)


REQUEST: Table = {
    **dict.fromkeys(_PARAMETERS),
    **dict.fromkeys(("stop_sequences", "thinking", "mm_payload")),
    "*": _anything,
    "messages": _messages,
    "output_config": _output_config,
    "system": _system,
    "tool_choice": _tool_choice,
}


def block_places(block: dict[str, Any], number: int = 0) -> Iterator[Place]:
    """Yield every text of a block of an answer; what no table names is text too, in a group of its own."""
    kind = block.get("type")
    for field, value in block.items():
        if field == "text" and isinstance(value, str):
            yield Place("content", "text", number, block, field)
        elif field == "thinking" and isinstance(value, str):
            yield Place("reasoning", "thinking", number, block, field)
        elif field == "input" and kind == "tool_use" and isinstance(value, str):
            yield Place("arguments", "input", number, block, field)
        elif field == "name" and kind == "tool_use" and isinstance(value, str):
            yield Place("name", "name", number, block, field)
        elif field not in _OPAQUE and isinstance(value, str | dict | list):
            texts: list[Text] = []
            _anything(texts, block, field, field, None)
            for text in texts:
                if not isinstance(text, Key | Number) and text._at not in _OPAQUE:  # noqa: SLF001 - where it stands
                    yield Place("rest", text.path, number, text._container, text._at)  # noqa: SLF001


def _answer(found: list[Text], container: Any, at: Any, path: str, role: str | None) -> None:
    blocks = container[at]
    for index, block in enumerate(blocks if isinstance(blocks, list) else ()):
        places = block_places(block, index) if isinstance(block, dict) else ()
        found += [
            Text(place.holder, place.field, f"{path}[{index}].{place.group}", role)
            for place in places
            if place.kind != "name"
        ]


ANSWER: Table = {"content": _answer}
COUNTED: Table = {}
