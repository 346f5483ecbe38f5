"""Each kind is found as people write it, and numbers that only look like it are left alone."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from plugins.pii import Pii
from plugins.pii.kinds import _FORMS, passes_luhn
from plugins.pii.scan import Scanner, scan
from plugins.pii.stream import union


def made(**options: Any) -> Scanner:
    return Pii(Pii.Options.model_validate(options))._scanner


DEFAULT, EVERYTHING = made(), made(kinds=list(_FORMS))
USUAL = made(kinds=["phone_cn", "phone_fixed_cn", "id_card_cn", "bank_card", "email"])


def masked(text: str, scanner: Scanner = DEFAULT) -> str:
    shown = list(text)
    for start, end in union(mask for found in scan(scanner, text) for mask in found.masks):
        shown[start:end] = "*" * (end - start)
    return "".join(shown)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        # PI-01
        (
            "订单200813800138000003，电话13800138000，转 +86 138-0013-8000",
            "订单200813800138000003，电话138****8000，转 +86 138-****-8000",
        ),
        ("8613800138000 +8613800138000 008613800138000", "86138****8000 +86138****8000 0086138****8000"),
        ("(+86)13800138000，138.0013.8000，138 — 0013 — 8000", "(+86)138****8000，138.****.8000，138 — **** — 8000"),
        ("13800138000 13900139000/15012345678", "138****8000 139****9000/150****5678"),
        (
            "010-12345678 (0755)12345678 0755 1234567 02187654321",
            "010-****5678 (075*)****5678 075* ***4567 021****4321",
        ),
        ("+86 10 1234 5678，+86-755-87654321", "+86 10 1*** 5678，+86-755-****4321"),
        ("tel:+8613800138000，13800138000元 A13800138000B", "tel:+86138****8000，138****8000元 A138****8000B"),
        ("０１０－６２３４５６７８ 021-62345678转8001", "０１０－****５６７８ 021-****5678转8001"),
        ("+86 (138) 0013-8000 (138)00138000 138・0013・8000", "+86 (138) ****-8000 (138)****8000 138・****・8000"),
        ("1.13800138000 12.13800138000 138-0013-8000-8001", "1.138****8000 12.138****8000 138-****-8000-8001"),
        ("138 0013 8000 139 0013 9000 137 0013 7000", "138 **** 8000 139 **** 9000 137 **** 7000"),
        ("0086-10-62345678 +86(10)62345678 8610-62345678", "0086-10-6***5678 +86(10)6***5678 8610-6***5678"),
        ("86-10-62345678 +86 (010) 62345678 86138-0013-8000", "86-10-6***5678 +86 (010) ****5678 86138-****-8000"),
        # PI-03
        ("身份证号11010519491231002Ｘ。110105 1949 1231 002X", "身份证号110***********002Ｘ。110*** **** **** 002X"),
        ("11010519491231002X 11010519491231002x", "110***********002X 110***********002x"),
        ("110105 19491231 002X 440524188001010014", "110*** ******** 002X 440***********0014"),
        # PI-04
        ("4111 1111 1111 1111", "411* **** **** 1111"),
        ("6200-0000-0000-0005", "620*-****-****-0005"),
        ("6205500000000000004", "620************0004"),
        ("6222 0212 3456 7890 128", "622* **** **** ***0 128"),
        ("卡4111.1111.1111.1111完 3530111333300000", "卡411*.****.****.1111完 353*********0000"),
        ("4111 1111 1111 1111 12/26 123", "411* **** **** 1111 12/26 123"),
        ("378282246310005 3782 822463 10005 30569309025904", "378********0005 378* ****** *0005 305*******5904"),
        ("卡号 1 4111 1111 1111 1111 1234", "卡号 1 411* **** **** 1111 1234"),
        ("4111 1111 1111 1111.00 4111111111111111.00 元", "411* **** **** 1111.00 411*********1111.00 元"),
        ("4111 1111 1111 1111 5555 5555 5555 4444", "411* **** **** 1111 555* **** **** 4444"),
        ("6222 0212 3456 7890 128 6222 0212 3456 7890 128", "622* **** **** ***0 128 622* **** **** ***0 128"),
        (
            "1. 4111111111111111 8 2024 4111 1111 1111 1111 1226 123",
            "1. 411*********1111 8 2024 411* **** **** 1111 1226 123",
        ),
        # PI-06
        ("电话１３８００１３８０００，邮箱ｌｉ＠example.com", "电话１３８****８０００，邮箱ｌ*＠example.com"),
        ("1\u200b3\u200b8\u200b0\u200b0138000", "1\u200b3\u200b8\u200b*****8000"),
        ("١٣٨٠٠١٣٨٠٠٠", "١٣٨****٨٠٠٠"),
        # e-mail
        ("mail user@example.com now", "mail u***@example.com now"),
        ("a@x.cn, li.wei+tag@mail.example.co.uk.", "*@x.cn, l*********@mail.example.co.uk."),
        ("<LI@EXAMPLE.COM> mailto:li.wei@example.com?x=1", "<L*@EXAMPLE.COM> mailto:l*****@example.com?x=1"),
        ("中文li@example.com中文 li@exam\u200bple.com", "中文l*@example.com中文 l*@exam\u200bple.com"),
        ("josé@example.com 13800138000@qq.com", "j***@example.com 1**********@qq.com"),
        (
            "wang@公司.cn, li@例子.中国, li@sub.例子.com, li@例え.jp",
            "w***@公司.cn, l*@例子.中国, l*@sub.例子.com, l*@例え.jp",
        ),
        ("ליאור@example.com علي@example.com नाम@example.com", "ל****@example.com ع**@example.com न**@example.com"),
        ("김철수@example.kr nguyễn@example.vn", "김**@example.kr n*****@example.vn"),
        ("o'brien@example.com o’brien@example.com", "o******@example.com o******@example.com"),
        ("f'li@example.com' name='li@example.com'", "f'l*@example.com' name='l*@example.com'"),
        (
            "li@example.com.Please li@example.comTel: li@qq.com联系",
            "l*@example.com.Please l*@example.comTel: l*@qq.com联系",
        ),
        ("li@mail.corp li@example.xn--p1ai li@example.io", "l*@mail.corp l*@example.xn--p1ai l*@example.io"),
        ("li@qq.com(李) li@qq.com[1]", "l*@qq.com(李) l*@qq.com[1]"),
    ],
)
def test_what_is_personal_is_masked(text: str, shown: str) -> None:
    assert masked(text, USUAL) == shown


def test_landlines_are_looked_for_where_they_are_asked_for() -> None:
    assert masked("010-12345678") == "010-12345678"


@pytest.mark.parametrize(
    "text",
    [
        "110105194912310021 11010519491331002X",  # a wrong check digit, no such month
        "1234567890123456 1730000000000 1730000000005 4111111111111112",
        "订单200813800138000003 20240115123456 138001380001",
        "3.141592653589793 0.13800138000 0.4111111111111111 1.4142135623730951 6.02e23",
        "2024-01-15 10:30:00 1998-2008-2018 192.168.1.1:8080 v1.2.3 ISBN 978-7-111-54493-7 6901234567892",
        "+٩٦٦٥٠٠٠٠٠٠٠٠ @user npm i react@18.2.0 @scope/pkg a@b x @ y.com",
        "12800138000 1380013800 IMEI 353918052107063",
        "11010519491231002X1 li@localhost li [at] example.com 400-800-8820 10.0.0.256",
        "[157.07963268 138.23456789] 150.12345678 BTC 5283.185307179586 33.39434163709443 3.4142135623730951",
        "8365 3610 4724 8776 9384 4884 5594 8674 1469 2957 规格:180-2000-2200mm 900 150 2000 3000 4000 5000",
        "6e52 062f c330 3539 0777 a15c ccc0 1ee3 0427 86b6 849e 0e36 e131 9433 5043 0251",
        "47007ad31eac1565cf59bf88bad25c2d2a85848e16405247150cdb5bc4451ff6 7887ec33a8d5574d07e250b4f13701492620d7a5",
        "775a895d-53cb-4522-a436-c13671967765 775a895d-53cb-4522-a436-13671967765c",
        "1d7d4160-3976-3637-6665-5b97891561bc 139.69171234",
        "icon@2x.png getty@tty1.service q@k.transpose(1) x@w.view x@w.to(y) x@w.to_dense() pkg@1.0.0-alpha.dev",
        "git@github.com:a/b 条码 4901234567894 4006381333931 4222222222222",
        "👨\u200d👩\u200d👧 🏳\ufe0f\u200d🌈 1\ufe0f\u20e3 می\u200cروم שלום क्षि ที่นี่ Việt",
        "",
    ],
)
def test_what_is_not_stays_as_it_is(text: str) -> None:
    assert masked(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("E12345678 EA1234567", "E12**5678 EA1**4567"),
        ("C12345678 T12345678 L12345678 H1234567890", "C12**5678 T12**5678 L12**5678 H12****7890"),
        ("京A•12345 京A・12345", "**•***** **・*****"),
        (
            "IP:2001:db8::1 source:2001:db8::1 ２００１：ｄｂ８：：１",
            "IP:200*:db8::1 source:200*:db8::1 ２００*：ｄｂ８：：１",
        ),
        ("rk_live_abcdefghijklmnopqrstuvwx", "rk_l***_********************uvwx"),
        ("whsec_abcdefghijklmnopqrstuvwx", "whs**_********************uvwx"),
        ("xapp-1-A0123-456-abcdefabcdef", "xap*-*-*****-***-********cdef"),
        ("glrt-abcdefghijklmnopqrstuvwx", "glr*-********************uvwx"),
        ("京A12345 粤B·12345D 云A12345挂", "******* 粤B·1*345D 云A1*345挂"),
        ("192.168.1.100, 10.0.0.1.", "192.***.1.100, **.*.*.*."),
        ("2001:db8::8a2e:370:7334 fe80::1:", "200*:***::****:***:7334 ****::*:"),
        ("110105491231002", "110********1002"),
        ("key sk-proj-abcdefghijklmnopqrstuvwx!", "key sk-p***-********************uvwx!"),
        ("AKIAIOSFODNN7EXAMPLE", "AKI*************MPLE"),
        ("ghp_abcdefghijklmnopqrstuvwxyz0123456789", "ghp_********************************6789"),
    ],
)
def test_further_kinds_are_found_where_they_are_asked_for(text: str, shown: str) -> None:
    assert masked(text, EVERYTHING) == shown
    assert masked(text) == text


def test_words_and_versions_are_no_plates_addresses_or_keys() -> None:
    text = "阿里云SERVERS 云S3BUCKET std::vector a::b 12:34:56 :: 1.2.3.4.5 999.1.1.1 task-force-of-the-year desk-lamp"
    assert masked(text, EVERYTHING) == text
    names = (
        "sk-button-primary-large pk_orders_customer_id hf_transformers_cache xoxo-hugs-and-kisses pk_orders_2024_cust"
    )
    assert masked(names, EVERYTHING) == names


ODDS = random.Random(3)
#: What numbers mean most often, and how many of a hundred may be taken for personal: what passes Luhn by chance.
COMMON: dict[str, tuple[Callable[[], str], float]] = {
    "hash": (lambda: ODDS.randbytes(32).hex(), 0.1),
    "uuid": (lambda: str(uuid.UUID(int=ODDS.getrandbits(128))), 0.1),
    "decimals": (lambda: f"{ODDS.uniform(130, 200):.8f}", 0),
    "float": (lambda: repr(10 ** ODDS.uniform(0, 9)), 0.1),
    "row": (lambda: " ".join(str(ODDS.randint(1000, 9999)) for _ in range(10)), 2),
    "table": (lambda: "\t".join(str(ODDS.randint(1000, 9999)) for _ in range(10)), 2),
    "dump": (lambda: ODDS.randbytes(32).hex(" ", 2), 0.1),
    "barcode": (lambda: f"4{ODDS.randrange(10**12):012}", 0),
    "time": (lambda: f"{ODDS.uniform(1.6e9, 1.9e9):.6f}", 0),
}


@pytest.mark.parametrize("name", COMMON)
def test_numbers_that_are_nobodys_are_seldom_masked(name: str) -> None:
    made_up, most = COMMON[name]
    texts = [made_up() for _ in range(2_000)]
    wrong = [text for text in texts if masked(text) != text]
    assert len(wrong) <= 20 * most, wrong[:3]


def test_heads_and_tails_are_as_configured() -> None:
    assert masked("13800138000 11010519491231002X", made(keep_head=0, keep_tail=0)) == "*" * 11 + " " + "*" * 18
    assert masked("13800138000", made(keep_head=6, keep_tail=5)) == "*" * 11
    own = made(kinds=["bank_card", {"kind": "phone_cn", "keep_head": 0, "keep_tail": 2}])
    assert masked("13800138000 4111111111111111 a@b.cn", own) == "*********00 411*********1111 a@b.cn"


def test_the_check_of_cards_is_luhns() -> None:
    numbers = ("79927398713", "79927398710", "0", "18", "81")
    assert [passes_luhn(number) for number in numbers] == [True, False, True, True, False]


HOSTILE = (
    *(
        "1",
        "a@",
        "-",
        "（",
        "1 ",
        "4444 ",
        "4242 4242 4242 4242 ",
        "138 0013 8000 ",
        "4242.4242.4242.4242.",
        "4111 1111 1111 1111 1234 5678 9012 ",
        "138-",
        "a.",
        "a@b.c",
        "x@y.cn ",
        "é",
    ),
    *(
        "123456789a",
        "a.a.a.a.a.a.a.a@" + "b" * 63,
        "１",
        "1\u200b",
        "010-",
        "11010519491231 ",
        "eyJaaaaaaaa.",
        "1.1.",
        "京A",
    ),
)


@pytest.mark.parametrize("part", HOSTILE)
def test_a_text_made_against_the_forms_takes_less_than_a_second_a_megabyte(part: str) -> None:  # SE-11
    text = (part * (100_000 // len(part) + 1))[:100_000]
    began = time.process_time()
    sum(1 for _ in scan(DEFAULT, text))
    assert time.process_time() - began < 0.1 * 3  # with room for a machine that is busy
