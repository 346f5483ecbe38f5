"""What looks like an entry is seen, and text made of other words is not."""

from __future__ import annotations

import pytest

from plugins.sensitive_words.folding import Folding
from plugins.sensitive_words.forms import forms
from plugins.sensitive_words.lanes import Lanes
from plugins.sensitive_words.skeleton import read
from plugins.sensitive_words.wordlist import Source


def lanes(*words: str) -> Lanes:
    entries = [Source("list").entry(word, number) for number, word in enumerate(words)]
    return Lanes(form for entry in entries if entry is not None for form in forms(0, entry, Folding()))


@pytest.mark.parametrize(
    ("text", "places"),
    [
        *(("you ass!", [(4, 7)]), ("s-h-i-t", [(0, 7)]), ("x s h i t", [(2, 9)]), ("the sh**it", [(4, 10)])),
        *(("赌 博", [(0, 3)]), ("赌。博", [(0, 3)]), ("我赌博", [(1, 3)]), ("fuck, you", [(0, 9)])),
    ],
)
def test_candidates_are_where_they_are(text: str, places: list[tuple[int, int]]) -> None:
    its = lanes("ass", "shit", "赌博", "fuck you")
    copy = read(text)
    assert its.any(copy.letters.encode())
    assert sorted({(start, end) for start, end, _ in its.candidates(copy)}) == places


@pytest.mark.parametrize(
    "text", ["The assistant cut the grass in class.", "this hit song is hit", "as soon as he'll", "大麻烦"]
)
def test_other_words_do_not_look_like_entries(text: str) -> None:
    its = lanes("ass", "shit", "hell", "赌博")
    assert not its.any(read(text).letters.encode())
    assert not list(its.candidates(read(text)))


def test_no_entries_see_nothing() -> None:
    assert not lanes().any(read("赌博 shit").letters.encode())
    assert not list(lanes().candidates(read("赌博 shit")))
