"""Where text sits in a request and in an answer: tables of readers, which ``surface`` gives to the routes.

The tables name what is *not* text. A field that nobody has named is taken for text, for some engine or chat template
may read it. Not text are the parameters that a model never reads, among them ``stop`` and ``bad_words``: who asks a
model not to say a word must be able to name it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import reduce
from typing import Any

from gateway.errors import InvalidRequest
from gateway.protocol import jsontext, rest
from gateway.protocol.adjacent import Lines, Run, left_out, parts_texts, runs, text_field
from gateway.protocol.text import Id, Joined, Json, Key, Name, Number, Text, Value

Reader = Callable[[list[Text], Any, Any, str, str | None], None]
"""Adds the texts in ``container[at]`` to the list, given the path of the place and the role of the message."""

Table = dict[str, Reader | None]
"""Who reads a field of a body; None where it holds no text. "*": all others."""

_PATH_LENGTH = 200  # names in a path are the caller's own: deep under long ones a path is cut short
_JSON_EFFORT = 4_000_000_000  # bounds what editing every value of one JSON text may cost, about a second

_ROLES = frozenset({"system", "user", "assistant", "tool", "developer", "function"})
_PLAIN_ID = re.compile(r"[A-Za-z0-9_.:-]{0,64}")
_PIECE = re.compile(r"[A-Za-z0-9]+")
_SHORTEST = 3  # letters of an id that may say something
#: What ids begin with, and what kinds of things are called: no words of a caller.
_PREFIXES = frozenset({"call", "chatcmpl", "fc", "functions", "msg", "resp", "rs", "tool", "toolu"})
_KINDS = frozenset(
    {"function", "custom", "text", "message", "reasoning", "thinking", "image", "document", "refusal", "completed"}
    | {"function_call", "function_call_output", "tool_use", "tool_result", "in_progress", "incomplete", "input_text"}
    | {"output_text", "summary_text", "reasoning_text", "redacted_thinking", "tool_reference"}
)
_MEDIA = frozenset(
    {"image_url", "input_image", "image_pil", "audio_url", "input_audio", "video_url", "file"}
    | {"image_embeds", "audio_embeds", "video_embeds", "prompt_embeds", "data", "detail", "uuid", "cache_control"}
)
#: What JSON Schema and OpenAI's own forms are made of: as a member's name, or under "type", no text of a caller.
_FORM = frozenset(
    {"type", "string", "number", "integer", "boolean", "object", "array", "null", "function", "name", "description"}
    | {"parameters", "properties", "required", "items", "enum", "title", "format", "default", "additionalProperties"}
    | {"anyOf", "oneOf", "allOf", "$ref", "$defs", "definitions", "const", "pattern", "minimum", "maximum", "strict"}
    | {"json_schema", "json_object", "schema", "text", "content", "json", "regex", "choice", "grammar"}
    | {"structural_tag", "image_url", "url", "input", "role", "id", "doc_id", "examples", "minItems", "maxItems"}
)
_HOLDERS = frozenset({str, dict, list})
_NUMBERS = frozenset({int, float})
_READ = _HOLDERS | _NUMBERS
_MANY_NUMBERS = 100_000  # in one list: a text each
_TOKEN_IDS = re.compile(r"(?:prompt_token_ids|input_ids|_embeds)(?:\[|\Z)")
#: Where a schema may stand, and what in it has to be a number.
_SCHEMAS = ("tools[", "functions[", "response_format.", "guided_json", "structured_outputs.", "text.", "output_config.")
_BOUNDS = frozenset(
    {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength", "minItems"}
    | {"maxItems", "minProperties", "maxProperties", "minContains", "maxContains"}
)


def texts_in(readers: Table, body: dict[str, Any]) -> list[Text]:
    """Return every text of a body, in order."""
    found: list[Text] = []
    other = readers.get("*")
    for field, value in body.items():
        if type(value) in _HOLDERS:
            reader = readers.get(field, other)
            if reader is not None:
                reader(found, body, field, field[:_PATH_LENGTH], None)
    return found


def values_in(readers: Table, body: dict[str, Any]) -> list[Text]:
    """Return every text of an answer, in order, names of members apart: a caller's program goes by them."""
    return [text for text in texts_in(readers, body) if not isinstance(text, Key | Name | Id)]


def _under(path: str, name: str | int) -> str:
    if len(path) >= _PATH_LENGTH:
        return path
    return f"{path}[{name}]" if isinstance(name, int) else f"{path}.{name[:_PATH_LENGTH]}"


