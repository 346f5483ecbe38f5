from __future__ import annotations

import json
import subprocess
from itertools import product
from typing import Any

import pytest

from gateway.engine.template import ChatTemplate, OnlyTheEngineKnows
from tests.engine_fixture import ENGINE_PYTHON, default_model

SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}

CHATML = """{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system
You are SmolLM<|im_end|>
' }}{% endif %}{{'<|im_start|>' + message['role'] + '
' + message['content'] + '<|im_end|>' + '
'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant
' }}{% endif %}"""

# As Qwen's and Hermes' templates: tools as JSON before, calls and results in tags of their own.
TOOLS = """{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}{{- messages[0].content + '\\n\\n' }}{%- endif %}
    {{- "# Tools\\n\\n<tools>" }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\\n</tools><|im_end|>\\n" }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == "user" or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
    {%- elif message.role == "assistant" %}
        {{- '<|im_start|>assistant\\n' }}
        {%- if message.reasoning_content is string %}
            {{- '<think>' + message.reasoning_content + '</think>' }}
        {%- endif %}
        {%- if message.content %}{{- message.content }}{%- endif %}
        {%- for call in message.tool_calls or [] %}
            {%- set call = call.function %}
            {{- '\\n<tool_call>\\n{"name": "' + call.name + '", "arguments": ' }}
            {{- (call.arguments | tojson) + '}</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {{- '<|im_start|>user\\n<tool_response>\\n' + message.content + '</tool_response><|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}
{%- endif %}"""

# As Llama's and Mistral's: BOS, trimming, a refusal, an indented dump, a loop that breaks off.
STRICT = """{{- bos_token }}{% if messages[0]['role'] == 'system' %}{% set first = messages[0]['content'] | trim %}
{% set rest = messages[1:] %}
{% else %}{% set first = 'You help.' %}{% set rest = messages %}{% endif %}
[SYS]{{ first }}[/SYS]
{% if tools is not none %}{{ tools | map(attribute='function') | list | tojson(indent=4) }}{% endif %}
{% for message in rest %}
    {% if message['role'] == 'user' %}[INST] {{ message['content'] | trim }} [/INST]
    {% elif message['role'] == 'assistant' %}
        {% generation %}{{ message['content'] | trim }}{% endgeneration %}{{ eos_token }}
    {% elif message['role'] == 'tool' %}{{ message.tool_call_id }}{{ message['content'] }}{% continue %}
    {% else %}{{ raise_exception('Only user and assistant roles are supported!') }}
    {% endif %}
{% endfor %}"""

# As templates of models that see: they go through the parts themselves.
PARTS = """{% for message in messages %}<{{ message.role }}>
{% if message.content is string %}{{ message.content }}{% else %}
{% for part in message.content %}{% if part.type == 'text' %}{{ part.text }}{% endif %}{% endfor %}{% endif %}
</{{ message.role }}>{% endfor %}"""

TEMPLATES = [CHATML, TOOLS, STRICT, PARTS]

WEATHER = {
    "type": "function",
    "function": {
        "parameters": {"type": "object", "properties": {"city": {"type": "string", "description": "城市 <name>"}}},
        "name": "weather",
    },
}
CALL = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "北京", "n": 1.0}'}}
ASK = {"role": "user", "content": "What's the weather? 天气怎么样？"}
PARTED = {"role": "user", "content": [{"type": "text", "text": " One "}, "two", {"type": "text", "text": "三\n"}]}
CHATS: list[dict[str, Any]] = [
    {"messages": [ASK]},
    {"messages": [{"role": "system", "content": " Be brief. "}, ASK]},
    {"messages": [ASK, {"role": "assistant", "content": "Fine."}, {"role": "user", "content": "  谢谢 \n"}]},
    {"messages": [PARTED]},
    {"messages": [{"role": "system", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, ASK]},
    {"messages": [ASK], "tools": [WEATHER]},
    {
        "messages": [
            ASK,
            {"role": "assistant", "content": None, "tool_calls": [CALL], "reasoning": "Hm."},
            {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "sunny"}]},
            {"role": "user", "content": "And tomorrow?"},
        ],
        "tools": [WEATHER, {"type": "function", "function": {"name": "now", "strict": True, "description": "Time"}}],
    },
    {"messages": [ASK, {"role": "assistant", "content": "x", "tool_calls": []}, ASK]},
    {
        "messages": [
            ASK,
            {"role": "assistant", "tool_calls": [{**CALL, "function": {"name": "weather", "arguments": "{cut"}}]},
            {"role": "tool", "tool_call_id": "call_1", "content": "?"},
        ]
    },
    {"messages": [{"role": "developer", "content": "Rule."}, {"role": "system", "content": "Other."}, ASK]},
    {"messages": [ASK, {"role": "developer", "content": "Late rule."}, ASK]},
    {"messages": [ASK], "add_generation_prompt": False},
    {"messages": [ASK], "chat_template_kwargs": {"enable_thinking": False}},
    {"messages": [{"role": "user", "content": ""}]},
    {"messages": [{"role": "wizard", "content": "abra"}]},
    {"messages": [{"role": "user", "name": "Li", "content": "<&>'\""}]},
]

