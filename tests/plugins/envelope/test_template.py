"""Templates put facts where they are named, and leave everything else as it was written."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugins.envelope.template import check, fill, names

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


def escaped(value: Any) -> Any:
    if isinstance(value, str):
        return f"${value}" if value.startswith("$") else value
    if isinstance(value, list):
        return [escaped(each) for each in value]
    return {key: escaped(each) for key, each in value.items()} if isinstance(value, dict) else value


@given(VALUES)
def test_what_refers_to_nothing_is_told_as_it_is_written(value: Any) -> None:
    template = escaped(value)
    check(template, ())
    assert not names(template)
    assert fill(template, pytest.fail) == value


@given(VALUES)
def test_a_fact_takes_the_place_of_its_name_whatever_it_is(value: Any) -> None:
    assert fill({"a": ["$fact", "b $fact"]}, {"fact": value}.__getitem__) == {"a": [value, "b $fact"]}


def test_a_part_of_a_fact_is_found_by_its_path() -> None:
    fact = {"choices": [{"n-1": {"x_y": 1}}, [2, 3]]}
    asked = [
        "$f.choices[0].n-1.x_y",
        "$f.choices[1][1]",
        "$f.choices[2].z",
        "$f.choices.a",
        "$f[0]",
        "$f.choices[0][1]",
    ]
    assert fill(asked, {"f": fact}.__getitem__) == [1, 3, None, None, None, None]


@pytest.mark.parametrize(
    ("template", "says"),
    [
        ({"a": {"b": ["", "$txt"]}}, r"answer\.a\.b\[1\]: there is no \$txt here; did you mean \$text\?"),
        ({"a": "$zzz"}, r"answer\.a: there is no \$zzz here; known here: model, text"),
        ({"a": "$Text"}, r"answer\.a: '\$Text' is no \$name"),
        ({"a": "$text."}, r"a text that begins with \$ is written \$\$"),
    ],
)
def test_a_wrong_reference_is_named_with_its_place(template: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        check(template, {"text", "model"}, "answer")
