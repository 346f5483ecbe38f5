"""A template has named places and no other power."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugins.system_prompt.template import compile_template

NAMES = ("date", "key.name")


def filled(text: str, **values: str) -> str:
    given = {"date": "2026-01-31", "key.name": "team"} | values
    return compile_template(text, NAMES)({name: lambda name=name: given[name] for name in NAMES})  # type: ignore[misc]


def test_names_are_filled_in() -> None:
    assert filled("On {date}, {key.name}: {date}.") == "On 2026-01-31, team: 2026-01-31."


@given(st.text(st.sampled_from('{}" :,ab1\n')).filter(lambda text: "{a" not in text and "{b" not in text))
def test_any_other_brace_is_a_brace(text: str) -> None:
    assert filled(text) == text


def test_json_is_written_as_it_is_and_a_doubled_name_stands_for_itself() -> None:
    assert filled('{"date": {}, "n": [1]} {{date}} {{anything}}') == '{"date": {}, "n": [1]} {date} {anything}'


def test_a_value_is_never_looked_at_again() -> None:
    assert filled("{key.name}", **{"key.name": "{date}"}) == "{date}"


@pytest.mark.parametrize("name", ["dat", "key", "key.name.__class__", "key.digest", "date.year", "__import__", "Date"])
def test_an_unknown_name_is_refused_and_the_known_ones_are_named(name: str) -> None:
    with pytest.raises(ValueError, match=r"is not known; known are \{date\}, \{key.name\}"):
        compile_template(f"x {{{name}}}", NAMES)
