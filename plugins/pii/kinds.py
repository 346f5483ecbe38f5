"""The kinds of personal data that are known: how each is written, what proves it, and what of it stays visible."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterator
from itertools import takewhile
from typing import Literal, NamedTuple, Protocol

from plugins.pii.domains import TOP_LEVEL
from plugins.pii.shape import parse

KindName = Literal[
    "phone_cn",
    "phone_fixed_cn",
    "id_card_cn",
    "bank_card",
    "email",
    "id_card_15_cn",
    "passport_cn",
    "plate_cn",
    "ipv4",
    "ipv6",
    "api_key",
]

#: What people write between the digits of a number; a mask leaves it as it is.
_BETWEEN = " \t\xa0\u2002-\u200a\u202f\u3000._\xb7\u2022\u30fb\u2010-\u2015\u2212-"
_SEP = f"[{_BETWEEN}]"
_GAP = f"{_SEP}{{0,3}}"
_ASIAN = "\u0900-\u0963\u0966-\u0dff\u1100-\u11ff\uac00-\ud7a3"  # what is written with spaces: India's, Korea's
#: Of an address's name. Chinese and its like stand next to an address; were they in one, all of an answer would wait.
WORD = (
    "0-9_A-Za-z\xc0-\u024f\u0370-\u0556\u0561-\u0587\u0591-\u05bd\u05d0-\u05ea\u0620-\u0669\u066e-\u06d3"
    f"\u06d5-\u06ff\u10a0-\u10ff\u1e00-\u1eff{_ASIAN}"
)
_LABEL = f"\\w\u0300-\u036f\u0591-\u05bd\u064b-\u065f{_ASIAN}-"  # after the @ every script goes
_PLATE = "A-HJ-NP-Z"
PROVINCES = "京津沪渝冀豫云辽黑湘皖鲁新苏浙赣鄂桂甘晋蒙陕吉闽贵粤青藏川宁琼使"

_is_separator = re.compile(f"[()（）+/:：{_BETWEEN}]").match
#: Characters before a text that a form may look at.
BEHIND = 40

Span = tuple[int, int]


class Match(NamedTuple):
    """What a form matches, from ``start`` to ``end``; the value in it, without a prefix, is ``value`` to ``last``."""

    start: int
    end: int
    value: int
    last: int


class Form(Protocol):
    """One way in which a kind is written. A match is at most ``longest`` characters long."""

    longest: int

    def find(self, text: str, at: int) -> Iterator[Match]:
        """Yield the matches from ``at`` on, none overlapping the one before."""


def _start(first: str, behind: str = "[0-9]") -> str:
    """Write a first character that must not follow another of its like."""
    return f"{first}(?<!{behind}{first})"


#: What stands after a number may say that it is none: a row's next groups, the rest of a hash, a measure.
_HEX = "0-9A-Fa-f"
_FOUR = f"[{_HEX}]{{4}}(?![0-9A-Za-z])"
_REST = f"(?P<rest>[cm]m(?![A-Za-z])|[A-Fa-f][{_HEX}]{{0,9}}|(?:{_SEP}{{1,3}}{_FOUR}){{1,4}})?"
_FRACTION = r"(?<!(?<![0-9])0\.1)(?<![0-9]{3}\.1)"  # 0.138…, 151.138…; what stands behind 12. is item 12 of a list
_MOBILE = r"1(?:(?<![0-9]1)|(?<=(?<![0-9])(?<![0-9]{2}\.)861)|(?<=(?<![0-9])00861))" + _FRACTION
_CODED = "(?:(?<=[(（][0-9]{3})[)）])?"  # (138) 0013 8000
_AREA = "(?:10|2[0-9]|[3-9][0-9]{2})"
_LOCAL = f"[1-9][0-9]{{2,3}}{_SEP}?[0-9]{{4}}(?![0-9])"
_ABROAD = "(?:[(（]0[)）] ?|[(（]|0)?"
_FIXED = f"0(?:(?<![0-9]0)|(?<=(?<![0-9])860))(?<![0-9][.-]0){_AREA}"
_CARD_TAIL = f"[0-9]{{4}}{_GAP}[0-9]{{4}}{_GAP}(?:[0-9]{{4}}{_GAP}[0-9]{{1,3}}|[0-9]{{1,4}})(?![0-9])"
_DATE = "(?:18|19|20)[0-9]{2}GAP(?:0[1-9]|1[0-2])(?:0[1-9]|[12][0-9]|3[01])"
_KEY = "A-Za-z0-9_-"
_NAMED = "|".join(f"(?<=[G-Zg-z][A-Fa-f]{{{letters}}}[:：][{_HEX}])" for letters in range(1, 5))  # source:2001:db8::1
_GROUP = f"[{_HEX}:：](?<![0-9A-Za-z.:：][:：])(?<![0-9A-Za-z.][{_HEX}])(?:(?<![{_HEX}:：][:：][{_HEX}])|{_NAMED})"
_OTHER = f"(?:(?![0-9A-Za-z_-])[{_LABEL}])"
_DOMAIN = f"(?:[{_LABEL}]{{1,63}}\\.){{1,5}}(?:[A-Za-z]{{2,24}}|{_OTHER}{{2,24}})"


def _key(first: str) -> str:
    return _start(first, f"[{_KEY}]")


# A form looks behind itself only after its first character: so the engine passes over the others without a look. What
# stands after it, it asks of one character at most: a stream knows no more of what is to come.
_FORMS: dict[KindName, tuple[str, ...]] = {
    "phone_cn": (f"{_MOBILE}[3-9][0-9]{_CODED}{_GAP}[0-9]{{4}}{_GAP}[0-9]{{4}}(?![0-9]){_REST}",),
    "phone_fixed_cn": (
        f"{_FIXED}(?:[)）] ?|{_SEP}{{1,3}}){_LOCAL}",
        f"{_FIXED}[2-8][0-9]{{6,7}}(?![0-9]){_REST}",
        rf"(?:\+|0(?<![0-9]0)0)86{_GAP}{_ABROAD}(?P<value>{_AREA}(?:[)）] ?|{_GAP}){_LOCAL})",
        f"8(?<![0-9+]8)6{_GAP}{_ABROAD}(?P<value>{_AREA}(?:[)）] ?|{_SEP}{{1,3}}){_LOCAL})",
    ),
    "id_card_cn": (f"{_start('[1-9]')}[0-9]{{5}}{_GAP}{_DATE.replace('GAP', _GAP)}{_GAP}[0-9]{{3}}[0-9Xx](?![0-9])",),
    "bank_card": (
        f"{_start('[2-69]')}[0-9]{{3}}{_GAP}{_CARD_TAIL}{_REST}",
        f"{_start('3')}[0-9]{{3}}{_SEP}{{1,3}}[0-9]{{6}}{_SEP}{{1,3}}[0-9]{{4,5}}(?![0-9]){_REST}",
        f"{_start('[4-69]')}[0-9]{{5}}{_SEP}{{1,3}}[0-9]{{10,13}}(?![0-9]){_REST}",
    ),
    "email": (f"{_start(f'[{WORD}]', f'[{WORD}]')}[{WORD}.%+'’-]{{0,63}}@{_DOMAIN}",),
    "id_card_15_cn": (
        f"{_start('[1-8]')}[0-9]{{7}}(?:0[1-9]|1[0-2])(?:0[1-9]|[12][0-9]|3[01])[0-9]{{3}}(?![0-9Xx]){_REST}",
    ),
    "passport_cn": (
        "[CDEGHKLMPSTcdeghklmpst](?<![A-Za-z0-9][A-Za-z])(?:[0-9]{8}|[A-Za-z][0-9]{7})(?![A-Za-z0-9])",
        "[HMhm](?<![A-Za-z0-9][A-Za-z])[0-9]{10}(?![A-Za-z0-9])",
    ),
    "plate_cn": (f"[{PROVINCES}][{_PLATE}]{_SEP}?[{_PLATE}0-9]{{4,5}}[{_PLATE}0-9挂学警港澳领](?![A-Za-z0-9])",),
    "ipv4": (r"[0-9](?<![0-9.][0-9])[0-9]{0,2}(?:\.[0-9]{1,3}){3,7}(?![0-9])",),
    "ipv6": (rf"{_GROUP}[{_HEX}:：]{{2,38}}(?:\.[0-9]{{1,3}}){{0,3}}(?![0-9A-Za-z:：])",),
    "api_key": (
        f"{_key('[prs]')}k[-_][{_KEY}]{{16,250}}",
        f"{_key('A')}(?:[KS]IA[0-9A-Z]{{16}}|KID[A-Za-z0-9]{{13,45}}|Iza[{_KEY}]{{35}})(?![A-Za-z0-9])",
        f"{_key('LTAI')}[A-Za-z0-9]{{12,30}}(?![A-Za-z0-9])",
        f"{_key('gh')}[pousr]_[A-Za-z0-9]{{30,255}}",
        f"{_key('g')}(?:ithub_pat_[A-Za-z0-9_]{{22,255}}|l(?:pat|rt|dt|ft|cbt|ptt|soat|agent)-[{_KEY}]{{20,64}})",
        f"{_key('[hnx]')}(?:f_|pm_|ox[a-eoprs]-|app-)[A-Za-z0-9-]{{10,200}}",
        f"{_key('w')}hsec_[A-Za-z0-9+/=]{{16,128}}",
        f"{_key('eyJ')}[{_KEY}]{{8,512}}(?:\\.[{_KEY}]{{4,2048}}){{1,2}}",
    ),
}

#: What every value of a kind has in it; of the other kinds it is a number of ten digits or more.
_NUMBER_SIGN = f"[0-9](?:[()（）{_BETWEEN}]{{0,4}}[0-9]){{9}}"
_SIGNS: dict[KindName, str] = {
    "email": "@",
    "passport_cn": "[0-9]{7}",
    "plate_cn": "[0-9]",
    "ipv4": r"[0-9]\.[0-9]",
    "ipv6": f"[{_HEX}:：][:：]",
    "api_key": "[0-9A-Z_-]",
}


def sign(name: KindName) -> str:
    """Write an expression that is quick to look for, and without which a text holds nothing of this kind."""
    return _SIGNS.get(name, _NUMBER_SIGN)


def forms(name: KindName) -> list[RegexForm]:
    """Return the ways in which a kind is written."""
    return [RegexForm(source, _CHECKS.get(name, re.Match.end)) for source in _FORMS[name]]


class RegexForm:
    """A form that Python's engine finds: every one of ours looks at each place a bounded number of times."""

    __slots__ = ("_check", "_search", "_value", "beginnings", "longest")

    def __init__(self, source: str, check: Callable[[re.Match[str]], int]) -> None:
        shape = parse(source)
        pattern = re.compile(source)
        self._search, self._check = pattern.search, check
        self._value = pattern.groupindex.get("value", 0)
        self.beginnings, self.longest = shape.beginnings(looks=True), shape.longest or 0

    def find(self, text: str, at: int) -> Iterator[Match]:
        """Yield the matches that pass the check; it says where in the text the value ends, 0 for nothing."""
        while (found := self._search(text, at)) is not None:
            start = found.start()
            if end := self._check(found):
                at = end
                yield Match(start, end, found.start(self._value), end)
            else:
                at = start + 1


