"""The copy of a text in which words are looked for: what each character is read as, and the way back to it.

A copy has small letters, digits and characters of scripts without capitals; everything that separates is a space, or a
dash if it can join the parts of a Latin word. Marks on letters and what is invisible are left out, and look-alikes of
Latin letters are Latin letters in it: it shows more words than there are, and ``spelling`` tells which were written.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from plugins.sensitive_words.alone import SINGLE
from plugins.sensitive_words.fold import LIKE_APOSTROPHES, LIKE_SIGNS, fold_character
from plugins.sensitive_words.tables import LATIN, LIGATURES, LOOKALIKES, SIMPLIFIED, STRANGERS, STROKES

_SHORT = 24  # up to here the table is cheaper than the checks that avoid it
_TABLE_LIMIT = 60_000  # code points remembered; a text of all of Unicode shall not fill the memory

#: Marks that stand on the letters of many scripts, the vowels of Hebrew and Arabic, and the tone marks of Chinese; the
#: marks of other scripts are letters to their readers, and the iota below Greek vowels is one when case is undone.
_mark = re.compile(
    "[\u0300-\u0344\u0346-\u036f\u0483-\u0489\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06dc"
    "\u06df-\u06e4\u06e7\u06e8\u06ea-\u06ed\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\u302a-\u302f\ufe20-\ufe2f]"
).match
#: Of these, what makes no other word: no orthography strikes letters through or frames them, vowels may be left out.
OVERLAYS = frozenset(
    map(
        chr,
        (
            *range(0x334, 0x339),
            *range(0x20D0, 0x2100),
            0x488,
            0x489,
            0x1ABE,
            *range(0x591, 0x5C8),
            *range(0x610, 0x61B),
        ),
    )
) | frozenset(map(chr, (*range(0x64B, 0x653), *range(0x656, 0x660), 0x670, *range(0x6D6, 0x6EE))))
#: They part words, and stand in ordinary ones: he'll is no hell.
APOSTROPHES = frozenset("'’‘`´" + LIKE_APOSTROPHES)
_STROKE = "/"  # stands for the stroke of ø among a letter's marks
#: Letters with strokes and hooks that living languages write; others are decoration.
_WRITTEN = frozenset("øđðħłŧɓɗƙƴɛɔŋ")

#: Letters on a dark ground. Compatibility forms know the other framed ones. Letters that flags are made of stand alone:
#: a flag behind a word is no part of it.
_FRAMED = (
    {chr(first + number): chr(97 + number) for first in (0x1F150, 0x1F170, 0x1CCD6) for number in range(26)}
    | {chr(0x1F1E6 + number): f"-{chr(97 + number)}-" for number in range(26)}
    | {chr(first + number): str(number + 1) for first in (0x2776, 0x2780, 0x278A, 0x24F5) for number in range(10)}
    | {chr(0x24EB + number): str(number + 11) for number in range(10)}
    | {chr(0x1CCF0 + number): str(number) for number in range(10)}
    | dict.fromkeys("⓿🄋🄌", "0")
    | dict.fromkeys("¨¯¸˘˙˚˛˜˝￣‗‾﹉﹊﹋﹌", "-")  # their compatibility forms are a space with a mark
)

_LIGATURES = {row[0]: row[1:] for row in LIGATURES.split(" ")}

#: Where scripts are mixed a small letter may stand for its capital too: к for K.
_ALIKE = STRANGERS | LOOKALIKES
_LOOSE = {fold_character(letter): latin for letter, latin in _ALIKE.items() if not letter.islower()} | {
    letter: latin for letter, latin in _ALIKE.items() if letter.islower()
}


def is_mark(character: str) -> bool:
    """Is it a mark on the letter before it?"""
    return _mark(character) is not None


def _plainly(character: str) -> str:
    """Return what a folded character is read as, look-alikes of other scripts as themselves."""
    if character.isascii() and character.isalnum():
        return character
    character = SIMPLIFIED.get(character) or LATIN.get(character) or STROKES.get(character) or character
    if character.isspace() or character in APOSTROPHES:
        return " "
    if character in LIKE_SIGNS:
        return "-"
    if character.isalnum() or unicodedata.category(character).startswith("M"):
        number = unicodedata.decimal(character, None)
        return character if number is None else str(number)
    return "-"


class Letter(NamedTuple):
    """A character as it was written. ``letter`` is what it is, ``read_as`` what it is in a copy, ``raw`` where from."""

    read_as: str
    letter: str
    marks: str
    raw: str


@lru_cache(4096)
def _spelled(raw: str) -> tuple[tuple[Letter, ...], str]:
    """Return the letters of a code point, and the marks that belong to the letter before it."""
    letters: list[Letter] = []
    before = ""
    folded = _FRAMED.get(raw) or fold_character(raw)
    for part in _LIGATURES.get(folded, folded):
        if not _mark(part):
            letter = _plainly(part)
            letters.append(Letter(_LOOSE.get(letter, letter), letter, _STROKE if part in _WRITTEN else "", raw))
        elif letters:
            letters[-1] = letters[-1]._replace(marks=letters[-1].marks + part)
        else:
            before += part
    return tuple(letters), before


def spelling(text: str) -> list[Letter]:
    """Return the letters and separators of a text, each with its marks."""
    spelled: list[Letter] = []
    for raw in text:
        letters, marks = _spelled(raw)
        if marks and spelled:
            spelled[-1] = spelled[-1]._replace(marks=spelled[-1].marks + marks)
        spelled += letters
    return spelled


def most_marked(run: Sequence[Letter]) -> Letter:
    """Return the first letter of a run that has the most marks: it stands for all where repeats count once."""
    return max(run, key=lambda letter: len(letter.marks))


class _Table(dict[int, str]):
    """Code point to what it is read as, filled as characters come."""

    def __missing__(self, code: int) -> str:
        read_as = "".join(letter.read_as for letter in spelling(chr(code)))
        if len(self) < _TABLE_LIMIT:
            self[code] = read_as
        return read_as


TABLE = _Table()
_ASCII = {code: TABLE[code] for code in range(128)}
_BYTES = bytes(ord(_ASCII[code] or "\0") if code < 128 else code for code in range(256))

#: Marks of ordinary Chinese, which would send a text to the slow path.
_MARKS = [(mark, TABLE[ord(mark)]) for mark in "，。、：；“”！？（）…—《》‘’【】「」『』·～％．＂\u3000\xa0"]


def _alike(first: int, last: int) -> str:
    return "".join(chr(code) for code in range(first, last) if chr(code) not in SIMPLIFIED and chr(code) not in SINGLE)


#: What is read as itself, or as ASCII is. Most texts are made of this alone.
_plain = re.compile(f"[\t\n\r -~{_alike(0x4E00, 0xA000)}{_alike(0x3400, 0x4DC0)}]*").fullmatch


class Copy(NamedTuple):
    """A text and what it is read as: ``letters[i]`` comes from ``text[places[i]]``, and ends with ``text[lasts[i]]``.

    ``same``: each character was read as one, so the places are the indices, and nothing was written oddly.
    """

    text: str
    letters: str
    places: Sequence[int]
    lasts: Sequence[int]
    runs: Sequence[int]
    same: bool


_NO_RUNS: tuple[int, ...] = ()


def quick(text: str) -> bytes | None:
    """Read a text the quick way, character for character, in UTF-8; None where it is not made for that."""
    if text.isascii():
        read_as = text.encode().translate(_BYTES)
        return None if b"\0" in read_as else read_as
    if len(text) > _SHORT:
        for mark, stands_for in _MARKS:
            if mark in text:
                text = text.replace(mark, stands_for)
        if _plain(text):
            return text.encode().translate(_BYTES)
    return None


def read(text: str, *, repeats: bool = False) -> Copy:
    """Read a text."""
    read_as = quick(text)
    if read_as is not None:
        copy = Copy(text, read_as.decode(), range(len(text)), range(len(text)), _NO_RUNS, same=True)
    else:
        places = _Places(text)
        copy = Copy(text, text.translate(TABLE), places, places, _NO_RUNS, same=False)
    return _without_repeats(copy) if repeats else copy


class _Places(Sequence[int]):
    """The places of a copy's letters in its text, found out when somebody asks: nobody does of clean text."""

    __slots__ = ("_known", "_text")

    def __init__(self, text: str) -> None:
        self._text = text
        self._known: list[int] | None = None

    def _list(self) -> list[int]:
        if self._known is None:
            self._known = [index for index, character in enumerate(self._text) for _ in TABLE[ord(character)]]
        return self._known

    def __len__(self) -> int:
        return len(self._list())

    def __getitem__(self, index: int) -> int:  # type: ignore[override]  # nobody takes a slice
        return self._list()[index]


def _without_repeats(copy: Copy) -> Copy:
    """Let a run of one letter count once, and know how long it was."""
    letters, places, lasts, runs = [], [], [], []
    for match in re.finditer(r"([^ -])\1*|[ -]", copy.letters):
        letters.append(match[0][0])
        places.append(copy.places[match.start()])
        lasts.append(copy.places[match.end() - 1])
        runs.append(match.end() - match.start())
    return Copy(copy.text, "".join(letters), places, lasts, runs, copy.same)
