"""How the reference reads a text, and the policy's rules for what stands between and around letters."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from typing import NamedTuple

from plugins.sensitive_words.fold import WORD, fold_character
from plugins.sensitive_words.skeleton import OVERLAYS, Letter, is_mark, spelling
from plugins.sensitive_words.tables import LOOKALIKES


class Unit(NamedTuple):
    """A letter or a separator of a text."""

    read_as: str  # a small letter; for separators the sign itself, narrow
    letter: str  # before look-alikes are taken for Latin letters
    marks: str
    raw: str
    first: int  # code point
    last: int
    run: int  # letters in the run, where repeats count once

    @property
    def separates(self) -> bool:
        return not self.letter

    @property
    def in_word(self) -> bool:
        return self.read_as in WORD and not self.separates


def sign(letter: Letter) -> str:
    if letter.raw in "\n\x0b\x0c\x85\u2028\u2029":
        return "\n"
    if letter.raw.isspace():
        return "\r" if letter.raw == "\r" else " "
    if letter.raw in "'’‘`´ʹʺʻʼʽʾʿˈˊˋˮʹꞋꞌߴߵ":
        return "'"
    narrow = unicodedata.normalize("NFKC", letter.raw)
    return narrow if len(narrow) == 1 else "…" if letter.raw == "…" else "-"


def units(text: str, *, repeats: bool) -> list[Unit]:
    """Read a text."""
    read: list[Unit] = []
    for at, character in enumerate(text):
        if fold_character(character) and all(map(is_mark, fold_character(character))):
            if read:
                read[-1] = read[-1]._replace(marks=read[-1].marks + fold_character(character))
            continue
        for one in spelling(character):
            if one.read_as in " -":
                read.append(Unit(sign(one), "", one.marks, one.raw, at, at, 1))
            else:
                read.append(Unit(one.read_as, one.letter, one.marks, one.raw, at, at, 1))
    return once(read) if repeats else read


def once(read: list[Unit]) -> list[Unit]:
    """Let runs of one letter count once, with the most marks that one of them has."""
    runs: list[Unit] = []
    for unit in read:
        last = runs[-1] if runs else unit
        if runs and not unit.separates and last.read_as == unit.read_as:
            most = max(last, unit, key=lambda one: len(one.marks))
            runs[-1] = most._replace(first=last.first, last=unit.last, run=last.run + 1)
        else:
            runs.append(unit)
    return runs


def skips(run: str, most: int) -> bool:
    """DESIGN's rule for a run of separators, as it is written there."""
    if not run:
        return True
    if most == 0 or run.count("\n") > 1:
        return False
    if len(set(run)) == 1 and 2 <= len(run) <= 64:
        return True
    return len(run) <= most and not re.search("[。.!?;]", run)


def of(signs: Iterable[Unit]) -> str:
    return re.sub("\r\n?", "\n", "".join(one.read_as for one in signs))


class Match(NamedTuple):
    """Letters of a text that are an entry's, and the runs between them."""

    at: list[int]
    runs: list[str]


def walk(read: list[Unit], start: int, key: str) -> Match | None:
    """Match the letters of a key from a unit on, whatever separates them."""
    at: list[int] = []
    runs: list[str] = []
    signs: list[Unit] = []
    for index in range(start, len(read)):
        if read[index].separates:
            signs.append(read[index])
            continue
        run, signs = of(signs), []
        if read[index].read_as != key[len(at)]:
            return None
        if at:
            runs.append(run)
        at.append(index)
        if len(at) == len(key):
            return Match(at, runs)
    return None


def writes_numbers(one: str) -> bool:
    """Is a sign one of those that numbers, dates, sums and prices are written with?"""
    kind = unicodedata.category(one)
    listed = one in "\n:/*%‰٪°′\"、•…✕✖➕➖➗.,'·٫٬‧・" or kind in {"Zs", "Pd", "Pc", "Ps", "Pe", "Sm", "Sc", "Sk"}
    return listed or "ARROW" in unicodedata.name(one, "").split()


def one_number(read: list[Unit], at: int, *, groups: bool) -> bool:
    """Is the separator at a place one inside a number: 4.69, 69,000, or (if numbers are grouped by spaces) 69 000?"""
    line = ""
    for one in read:
        if one.separates:
            point, group = one.raw != "，" and one.read_as in ".,'_·٫٬⁄‧∙⋅・", one.raw in " \xa0\u2007\u2009\u202f"
            line += "." if point else " " if group and groups else "-"
        else:
            line += "9" if one.read_as.isdecimal() else "x" if one.in_word else "中"
    before, after = line[:at], line[at:]
    grouped = re.search("(?<![9x])9{1,3}$", before) and re.match(" 9{3}(?![9x])", after)
    return bool(grouped or (before.endswith("9") and after.startswith(".9")))


