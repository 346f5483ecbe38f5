"""Each engine gets the fields it knows, under its names; all get the same sampling."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from gateway.errors import InvalidRequest
from gateway.protocol.dialects import DIALECTS, fitted
from gateway.settings.models import Dialect

CHAT = "/v1/chat/completions"
OTHERS = [name for name in DIALECTS if name not in {"vllm", "gateway"}]
#: What a caller of vLLM may send, and the gateway adds.
VLLMS: dict[str, Any] = {
    "cache_salt": "s", "priority": 3, "request_id": "r", "top_k": 5, "min_p": 0.1, "ignore_eos": True,
    "repetition_penalty": 1.1, "return_token_ids": True, "skip_special_tokens": False,
}  # fmt: skip
PLAIN: dict[str, Any] = {"model": "m", "messages": [], "stream": True, "stream_options": {"include_usage": True}}


def sent(dialect: str, **body: Any) -> dict[str, Any]:
    return fitted(dialect, CHAT, {**PLAIN, **body}, {})


def test_every_configured_dialect_is_known() -> None:
    assert set(get_args(Dialect)) == set(DIALECTS)


@pytest.mark.parametrize("dialect", ["vllm", "gateway"])
def test_vllm_and_other_gateways_get_everything(dialect: str) -> None:
    assert sent(dialect, **VLLMS, unknown=1) == {**PLAIN, **VLLMS, "unknown": 1}


@pytest.mark.parametrize("dialect", OTHERS)
def test_what_everybody_knows_reaches_everybody(dialect: str) -> None:
    known = {"temperature": 0.5, "top_p": 0.9, "max_tokens": 7, "stop": ["x"], "tools": [], "seed": 1}
    assert sent(dialect, **known) == {**PLAIN, **known}


@pytest.mark.parametrize("dialect", OTHERS)
def test_nobody_else_gets_what_only_vllm_knows(dialect: str) -> None:
    left = sent(dialect, **VLLMS)
    assert not {"cache_salt", "request_id", "return_token_ids"} & set(left)


def test_fields_have_the_engines_own_names() -> None:
    assert sent("sglang", request_id="r", include_reasoning=True)["rid"] == "r"
    assert sent("llama.cpp", repetition_penalty=1.1)["repeat_penalty"] == 1.1
    for dialect in ("transformers", "ollama", "tgi", "llama.cpp"):
        assert sent(dialect, max_completion_tokens=9)["max_tokens"] == 9
        assert "max_tokens" not in sent(dialect, max_completion_tokens=None)


def test_transformers_gets_nothing_that_it_would_refuse() -> None:
    assert sent("transformers", **VLLMS, unknown=1, metadata={}) == PLAIN
    left = fitted("transformers", "/v1/completions", {"prompt": "x", "top_k": 3, "echo": True}, {})
    assert left == {"prompt": "x", "echo": True}


@pytest.mark.parametrize("dialect", OTHERS)
def test_a_constraint_is_told_in_openais_words_or_refused_and_never_lost(dialect: str) -> None:
    schema = {"type": "object"}
    told = sent(dialect, structured_outputs={"json": schema})
    assert told["response_format"]["json_schema"]["schema"] == schema
    assert "structured_outputs" not in told
    for constraint in ({"regex": "a+"}, {"choice": ["a"]}, "rubbish"):
        with pytest.raises(InvalidRequest, match="cannot hold"):
            sent(dialect, structured_outputs=constraint)
    with pytest.raises(InvalidRequest):
        sent(dialect, structured_outputs={"json": schema}, response_format={"type": "json_object"})
    assert sent(dialect, structured_outputs=None) == PLAIN


@pytest.mark.parametrize("dialect", DIALECTS)
def test_sampling_is_filled_in_where_a_request_says_nothing_and_its_own_word_wins(dialect: str) -> None:
    sampling = {"temperature": 0.3, "top_p": 0.8}
    filled = fitted(dialect, CHAT, {**PLAIN, "temperature": None, "top_p": 1.0}, sampling)
    assert (filled["temperature"], filled["top_p"]) == (0.3, 1.0)
    assert fitted(dialect, CHAT, {**PLAIN, "temperature": 0}, sampling)["temperature"] == 0


def test_routes_that_do_not_sample_get_none_and_messages_what_its_form_has() -> None:
    sampling = {"temperature": 0.3, "top_k": 7, "min_p": 0.1}
    assert fitted("vllm", "/v1/embeddings", {"input": "x"}, sampling) == {"input": "x"}
    assert fitted("vllm", "/tokenize", {"prompt": "x"}, sampling) == {"prompt": "x"}
    assert fitted("vllm", "/v1/messages", {}, sampling) == {"temperature": 0.3, "top_k": 7}
    for route in (CHAT, "/v1/completions", "/v1/responses"):
        assert fitted("vllm", route, {}, sampling) == sampling


def test_what_sampling_fills_in_is_spoken_in_the_dialect_too() -> None:
    assert fitted("llama.cpp", CHAT, {}, {"repetition_penalty": 1.2}) == {"repeat_penalty": 1.2}
    assert fitted("ollama", CHAT, {}, {"top_k": 4}) == {}
