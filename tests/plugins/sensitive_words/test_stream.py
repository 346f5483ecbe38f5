"""A word in a streamed answer is treated as in the whole one, whatever the pieces, and clean text does not wait."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.sdk import Blocked, Edit
from plugins.sensitive_words.folding import Folding
from plugins.sensitive_words.matcher import Found, Matcher
from plugins.sensitive_words.stream import States, WordFilter
from plugins.sensitive_words.wordlist import ANYONE, Asker, Entry, Source
from tests.plugins.sensitive_words.reference import Verdict, judge
from tests.plugins.sensitive_words.strategies import ALPHABET, FOLDINGS, SMALL, cases, cut, random_entries


def words(*given: str | tuple[str, str]) -> list[Entry]:
    """Make entries of words (blocked), or of words and actions."""
    made = []
    for number, word in enumerate(given, 1):
        text, action = (word, "block") if isinstance(word, str) else word
        entry = Source("list").entry(text, number, action)
        assert entry is not None
        made.append(entry)
    return made


def applied(text: str, edits: Sequence[Edit]) -> str:
    """Apply edits to the text they are about."""
    parts, done = [], 0
    for start, end, new in edits:
        assert done <= start < end
        parts += [text[done:start], new]
        done = end
    return "".join(parts) + text[done:]


def stream(pieces: Sequence[str], states: States, asker: Asker = ANYONE) -> tuple[Verdict, list[str]]:
    """Feed the pieces; return the verdict and what each piece showed."""
    hits: list[tuple[int, int, str]] = []
    shown: list[str] = []
    edits: list[Edit] = []
    blocked = None

    def report(found: Found) -> None:
        hits.append((found.start, found.end, found.rule.id))

    channel = WordFilter(states, report, asker=asker)
    try:
        for piece in pieces:
            text, made = channel.feed(piece)
            shown.append(text)
            edits += made
        text, made = channel.finish()
        shown.append(text)
        edits += made
    except Blocked as block:
        blocked = block.rule
        shown.append(block.shown)
        edits += block.edits
    told = len("".join(shown)) - sum(len(edit.text) - (edit.end - edit.start) for edit in edits)
    assert applied("".join(pieces)[:told], edits) == "".join(shown)
    return Verdict("".join(shown), hits, blocked), shown


@settings(max_examples=500, deadline=None)
@given(st.data())
def test_any_split_of_any_text_equals_the_whole_as_the_obvious_way_sees_it(data: st.DataObject) -> None:
    its, text = data.draw(cases())
    folding = data.draw(st.sampled_from(FOLDINGS))
    states = States(Matcher(its, folding))
    for asker in (Asker("team-a"), Asker(model="m"), ANYONE):
        expected = judge(text, its, asker, folding)
        for pieces in ([text], list(text), data.draw(cut(text))):
            assert stream(pieces, states, asker)[0] == expected, (its, pieces)


@pytest.mark.parametrize("alphabet", [*SMALL, ALPHABET])
def test_what_is_remembered_of_one_stream_never_changes_another(alphabet: str) -> None:
    rng = random.Random(alphabet)
    for folding in FOLDINGS:
        its = random_entries(rng, alphabet)
        states = States(Matcher(its, folding))
        for _ in range(40):
            text = "".join(rng.choices(alphabet, k=rng.randint(1, 14)))
            edges = sorted(rng.choices(range(len(text) + 1), k=4))
            pieces = [text[start:end] for start, end in zip([0, *edges], [*edges, len(text)], strict=True)]
            asker = rng.choice([Asker("team-a"), Asker(model="m"), ANYONE])
            assert stream(pieces, states, asker)[0] == judge(text, its, asker, folding), (its, folding, pieces)


@pytest.mark.parametrize("pieces", [["for", "bidden", "zeb", "ra!"], ["赌", "博"], ["see 赌\u200b", "\u200b", "博"]])
def test_a_word_split_over_chunks_never_leaks(pieces: list[str]) -> None:
    verdict, shown = stream(pieces, States(Matcher(words("forbiddenzebra", "赌博"))))
    assert verdict.blocked is not None
    assert "".join(shown) in {"", "see "}


def test_what_was_held_is_given_back_at_the_end() -> None:
    verdict, shown = stream(["see the ", "forbid"], States(Matcher(words("forbiddenzebra"))))
    assert verdict == Verdict("see the forbid", [], None)
    assert shown == ["see the ", "", "forbid"]


def test_a_mask_covers_the_union_of_overlapping_entries_also_across_chunks() -> None:
    its = words(("蓝色", "mask"), ("蓝色房子", "mask"), ("xy*", "mask"), ("*xyzxyw", "mask"))
    states = States(Matcher(its))
    for text, masked in (("蓝色房子好看", "****好看"), ("qqxyzxyw", "qq******")):
        for pieces in ([text], list(text)):
            assert stream(pieces, states)[0].shown == masked


def test_of_two_blocking_entries_the_one_that_starts_first_decides_what_is_shown() -> None:
    states = States(Matcher(words("色房", "蓝色房子")))
    for pieces in (["好蓝色房子"], list("好蓝色房子"), ["好蓝色房", "子"]):
        verdict, _ = stream(pieces, states)
        assert verdict.shown == "好"
        assert verdict.blocked == "list:2"
    assert stream(["好蓝色房", "间"], states)[0] == Verdict("好蓝", [(2, 4, "list:1")], "list:1")


def test_a_run_of_one_letter_that_counts_once_is_not_torn_apart() -> None:
    its, folding = words(("が", "mask"), ("゙が", "allow")), Folding(repeats=True)
    states = States(Matcher(its, folding))
    for text in ("かががかががかがが゙が", "aaかが", "がが"):
        assert stream(list(text), states)[0] == judge(text, its, folding=folding)


def test_clean_text_comes_back_as_the_same_object_with_no_edits() -> None:
    states = States(Matcher(words("赌博", "forbiddenzebra")))
    channel = WordFilter(states, lambda _: None)
    for piece in ("机器", "学习", " is", " a way", "，", "机器"):
        shown, edits = channel.feed(piece)
        assert shown is piece
        assert edits == ()


def test_text_is_held_only_while_an_entry_may_have_begun() -> None:
    channel = WordFilter(States(Matcher(words("赌博机", "shit"))), lambda _: None)
    said = [
        ("我赌", "我"),
        ("博", ""),
        ("物馆", "赌博物馆"),
        ("赌，", ""),
        ("的赌。", "赌，的"),
        ("博", "赌。博"),
        ("s", ""),
        (" s", "s "),
        ("hip", "ship"),
        (" class", " class"),
    ]
    for piece, shown in said:
        assert channel.feed(piece)[0] == shown


def test_a_whole_word_waits_for_its_boundary_and_no_longer() -> None:
    its = words(("ass", "mask"), ("69", "mask"))
    states = States(Matcher(its))
    assert stream(["you ass", "!"], states)[1] == ["you ", "***!", ""]
    assert stream(["ass", "istant"], states)[1] == ["", "assistant", ""]
    assert stream(["cl", "ass"], states)[1] == ["cl", "ass", ""]
    assert stream(["4", ".", "69"], states)[1] == ["4", ".", "69", ""]
    assert stream(["69", ".", "5"], states)[1] == ["", "", "69.5", ""]
    assert stream(["69", ".", " So"], states)[1] == ["", "", "**. So", ""]


def test_the_text_held_is_bounded() -> None:
    channel = WordFilter(States(Matcher(words("赌博"))), lambda _: None)
    channel.feed("赌")
    for _ in range(1000):
        assert channel.feed("\u200b") == ("", ())
    with pytest.raises(Blocked, match="held_too_long"):
        channel.feed("\u200b" * 200)
    channel = WordFilter(States(Matcher(words("赌博"))), lambda _: None)
    channel.feed("赌")
    shown = "".join(channel.feed(" ")[0] for _ in range(70))
    assert shown.startswith("赌" + " " * 64), "a run of one sign skips up to 64"


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plugins.sensitive_words.stream._REMEMBERED", 50)
    states = States(Matcher(words("赌博")))
    for number in range(0x4E00, 0x4E00 + 500):
        channel = WordFilter(states, lambda _: None)
        assert channel.feed(chr(number) + "赌")[0] == chr(number)
        assert len(states._states) <= 50
