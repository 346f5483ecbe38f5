"""Both sides beside each other."""

from __future__ import annotations

import json

from gateway.compare.asking import Heard
from gateway.compare.report import made
from gateway.compare.targets import Target
from gateway.compare.verdict import Limits

NASTY = "<script>alert(1)</script>"
A, B = Target("a", "http://a:1", "m"), Target("b", "http://b:1", "m", price=(1, 1))
ONE = {"capital": [Heard("Paris", (), 1.0, 0.5, 5, 2)], "sum": [Heard("42", (), 2.0, 0.5, 5, 2)]}
OTHER = {
    "capital": [Heard(NASTY, ("contains: no 'Paris'",), 1.0, 0.5, 6, 2)],
    "sum": [Heard("", ("503: busy",), 0, failed=True)],
}


def test_the_table_has_both_sides_what_was_wrong_and_the_verdict() -> None:
    lines = list(made((A, B), (ONE, OTHER), Limits()).lines())
    assert lines[0].split() == ["a", "b"]
    assert "task success 100.0% (2/2) 0.0% (0/2)" in [" ".join(line.split()) for line in lines]
    assert "B  capital: contains: no 'Paris'" in lines
    assert "B  sum: 503: busy" in lines
    assert lines[-2].startswith("not good enough: task success falls from 100% to 0%")
    assert lines[-1].startswith("not good enough: no answer: rises from 0% to 50%")
    assert list(made((A, B), (ONE, ONE), Limits()).lines())[-1] == "good enough"


def test_the_page_shows_answers_as_text_never_as_markup() -> None:
    page = made((A, B), (ONE, OTHER), Limits()).page()
    assert NASTY not in page
    assert "&lt;script&gt;" in page
    assert "http" not in page.replace("http-equiv", "")  # it needs nothing else


def test_the_value_is_json_with_every_answer() -> None:
    told = json.loads(json.dumps(made((A, B), (ONE, OTHER), Limits()).value()))
    assert told["sides"][1]["success"] == 0
    assert told["cases"]["capital"][0][0]["text"] == "Paris"
    assert told["other_prompts"] == ["capital", "sum"]
