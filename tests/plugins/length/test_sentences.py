"""Sentences cover a text without a gap, end where sentences end, and are found in one pass."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugins.length.graphemes import before
from plugins.length.sentences import LONGEST, MOST, sentences


def parts(text: str) -> list[str]:
    return [text[start:end] for start, end in sentences(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One. Two! Three? Four", ["One. ", "Two! ", "Three? ", "Four"]),
        ("今天下雨。你好吗？好!走", ["今天下雨。", "你好吗？", "好!", "走"]),
        ("It costs 4.69, not 5.", ["It costs 4.69, not 5."]),
        ('He said "No." Then left.', ['He said "No." ', "Then left."]),
        ("他说“好。”走了。", ["他说“好。”", "走了。"]),
        ("a\n\n  b\nc", ["a\n\n  ", "b\n", "c"]),
        ("Wait... what?!  Yes…", ["Wait... ", "what?!  ", "Yes…"]),
        ("", []),
    ],
)
def test_a_sentence_ends_where_a_reader_ends_it(text: str, expected: list[str]) -> None:
    assert parts(text) == expected


@given(st.one_of(st.text(max_size=2000), st.text(st.sampled_from('ab。. !?\n"”\u0301你'), max_size=2000)))
def test_sentences_cover_the_text_and_begin_between_graphemes(text: str) -> None:
    found = sentences(text)
    assert "".join(text[start:end] for start, end in found) == text
    assert all(one[1] == other[0] for one, other in pairwise(found))
    assert all(before(text, start) == start < end for start, end in found)


def test_a_very_long_one_is_parted_at_a_space_or_a_comma() -> None:
    found = parts("word, " * 200)
    assert all(part.endswith((" ", ",")) and len(part) <= LONGEST for part in found)
    assert max(map(len, parts("长" * 1000))) == LONGEST


def test_of_very_many_neighbours_are_joined() -> None:
    assert MOST / 2 < len(sentences("Yes. " * 3 * MOST)) <= MOST


@pytest.mark.parametrize("unit", [".", " ", "!a", ".\"'", "\n ", "…”", "a", ".)", "?", "🇨", "e\u0301", "👨\u200d", "दे"])
@pytest.mark.timeout(20)
def test_no_text_makes_it_slow(unit: str) -> None:
    text = unit * (200_000 // len(unit)) + "a"
    assert sentences(text)[-1][1] == len(text)
