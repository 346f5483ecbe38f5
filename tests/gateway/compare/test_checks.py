"""What an answer is held to."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.compare.checks import CHECKS


@pytest.mark.parametrize(
    ("name", "wanted", "answer", "wrong"),
    [
        ("contains", "paris", "It is Paris.", ""),
        ("contains", ["Paris", "Seine"], "It is Paris.", "no 'Seine'"),
        ("contains", 42, "42", ""),
        ("contains_any", ["six", 6], "at 6", ""),
        ("contains_any", ["six", "6"], "never", "none of 'six', '6'"),
        ("not_contains", "sorry", "Sorry!", "has 'sorry'"),
        ("not_contains", "sorry", "fine", ""),
        ("regex", r"^\d+$", "42", ""),
        ("regex", r"^\d+$", "x", r"nothing like /^\d+$/"),
        ("exact", "a b", " a b\n", ""),
        ("exact", "a b", "a  b", "not 'a b'"),
        ("max_chars", 3, "abcd", "4 characters"),
        ("json_schema", {"type": "object", "required": ["a"]}, '```json\n{"a": 1}\n```', ""),
        ("json_schema", {"type": "object", "required": ["a"]}, "{}", 'JSON: "a" is a required property'),
        ("json_schema", {"type": "object"}, "Here: {}", "no JSON"),
        ("json_schema", {"type": "object"}, "\ud800", "no JSON"),
    ],
)
def test_a_check_says_what_is_wrong_or_nothing(name: str, wanted: Any, answer: str, wrong: str) -> None:
    assert CHECKS[name](wanted)(answer) == wrong


@pytest.mark.parametrize(
    ("name", "wanted"),
    [("regex", "("), ("regex", 1), ("json_schema", {"type": 7}), ("contains", []), ("exact", {}), ("max_chars", "x")],
)
def test_a_check_that_means_nothing_is_refused_by_its_name(name: str, wanted: Any) -> None:
    with pytest.raises(ValueError, match=f"^{name}: "):
        CHECKS[name](wanted)
