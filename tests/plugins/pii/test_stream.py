"""Personal data in a streamed answer is treated as in the whole one, and clean text does not wait."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.sdk import Blocked, Channel, Edit
from plugins.pii import Pii
from plugins.pii.kinds import _FORMS
from plugins.pii.scan import Found, Scanner, scan
from plugins.pii.stream import PiiFilter, union
from tests.plugins.exchanges import chat
from tests.plugins.pii.reference import Verdict, judge

PARTS = (
    *("1", "3", "8", "0", "138", "0013", "8000", "13800138000", "+86", "86", "0086", "0.", "1.", "9", "٣"),
    *(" ", "-", ".", "  ", "_", "—", "\u200b", "\u2060\u200d", "\n", "，", "电话", "（", ")", "(", "[", "　"),
    *("１", "１３８", "４１１１", "Ｘ", "X", "x", "4111", "1111", "4111111111111111", "6200-0000-0000-0005", "62022"),
    *("110105", "19491231", "1949", "002X", "11010519491231002X", "110105194912310021", "3782 822463 10005", "622202 "),
    *(
        "li",
        "a",
        "Z",
        "@",
        "＠",
        "example",
        ".com",
        "li@example.com",
        "b.cn",
        "user.name",
        "%",
        "+",
        "5",
        "30569309025904",
    ),
    *("e", "deadbeef01", "-c1a2-", " 1234", "4111 1111 1111 1111 ", "138 0013 8000 ", "mm", "138.0013", "'"),
)
MORE = (
    *(
        "010",
        "0755",
        "(021)",
        "12345678",
        "7654321",
        "+86 10 ",
        "E",
        "EA",
        "京",
        "A",
        "12345",
        "B·",
        "D",
        "挂",
        "•",
        "192.168",
        ".1",
    ),
    *(".254", "::", "fe80", ":", "2001:db8", "sk-", "proj", "eyJ", "hbGciOiJIUz", "ghp_", "AKIA", "IOSFODNN7EXAMPLE"),
    *("rk_live_", "orders_", "(10)", "0086", "C", "H", "1234567890", "公司", "नाम", "：：", "P:", "(", "e:"),
    *("EMP-", "123456", "EM", "aaa", "b", "工号", "：", "77", "key=", "v"),
)
OWN = (
    {"name": "employee", "pattern": r"EMP-\d{6}"},
    {"name": "many", "pattern": "(a+)+b", "action": "tag"},
    {"name": "number", "pattern": r"工号：(\d{2,8})", "keep_head": 0, "keep_tail": 0},
    {"name": "pair", "pattern": r"(?i)\bkey=[a-z]{1,4}\b"},
)


def made(**options: Any) -> Scanner:
    return Pii(Pii.Options.model_validate(options))._scanner


DEFAULT = made(kinds=["phone_cn", "id_card_cn", "bank_card", "email"])
EVERYTHING = made(kinds=list(_FORMS), patterns=OWN)


def cut(text: str, rng: random.Random) -> list[str]:
    edges = [0, *sorted(rng.choices(range(len(text) + 1), k=5)), len(text)]
    return [text[start:end] for start, end in itertools.pairwise(edges)]


def applied(text: str, edits: Sequence[Edit]) -> str:
    parts, done = [], 0
    for start, end, new in edits:
        assert done <= start < end
        assert len(new) == end - start
        parts += [text[done:start], new]
        done = end
    return "".join(parts) + text[done:]


def stream(scanner: Scanner, pieces: Sequence[str]) -> Verdict:
    """Feed the pieces; return what was shown and found."""
    hits: list[tuple[int, int, str]] = []
    edits: list[Edit] = []
    shown = ""

    def report(found: Found) -> None:
        hits.append((found.start, found.end, found.rule.id))

    channel = PiiFilter(scanner, report)
    for piece in pieces:
        text, told = channel.feed(piece)
        shown, edits = shown + text, [*edits, *told]
        assert len(channel._held) <= scanner.longest + 1024
    text, told = channel.finish()
    shown, edits = shown + text, [*edits, *told]
    assert applied("".join(pieces), edits) == shown
    return Verdict(shown, sorted(hits))


def whole(scanner: Scanner, text: str) -> Verdict:
    found = list(scan(scanner, text))
    edits = [Edit(start, end, "*" * (end - start)) for start, end in union(mask for one in found for mask in one.masks)]
    return Verdict(applied(text, edits), sorted((one.start, one.end, one.rule.id) for one in found))


@settings(max_examples=1200, deadline=None)
@given(st.lists(st.sampled_from(PARTS), max_size=12), st.randoms())
@example(["+86", "138", "-", "0013", "-", "8000"], random.Random(0))
@example(["0", "0.", "13800138000"], random.Random(0))
@example(["li@example.com", "@", "b.cn"], random.Random(0))
def test_any_split_of_any_text_equals_the_whole_as_the_obvious_way_sees_it(
    parts: list[str], rng: random.Random
) -> None:
    text = "".join(parts)
    expected = judge(text)
    for pieces in ([text], list(text), parts, cut(text, rng)):
        assert stream(DEFAULT, pieces) == expected, pieces


@settings(max_examples=800, deadline=None)
@given(st.lists(st.sampled_from(PARTS + MORE * 2), max_size=12), st.randoms())
def test_any_split_gives_what_the_whole_gives_for_every_kind_and_pattern(parts: list[str], rng: random.Random) -> None:
    text = "".join(parts)
    expected = whole(EVERYTHING, text)
    for pieces in (list(text), parts, cut(text, rng)):
        assert stream(EVERYTHING, pieces) == expected, pieces


@pytest.mark.parametrize(
    ("pieces", "shown"),
    [
        (("mail user@exa", "mple.com now"), ["mail ", "u***@example.com ", "now"]),
        (("1380", "0138", "000", "."), ["", "", "", "", "138****8000."]),
        (("1101051949", "1231002X"), ["", "", "110***********002X"]),
        (("mail user", "@exa", "mple", ".com", " now"), ["mail ", "", "", "", "u***@example.com ", "now"]),
        (("4111 1111", " 1111", " 1111\n"), ["", "", "411* **** **** 1111\n", ""]),
    ],
)
def test_a_value_in_pieces_is_never_seen(pieces: Sequence[str], shown: list[str]) -> None:  # PI-07
    channel = PiiFilter(DEFAULT, lambda _: None)
    assert [*(channel.feed(piece)[0] for piece in pieces), channel.finish()[0]] == shown


def test_clean_text_comes_back_as_the_same_object() -> None:
    for scanner in (DEFAULT, EVERYTHING):
        channel = PiiFilter(scanner, lambda _: None)
        for piece in ("机器学习", "，是一种方法。\n", "1" * 40 + "年。", "ภาษาไทย"):
            shown, edits = channel.feed(piece)
            assert shown is piece or "1" in piece
            assert edits == ()


def test_only_what_may_become_a_value_waits() -> None:
    numbers, addresses = made(kinds=["phone_cn", "id_card_cn", "bank_card"]), made(kinds=["email"])
    for scanner, piece, held in (
        (numbers, "in 2024", "2024"),
        (numbers, "2024-01-", ""),
        (numbers, "2024-0115", "2024-0115"),
        (numbers, "13", "13"),
        (numbers, "139.", "139."),
        (numbers, "13.", ""),
        (numbers, "1" * 20, ""),
        (numbers, "hello 0", ""),
        (addresses, "hello", "hello"),
        (addresses, "hello, wor", "wor"),
        (addresses, "li@", "li@"),
        (addresses, "a" * 65, ""),
        (addresses, "hello ", ""),
        (addresses, "年", ""),
    ):
        channel = PiiFilter(scanner, lambda _: None)
        channel.feed(piece)
        assert channel._held == held, piece


def test_what_cannot_be_plain_is_never_passed_unlooked_at() -> None:
    for scanner in (
        DEFAULT,
        EVERYTHING,
        made(kinds=["plate_cn"]),
        made(kinds=["phone_fixed_cn"]),
        made(kinds=["ipv6"]),
    ):
        for character in map(chr, (*range(0xD800), *range(0xE000, 0x20000))):
            if scanner.is_plain(character):
                assert scanner.begun(character, 0) == 1, hex(ord(character))


def test_a_flood_of_invisible_characters_ends_the_answer() -> None:
    channel = PiiFilter(DEFAULT, lambda _: None)
    channel.feed("138" + "\u200b" * 1_000)
    with pytest.raises(Blocked) as caught:
        channel.feed("\u200b" * 1_000)
    assert (caught.value.rule, caught.value.shown) == ("pii:held_too_long", "")


def test_a_block_shows_what_stands_before_the_value_and_nothing_of_it() -> None:
    exchange = chat("hi")
    channel = Pii(Pii.Options.model_validate({"action": "block"})).text_filter(exchange, Channel(0, "content"))
    assert channel is not None
    assert channel.feed("电话：138")[0] == "电话："
    channel.feed("0013")
    with pytest.raises(Blocked) as caught:
        channel.feed("8000，好")
    assert (caught.value.rule, caught.value.shown) == ("pii:phone_cn", "")
    assert [(hit.rule, hit.action, hit.start, hit.end) for hit in exchange.record.hits] == [
        ("pii:phone_cn", "block", 3, 14)
    ]


def test_what_is_only_tagged_does_not_wait() -> None:
    exchange = chat("hi")
    channel = Pii(Pii.Options.model_validate({"action": "tag"})).text_filter(exchange, Channel(0, "content"))
    assert channel is not None
    pieces = ("电话 138", "0013", "8000", "，好")
    assert [*(channel.feed(piece)[0] for piece in pieces), channel.finish()[0]] == [*pieces, ""]
    assert exchange.record.tags == ["pii:phone_cn"]