def hidden(text: str, match: Match, head: int, tail: int) -> list[int]:
    """Return the places of a value that a mask covers: all but ``head`` and ``tail`` of it and its separators.

    All of it where nothing would be left to hide, separators too where it is made of nothing else.
    """
    places = range(match.value, match.last)
    solid = [place for place in places if _is_separator(text[place]) is None] or list(places)
    return solid[head : len(solid) - tail] if len(solid) > head + tail else solid


def hidden_email(text: str, match: Match) -> list[int]:
    """Return the places of an address that a mask covers: all but the first of what stands before the @."""
    at = text.index("@", match.start)
    quoted = _quoted(text, match.start, at)
    start = quoted.end() if quoted else match.start
    return list(range(start + (at - start > 1), at))


_quoted = re.compile("[BFNRUbfnru]{1,2}'(?!@)").match  # f'li@example.com' in a program
_DIGITS = re.compile("[0-9]+")
_GAPS = re.compile("([^0-9]+)")
_ID_SHAPE = re.compile("[1-9][0-9]{5}" + _DATE.replace("GAP", "") + "[0-9]{4}").fullmatch
_WEIGHTS = (7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2)  # GB 11643-1999
_DOUBLED = bytes.maketrans(b"0123456789", bytes([0, 2, 4, 6, 8, 1, 3, 5, 7, 9]))

