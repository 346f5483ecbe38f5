"""The kinds of personal data that are known: how each is written, what proves it, and what of it stays visible."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple, Protocol

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
_BETWEEN = " \t\xa0\u2002-\u200a\u202f\u3000._\xb7\u2010-\u2015\u2212-"
_SEP = f"[{_BETWEEN}]"
_GAP = f"{_SEP}{{0,3}}"
_LETTER = "A-Za-z\xc0-\u024f\u0370-\u04ff"
WORD = f"0-9_{_LETTER}"  # of an address; Chinese stands next to one, not in it
_PLATE = "A-HJ-NP-Z"
PROVINCES = "京津沪渝冀豫云辽黑湘皖鲁新苏浙赣鄂桂甘晋蒙陕吉闽贵粤青藏川宁琼使"

_is_separator = re.compile(f"[()（）+/:{_BETWEEN}]").match

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


_NUMBER = "(?<!(?<![0-9])0\\.{0})"  # the digits of 0.138… are no number of their own
_MOBILE = "1(?:(?<![0-9]1)|(?<=(?<![0-9])861)|(?<=(?<![0-9])00861))" + _NUMBER.format(1)
_AREA = "(?:10|2[0-9]|[3-9][0-9]{2})"
_LOCAL = f"[1-9][0-9]{{2,3}}{_SEP}?[0-9]{{4}}(?![0-9])"
_FIXED = f"0(?:(?<![0-9]0)|(?<=(?<![0-9])860))(?<![0-9][.-]0){_AREA}"
_CARD_TAIL = f"[0-9]{{4}}{_GAP}[0-9]{{4}}{_GAP}(?:[0-9]{{4}}{_GAP}[0-9]{{1,3}}|[0-9]{{1,4}})(?![0-9])"
_DATE = "(?:18|19|20)[0-9]{2}GAP(?:0[1-9]|1[0-2])(?:0[1-9]|[12][0-9]|3[01])"
_KEY = "A-Za-z0-9_-"


def _card(first: str) -> str:
    return _start(first) + _NUMBER.format(first)


def _key(first: str) -> str:
    return _start(first, f"[{_KEY}]")


# A form looks behind itself only after its first character: so the engine passes over the others without a look. What
# stands after it, it asks of one character at most: a stream knows no more of what is to come.
_FORMS: dict[KindName, tuple[str, ...]] = {
    "phone_cn": (f"{_MOBILE}[3-9][0-9]{_GAP}[0-9]{{4}}{_GAP}[0-9]{{4}}(?![0-9])",),
    "phone_fixed_cn": (
        f"{_FIXED}(?:[)）] ?|{_SEP}{{1,3}}){_LOCAL}",
        f"{_FIXED}[2-8][0-9]{{6,7}}(?![0-9])",
        rf"\+86{_GAP}(?:[(（]0[)）] ?)?(?P<value>{_AREA}{_GAP}{_LOCAL})",
    ),
    "id_card_cn": (f"{_start('[1-9]')}[0-9]{{5}}{_GAP}{_DATE.replace('GAP', _GAP)}{_GAP}[0-9]{{3}}[0-9Xx](?![0-9])",),
    "bank_card": (
        f"{_card('[2-69]')}[0-9]{{3}}{_GAP}{_CARD_TAIL}",
        f"{_card('3')}[0-9]{{3}}{_SEP}{{1,3}}[0-9]{{6}}{_SEP}{{1,3}}[0-9]{{4,5}}(?![0-9])",
        f"{_card('[4-69]')}[0-9]{{5}}{_SEP}{{1,3}}[0-9]{{10,13}}(?![0-9])",
    ),
    "email": (
        f"{_start(f'[{WORD}]', f'[{WORD}]')}[{WORD}.%+-]{{0,63}}@(?:[{WORD}-]{{1,63}}\\.){{1,5}}[{_LETTER}]{{2,24}}",
    ),
    "id_card_15_cn": (f"{_start('[1-8]')}[0-9]{{7}}(?:0[1-9]|1[0-2])(?:0[1-9]|[12][0-9]|3[01])[0-9]{{3}}(?![0-9Xx])",),
    "passport_cn": ("[DEGHKMPSdeghkmps](?<![A-Za-z0-9][A-Za-z])(?:[0-9]{8}|[A-Za-z][0-9]{7})(?![A-Za-z0-9])",),
    "plate_cn": (f"[{PROVINCES}][{_PLATE}]{_SEP}?[{_PLATE}0-9]{{4,5}}[{_PLATE}0-9挂学警港澳领](?![A-Za-z0-9])",),
    "ipv4": (r"[0-9](?<![0-9.][0-9])[0-9]{0,2}(?:\.[0-9]{1,3}){3,7}(?![0-9])",),
    "ipv6": (r"[0-9A-Fa-f:](?<![0-9A-Za-z:.][0-9A-Fa-f:])[0-9A-Fa-f:]{2,38}(?:\.[0-9]{1,3}){0,3}(?![0-9A-Za-z:])",),
    "api_key": (
        f"{_key('[sp]')}k[-_][{_KEY}]{{16,250}}",
        f"{_key('A')}(?:[KS]IA[0-9A-Z]{{16}}|KID[A-Za-z0-9]{{13,45}}|Iza[{_KEY}]{{35}})(?![A-Za-z0-9])",
        f"{_key('LTAI')}[A-Za-z0-9]{{12,30}}(?![A-Za-z0-9])",
        f"{_key('gh')}[pousr]_[A-Za-z0-9]{{30,255}}",
        f"{_key('g')}(?:ithub_pat_[A-Za-z0-9_]{{22,255}}|lpat-[{_KEY}]{{20,64}})",
        f"{_key('[hnx]')}(?:f_|pm_|ox[abeoprs]-)[A-Za-z0-9-]{{10,200}}",
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
    "ipv6": "[0-9A-Fa-f:]:",
    "api_key": "[0-9A-Z_-]",
}


def sign(name: KindName) -> str:
    """Write an expression that is quick to look for, and without which a text holds nothing of this kind."""
    return _SIGNS.get(name, _NUMBER_SIGN)


def forms(name: KindName) -> list[RegexForm]:
    """Return the ways in which a kind is written."""
    return [RegexForm(source, _CHECKS.get(name, len)) for source in _FORMS[name]]


class RegexForm:
    """A form that Python's engine finds: every one of ours looks at each place a bounded number of times."""

    __slots__ = ("_check", "_search", "beginnings", "longest")

    def __init__(self, source: str, check: Callable[[str], int]) -> None:
        shape = parse(source)
        self._search, self._check = re.compile(source).search, check
        self.beginnings, self.longest = shape.beginnings(looks=True), shape.longest or 0

    def find(self, text: str, at: int) -> Iterator[Match]:
        """Yield the matches that pass the check; it says how much of one is the value, 0 for nothing."""
        while (found := self._search(text, at)) is not None:
            start, end = found.span()
            if taken := self._check(text[start:end]):
                at = start + taken
                yield Match(start, at, found.start(found.lastgroup) if found.lastgroup else start, at)
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
    return list(range(match.start + (at - match.start > 1), at))


