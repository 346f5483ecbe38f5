"""What the matcher finds, on which span, and that no list and no text makes it slow."""

from __future__ import annotations

import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.sdk import Reading
from plugins.sensitive_words.fold import fold
from plugins.sensitive_words.matcher import Matcher
from plugins.sensitive_words.wordlist import Asker, Entry, Scope, Source
from tests.plugins.sensitive_words.reference import find
from tests.plugins.sensitive_words.strategies import ALPHABET, random_entries


def matcher(*words: str, action: str = "mask", allow: tuple[str, ...] = ()) -> Matcher:
    entries: list[Entry | None] = [Source("list", action).entry(word, number) for number, word in enumerate(words, 1)]
    entries += [Source("allow", "allow").entry(word, number) for number, word in enumerate(allow, 1)]
    return Matcher(entry for entry in entries if entry is not None)


def spans(its: Matcher, text: str) -> list[str]:
    return [text[start:end] for start, end, _ in its.scan(text).found]


@pytest.mark.parametrize(
    ("words", "text", "found"),
    [
        (["*klm*", "*jkly*"], "jklm", ["klm"]),
        (["登记号", "产品登记号表"], "产品登记号", ["登记号"]),
        (["*xy*", "*xyzxyw*"], "qqxyzxywqq", ["xy", "xyzxyw", "xy"]),
        (["蓝色", "蓝色房子"], "蓝色房子好看", ["蓝色", "蓝色房子"]),
        (["红木大门"], "我的红木桌子坏了", []),
        (["红木大门"], "红木大门", ["红木大门"]),
    ],
)
def test_overlapping_entries_all_count_and_a_prefix_is_no_match(words: list[str], text: str, found: list[str]) -> None:
    assert spans(matcher(*words), text) == found


def test_latin_entries_match_whole_words_unless_they_say_otherwise() -> None:
    text = "The assistant cut the grass in class, you ASS! _ass_ ass2 你ass好"
    assert spans(matcher("ass"), text) == ["ASS", "ass", "ass"]
    assert spans(matcher("ass*"), text) == ["ass", "ASS", "ass", "ass", "ass"]
    assert spans(matcher("*ass"), text) == ["ass", "ass", "ASS", "ass", "ass"]
    assert spans(matcher("caf"), "café cafe\u0301 caf\u00e9") == []


def test_a_number_does_not_match_inside_a_number() -> None:
    assert spans(matcher("69"), "4.69 695 69.5 1690 x69") == []
    assert spans(matcher("69"), "69. 69, (69) 69年 69") == ["69"] * 5


def test_an_allow_entry_wins_inside_its_span_and_nowhere_else() -> None:
    its = matcher("大麻", allow=("大麻烦",))
    assert spans(its, "我有一个大麻烦") == []
    assert spans(its, "有人种植大麻") == ["大麻"]
    assert [found[:2] for found in its.scan("大麻烦和大麻").found] == [(4, 6)]
    assert spans(its, "大麻\u200b烦") == ["大麻"], "allow entries hold as they are written"


def test_spans_are_those_of_the_original_where_folding_changes_lengths() -> None:
    its = matcher("maskpapaya", "强")
    for text in ("İİİ maskpapaya ok", "ﬃ ẞ MaskPapaya", "＂ｍaskpapaya＂", "㎏ mask\u200bpapaya", "👍🏽 maskpapaya ﬃ"):
        (found,) = its.scan(text).found
        assert text[found.start : found.end].lower().replace("ｍ", "m").replace("\u200b", "") == "maskpapaya"


def test_an_entry_for_a_key_counts_for_that_key_only() -> None:
    entry = Source("list", scope=Scope(keys=frozenset(["team-a"]))).entry("赌博", 1)
    assert entry is not None
    its = Matcher([entry])
    assert len(its.scan("赌博", asker=Asker("team-a")).found) == 1
    assert not its.scan("赌博", asker=Asker("team-b")).found
    assert not its.scan("赌博").found


def test_a_long_text_gives_slice_by_slice_what_it_gives_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plugins.sensitive_words.matcher._SLICE", 7)
    rng = random.Random(3)
    for _ in range(200):
        entries = random_entries(rng, "赌博a")
        text = "".join(rng.choices("赌博a\u200b", k=60))
        assert list(Matcher(entries).scan_long(text)) == find(text, entries)


@given(
    st.text(st.sampled_from("aA.,，．… ＡéÉ赌博\u200b\x00")),
    st.lists(st.sampled_from(["a", "a.a", "赌博", "é", "a,a", "a a", "博a"])),
)
def test_what_is_called_clean_at_a_look_holds_no_entry(text: str, words: list[str]) -> None:
    entries = [Source("list", "block").entry(word, number) for number, word in enumerate(words, 1)]
    its = Matcher(entry for entry in entries if entry is not None)
    holds = any(entry.word in fold(text)[0] for entry in entries if entry is not None)
    assert its.is_clean(Reading(text)) == (not holds)


def test_no_entries_find_nothing() -> None:
    its = Matcher([])
    assert len(its) == its.longest == 0
    assert its.is_clean(Reading("赌博"))
    assert its.scan("赌博", final=False).hold == 2


@pytest.mark.parametrize("text", ["1", "a@", "-", "（", "赌", "赌\u200b", "\u200b", "é", "ab", "赌博，"])
def test_a_text_made_against_the_matcher_takes_linear_time(text: str) -> None:
    its = matcher("1111111111", "赌博机", "赌" * 20, "ababababab", "*" + "é" * 10 + "*", "------", *ALPHABET)

    def seconds(length: int) -> float:
        tested = ("赌" + text * length)[:length]
        began = time.process_time()
        for _ in its.scan_long(tested):
            pass
        return time.process_time() - began

    small = min(seconds(6_250) for _ in range(3))
    large = min(seconds(50_000) for _ in range(2))
    assert large < 0.05 + 30 * small, (small, large)
