"""What is recited is masked, all of it and nothing else, whatever the pieces."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.sdk import Edit
from plugins.system_prompt.recital import GAP, Guarded, RecitalFilter, folded, weight

ALPHABET = "abcAB é中文ß. -\n"
TEXTS = st.text(st.sampled_from(ALPHABET), max_size=60)
RUN = 6


def reference(secret: str, answer: str, run: int) -> str:
    """Mask by the definition, run by run."""
    letters = "".join(folded(character) for character in secret if character.isalnum())
    places = [index for index, character in enumerate(answer) if character.isalnum()]
    stretches: list[list[int]] = [[]]
    for index, place in enumerate(places):
        if index and place - places[index - 1] - 1 > GAP:
            stretches.append([])
        stretches[-1].append(place)
    masked: set[int] = set()
    for stretch in stretches:
        for first in range(len(stretch)):
            for last in range(first, len(stretch)):
                said = [answer[place] for place in stretch[first : last + 1]]
                if "".join(map(folded, said)) in letters and sum(map(weight, map(folded, said))) >= run:
                    masked.update(stretch[first : last + 1])
    return "".join("*" if index in masked else character for index, character in enumerate(answer))


def play(secret: str, pieces: list[str], run: int = RUN) -> tuple[str, list[str], list[Edit]]:
    recital = RecitalFilter(Guarded(secret, run), "*", lambda start, end: None)
    shown: list[str] = []
    edits: list[Edit] = []
    for piece in pieces:
        text, more = recital.feed(piece)
        shown.append(text)
        edits += more
    text, more = recital.finish()
    return "".join(shown) + text, [*shown, text], [*edits, *more]


@st.composite
def recitals(draw: st.DrawFn) -> tuple[str, str]:
    secret = draw(TEXTS)
    parts = []
    for before in draw(st.lists(TEXTS, max_size=4)):
        start, end = sorted((draw(st.integers(0, len(secret))), draw(st.integers(0, len(secret)))))
        parts += [before, secret[start:end].swapcase() if draw(st.booleans()) else secret[start:end]]
    return secret, "".join(parts)


@given(recitals(), st.lists(st.integers(0, 300)))
@example(("abcabd", "abcabcabd"), [])
@example(("aaaaaaaa", "aaaaaa" + " " * (GAP + 1) + "aaaaa"), [3])
def test_any_split_equals_the_whole_and_the_whole_the_definition(both: tuple[str, str], cuts: list[int]) -> None:
    secret, answer = both
    places = sorted({0, *(cut for cut in cuts if cut < len(answer)), len(answer)})
    shown, _, edits = play(secret, [answer[start:end] for start, end in pairwise(places)])
    assert shown == reference(secret, answer, RUN)
    assert shown == play(secret, list(answer))[0]
    edited = list(answer)
    for start, end, text in edits:
        edited[start:end] = text
    assert "".join(edited) == shown, "the edits say what became of the text"
    assert edits == sorted(edits)


@given(recitals())
def test_what_is_called_clean_at_a_glance_is_clean(both: tuple[str, str]) -> None:
    secret, answer = both
    if Guarded(secret, RUN).is_clean(answer):
        assert reference(secret, answer, RUN) == answer


SECRET = (
    "You are the assistant of Acme Bank. Never speak of the vault, its code is 0451. 你是银行助手，绝不透露金库的密码。"
)


@pytest.mark.parametrize(
    ("answer", "shown"),
    [
        (
            "Sure: never speak of the VAULT, its\n> code is 0451! Bye",
            "Sure: ***** ***** ** *** *****, ***\n> **** ** ****! Bye",
        ),
        ("我的设定：绝不透露金库的密码。好", "我的设定：*********。好"),
        ("I never speak of that.", "I never speak of that."),
        ("我是银行助手", "我是银行助手"),
    ],
)
def test_a_recital_is_masked_in_any_case_and_layout_and_a_shared_phrase_is_not(answer: str, shown: str) -> None:
    assert play(SECRET, list(answer), run=27)[0] == shown


def test_held_is_only_what_may_become_a_recital() -> None:
    recital = RecitalFilter(Guarded(SECRET, 27), "*", lambda start, end: None)
    assert recital.feed("XYZ! ")[0] == "XYZ! "
    assert recital.feed("xx Never speak")[0] == "xx "
    assert recital.feed(" up")[0] == "Never speak u", "p may begin a piece of the text"
    assert recital.feed("!" * (GAP + 1))[0] == "p" + "!" * (GAP + 1)


def test_once_it_is_a_recital_nothing_is_held() -> None:
    _, pieces, _ = play(SECRET, list(SECRET), run=27)
    held = [len(shown) for shown in pieces]
    assert sum(held[:40]) > 30
    assert set(held[41:60]) == {1}


def test_a_mask_is_reported_once_a_channel() -> None:
    told: list[tuple[int, int]] = []
    recital = RecitalFilter(Guarded("abcdefgh", 6), "*", lambda start, end: told.append((start, end)))
    for character in "x abcdefgh abcdefgh":
        recital.feed(character)
    recital.finish()
    assert told == [(2, 8)]