#: By ISO/IEC 7812: Diners, American Express; from 16 digits on all that pays, UnionPay's 95588 too. Time stamps, IMEIs
#: and barcodes are none: they have 13 digits, as Visa's cards had long ago, or begin otherwise.
_issued = re.compile("3[0689][0-9]{12}|3[47][0-9]{13}|2[2-7][0-9]{14}|(?:3[05689]|[4-6][0-9]|95)[0-9]{14,17}").fullmatch

_ends_hash = re.compile(f"[{_HEX}]{{10}}\\Z").search
_ends_uuid = re.compile(f"-[{_HEX}]{{4}}-[A-Fa-f]?\\Z").search
_ends_dump = re.compile(f"[0-9][A-Fa-f]{{0,3}}{_SEP}?[A-Fa-f]{{1,3}}\\Z").search
_ends_point = re.compile(r"[0-9]\.\Z").search
_ends_zero = re.compile(r"(?<![0-9])0\.\Z").search
_is_beside = re.compile(f"[0-9]{{3,6}}|[{_HEX}]{{4}}").fullmatch
_fours = re.compile(rf"({_SEP}{{1,3}}){_FOUR}(?:\1{_FOUR}){{0,3}}").match
_is_mobile = re.compile("1[3-9][0-9]{9}").fullmatch


