"""The JSON is found between other words, and where there are two nothing is guessed."""

from __future__ import annotations

import json
from time import process_time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugins.json_answer.finding import find
from plugins.json_answer.mending import Broken
from plugins.json_answer.schema import Checker

ANY = Checker({"type": "object"}).fault
prose = st.text(st.characters(exclude_characters="[{<`", exclude_categories=["Cs"]), max_size=30)


@given(st.dictionaries(st.text(), st.text() | st.integers(), max_size=3), prose, prose, st.booleans())
def test_prose_and_fences_fall_away_and_the_json_keeps_its_spelling(
    value: dict[str, Any], before: str, after: str, fenced: bool
) -> None:
    text = json.dumps(value, ensure_ascii=False)
    said = f"{before}```json\n{text}\n```{after}" if fenced else f"{before}{text}{after}"
    assert find(said, ANY) == text


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ('<think>maybe {"a":2}</think>\n{"a":1}', '{"a":1}'),
        ('maybe {"a":2}\n</think>\n{"a":1}', '{"a":1}'),
        ('<think>x</think>Well.<THINKING>{"a":2}</THINKING> {"a":1}', '{"a":1}'),
        ('Here [see below], {name}: {"a":1}.', '{"a":1}'),
        ('For {"type":"object"} it is\n```json\n{"a":1}\n```', '{"a":1}'),
        ('{"a":1}, I repeat: {"a": 1}', '{"a":1}'),
        ('{"a":"```py\\nx\\n```",}', '{"a":"```py\\nx\\n```"}'),
        ('[1] says {"a":1}', '{"a":1}'),
    ],
)
def test_what_is_meant_is_found(said: str, meant: str) -> None:
    assert find(said, ANY) == meant


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ('<think>cut off {"a":1}', "cut off inside the thoughts"),
        ('{"x": {"a":1}, "b', "cut off"),
        ('Sure: {"steps":["a","b', "cut off"),
        ('{"a":1}\n{"a":2}', "several"),
        ("[1, 2]", "object"),
        ('{"x": {"a":1} "b" foo}', "comma"),
        ("No.", "no JSON"),
        ("", "no JSON"),
    ],
)
def test_what_is_not_there_is_not_invented(said: str, why: str) -> None:
    with pytest.raises(Broken, match=why):
        find(said, ANY)


def test_a_schema_decides_between_two() -> None:
    wanted = Checker({"required": ["answer"]}).fault
    assert find('{"question":1} {"answer":2}', wanted) == '{"answer":2}'


@pytest.mark.parametrize("bomb", ["[" * 100_000, "[a" * 100_000, "<think></think>" * 20_000, "{" * 100_000])
def test_it_gives_up_quickly(bomb: str) -> None:
    began = process_time()
    with pytest.raises(Broken):
        find(bomb, ANY)
    assert process_time() - began < 1
