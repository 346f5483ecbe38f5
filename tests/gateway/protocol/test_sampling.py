"""What a request asks of sampling."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.protocol.sampling import sampling_of


@pytest.mark.parametrize(
    ("body", "asked"),
    [
        ({}, "plain"),
        ({"logprobs": False, "response_format": {"type": "text"}}, "plain"),
        ({"logprobs": None, "top_logprobs": None, "text": {"format": {"type": "text"}}}, "plain"),
        ({"logprobs": True}, "logprobs"),
        ({"logprobs": 0}, "logprobs"),  # of a completion: the chosen token's alone
        ({"top_logprobs": 3}, "logprobs"),
        ({"prompt_logprobs": 0}, "logprobs"),
        ({"structured_outputs": {"choice": ["a", "b"]}, "logprobs": True}, "structured"),
        ({"response_format": {"type": "json_object"}}, "structured"),
        ({"text": {"format": {"type": "json_schema"}}}, "structured"),
        ({"text": "nonsense", "response_format": "nonsense"}, "plain"),
    ],
)
def test_what_is_asked_of_sampling_is_one_word(body: dict[str, Any], asked: str) -> None:
    assert sampling_of(body) == asked
