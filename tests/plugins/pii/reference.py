"""The obvious way to find personal data, slow and easy to believe: try every piece of the text."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from typing import NamedTuple

from plugins.pii.domains import TOP_LEVEL

INVISIBLE = "\u200b\u200d\u2060\ufeff\xad"
SEPARATORS = " \t\u3000._\u2014-"


class Seen(NamedTuple):
    """What a reader sees: characters, and where each of them stands."""

    text: str
    places: list[int]


class Verdict(NamedTuple):
    """What is shown of a text, and what was found where."""

    shown: str
    hits: list[tuple[int, int, str]]


def seen(text: str) -> Seen:
    places = [place for place, character in enumerate(text) if character not in INVISIBLE]
    return Seen("".join(_plain(text[place]) for place in places), places)


def _plain(character: str) -> str:
    if character.isdecimal():
        return str(unicodedata.decimal(character))
    half = unicodedata.normalize("NFKC", character)
    return half if half in set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ@.-_+%") else character


def _groups(value: str) -> list[str] | None:
    """Return the groups of digits with up to three separators between them; None if it is anything else."""
    if not value[:1].isdigit() or not re.fullmatch(f"[0-9]+(?:[{SEPARATORS}]{{1,3}}[0-9]+)*[Xx]?", value):
        return None
    return [group for group in re.split(f"[{SEPARATORS}]+", value) if group]


def _gaps(groups: list[str]) -> set[int]:
    return {sum(map(len, groups[:index])) for index in range(1, len(groups))}


def _alone(left: str, right: str) -> bool:
    return not left[-1:].isdigit() and not right[:1].isdigit()


def _hashed(left: str, right: str) -> bool:
    """Ten more digits of a hash on a side, or the last group of a UUID, which has a letter at an end."""
    if re.search("[0-9A-Fa-f]{10}\\Z", left) or re.match("[A-Fa-f][0-9A-Fa-f]{9}", right):
        return True
    ends = re.search("-[0-9A-Fa-f]{4}-([A-Fa-f]?)\\Z", left)
    return ends is not None and bool(ends[1] or re.match("[A-Fa-f]|mm(?![A-Za-z])", right))


def _dumped(left: str) -> bool:
    """A letter of a hexadecimal group stands before the first digit."""
    return re.search(f"[0-9][A-Fa-f]{{0,3}}[{SEPARATORS}]?[A-Fa-f]{{1,3}}\\Z", left) is not None


def _tabled(left: str, value: str, right: str, is_one: Callable[[str], bool]) -> bool:
    """Decimal numbers, and groups with three more in their row, unless those are a number of this kind."""
    gaps = re.findall("[^0-9]+", value)
    if gaps.count(".") == 1 == len(gaps) or ("." in gaps and set(gaps) != {"."}):
        return True
    if len(set(gaps)) != 1:
        return False
    befores = left.split(gaps[0])[:-1] if left.endswith(gaps[0]) else []
    afters: list[str] = []
    while re.search("(?:^|[^0-9])[0-9]{4}\\Z", value) and len(afters) < 4:
        following = re.match(f"{re.escape(gaps[0])}([0-9A-Fa-f]{{4}})(?![0-9A-Za-z])", right)
        if not following:
            break
        afters.append(following[1])
        right = right[following.end() :]
    near = 0
    for group in befores[:-4:-1]:
        if not re.fullmatch("[0-9]{3,6}|[0-9A-Fa-f]{4}", group):
            break
        near += 1
    others = ["".join(befores[-count:]) for count in (3, 4, 5)]
    return near + len(afters[:3]) > 2 and not any(
        is_one(other) for other in ("".join(afters), *others) if other.isdigit()
    )


def _is_phone(number: str) -> bool:
    return re.fullmatch("1[3-9][0-9]{9}", number) is not None


def phone(left: str, value: str, right: str) -> bool:
    bare = value[:3] + value[4:] if left.endswith(("(", "（")) and value[3:4] in {")", "）"} else value
    groups = _groups(bare)
    number = "".join(groups or [])
    if groups is None or not _gaps(groups) <= {3, 7} or not _is_phone(number):
        return False
    if value != number and (re.match("[cm]m(?![A-Za-z])", right) or _dumped(left)):
        return False
    if _hashed(left, right) or _tabled(left, value, right, _is_phone) or re.search(r"(?<!\d)0\.\Z|\d{3}\.\Z", left):
        return False
    for code in ("0086", "86"):
        start = left.removesuffix(code)
        if start != left and not start[-1:].isdigit() and not (code == "86" and re.search(r"\d\d\.\Z", start)):
            left = ""
            break
    return _alone(left, right)


def id_card(left: str, value: str, right: str) -> bool:
    groups = _groups(value)
    if groups is None or not _gaps(groups) <= {6, 10, 14} or not _alone(left, right):
        return False
    number = "".join(groups).upper()
    if len(number) != 18 or number[0] == "0" or not "1800" <= number[6:10] <= "2099":
        return False
    if not ("01" <= number[10:12] <= "12" and "01" <= number[12:14] <= "31"):
        return False
    weighted = sum(int(digit) * 2 ** (17 - index) for index, digit in enumerate(number[:17]))
    return "10X98765432"[weighted % 11] == number[17]


def _is_card(number: str) -> bool:
    first, length = number[:2], len(number)
    issued = (
        (length == 14 and first in {"30", "36", "38", "39"})
        or (length == 15 and first in {"34", "37"})
        or (length == 16 and "22" <= first <= "27")
        or (16 <= length <= 19 and (first[:1] in {*"456"} or first in {"30", "35", "36", "38", "39", "95"}))
    )
    if length == 18 and re.fullmatch("(?:18|19|20)[0-9]{2}(?:0[1-9]|1[0-2])(?:0[1-9]|[12][0-9]|3[01])", number[6:14]):
        return False  # an ID card whose check digit is wrong
    digits = [int(digit) for digit in reversed(number)]
    return issued and sum(digits[::2] + [sum(divmod(2 * digit, 10)) for digit in digits[1::2]]) % 10 == 0


def _card(allowed: Callable[[list[str]], bool], firsts: str) -> Callable[[str, str, str], bool]:
    def is_one(left: str, value: str, right: str) -> bool:
        groups = _groups(value)
        if groups is None or value[0] not in firsts or not value[-1].isdigit() or not allowed(groups):
            return False
        number = "".join(groups)
        if not _alone(left, right) or not _is_card(number):
            return False
        if re.search(r"\d\.\Z" if len(value) < 18 else r"(?<!\d)0\.\Z", left) or _hashed(left, right):
            return False
        return value == number or not (_dumped(left) or _tabled(left, value, right, _is_card))

    return is_one


def _is_top_level(label: str, right: str) -> bool:
    if re.fullmatch(r"[^\W\x00-\x7f]{2,24}", label):
        return not re.match(r"[^\W\x00-\x7f]", right) or len(label) == 24
    if not re.fullmatch("[A-Za-z]{2,24}", label) or re.match("[A-Za-z]", right):
        return False
    return label.lower() in TOP_LEVEL or re.match("(com|cn|net|org)(?![a-z])", label) is not None


def email(left: str, value: str, right: str) -> bool:
    local, at, domain = value.partition("@")
    labels = domain.split(".")
    return (
        at == "@"
        and re.fullmatch(r"\w[\w.%+'-]{0,63}", local, re.ASCII) is not None
        and not re.search(r"\w\Z", left, re.ASCII)
        and 2 <= len(labels) <= 6
        and all(re.fullmatch("[\\w-]{1,63}", label) for label in labels[:-1])
        and _is_top_level(labels[-1], right)
        and re.match(r"v?\d+\.\d", domain) is None
        and not (
            re.fullmatch("[A-Za-z_][A-Za-z0-9_]?[.](?!(com|cn|net|org)(?![a-z]))[A-Za-z]+", domain)
            and right[:1] in {"(", "[", "_"}
        )
    )


FORMS: list[tuple[str, Callable[[str, str, str], bool], int]] = [
    ("phone_cn", phone, 18),
    ("id_card_cn", id_card, 27),
    ("bank_card", _card(lambda groups: _gaps(groups) <= {4, 8, 12, 16}, "234569"), 31),
    ("bank_card", _card(lambda groups: list(map(len, groups)) in ([4, 6, 4], [4, 6, 5]), "3"), 21),
    ("bank_card", _card(lambda groups: len(groups) == 2 and len(groups[0]) == 6, "4569"), 22),
    ("email", email, 100),
]


def find(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield what each form finds in a text without invisible characters: the first, then the first after it."""
    for kind, is_one, longest in FORMS:
        start = 0
        while start < len(text):
            ends = range(min(len(text), start + longest), start, -1)
            end = next((end for end in ends if is_one(text[:start], text[start:end], text[end:])), None)
            if end is not None:
                yield start, end, kind
            start = end or start + 1


def judge(text: str) -> Verdict:
    """Return what a caller may see of the whole text, with three characters left at the head and four at the tail."""
    characters, places = seen(text)
    masked: set[int] = set()
    hits = []
    for start, end, kind in find(characters):
        hits.append((places[start], places[end - 1] + 1, f"pii:{kind}"))
        if kind == "email":
            at = characters.index("@", start)
            covered = list(range(start + 1 if at > start + 1 else start, at))
        else:
            covered = [place for place in range(start, end) if characters[place] not in SEPARATORS + "()（）"][3:-4]
        for place in covered:
            masked.add(places[place])
            if place + 1 in covered:
                masked.update(range(places[place], places[place + 1]))
    shown = "".join("*" if place in masked else character for place, character in enumerate(text))
    return Verdict(shown, sorted(hits))
