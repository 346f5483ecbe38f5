"""In what engines differ from vLLM, in one place: the fields that each may get, and under which names.

What comes back differs too, and is read tolerantly whoever sends it: shapes of failures (``failures``), streams without
[DONE] or with usage on another chunk (``stream``), reasoning under either name (``places``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from gateway.errors import InvalidRequest
from gateway.protocol.openai import CHAT, COMPLETIONS

#: What the gateway adds for vLLM, and callers may send along: of no meaning to others.
_VLLMS: Final = frozenset(
    (
        *("add_generation_prompt", "add_special_tokens", "allowed_token_ids", "bad_words", "cache_salt"),
        *("chat_template_kwargs", "continue_final_message", "documents", "echo_token_ids", "ec_transfer_params"),
        *("ignore_eos", "include_reasoning", "include_stop_str_in_output", "kv_transfer_params", "length_penalty"),
        *("logprob_token_ids", "media_io_kwargs", "min_p", "min_tokens", "mm_processor_kwargs", "priority"),
        *("prompt_logprobs", "repetition_detection", "repetition_penalty", "request_id", "return_prompt_text"),
        *("return_token_ids", "return_tokens_as_token_ids", "session_id", "skip_special_tokens"),
        *("spaces_between_special_tokens", "stop_token_ids", "stream_interval", "structured_outputs"),
        *("thinking_token_budget", "top_k", "truncate_prompt_tokens", "truncation_side", "use_beam_search"),
        *("vllm_xargs", "watermarking"),
    )
)
_SAMPLING: Final = frozenset(
    (
        *("temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty"),
        "repetition_penalty",
    )
)
#: The routes that sample, and by which fields: Anthropic's form has three of them.
_SAMPLED: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        **dict.fromkeys((CHAT, COMPLETIONS, "/v1/responses"), _SAMPLING),
        "/v1/messages": frozenset({"temperature", "top_p", "top_k"}),
    }
)


@dataclass(frozen=True, slots=True)
class Dialect:
    """One kind of engine. ``renamed``: its names for fields; ``dropped``: what it must not get.

    ``only``: all that it may get on a route, where whatever else is there makes it refuse the request.
    """

    renamed: Mapping[str, str] = field(default_factory=dict)
    dropped: frozenset[str] = frozenset()
    only: Mapping[str, frozenset[str]] = field(default_factory=dict)


def _but(*kept: str) -> frozenset[str]:
    return _VLLMS - frozenset(kept)


#: transformers 5.19 answers 422 to a field that it does not know, and leaves out what it knows and cannot do.
_TRANSFORMERS: Final = MappingProxyType(
    {
        CHAT: frozenset(
            (
                *("messages", "model", "stream", "stream_options", "max_tokens", "temperature", "top_p", "stop"),
                *("tools", "tool_choice", "response_format", "logprobs", "top_logprobs", "n", "presence_penalty"),
                *("frequency_penalty", "seed", "user", "logit_bias", "parallel_tool_calls", "reasoning_effort"),
                *("generation_config", "chat_template_kwargs"),
            )
        ),
        COMPLETIONS: frozenset(
            (
                *("prompt", "model", "stream", "stream_options", "max_tokens", "temperature", "top_p", "stop"),
                *("echo", "logprobs", "n", "best_of", "presence_penalty", "frequency_penalty", "seed", "suffix"),
                *("user", "logit_bias", "generation_config"),
            )
        ),
    }
)

#: Who does not know the newer name would pass over a limit under it.
_OLDER: Final = MappingProxyType({"max_completion_tokens": "max_tokens"})

DIALECTS: Final[Mapping[str, Dialect]] = MappingProxyType(
    {
        "vllm": Dialect(),
        "gateway": Dialect(),
        "openai": Dialect(dropped=_VLLMS),
        "sglang": Dialect(
            renamed={"request_id": "rid", "include_reasoning": "separate_reasoning"},
            dropped=_but(
                *("request_id", "include_reasoning", "priority", "top_k", "min_p", "repetition_penalty", "ignore_eos"),
                *("min_tokens", "stop_token_ids", "skip_special_tokens", "spaces_between_special_tokens"),
                *("chat_template_kwargs", "continue_final_message"),
            ),
        ),
        "llama.cpp": Dialect(
            renamed={"repetition_penalty": "repeat_penalty", **_OLDER},
            dropped=_but("repetition_penalty", "top_k", "min_p", "ignore_eos", "chat_template_kwargs"),
        ),
        "ollama": Dialect(renamed=_OLDER, dropped=_VLLMS),
        "tgi": Dialect(renamed=_OLDER, dropped=_VLLMS),
        "transformers": Dialect(renamed=_OLDER, only=_TRANSFORMERS),
    }
)


def fitted(dialect: str, route: str, body: dict[str, Any], sampling: Mapping[str, float]) -> dict[str, Any]:
    """Return the body that an engine of this dialect gets; ``body`` may be changed. Raises InvalidRequest.

    ``sampling`` fills in what the request leaves open, the same for every engine and every route that generates: who
    asks for nothing must not get llama.cpp's temperature of 0.8 on Monday and vLLM's 1.0 on Tuesday.
    """
    for name in _SAMPLED.get(route, ()) if sampling else ():
        if name in sampling and body.get(name) is None:
            body[name] = sampling[name]
    spoken = DIALECTS[dialect]
    if spoken.dropped:
        body = _dropped(spoken.dropped, body)
    for name, theirs in spoken.renamed.items():
        if name in body:
            value = body.pop(name)
            if value is not None:
                body[theirs] = value
    allowed = spoken.only.get(route)
    return body if allowed is None else _dropped(frozenset(body) - allowed, body)


def _dropped(names: frozenset[str], body: dict[str, Any]) -> dict[str, Any]:
    """Leave fields out. A constraint that would be lost is told in OpenAI's words, or not at all: never ignored."""
    constraint = body.get("structured_outputs") if "structured_outputs" in names else None
    kept = {name: value for name, value in body.items() if name not in names}
    if constraint is None:
        return kept
    schema = constraint.get("json") if isinstance(constraint, Mapping) else None
    if not isinstance(schema, Mapping) or kept.get("response_format") is not None or "response_format" in names:
        raise InvalidRequest("This model's server cannot hold answers to that.", param="structured_outputs")
    kept["response_format"] = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    return kept