def _anything(found: list[Text], container: Any, at: Any, path: str, role: str | None) -> None:
    """Every string and number in a value, and the names of its members. With a stack of its own: a body may be deep.

    What is a number at the top of a body, or in a list there, is a parameter or a token's.
    """
    waiting: list[tuple[Any, Any, str, Key | None]] = [(container, at, path, None)]
    while waiting:
        container, at, path, key = waiting.pop()
        if key is not None:
            found.append(key)
        value = container[at]
        if isinstance(value, str):
            if at == "type" and value in _FORM:
                continue
            text = Text(container, at, path, role)
            found.append(text)
            if key is not None:
                key.value = text
        elif type(value) in _NUMBERS:
            if "." in path:
                number = Number(container, at, path, role, fixed=at in _BOUNDS and path.startswith(_SCHEMAS))
                found.append(number)
                if key is not None:
                    key.value = number
        elif isinstance(value, dict):
            members = [
                (value, name, _under(path, name), None if name in _FORM else Key(value, name, path, ordinal))
                for ordinal, name in enumerate(value)
            ]
            waiting += reversed(members)
        elif isinstance(value, list) and _holds_text(value, path):
            waiting += [(value, index, _under(path, index), None) for index in range(len(value) - 1, -1, -1)]


def _holds_text(values: list[Any], path: str) -> bool:
    """Tell whether a list has to be read; raises InvalidRequest where that would take too long."""
    if not _HOLDERS.isdisjoint(map(type, values)):
        return True
    if "." not in path or _TOKEN_IDS.search(path):
        return False
    if len(values) > _MANY_NUMBERS:
        raise InvalidRequest(f"{path} holds more numbers than can be checked.", param=path)
    return not _NUMBERS.isdisjoint(map(type, values))


def _is_id(value: Any) -> bool:
    return isinstance(value, str) and _PLAIN_ID.fullmatch(value) is not None


def _id(found: list[Text], container: Any, at: Any, path: str, role: str | None) -> None:
    """An id, which a template may show: the words in it are judged. Pieces with digits in them are none, but random."""
    value = container[at]
    if value in _KINDS:
        return
    words = _PIECE.sub(lambda piece: piece[0] if _is_word(piece[0]) else " " * len(piece[0]), value)
    if len("".join(_PIECE.findall(words))) >= _SHORTEST:
        found.append(Id(container, at, words, path, role))


def _is_word(piece: str) -> bool:
    return piece.isalpha() and piece not in _PREFIXES


def _messages(found: list[Text], container: Any, at: Any, path: str, role: str | None) -> None:
    """A conversation, or several (embeddings)."""
    messages = container[at]
    if not isinstance(messages, list) or {dict, list}.isdisjoint(map(type, messages)):
        _anything(found, container, at, path, role)
        return
    for index, message in enumerate(messages):
        if type(message) is dict and len(message) == 2:  # nearly all of them
            said = message.get("role")
            if type(said) is str and said in _ROLES and type(message.get("content")) is str:
                found.append(Text(message, "content", f"{path}[{index}].content", said))
                continue
        place = f"{path}[{index}]"
        if isinstance(message, dict):
            _message(found, message, place)
        elif isinstance(message, list) and path.count("[") == 0:
            _messages(found, messages, index, place, role)
        else:
            _anything(found, messages, index, place, role)


def _message(found: list[Text], message: dict[str, Any], path: str, role: str | None = None) -> None:
    said = message.get("role")
    role = said if isinstance(said, str) else role
    for field, value in message.items():
        if isinstance(value, str):
            if field == "tool_call_id" and _is_id(value):
                _id(found, message, field, _under(path, field), role)
            elif field != "role" or value not in _ROLES:  # a template writes any role into the prompt
                found.append(Text(message, field, _under(path, field), role))
        elif type(value) in _READ:
            _MESSAGE.get(field, _anything)(found, message, field, _under(path, field), role)


def _content(found: list[Text], container: Any, at: Any, path: str, role: str | None) -> None:
    """Content parts: adjacent text parts are one text, what an engine reads between them parts them."""
    parts = container[at]
    if not isinstance(parts, list):
        _anything(found, container, at, path, role)
        return
    fields = [text_field(part) for part in parts]
    begun = dict(runs(parts, fields, [parts_texts(part) for part in parts]))
    for index, (part, field) in enumerate(zip(parts, fields, strict=True)):
        if index in begun:
            _join(found, begun[index], f"{path}[{index}].{field}" if field else f"{path}[{index}]", role)
        if isinstance(part, dict):
            _rest_of_part(found, part, field, f"{path}[{index}]", role)
        elif isinstance(part, list):
            _anything(found, parts, index, f"{path}[{index}]", role)


def _join(found: list[Text], run: Run, path: str, role: str | None) -> None:
    if role == "system" and len(run) > 1:
        run = _without_headers(found, run, path, role)
    if len(run) == 1:
        found.append(Text(*run[0], path, role))
    elif run:
        found.append(Joined(run, path, role))


def _without_headers(found: list[Text], run: Run, path: str, role: str) -> Run:
    """Read by themselves the lines that vLLM leaves out of a system message; return what is left of it."""
    kept: Run = []
    for container, at in run:
        if left_out(container[at]):
            lines = Lines(container, at)
            found.append(Text(lines, 0, path, role))
            kept += [(lines, 1)] if lines[1] else []
        else:
            kept.append((container, at))
    return kept


def _rest_of_part(found: list[Text], part: dict[str, Any], field: str | None, path: str, role: str | None) -> None:
    """What a part holds beside its text: vLLM hands unknown fields of a text part to the chat template."""
    for name, value in part.items():
        if name not in _MEDIA and name not in {field, "type"} and type(value) in _READ:
            _anything(found, part, name, _under(path, name), role)