#: Renders with vLLM's own code: how it reads messages and tools, and how it has transformers render them.
ENGINE = """
import copy, json, sys
from types import SimpleNamespace
from transformers import AutoTokenizer
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionToolsParam
from vllm.renderers.chat_utils import parse_chat_messages
from vllm.renderers.hf import _detect_content_format, safe_apply_chat_template
special, templates, chats = json.load(sys.stdin)
config = SimpleNamespace(multimodal_config=None, enable_prompt_embeds=False)
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1], **special)
told = []
for template in templates:
    for chat in copy.deepcopy(chats):
        try:
            kind = _detect_content_format(template, default="string")
            conversation, _, _ = parse_chat_messages(chat["messages"], config, kind)
            tools = chat.get("tools")
            tools = None if tools is None else [ChatCompletionToolsParam(**each).model_dump() for each in tools]
            told.append(safe_apply_chat_template(
                config, tokenizer, conversation, tools=tools, chat_template=template, tokenize=False,
                add_generation_prompt=chat.get("add_generation_prompt", True), continue_final_message=False,
                **chat.get("chat_template_kwargs", {}),
            ))
        except Exception as error:
            told.append(None)
print(json.dumps(told))
"""


def test_a_prompt_is_what_the_engines_own_code_makes_of_it() -> None:
    given = json.dumps([SPECIAL, TEMPLATES, CHATS])
    run = subprocess.run(
        [ENGINE_PYTHON, "-c", ENGINE, str(default_model())], input=given, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr[-2000:]
    theirs = json.loads(run.stdout.splitlines()[-1])
    made = [ChatTemplate(source, SPECIAL) for source in TEMPLATES]
    for (template, chat), expected in zip(product(made, CHATS), theirs, strict=True):
        ours = _rendered(template, chat)
        assert ours == expected, (TEMPLATES[made.index(template)][:60], chat)
    assert sum(each is not None for each in theirs) > len(theirs) * 0.8


def _rendered(template: ChatTemplate, chat: dict[str, Any]) -> str | None:
    before = json.dumps(chat)
    try:
        return template.render(chat)
    except OnlyTheEngineKnows:
        return None
    finally:
        assert json.dumps(chat) == before, "rendering must not change a request"


@pytest.mark.parametrize(
    "more",
    [
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}]},
        {"messages": ["no message"]},
        {"messages": [{"content": "no role"}]},
        {"messages": [ASK], "documents": [{"text": "x"}]},
        {"messages": [ASK], "continue_final_message": True},
        {"messages": [ASK], "chat_template_kwargs": {"tokenize": True}},
        {"messages": [ASK], "tools": [{"type": "custom"}]},
        {"messages": [{"role": "system", "content": "x-anthropic-billing-header: 1"}]},
        {"messages": [{"role": "assistant", "tool_calls": [{"type": "custom"}]}]},
    ],
)
def test_what_only_the_engine_knows_is_left_to_it(more: dict[str, Any]) -> None:
    with pytest.raises(OnlyTheEngineKnows):
        ChatTemplate(CHATML, SPECIAL).render(more)


def test_a_template_cannot_reach_python() -> None:
    template = ChatTemplate("{{ messages.__class__.__mro__ }}{{ cycler.__init__.__globals__ }}", {})
    with pytest.raises(OnlyTheEngineKnows):
        template.render({"messages": [ASK]})


def test_a_template_that_is_none_is_told_in_one_line() -> None:
    with pytest.raises(ValueError, match=r"^is no chat template: .*endif") as told:
        ChatTemplate("{% if x %}{% endfor %}", {})
    assert "\n" not in str(told.value)