def latin_gaps(read: list[Unit], match: Match, most: int, own: list[bool]) -> tuple[bool, bool]:
    """Do the runs between letters of words skip: as in a word with symbols, as in a word spelled out?"""
    joined = spelled = True
    for left, right, run, its_own in zip(match.at, match.at[1:], match.runs, own, strict=False):
        one, other = read[left], read[right]
        if its_own:
            continue
        if not (one.in_word and other.in_word):
            joined, spelled = joined and skips(run, most), spelled and skips(run, most)
            continue
        digits = one.read_as.isdecimal() and other.read_as.isdecimal()
        if run:
            dotted = skips(run, most) or (run.count(".") == 1 and skips(run.replace(".", "-"), most))
            spelled = spelled and dotted and not (digits and re.search("[.,]", run))
        else:
            spelled = False
        apostrophe = "'" in run
        numeric = digits and any(map(writes_numbers, run))
        joined = joined and skips(run, most) and not re.search("[ \n]", run) and not apostrophe and not numeric
    size = len(match.at)
    decimal = all(read[at].read_as.isdecimal() for at in match.at)
    return spelled and size >= (4 if decimal else 3), joined


def alone(read: list[Unit], index: int) -> bool:
    beside = [read[at] for at in (index - 1, index + 1) if 0 <= at < len(read)]
    return read[index].in_word and not any(one.in_word for one in beside)


def spelled_neighbours(read: list[Unit], match: Match, most: int) -> tuple[bool, bool]:
    """Do single letters stand before and after a word that is spelled out, as if they were of it?"""
    spaces = any(re.search("[ \n]", run) for run in match.runs)
    told = []
    for step, edge in ((-1, match.at[0]), (1, match.at[-1])):
        index, signs = edge + step, []
        while 0 <= index < len(read) and read[index].separates:
            signs.append(read[index])
            index += step
        run = of(signs[::step])
        good = len(signs) and (skips(run, most) or (run.count(".") == 1 and skips(run.replace(".", "-"), most)))
        there = good and 0 <= index < len(read) and alone(read, index) and (spaces or not re.search("[ \n]", run))
        article = step < 0 and there and read[index].read_as in "ai" and run.isspace()
        told.append(bool(there and not article))
    return told[0], told[1]


def marks_hold(pairs: list[tuple[Unit, str]]) -> bool:
    """Are the marks the entry's, or decoration?"""
    strict = [
        (one.marks.replace("\u0307", ""), own.replace("\u0307", "")) if one.letter in "ij" else (one.marks, own)
        for one, own in pairs
    ]
    greek = [re.fullmatch("[\u0370-\u03ff]", one.letter) and one.raw.isupper() for one, _ in pairs]
    strict = [
        (marks, own.replace("\u0301", "") if capital and "\u0301" not in marks else own)
        for (marks, own), capital in zip(strict, greek, strict=True)
    ]
    loose = [tuple("".join(mark for mark in marks if mark not in OVERLAYS) for marks in pair) for pair in strict]
    return (
        all(marks == own for marks, own in strict)
        or all(marks == own for marks, own in loose)
        or any(len(marks) >= len(own) + 3 for marks, own in loose)
        or (len(strict) >= 3 and all(marks for marks, _ in strict))
    )


def script(letter: str) -> str:
    return "LATIN" if letter.isascii() else unicodedata.name(letter, "?").split(" ")[0]


def nearest(characters: Iterable[str]) -> str:
    """The script of the first letter that does not look like a Latin one: nothing where all do."""
    letters = (one for one in characters if one.isalnum() and unicodedata.category(one) not in {"Nd", "No"})
    return next((script(one) for one in letters if one not in LOOKALIKES), "")


def scripts_hold(text: str, read: list[Unit], match: Match, letters: list[str]) -> bool:
    written = [read[at] for at in match.at]
    foreign = [(one, own) for one, own in zip(written, letters, strict=True) if one.letter != own]
    if not foreign:
        return True
    scripts = {script(one.letter) for one in written if not one.letter.isdecimal()}
    if len(scripts) > 1:
        return True
    if (
        len(written) < 3
        or "LATIN" in scripts
        or any(one.raw not in LOOKALIKES or not own.isascii() for one, own in foreign)
    ):
        return False
    first, last = match.at[0], match.at[-1]
    if (first and read[first - 1].in_word) or (last + 1 < len(read) and read[last + 1].in_word):
        return False
    start, end = read[first].first, read[last].last + 1
    return scripts.isdisjoint([nearest(text[:start][::-1]), nearest(text[end : end + 96])])
