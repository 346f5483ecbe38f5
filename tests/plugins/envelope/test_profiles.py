"""Profiles are data: each refers only to what there is, and each error has its words."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from gateway import errors
from plugins.envelope.profiles import MESSAGES, PROFILES, Profile


def codes(kind: type[errors.Failure]) -> set[object]:
    return {kind.code, *(code for each in kind.__subclasses__() for code in codes(each))}


def test_the_shipped_profiles_are_the_three_that_are_named() -> None:
    assert list(PROFILES) == ["openai", "code_data", "result_meta"]


def test_every_code_has_words_except_where_the_message_says_what_to_mend() -> None:
    assert codes(errors.Failure) - MESSAGES["code_data"].keys() == {"invalid_request", "unsupported_encoding"}


@pytest.mark.parametrize(
    ("part", "fact"), [("answer", "piece"), ("event", "usage"), ("error", "text"), ("other", "text")]
)
def test_a_part_refers_only_to_what_it_can_tell(part: str, fact: str) -> None:
    with pytest.raises(ValidationError, match=rf"{part}\.x\[0\]: there is no \${fact} here"):
        Profile.model_validate({"name": "p", part: {"x": [f"${fact}"]}})
