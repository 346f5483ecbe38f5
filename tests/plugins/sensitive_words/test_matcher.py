"""What the matcher finds, on which span, and that no list and no text makes it slow."""

from __future__ import annotations

import gc
import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.sdk import Reading
from plugins.sensitive_words.matcher import Matcher
from plugins.sensitive_words.wordlist import Asker, Entry, Scope, Source
from tests.plugins.sensitive_words.reference import find
from tests.plugins.sensitive_words.strategies import ALPHABET, FOLDINGS, cases, random_entries


def matcher(*words: str, action: str = "mask", allow: tuple[str, ...] = ()) -> Matcher:
    entries: list[Entry | None] = [Source("list", action).entry(word, number) for number, word in enumerate(words, 1)]
    entries += [Source("allow", "allow").entry(word, number) for number, word in enumerate(allow, 1)]
    return Matcher(entry for entry in entries if entry is not None)


def spans(its: Matcher, text: str) -> list[str]:
    return [text[start:end] for start, end, _ in its.scan(text).found]


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_a_text_is_found_to_hold_what_the_obvious_way_finds(data: st.DataObject) -> None:
    entries, text = data.draw(cases())
    folding = data.draw(st.sampled_from(FOLDINGS))
    its = Matcher(entries, folding)
    for asker in (Asker("team-a", "m"), Asker()):
        expected = find(text, entries, asker, folding)
        assert list(its.scan(text, asker=asker).found) == expected
        assert not (expected and its.is_clean(Reading(text)))


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
    assert spans(matcher("69"), "4.69 695 69.5 1690 x69 6.9 6,9 6-9 6:9 6/9 6 9 16-9") == []
    assert spans(matcher("69"), "69. 69, (69) 69年 69 6９ ⑥⑨") == ["69"] * 5 + ["6９", "⑥⑨"]
    assert spans(matcher("8964"), "8-9-6-4, 8 9 6 4; 8.9.6.4") == ["8-9-6-4", "8 9 6 4"]


@pytest.mark.parametrize(
    "text",
    [
        *(
            "69,000",
            "4,69 €",
            "69'000",
            "69’000",
            "69 000",
            "69\xa0000 000",
            "1 269 069",
            "69٫5",
            "4·69",
            "69_000",
            "6′9″",
        ),
        *("6∶9", "6〜9", "6‒9", "6>9", "6→9", "6(9)", "6^9", "6⁄9", "[6][9]", "6⁹", "2⁶⁹", "6€9"),
    ],
)
def test_a_number_is_no_part_of_what_numbers_are_written_with(text: str) -> None:
    assert spans(matcher("69"), text) == []


@pytest.mark.parametrize(
    "text", ["{}.", "{}, then", "{}, 5", "{}，1989年", "{}、70", "5 {} 6", "{} 12", "{}²", "{}㎏", "1-{}"]
)
def test_a_number_beside_another_one_is_a_number(text: str) -> None:
    for number in ("69", "8964"):
        assert spans(matcher(number), text.format(number)) == [number]
    assert spans(matcher("8964"), text.format("8-9-6-4")) == ["8-9-6-4"]


def test_each_edge_of_an_entry_is_judged_by_its_own_character() -> None:
    its = matcher("A片", "K粉", "B超", "18禁", "64事件", "卡拉OK", "加vx*")
    for text in (
        "DNA片段",
        "BLACKPINK粉丝",
        "USB超速",
        "2018禁止",
        "118禁区",
        "1.18禁",
        "1964事件",
        "卡拉OKs",
        "ＮＢＡ片段",
    ):
        assert spans(its, text) == []
    text = "看A片吧，吸K粉，做B超，属18禁的64事件去卡拉OK唱，加vx123"
    assert spans(its, text) == ["A片", "K粉", "B超", "18禁", "64事件", "卡拉OK", "加vx"]
    assert spans(matcher("*A片"), "DNA片段") == ["A片"]