_DIGITS = re.compile("[0-9]+")
_ID_SHAPE = re.compile("[1-9][0-9]{5}" + _DATE.replace("GAP", "") + "[0-9]{4}").fullmatch
_WEIGHTS = (7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2)  # GB 11643-1999
_DOUBLED = bytes.maketrans(b"0123456789", bytes([0, 2, 4, 6, 8, 1, 3, 5, 7, 9]))

#: By ISO/IEC 7812: Visa (13 digits too), Diners, American Express; from 16 on all that pays, UnionPay's 95588 too. Time
#: stamps, barcodes and a phone's IMEI begin otherwise.
_issued = re.compile("4[0-9]{12}|3[0689][0-9]{12}|3[47][0-9]{13}|(?:2[2-7]|[3-6][0-9]|95)[0-9]{14,17}").fullmatch


def _digits(value: str) -> str:
    return "".join(_DIGITS.findall(value))


def _id_card(value: str) -> int:
    digits = _digits(value)
    last = 10 if value[-1] in "Xx" else int(digits[17])
    total = sum(weight * int(digit) for weight, digit in zip(_WEIGHTS, digits, strict=False))
    return len(value) if (12 - total % 11) % 11 == last else 0


def _bank_card(value: str) -> int:
    """Return how much of the value is a card's number: what stands after it may be its date."""
    groups = list(_DIGITS.finditer(value))
    number = _digits(value)
    for group in reversed(groups):
        if _issued(number) and _ID_SHAPE(number) is None and passes_luhn(number):
            return group.end()
        number = number[: len(number) - len(group[0])]
    return 0


def passes_luhn(number: str) -> bool:
    """Say whether the last digit of a number checks the others (ISO/IEC 7812-1, annex B)."""
    raw = number.encode()
    plain, doubled = raw[-1::-2], raw[-2::-2].translate(_DOUBLED)
    return (sum(plain) - 48 * len(plain) + sum(doubled)) % 10 == 0


def _plate(value: str) -> int:
    """A plate has at most two letters after its place, an electric car's three; words of English have more."""
    return len(value) if len(_digits(value)) >= 3 else 0


def _ipv4(value: str) -> int:
    parts = value.split(".")
    return len(value) if len(parts) == 4 and all(int(part) < 256 for part in parts) else 0


def _ipv6(value: str) -> int:
    if value[-1] == ":" and value[-2] != ":":
        value = value[:-1]
    try:
        ipaddress.IPv6Address(value)
    except ValueError:
        return 0
    groups = [group for group in value.split(":") if group]
    return len(value) if len(groups) > 1 and _DIGITS.search(value) else 0


_CHECKS: dict[KindName, Callable[[str], int]] = {
    "id_card_cn": _id_card,
    "bank_card": _bank_card,
    "plate_cn": _plate,
    "ipv4": _ipv4,
    "ipv6": _ipv6,
}