def _digits(value: str) -> str:
    return "".join(_DIGITS.findall(value))


def _parts(found: re.Match[str]) -> tuple[str, str, str]:
    """Return a number, and what may be told of it from before and from after it."""
    text, (start, end) = found.string, found.span()
    if found["rest"]:
        end = found.start("rest")
    return text[max(0, start - BEHIND) : start], text[start:end], text[end : found.end()]


def _is_hashed(before: str, after: str) -> bool:
    """Say that the digits are some of a hash or of a UUID."""
    if _ends_hash(before) or (len(after) == 10 and after[0].isalpha()):
        return True
    return _ends_uuid(before) is not None and (before[-1] != "-" or after[:1].isalpha())


def _is_of_a_table(before: str, value: str, after: str, is_one: Callable[[str], bool]) -> bool:
    """Say that the groups of a number are a decimal number's, or some of a row of numbers.

    In a row three or more groups stand beside it, parted as its own are, that are not such a number themselves.
    """
    parts = _GAPS.split(value)
    gap, gaps = parts[1], set(parts[1::2])
    if "." in gaps and (len(parts) == 3 or len(gaps) > 1):
        return True
    if len(gaps) > 1:
        return False
    following = _fours(after) if len(parts[-1]) == 4 else None
    right = following[0].split(gap)[1:] if following and following[1] == gap else []
    if is_one("".join(right)):
        return False
    left = before.split(gap)[-2::-1] if before.endswith(gap) else []
    beside = len([*takewhile(_is_beside, left[:3]), *right[:3]])
    return beside > 2 and not any(is_one("".join(reversed(left[:count]))) for count in (3, 4, 5))


def _phone(found: re.Match[str]) -> int:
    before, value, after = _parts(found)
    if _is_hashed(before, after):
        return 0
    if len(value) > 11 and (
        after.endswith("m") or _ends_dump(before) or _is_of_a_table(before, value, after, _is_phone)
    ):
        return 0
    return found.start() + len(value)


def _bare(found: re.Match[str]) -> int:
    """A number that has nothing to prove but that it is not of a hash."""
    if "rest" not in found.re.groupindex:
        return found.end()
    before, value, after = _parts(found)
    return 0 if _is_hashed(before, after) else found.start() + len(value)


def _is_phone(number: str) -> bool:
    return _is_mobile(number) is not None


def _id_card(found: re.Match[str]) -> int:
    value = found[0]
    digits = _digits(value)
    last = 10 if value[-1] in "Xx" else int(digits[17])
    total = sum(weight * int(digit) for weight, digit in zip(_WEIGHTS, digits, strict=False))
    return found.end() if (12 - total % 11) % 11 == last else 0


def _is_card(number: str) -> bool:
    return _issued(number) is not None and _ID_SHAPE(number) is None and passes_luhn(number)


