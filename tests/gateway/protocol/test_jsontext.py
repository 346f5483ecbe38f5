"""JSON text edited in place: decoded positions find their raw, and what is not edited keeps its spelling."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.protocol import jsontext

texts = st.text(st.sampled_from('ab"\\/\n😀赌\x00') | st.characters(exclude_categories=["Cs"]))


@given(texts, st.booleans())
def test_a_string_is_decoded_as_json_decodes_it(text: str, ascii_only: bool) -> None:
    raw = json.dumps(text, ensure_ascii=ascii_only)[1:-1]
    assert jsontext.unescape(raw) == text
    assert len(jsontext.units(raw)) == len(text)
    assert json.loads(f'"{jsontext.escape(text)}"') == text


@given(texts, st.data(), texts, st.booleans())
def test_an_edit_lands_where_the_decoded_text_says(text: str, data: st.DataObject, new: str, ascii_only: bool) -> None:
    raw = json.dumps(text, ensure_ascii=ascii_only)[1:-1]
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    edited = jsontext.splice(raw, [(start, end, new)])
    assert json.loads(f'"{edited}"') == text[:start] + new + text[end:]


def test_half_a_surrogate_pair_counts_as_one_character() -> None:
    assert jsontext.unescape(r"a\ud83cb") == "a\ufffdb"
    assert jsontext.splice(r"a\ud83cb\u00e9", [(2, 3, "x")]) == r"a\ud83cx\u00e9"


@given(st.text())
def test_pieces_joined_are_the_text(raw: str) -> None:
    assert "".join(jsontext.pieces(raw)[0]) == raw


def test_values_are_told_from_names() -> None:
    cut, names = jsontext.pieces('{"a" : "b:", "c": [1, -2.5e3, true, "d\\""]}')
    assert cut[1::2] == ['"a"', '"b:"', '"c"', "1", "-2.5e3", '"d\\""']
    assert names == {0, 2}


@pytest.mark.parametrize(
    ("raw", "expected"), [('{"a":NaN}', True), ('"\\ud83c"', True), ("{", False), ("[" * 99999, False), ("", False)]
)
def test_json_is_what_an_engine_would_read(raw: str, expected: bool) -> None:
    assert jsontext.is_json(raw) is expected
