"""guided_*: what vLLM 0.32 would ignore is told in its own words, or refused."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.errors import InvalidRequest
from gateway.protocol.guided import translate_guided


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"guided_choice": ["a", "b"]}, {"structured_outputs": {"choice": ["a", "b"]}}),
        ({"guided_regex": "a+"}, {"structured_outputs": {"regex": "a+"}}),
        ({"guided_json": {"type": "object"}}, {"structured_outputs": {"json": {"type": "object"}}}),
        (
            {"guided_json": "{}", "guided_whitespace_pattern": " "},
            {"structured_outputs": {"json": "{}", "whitespace_pattern": " "}},
        ),
        (
            {"guided_grammar": "root ::= x", "guided_decoding_backend": "auto"},
            {"structured_outputs": {"grammar": "root ::= x"}},
        ),
        (
            {"guided_choice": ["a"], "response_format": {"type": "text"}},
            {"structured_outputs": {"choice": ["a"]}, "response_format": {"type": "text"}},
        ),
        (
            {"guided_choice": ["a"], "structured_outputs": {"disable_any_whitespace": True}},
            {"structured_outputs": {"disable_any_whitespace": True, "choice": ["a"]}},
        ),
        ({"guided_choice": None, "n": 1}, {"n": 1}),
        (
            {"structured_outputs": {"regex": "a"}, "response_format": {"type": "json_object"}},
            {"structured_outputs": {"regex": "a"}, "response_format": {"type": "json_object"}},
        ),
    ],
)
def test_guided_fields_become_structured_outputs(body: dict[str, Any], expected: dict[str, Any]) -> None:
    translate_guided(body)
    assert body == expected


@pytest.mark.parametrize(
    "other",
    [
        {"guided_regex": "a"},
        {"structured_outputs": {"regex": "a"}},
        {"structured_outputs": "nonsense"},
        {"response_format": {"type": "json_object"}},
        {"response_format": "nonsense"},
    ],
)
def test_two_constraints_at_once_are_refused_by_name(other: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest, match="only one may") as caught:
        translate_guided({"guided_choice": ["a"], **other})
    assert str(caught.value.param).startswith("guided_")