def _bank_card(found: re.Match[str]) -> int:
    """Return where a card's number ends: what stands after it may be its date."""
    before, value, after = _parts(found)
    groups = list(_DIGITS.finditer(value))
    number = _digits(value)
    while len(number) > 13:
        group = groups.pop()
        if _is_card(number) and not _is_no_card(before, value[: group.end()], value[group.end() :] + after):
            return found.start() + group.end()
        number = number[: -len(group[0])]
    return 0


def _is_no_card(before: str, value: str, after: str) -> bool:
    """Say that a number is a fraction's, a hash's, or of other numbers."""
    if (_ends_point if len(value) < 18 else _ends_zero)(before) or _is_hashed(before, after):
        return True
    return _GAPS.search(value) is not None and (
        _ends_dump(before) is not None or _is_of_a_table(before, value, after, _is_card)
    )


def passes_luhn(number: str) -> bool:
    """Say whether the last digit of a number checks the others (ISO/IEC 7812-1, annex B)."""
    raw = number.encode()
    plain, doubled = raw[-1::-2], raw[-2::-2].translate(_DOUBLED)
    return (sum(plain) - 48 * len(plain) + sum(doubled)) % 10 == 0


_is_version = re.compile(r"v?[0-9]+\.[0-9]").match
_letters = re.compile(r"[A-Za-z]{2,24}(?![A-Za-z])|[^\x00-\x7f]{2,24}").match
_is_common = re.compile("(?:com|cn|net|org)(?![a-z])").match  # li@example.comTel: what was a line of its own
_is_short = re.compile("[A-Za-z_][A-Za-z0-9_]?").fullmatch


def _email(found: re.Match[str]) -> int:
    """Return where an address ends: at the last name that is one of a top-level domain.

    A version (pkg@1.0.0-rc.dev), a repository (git@…) and a product of matrices (x@w.to(…)) are none.
    """
    name, _, domain = found[0].partition("@")
    labels = domain.split(".")
    if name.lower() == "git" or _is_version(domain):
        return 0
    if len(labels) == 2 and _is_short(labels[0]) and found.string[found.end() : found.end() + 1] in {"(", "[", "_"}:
        return found.end() if _is_common(labels[1]) else 0
    end = found.end()
    while len(labels) > 1:
        last = labels.pop()
        end -= len(last)
        letters = _letters(last)
        if letters and (letters[0].lower() in TOP_LEVEL or _is_common(letters[0]) or not letters[0].isascii()):
            return end + letters.end()
        end -= 1
    return 0


def _plate(found: re.Match[str]) -> int:
    """A plate has at most two letters after its place, an electric car's three; words of English have more."""
    return found.end() if len(_digits(found[0])) >= 3 else 0


def _ipv4(found: re.Match[str]) -> int:
    parts = found[0].split(".")
    return found.end() if len(parts) == 4 and all(int(part) < 256 for part in parts) else 0


def _ipv6(found: re.Match[str]) -> int:
    value = found[0].replace("：", ":")
    if value[-1] == ":" and value[-2] != ":":
        value = value[:-1]
    try:
        ipaddress.IPv6Address(value)
    except ValueError:
        return 0
    groups = [group for group in value.split(":") if group]
    return found.start() + len(value) if len(groups) > 1 and _DIGITS.search(value) else 0


_SHORT = "(?:[A-Za-z]{1,15}[0-9]{0,4}|[0-9]{1,4})"
_is_name = re.compile(f"(?:[prs]k|hf|npm|xoxo)(?:[-_]+{_SHORT})*[-_]*").fullmatch


def _api_key(found: re.Match[str]) -> int:
    """A key has a long part that is no word; the names of a program's things have only short ones."""
    return 0 if _is_name(found[0]) else found.end()


_CHECKS: dict[KindName, Callable[[re.Match[str]], int]] = {
    "phone_cn": _phone,
    "phone_fixed_cn": _bare,
    "id_card_cn": _id_card,
    "bank_card": _bank_card,
    "email": _email,
    "id_card_15_cn": _bare,
    "plate_cn": _plate,
    "ipv4": _ipv4,
    "ipv6": _ipv6,
    "api_key": _api_key,
}