def test_an_allow_entry_wins_inside_its_span_and_nowhere_else() -> None:
    its = matcher("大麻", "黄片", allow=("大麻烦", "三黄片"))
    assert spans(its, "我有一个大麻烦") == []
    assert spans(its, "有人种植大麻") == ["大麻"]
    assert [found[:2] for found in its.scan("大麻烦和大麻").found] == [(4, 6)]
    assert spans(its, "三黄片和三 黄片") == ["黄片"]
    for spelled in ("大麻\u200b烦", "大麻 烦", "大麻煩"):
        assert spans(its, spelled) == ["大麻"], "allow entries hold as they are written"


def test_spans_are_those_of_the_original_where_folding_changes_lengths() -> None:
    its = matcher("maskpapaya", "强")
    for text in ("İİİ maskpapaya ok", "ﬃ ẞ MaskPapaya", "＂ｍaskpapaya＂", "㎏ mask\u200bpapaya", "👍🏽 maskpapaya ﬃ"):
        (found,) = its.scan(text).found
        assert text[found.start : found.end].lower().replace("ｍ", "m").replace("\u200b", "") == "maskpapaya"


def test_entries_with_separators_of_their_own_need_them() -> None:
    its = matcher("fuck you", "node.js", "☭", "18+岁", "c-4炸药")
    assert spans(its, "fuck you, FUCK  YOU fuck\nyou fuck-you fuckyou") == [
        "fuck you",
        "FUCK  YOU",
        "fuck\nyou",
        "fuck-you",
    ]
    assert spans(its, "node.js nodejs node-js 18+岁 18岁 C-4 炸药 c4炸药") == ["node.js", "18+岁", "C-4 炸药"]
    assert spans(its, "a☭b") == ["☭"]


def test_an_entry_for_a_key_or_a_model_counts_for_that_only() -> None:
    entry = Source("list", scope=Scope(keys=frozenset(["team-a"]), models=frozenset(["m"]))).entry("赌博", 1)
    assert entry is not None
    its = Matcher([entry])
    assert len(its.scan("赌博", asker=Asker("team-a", "m")).found) == 1
    for asker in (Asker("team-b", "m"), Asker("team-a", "n"), Asker()):
        assert not its.scan("赌博", asker=asker).found
    assert its.word_of(entry.rule) == "赌博"


def test_a_long_text_gives_slice_by_slice_what_it_gives_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plugins.sensitive_words.matcher._SLICE", 7)
    rng = random.Random(3)
    for alphabet in ("赌博a\u200b", "赌博 。", "s h-it", "ab аи ", "1.9 -"):
        for folding in FOLDINGS:
            entries = random_entries(rng, alphabet)
            text = "".join(rng.choices(alphabet, k=60))
            assert list(Matcher(entries, folding).scan_long(text)) == find(text, entries, folding=folding), (
                entries,
                text,
            )
            assert list(Matcher(entries, folding).scan(text).found) == find(text, entries, folding=folding)


def test_no_entries_find_nothing() -> None:
    its = Matcher([])
    assert len(its) == its.longest == 0
    assert its.is_clean(Reading("赌博"))
    assert its.scan("赌博", final=False).hold == 2


@pytest.mark.parametrize(
    "text",
    [
        *(
            "1",
            "a@",
            "-",
            "（",
            "赌",
            "赌\u200b",
            "\u200b",
            "é",
            "ab",
            "赌博，",
            "赌" + " " * 60,
            "赌。博",
            "a ",
            "s-h-i-",
        ),
        *("s h i t ", "赌 - ", "大", "大 ", "сор ", "аss ", "e\u0301", "🇦", "赌.", "--a", "'", "a b ", "1 2 "),
    ],
)
def test_a_text_made_against_the_matcher_takes_linear_time(text: str) -> None:
    words = ("赌博机", "赌" * 20, "大" * 200, "ababababab", "*" + "é" * 10 + "*", "------", "shit", "сор", "fuck you")
    its = matcher("1111111111", *words, *ALPHABET)

    def seconds(length: int) -> float:
        tested = ("赌" + text * length)[:length]
        gc.disable()  # what it collects is the other tests'
        began = time.process_time()
        for _ in its.scan_long(tested):
            pass
        took = time.process_time() - began
        gc.enable()
        return took

    # six times the text; quadratic would be thirty-six times the time, and a busy machine gets three tries
    tries = ((seconds(3_000), seconds(18_000)) for _ in range(3))
    assert any(large < 0.02 + 12 * small for small, large in tries)
