"""A model's chat template, rendered as transformers renders it, of messages read as vLLM reads them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

Message = dict[str, Any]

#: What may stand beside the messages where they are rendered here; of anything else only the engine knows the effect.
_READ = frozenset({"messages", "tools", "add_generation_prompt", "chat_template_kwargs"})
#: Template variables that are arguments of transformers' own function, or ours to set.
_NOT_VARIABLES = frozenset(
    {"add_generation_prompt", "chat_template", "continue_final_message", "conversation", "documents", "max_length"}
    | {"messages", "padding", "return_dict", "return_tensors", "tokenize", "tokenizer_kwargs", "tools", "truncation"}
)
#: vLLM leaves such a line of a system message out.
_LEFT_OUT = "x-anthropic-billing-header"


class OnlyTheEngineKnows(Exception):
    """A request whose prompt cannot be told without the engine: media, documents, a template that refuses it."""


class _Generation(Extension):
    """``{% generation %}`` marks what an assistant said, for training; what is in it is rendered as it is."""

    tags = {"generation"}  # noqa: RUF012 - as jinja2 declares it

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _refuse(message: str) -> NoReturn:
    raise TemplateError(message)


def _json(
    value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
) -> str:
    """Write JSON as templates expect it: jinja2's own filter escapes HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _now(form: str) -> str:
    return datetime.now().astimezone().strftime(form)


def _environment() -> ImmutableSandboxedEnvironment:
    made = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols])
    made.filters["tojson"] = _json
    made.globals |= {"raise_exception": _refuse, "strftime_now": _now}
    return made


_jinja = _environment()


class ChatTemplate:
    """One template. ``special`` has the special tokens by their names (``bos_token`` …).

    The template is the model's, so its author is trusted with the text of prompts, and with nothing else: the sandbox
    keeps it from Python. Raises ValueError, in one line, where it is no template.
    """

    def __init__(self, source: str, special: Mapping[str, Any]) -> None:
        try:
            self._template = _jinja.from_string(source)
            self._in_parts = _loops_over_content(_jinja.parse(source))
        except TemplateError as error:
            raise ValueError(f"is no chat template: {' '.join(str(error).split())}") from None
        self._special = special
        self.reads_tools = "tools" in source
        self._knows_developers = "'developer'" in source or '"developer"' in source

    def render(self, request: Mapping[str, Any]) -> str:
        """Return the prompt of ``messages``, and of the ``tools`` and ``chat_template_kwargs`` beside them.

        Raises OnlyTheEngineKnows.
        """
        more = request.get("chat_template_kwargs") or {}
        if not request.keys() <= _READ or not isinstance(more, Mapping) or not _NOT_VARIABLES.isdisjoint(more):
            raise OnlyTheEngineKnows
        messages = [self._read(message) for message in request["messages"]]
        if not self._knows_developers and any(message["role"] == "developer" for message in messages):
            messages = _system_first(messages)
        tools = request.get("tools")
        variables = {
            **self._special,
            **more,
            "messages": messages,
            "tools": [_tool(tool) for tool in tools] if isinstance(tools, list) else None,
            "documents": None,
            "add_generation_prompt": request.get("add_generation_prompt") is not False,
        }
        try:
            return self._template.render(variables)
        except Exception as error:  # a template may do anything that its language can, and fail at it
            raise OnlyTheEngineKnows from error

    def _read(self, message: Any) -> Message:
        """Read a message as vLLM does. Raises OnlyTheEngineKnows."""
        if not isinstance(message, dict) or not isinstance(role := message.get("role"), str):
            raise OnlyTheEngineKnows
        texts = list(_texts(message.get("content"), extra_fields=not self._in_parts))
        if role == "system" and any(text.startswith(_LEFT_OUT) for text in texts):
            raise OnlyTheEngineKnows
        parts = self._in_parts and role != "tool"
        said: Message = {
            "role": role,
            "content": [{"type": "text", "text": text} for text in texts] if parts else "\n".join(texts),
        }
        if role == "assistant":
            if calls := message.get("tool_calls"):
                said["tool_calls"] = [_call(call) for call in calls]
            if (reasoning := message.get("reasoning")) is not None:
                said |= {"reasoning": reasoning, "reasoning_content": reasoning}
        elif role == "tool" and "tool_call_id" in message:
            said["tool_call_id"] = message["tool_call_id"]
        said |= {name: message[name] for name in ("name", "task") if isinstance(message.get(name), str)}
        if role == "developer":
            said["tools"] = message.get("tools")
        return said


def _texts(content: Any, *, extra_fields: bool) -> Iterator[str]:
    """Go through the texts of a content; unknown fields of a part are handed to a template that reads parts."""
    for part in [content] if isinstance(content, str) else content or []:
        if isinstance(part, str):
            yield part
        elif isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str):
            if not extra_fields and part.keys() - {"type", "text"}:
                raise OnlyTheEngineKnows
            yield part["text"]
        else:
            raise OnlyTheEngineKnows


def _call(call: Any) -> dict[str, Any]:
    """Return a call with its arguments as an object, as templates expect them."""
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or call.get("type", "function") != "function":
        raise OnlyTheEngineKnows
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except ValueError:
            arguments = None
    return {**call, "function": {**function, "arguments": arguments if isinstance(arguments, dict) else {}}}


def _tool(tool: Any) -> dict[str, Any]:
    """Return a tool with the fields that vLLM hands on, in its order."""
    function = tool.get("function") if isinstance(tool, dict) else None
    if not isinstance(function, dict) or not (tool.keys() <= {"type", "function"}) or "defer_loading" in function:
        raise OnlyTheEngineKnows
    told = {name: function.get(name) for name in ("name", "description", "parameters")}
    if function.get("strict") is not None:
        told["strict"] = function["strict"]
    return {"type": "function", "function": told}


def _system_first(messages: Sequence[Message]) -> list[Message]:
    """Make developers' messages the system's, and one of all system messages, as vLLM does."""
    read = [{**each, "role": "system"} if each["role"] == "developer" else each for each in messages]
    system = [each for each in read if each["role"] == "system"]
    if len(system) == 1 and read[0] is system[0]:
        return [{name: value for name, value in each.items() if name != "tools"} for each in read]
    said = [_joined(each["content"]) for each in system]
    merged = {"role": "system", "content": "\n\n".join(text for text in said if text)}
    return [merged, *(each for each in read if each["role"] != "system")]


def _joined(content: Any) -> str:
    return content if isinstance(content, str) else "\n".join(part["text"] for part in content)


def _loops_over_content(template: nodes.Template) -> bool:
    """Say whether a template goes through the parts of a content itself; then it is given parts, else one text."""
    return any(_is_content(loop.iter) for loop in template.find_all(nodes.For))


def _is_content(node: nodes.Node | None) -> bool:
    match node:
        case nodes.Filter() | nodes.Test():
            return _is_content(node.node)
        case nodes.Getitem(arg=nodes.Slice()):
            return _is_content(node.node)
        case nodes.Getitem(arg=nodes.Const(value="content")):
            return True
        case nodes.Getattr(attr="content") | nodes.Name(name="content"):
            return True
    return False
