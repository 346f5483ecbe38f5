"""The obvious way to find personal data, slow and easy to believe: try every piece of the text."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from typing import NamedTuple

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
    if not re.fullmatch(f"[0-9]+(?:[{SEPARATORS}]{{1,3}}[0-9]+)*[Xx]?", value):
        return None
    return [group for group in re.split(f"[{SEPARATORS}]+", value) if group]


def _gaps(groups: list[str]) -> set[int]:
    return {sum(map(len, groups[:index])) for index in range(1, len(groups))}


def _alone(left: str, right: str) -> bool:
    return not left[-1:].isdigit() and not right[:1].isdigit()


def _fraction(left: str) -> bool:
    return left.endswith("0.") and not left[-3:-2].isdigit()


def phone(left: str, value: str, right: str) -> bool:
    groups = _groups(value)
    if groups is None or not _gaps(groups) <= {3, 7} or _fraction(left):
        return False
    for code in ("0086", "86"):
        if left.endswith(code) and not left.removesuffix(code)[-1:].isdigit():
            left = ""
            break
    number = "".join(groups)
    return _alone(left, right) and len(number) == 11 and number[0] == "1" and number[1] in "3456789"


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
        (length == 13 and first[0] == "4")
        or (length == 14 and first in {"30", "36", "38", "39"})
        or (length == 15 and first in {"34", "37"})
        or (16 <= length <= 19 and (first[0] in "3456" or "22" <= first <= "27" or first == "95"))
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
        return _alone(left, right) and not _fraction(left) and _is_card("".join(groups))

    return is_one


def email(left: str, value: str, right: str) -> bool:
    del right
    local, at, domain = value.partition("@")
    labels = domain.split(".")
    return (
        at == "@"
        and re.fullmatch(r"\w[\w.%+-]{0,63}", local, re.ASCII) is not None
        and not re.search(r"\w\Z", left, re.ASCII)
        and 2 <= len(labels) <= 6
        and all(re.fullmatch("[A-Za-z0-9_-]{1,63}", label) for label in labels[:-1])
        and re.fullmatch("[A-Za-z]{2,24}", labels[-1]) is not None
    )


FORMS: list[tuple[str, Callable[[str, str, str], bool], int]] = [
    ("phone_cn", phone, 17),
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
            covered = [place for place in range(start, end) if characters[place] not in SEPARATORS][3:-4]
        for place in covered:
            masked.add(places[place])
            if place + 1 in covered:
                masked.update(range(places[place], places[place + 1]))
    shown = "".join("*" if place in masked else character for place, character in enumerate(text))
    return Verdict(shown, sorted(hits))
