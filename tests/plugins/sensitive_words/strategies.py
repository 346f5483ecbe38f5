"""Texts, entries and splits in which everything overlaps with everything."""

from __future__ import annotations

import itertools
import random

from hypothesis import strategies as st

from plugins.sensitive_words.folding import Folding
from plugins.sensitive_words.wordlist import Entry, Scope, Source

ALPHABET = "abAs1.9 -，…\n赌博大麻烦\u200b\0ßﬃﬀİ㎏ée\u0301かが\u3099ｶ\U000e0041"
SMALL = (
    "ab",
    "赌博",
    "赌a",
    "19.",
    "a b",
    "赌博\u200b",
    "ﬃf",
    "ßs ",
    "か\u3099が",
    "é\u0301e",
    "1.a",
    "a，赌",
    "İi\u200b",
    *("赌博 。", "赌博，-\n", "赌賭\u200b博 ", "赌a -", "ab -", "a1 .-", "69.-", "shit -.", "aab-", "ab'’c"),
    *("abаb", "ab аи", "сор и", "α ba", "s\u0336h\u0301it", "éa\u0301\u0302\u0303b", "ab\u0327c "),
    *("A片bа片 ", "1片,0 。", "10 ,\xa0", "1,0 х", "сор ,йx", "ορ ψ, x", "18禁 0,"),
    *("a🇦🇧b", "a☭b ", "ai x", "赌博!?！", "赌博dubo "),
    *("a🇦™²b", "赌①博🅱", "69⁴①½.", "赌博👍🏽\u200d a", "ab②ⓐ b"),
    *("赌\u0e49博\u3099 ", "ab\u0903\ua670", "nνΝuϲ ", "赌博丶ˇˈ", "a❽ꝏo❾", "όΌΟο σω"),
    *("ab¨௰\u0483赌゛", "éa🅱x\u200b赌"),
)
FOLDINGS = (
    *[Folding()] * 4,
    *(
        Folding(max_skip=0),
        Folding(max_skip=1),
        Folding(confusables=False),
        Folding(repeats=True),
        Folding(pinyin=True),
    ),
)


def random_entries(rng: random.Random, alphabet: str) -> list[Entry]:
    """Make a few entries of every action, some of them for one key or one model only."""
    made = []
    for number in range(1, rng.randint(1, 6) + 1):
        word = "".join(rng.choices(alphabet, k=rng.randint(1, 5)))
        word = rng.choice(["", "", "*"]) + word + rng.choice(["", "", "*"])
        action = rng.choice(["block", "mask", "mask", "replace", "replace", "tag", "allow", "allow"])
        scope = rng.choice([None, None, None, Scope(keys=frozenset(["team-a"])), Scope(models=frozenset(["m"]))])
        entry = Source("list", action, scope=scope, replacement=rng.choice(["", "[…]"])).entry(word, number)
        if entry is not None:
            made.append(entry)
    return made


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[Entry], str]:
    """Draw entries and a text of the same few characters."""
    alphabet = draw(st.sampled_from([*SMALL, *SMALL, ALPHABET]))
    return random_entries(draw(st.randoms()), alphabet), draw(st.text(alphabet, max_size=16))


@st.composite
def cut(draw: st.DrawFn, text: str) -> list[str]:
    """Draw a way to cut a text into pieces."""
    places = sorted(draw(st.lists(st.integers(0, len(text)), max_size=len(text))))
    edges = [0, *places, len(text)]
    return [text[start:end] for start, end in itertools.pairwise(edges)]
