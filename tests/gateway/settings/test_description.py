"""What may stand in the configuration, in words."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from gateway.settings.description import kind, options
from gateway.settings.models import Server


class Listed(BaseModel):
    path: Path
    words: frozenset[str] = frozenset({"b", "a"})
    inner: dict[str, int] = Field(default_factory=dict, description="Its own.")


@pytest.mark.parametrize(
    ("annotation", "words"),
    [
        (str, "text"),
        (int | None, "integer"),
        (Literal["a", "b"], "a or b"),
        (list[str | Listed], "list of text or {path, words, inner}"),
        (Annotated[float, 1], "number"),
        (dict[str, Any], "mapping"),
        (Any, "anything"),
    ],
)
def test_kinds_are_said_in_words(annotation: Any, words: str) -> None:
    assert kind(annotation) == words


def test_defaults_are_written_as_in_the_configuration() -> None:
    assert options(Listed) == [
        ("path", "path", "required", ""),
        ("words", "list of text", '["a", "b"]', ""),
        ("inner", "mapping", "{}", "Its own."),
    ]


def test_every_option_of_the_server_says_what_it_is_for() -> None:
    assert all(option.description for option in options(Server))
