"""YAML with lines and the environment's values."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.settings.document import Document


def read(text: str, **environ: str) -> Document:
    return Document(text, environ)


def test_every_value_knows_its_line() -> None:
    document = read("server:\n  port: 1\nmodels:\n  - name: a\n    engines:\n      - url: x\n      - url: y\n")
    assert document.lines["server", "port"] == 2
    assert document.lines["models", 0] == 4
    assert document.lines["models", 0, "engines", 1, "url"] == 7


def test_off_and_no_are_words_and_numbers_are_decimal() -> None:
    document = read("{a: off, b: no, c: 010, d: 1:30, e: 2024-01-01, f: 7, g: 1e3, h: true, i: null, j: 0.5}")
    assert document.data == {
        "a": "off", "b": "no", "c": "010", "d": "1:30", "e": "2024-01-01",
        "f": 7, "g": 1000.0, "h": True, "i": None, "j": 0.5,
    }  # fmt: skip


def test_the_environment_fills_values_in() -> None:
    document = read('a: "${A}"\nb: x${A}y${B:-z}\nc: ${E:-empty}\nd: "${N:-}"\ne: $${A}\nf: ^a$ {}', A="1", E="")
    assert document.data == {"a": "1", "b": "x1yz", "c": "empty", "d": "", "e": "${A}", "f": "^a$ {}"}
    assert not document.faults


def test_the_environments_text_is_never_read_as_yaml() -> None:
    assert read("a: ${A}", A="{b: [1, ${C}]}").data == {"a": "{b: [1, ${C}]}"}


def test_an_unset_variable_is_named_with_the_mend() -> None:
    ((where, message),) = read("a:\n- ${NOPE}").faults
    assert where == ("a", 0)
    assert message == "the environment variable NOPE is not set: set it, or give a default: ${NOPE:-…}"


def test_what_is_no_name_is_told() -> None:
    ((_, message),) = read("a: ${1+1}").faults
    assert "write $${" in message


def test_a_key_that_stands_twice_is_refused_with_both_lines() -> None:
    document = read("server:\n  port: 1\n  port: 2\n")
    assert document.faults == [(("server", "port"), "stands twice, on lines 2 and 3: keep one")]


def test_anchors_and_merges_work_and_the_own_value_wins() -> None:
    document = read("a: &a {x: 1, y: 2}\nb:\n  <<: *a\n  y: 3\nc: {<<: [{y: 5}, *a]}\nd: *a\n")
    assert document.data["b"] == {"x": 1, "y": 3}
    assert document.data["c"] == {"x": 1, "y": 5}
    assert document.data["d"] == {"x": 1, "y": 2}
    assert not document.faults


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [1", "is not YAML"),
        ("a:\n\t- b", "is not YAML: found character '\\t' that cannot start any token (column 1); indent with spaces"),
        ("a: 1\n---\nb: 2", "is not YAML"),
        ("a: \x01", "is not YAML: there is a control character (U+0001)"),
        ("a: *b", "is not YAML: found undefined alias 'b'"),
        ("a: !!python/object:os.system {}", "the tag tag:yaml.org,2002:python/object:os.system is not understood"),
        ("a: !secret x", "the tag !secret is not understood here: leave it out"),
        ("- a", "has to be a mapping"),
        ("just text", "has to be a mapping"),
        ("a: !!int b", "the tag tag:yaml.org,2002:int is not understood here: leave it out"),
        ("a: &a [*a]", "an anchor (&) contains itself"),
        ("a: " + "[" * 3000 + "]" * 3000, "is nested too deeply"),
        ("? [a]\n: b", "a key has to be plain text (line 1)"),
    ],
)
def test_what_cannot_be_read_is_one_line(text: str, message: str) -> None:
    ((_, told),) = read(text).faults
    assert told.startswith(message)
    assert "\n" not in told


def test_an_empty_file_is_an_empty_configuration() -> None:
    assert read("").data == {}
    assert read("# nothing yet\n").data == {}
    assert not read("").faults


@given(st.text(max_size=200) | st.text("{}[]:,-&*!|>'\"%@`#?\n\t $ab0", max_size=60))
def test_any_text_is_data_or_a_fault_never_an_exception(text: str) -> None:
    document = read(text)
    assert isinstance(document.data, dict)
    assert all("\n" not in message for _, message in document.faults)
