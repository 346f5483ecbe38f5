"""Options are taken in their short form and refused, by name, where they cannot be meant."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from plugins.sensitive_words.options import SensitiveWordsOptions


def options(**given: Any) -> SensitiveWordsOptions:
    return SensitiveWordsOptions.model_validate(given, context={"base": Path("/etc/sluice")})


def test_a_list_may_be_a_plain_path_beside_the_configuration() -> None:
    plain, full = options(lists=["words/a.txt", {"path": "/b.txt", "keys": ["team-a"]}]).lists
    assert (plain.path, plain.action, plain.keys) == (Path("/etc/sluice/words/a.txt"), "block", None)
    assert (full.path, full.keys) == (Path("/b.txt"), frozenset(["team-a"]))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"lists": [{"path": "a.txt", "directions": ["both"]}]}, "directions"),
        ({"lists": [{"path": "a.txt", "action": "hide"}]}, "action"),
        ({"lists": [{"path": "a.txt", "encoding": "utf-9"}]}, "not an encoding"),
        ({"words": [{"word": "a", "replace": "b"}]}, "replace"),
        ({"mask_char": ""}, "mask_char"),
    ],
)
def test_what_cannot_be_meant_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        options(**given)
