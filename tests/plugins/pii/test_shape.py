"""The beginnings of an expression match every beginning of every match, and its end is known."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plugins.pii.kinds import _FORMS
from plugins.pii.shape import parse

OURS = [source for sources in _FORMS.values() for source in sources if "(?<" not in source and "(?P" not in source]
SOURCES = [
    "ab{2}",
    "a(?:bc|d)+e{0,3}?",
    "(?i)x(y|z{2,3})*w",
    "[^a-c]\\d{3}",
    "(?:a(?i:b)c){1,3}d",
    ".\n(?:aa|ab)$",
    *OURS,
]


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_every_beginning_of_a_match_is_one(data: st.DataObject) -> None:
    source = data.draw(st.sampled_from(SOURCES))
    text = data.draw(st.from_regex(source, fullmatch=True))
    shape = parse(source)
    if shape.longest is not None:
        assert shape.shortest <= len(text) <= shape.longest
        begun = re.compile(shape.beginnings(looks=True))
        for end in range(len(text) + 1):
            assert begun.fullmatch(text[:end]), (source, text[:end])


@pytest.mark.parametrize(
    ("source", "other"), [("ab{2}", "b"), ("ab{2}", "abbb"), ("a(?:bc|d)e", "ac"), ("[0-9]{3}x", "1x")]
)
def test_what_begins_no_match_is_no_beginning(source: str, other: str) -> None:
    assert re.fullmatch(parse(source).beginnings(), other) is None


def test_an_expression_is_written_out_as_it_was_but_for_its_end() -> None:
    written = parse(r"(?i)a+(b|[^c\d]x)*?$").written(9)
    assert written == r"(?i:(?:a){1,9}(?:((?:b|[^c\d]x))){0,9}?$)"
    assert parse("a+").longest is None
