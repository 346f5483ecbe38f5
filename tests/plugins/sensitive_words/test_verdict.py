"""Evasions that count and neighbours that do not: whole kinds of each."""

from __future__ import annotations

import pytest

from gateway.sdk import Reading
from plugins.sensitive_words.matcher import Matcher
from plugins.sensitive_words.stream import States
from plugins.sensitive_words.wordlist import Entry, Source
from tests.plugins.sensitive_words.test_stream import stream

LIST = ("forbiddenzebra", "赌博", "大麻", "黄片", "shit", "ass", "69", "法轮功", "bomb", "习近平", "赌场老板")
ALLOWED = ("大麻烦", "三黄片")


def _policy() -> Matcher:
    entries: list[Entry | None] = [Source("list", "mask").entry(word, number) for number, word in enumerate(LIST, 1)]
    entries += [Source("allow", "allow").entry(word, number) for number, word in enumerate(ALLOWED, 1)]
    return Matcher(entry for entry in entries if entry is not None)


POLICY = _policy()
STATES = States(POLICY)


def hits(text: str) -> list[str]:
    """Return what is found; whole, and in a stream of single characters, which has to be the same."""
    whole = [text[start:end] for start, end, _ in POLICY.scan(text).found]
    for pieces in (list(text), [text[: len(text) // 2], text[len(text) // 2 :]]):
        assert [text[start:end] for start, end, _ in stream(pieces, STATES)[0].hits] == whole
    assert not (whole and POLICY.is_clean(Reading(text)))
    return whole


@pytest.mark.parametrize(
    "word",
    [
        # EV-01: invisible characters of all kinds
        *(
            "forbidden\u200bzebra",
            "f\u200dorbiddenzebra",
            "forbidden\ufeffzebra",
            "赌\u200c博",
            "赌\u2060博",
            "赌\u00ad博",
        ),
        *(
            "赌\u034f博",
            "赌\u3164博",
            "赌\uffa0博",
            "赌\u2800博",
            "赌\U000e0061博",
            "赌\ufe0f博",
            "赌\u202e博",
            "赌\u2069博",
        ),
        *(
            "赌\u180e博",
            "赌\x00\x1b博",
            "s\u200bh\u200bi\u200bt",
            "赌\u200b\u200c\u200d\u2060\ufeff博",
            "赌\U000e01ef博",
        ),
        # EV-03: full width, case, styled letters
        *(
            "ＦｏｒＢｉｄｄｅｎＺｅｂｒａ",
            "SHİT",
            "ƒorbiddenzebra",
            "6️⃣9️⃣",
            "fOrBiDdEnZeBrA",
            "ⓕⓞⓡⓑⓘⓓⓓⓔⓝⓩⓔⓑⓡⓐ",
            "𝐟𝐨𝐫𝐛𝐢𝐝𝐝𝐞𝐧𝐳𝐞𝐛𝐫𝐚",
            "𝓯𝓸𝓻𝓫𝓲𝓭𝓭𝓮𝓷𝔃𝓮𝓫𝓻𝓪",
            "ꜱʜɪᴛ",
            "𝕤𝕙𝕚𝕥",
        ),
        *(
            "🅢🅗🅘🅣",
            "🅂🄷🄸🅃",
            "🆂🅷🅸🆃",
            "ˢʰⁱᵗ",
            "⒮⒣⒤⒯",
            "ｓｈｉｔ",
            "𝘴𝘩𝘪𝘵",
            "𝚜𝚑𝚒𝚝",
            "s̶h̶i̶t̶",
            "s̷̾h̵̛i̷͌t̸͛",
            "ś̂̃hit",
            "ꓢНІТ",
            "⑥⑨",
            "𝟞𝟡",
        ),
        # EV-05: separators
        *(
            "赌 博",
            "赌。。。博",
            "赌￥博",
            "赌*-博",
            "赌\n博",
            "赌　博",
            "赌~博",
            "赌...博",
            "赌！！博",
            "赌******博",
            "赌\t博",
            "赌\r\n博",
        ),
        *(
            "赌【】博",
            "赌」「博",
            "赌😀博",
            "赌★☆博",
            "赌-_-博",
            "赌、博",
            "赌，博",
            "赌·博",
            "赌/博",
            "赌“博",
            "赌**博",
            "赌……博",
        ),
        *(
            "赌" + "　" * 30 + "博",
            "赌|博",
            "赌 \n 博",
            "法-轮-功",
            "法 轮 功",
            "法。。轮！！功",
            "习#近#平",
            "赌\u200b，\u200b博",
        ),
        *(
            "s-h-i-t",
            "s h i t",
            "s.h.i.t",
            "s*h*i*t",
            "s_h_i_t",
            "s  h  i  t",
            "sh*it",
            "forbidden-zebra",
            "for_bidden_zebra",
        ),
        *(
            "s/h/i/t",
            "s|h|i|t",
            "b.o.m.b",
            "B O M B",
            "b - o - m - b",
            "b\no\nm\nb",
            "s☆h☆i☆t",
            "🇸🇭🇮🇹",
            "S.H.I.T",
            "sh--it",
            "b~o~m~b",
        ),
        # EV-06: traditional characters and look-alikes
        *(
            "賭博",
            "賭\u200b博",
            "法輪功",
            "習近平",
            "fоrbiddenzebra",
            "forbiddenzеbrа",
            "fοrbiddenzebra",
            "ѕhit",
        ),
        *(
            "shіt",
            "ѕһіt",
            "ЅНІТ",
            "bоmb",
            "аss",
            "aѕs",
            "bοmb",
            "ѕ-h-i-t",
            "ｓһit",
            "賭場老闆",
            "赌 場 老闆",
            "ｂоｍｂ",
        ),
    ],
)
def test_an_evasion_counts_on_exactly_its_span(word: str) -> None:
    assert hits(word) == [word]
    assert hits(f"他说：“{word}”。") == [word]
    if word.isascii():
        assert hits(f"so ({word}), he said") == [word]


@pytest.mark.parametrize(
    "text",
    [
        # FP-01, FP-07: inside longer words, and beginnings of entries
        *(
            "The assistant cut the grass in class.",
            "Scunthorpe, Massachusetts, a bass and a cassette",
            "bombard the bombastic shiitake",
        ),
        *(
            "assets pass assembly; classic embassies compass",
            "赌",
            "赌场",
            "赌场老",
            "法轮",
            "看不见的法轮",
            "see the forbid",
            "zebra forbidden",
        ),
        # FP-02: two words
        *("我有一个大麻烦", "三黄片", "大麻烦大麻烦", "买三黄片吃"),
        # FP-05: separators do not glue words
        *(
            "this hit song is hit",
            "别跟我赌。博物馆几点开门？",
            "他爱赌！博士不爱。",
            "你赌?博士说",
            "赌；博",
            "赌\n\n博客",
            "赌 \n\n 博客",
            "我赌。 博物馆",
        ),
        *(
            "as soon as she",
            "pushi tomorrow",
            "as simple as this",
            "It was hit. This hit was it.",
            "he is as sure as she is",
            "赌-*-*博",
            "赌”。“博",
        ),
        *(
            "c l a s s",
            "g-r-a-s-s",
            "p a s s",
            "b a s s",
            "S, H, I and T",
            "a.s.sume",
            "as-sume",
            "she's h'it",
        ),
        *(
            "法 的 轮 功",
            "习惯近平",
            "如果你赌，那么博士也赌",
            "大家庭麻烦",
            "the bo mb",
            "bo\nmb",
            "shi. tomorrow",
            "as. sure",
        ),
        # FP-06: other scripts
        *(
            "Сегодня хорошая погода, спасибо за ответ",
            "Το σπίτι είναι μεγάλο",
            "Не выноси сор из избы",
            "Вот там кот",
            "Она",
        ),
        *(
            "Բարեւ ձեզ, ինչպե՞ս եք",
            "გამარჯობა, როგორ ხარ",
            "Ꮳꮃꭹ ꭶꮼꮒꭿꮝꮧ",
            "Як справи? Усе гаразд",
            "Добро јутро, како си",
            "αλφα βητα σιγμα",
            "شكرا جزيلا لك",
            "می\u200cروم کتاب\u200cها",
        ),
        *(
            "Tiếng Việt ổn, địt không",
            "Việt Nam đất nước tôi",
            "Çok teşekkürler, sık sık",
            "क्षि हिन्दी में",
            "ที่นี่ภาษาไทย",
            "שלום עולם",
            "각하 한국어",
        ),
        *(
            "日本語のテキストです、博物館",
            "ёлки-палки и всё",
            "Ассоциация и масса",
            "Über straße naïve café",
            "ρήμα ασσος",
            "Łódź, Kraków",
            "IT-специалист, SMS-сообщение",
        ),
        # numbers
        *(
            "4.69",
            "695",
            "169",
            "0.69 und 6,9",
            "6-9 months",
            "6:9",
            "6/9/2024",
            "16 9",
            "1.69.2",
            "6.9",
            "69.5%",
            "x69",
            "69kg",
            "69,000 or 69 000 or 69'000",
            "1,069.5 and 4·69",
            "6′9″, 6∶9, 6→9",
            "2069-01-01",
        ),
        # emoji and marks
        *(
            "👨\u200d👩\u200d👧 🧑\u200d🚀 🏳\ufe0f\u200d🌈 ❤\ufe0f 👍🏽",
            "🇨🇳🇺🇸🇦🇸",
            "¯\\_(ツ)_/¯",
            "O(∩_∩)O",
            "a+b=c, x-y/z",
            "if (a[i] < b.c) { s->h = i; }",
        ),
    ],
)
def test_ordinary_text_is_clean(text: str) -> None:
    assert hits(text) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("有人种植大麻，大麻烦和大麻", ["大麻", "大麻"]),
        ("what a s h i t, class", ["s h i t"]),
        ("you ass! (ass) ass-hat 你ass好", ["ass", "ass", "ass", "ass"]),
        ("b u l l s h i t", ["s h i t"]),
        ("the-s-h-i-t", ["s-h-i-t"]),
        ("shit🇺🇸 🇺🇸ass", ["shit", "ass"]),
        ("69年, (69), 69.", ["69", "69", "69"]),
        ("69, then 69 0000, 1-69 69 times", ["69", "69", "69", "69"]),
        ("69，然后", ["69"]),
        ("İİİ shit ﬃ ẞ ＂ass＂", ["shit", "ass"]),
        ("赌博赌 博賭博", ["赌博", "赌 博", "賭博"]),
        ("赌赌 博博", ["赌 博"]),
    ],
)
def test_words_are_found_where_they_are(text: str, found: list[str]) -> None:
    assert hits(text) == found