def _calls(found: list[Text], container: Any, at: Any, path: str, role: str | None) -> None:
    """Tool calls: name, and each value of the arguments."""
    calls = container[at]
    if not isinstance(calls, list):
        _anything(found, container, at, path, role)
        return
    for index, call in enumerate(calls):
        place = f"{path}[{index}]"
        if not isinstance(call, dict):
            _anything(found, calls, index, place, role)
            continue
        for field, value in call.items():
            if field == "function" and isinstance(value, dict):
                _function(found, call, field, f"{place}.function", role)
            elif type(value) in _HOLDERS:
                reader = _id if field in {"id", "type"} and _is_id(value) else _anything
                reader(found, call, field, _under(place, field), role)


def _function(found: list[Text], container: Any, at: Any, path: str, role: str | None) -> None:
    function = container[at]
    if not isinstance(function, dict):
        _anything(found, container, at, path, role)
        return
    for field, value in function.items():
        if field == "arguments" and isinstance(value, str):
            _json(found, function, field, f"{path}.arguments", role)
        elif type(value) in _READ:
            _anything(found, function, field, _under(path, field), role)


def _json(found: list[Text], container: Any, at: Any, path: str, role: str | None) -> None:
    """A string of JSON: each value and name a text. What an engine could not read as JSON is one plain text."""
    raw = container[at]
    if not isinstance(raw, str):
        _anything(found, container, at, path, role)
    elif not jsontext.is_json(raw):
        found.append(Text(container, at, path, role))
    else:
        whole = Json(container, at)
        if len(whole) * (80 * len(whole) + len(raw)) > _JSON_EFFORT:
            raise InvalidRequest(f"{path} holds more values than can be checked.", param=path)
        kinds = [Name if index in whole.names else Value for index in range(len(whole))]
        found += [kind(whole, index, path, role) for index, kind in enumerate(kinds)]


def _structured(found: list[Text], container: Any, at: Any, path: str, role: str | None) -> None:
    constraint = container[at]
    if not isinstance(constraint, dict):
        _anything(found, container, at, path, role)
        return
    for field in constraint:
        (_json if field == "json" else _anything)(found, constraint, field, _under(path, field), role)


def _prediction(found: list[Text], container: Any, at: Any, path: str, role: str | None) -> None:
    if isinstance(container[at], dict):
        _message(found, container[at], path, role)
    else:
        _anything(found, container, at, path, role)


def _choice_of_tool(found: list[Text], container: Any, at: Any, path: str, role: str | None) -> None:
    if not isinstance(container[at], str):  # "auto", "none", "required"
        _anything(found, container, at, path, role)


def _unnamed(found: list[Text], container: Any, at: Any, path: str, role: str | None) -> None:
    """Every string but labels and bytes."""
    leaves = rest.under((), container, at)
    found += [Text(leaf.holder, leaf.key, reduce(_under, leaf.path, path), role) for leaf in leaves]


def _choices(found: list[Text], container: Any, at: Any, path: str, role: str | None) -> None:
    choices = container[at]
    for index, choice in enumerate(choices if isinstance(choices, list) else ()):
        if not isinstance(choice, dict):
            continue
        if isinstance(choice.get("message"), dict):
            _message(found, choice["message"], f"{path}[{index}].message", role)
        if isinstance(choice.get("text"), str):
            found.append(Text(choice, "text", f"{path}[{index}].text", role))
        for field in choice:
            if field not in rest.CHOICE and field not in {"message", "text"}:
                _unnamed(found, choice, field, _under(f"{path}[{index}]", field), role)


_MESSAGE: dict[str, Reader] = {
    "audio": _unnamed,
    "content": _content,
    "function_call": _function,
    "tool_calls": _calls,
}

#: Fields that are no text: parameters whose strings no model reads. The others' numbers and flags need no mention.
_PARAMETERS = (
    *("model", "stream_options", "stop", "bad_words", "user", "metadata", "safety_identifier", "sluice"),
    *("request_id", "session_id", "cache_salt", "prompt_cache_key", "service_tier", "reasoning_effort", "verbosity"),
    *("logit_bias", "stop_token_ids", "allowed_token_ids", "logprob_token_ids", "truncation_side", "modalities"),
    *("kv_transfer_params", "ec_transfer_params", "vllm_xargs", "mm_processor_kwargs", "media_io_kwargs", "audio"),
    *("encoding_format", "embed_dtype", "endianness", "prompt_embeds", "tokens", "repetition_detection"),
    *("guided_decoding_backend", "prompt_cache_retention", "store", "include"),
)

REQUEST: Table = {
    **dict.fromkeys(_PARAMETERS),
    "*": _anything,
    "function_call": _choice_of_tool,
    "guided_json": _json,
    "input": _messages,
    "messages": _messages,
    "prediction": _prediction,
    "structured_outputs": _structured,
    "tool_choice": _choice_of_tool,
}
ANSWER: Table = {**dict.fromkeys((*rest.HEAD, "sluice")), "*": _unnamed, "choices": _choices}
DETOKENIZED: Table = {"prompt": _anything}
