"""Cases as people write them."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.compare.cases import SHIPPED, read


def written(folder: Path, text: str) -> Path:
    path = folder / "mine.yaml"
    path.write_text(text, "utf-8")
    return path


def test_a_case_is_a_request_and_what_its_answer_is_held_to(tmp_path: Path) -> None:
    text = """
defaults: {max_tokens: 9}
cases:
  - {name: a, system: Be kind., user: Hi, top_p: 0.5, checks: [{contains: hello}, {judge: It is kind.}]}
  - {messages: [{role: user, content: x}], max_tokens: 1, checks: [{exact: y}]}
"""
    one, two = read(written(tmp_path, text))
    messages = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi"}]
    assert one.request == {"temperature": 0, "max_tokens": 9, "top_p": 0.5, "messages": messages}
    assert [name for name, _ in one.checks] == ["contains"]
    assert one.criteria == ("It is kind.",)
    assert (two.name, two.request["max_tokens"]) == ("case 2", 1)


def test_what_ships_is_in_two_languages_and_can_be_read() -> None:
    files = {path.name: read(path) for path in SHIPPED.glob("*.yaml")}
    assert set(files) == {"chinese.yaml", "english.yaml"}
    assert all(10 <= len(cases) <= 20 for cases in files.values())
    names = [case.name for cases in files.values() for case in cases]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a: [", "mine.yaml: "),
        ("cases: []", "has to have cases"),
        ("cases: [1]", "case 1: has to be a mapping"),
        ("{casse: 1, cases: [{user: x}]}", "has cases and defaults, and nothing else"),
        ("cases: [{name: q, user: x}]", "case q: needs checks"),
        ("cases: [{checks: [{exact: x}]}]", "case 1: needs user"),
        ("cases: [{user: x, checks: [{exat: x}]}]", "no check 'exat': contains, "),
        ("cases: [{user: x, checks: [exact]}]", "each check is one name"),
        ("cases: [{user: x, checks: [{regex: '('}]}]", "case 1: regex: "),
        ("cases: [{user: x, model: y, checks: [{exact: x}]}]", "model is not the case's to say"),
        ("cases: [{name: a, user: x, checks: [{exact: x}]}, {name: a, user: x, checks: [{exact: x}]}]", "called a"),
    ],
)
def test_a_mistake_is_told_in_one_line_with_its_place(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(ValueError, match=r"^[^\n]*$") as fault:
        read(written(tmp_path, text))
    assert told in str(fault.value)
