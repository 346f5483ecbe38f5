"""Writes tables.py and syllables.py anew from OpenCC's, Unicode's and pypinyin's tables.

python -m plugins.sensitive_words.make_tables TSCharacters.txt STCharacters.txt Unihan_Variants.txt confusables.txt \
    pinyin_dict.json
"""

from __future__ import annotations

import json
import sys
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from plugins.sensitive_words.fold import fold_character
from plugins.sensitive_words.skeleton import is_mark

#: First words of the names of letters that make whole words which look like Latin ones.
_OTHER_SCRIPTS = frozenset([
    "CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE", "CANADIAN", "LISU", "COPTIC", "DESERET", "TIFINAGH", "GEORGIAN",
    "CARIAN", "LYCIAN", "ELBASAN", "WARANG", "OSAGE", "MIAO",
])  # fmt: skip
#: Those of which only a letter among Latin ones counts, and stroked and hooked letters of the scripts above.
_STRANGERS = frozenset([
    "CYRILLIC", "CHEROKEE", "CANADIAN", "TIFINAGH", "OLD", "RUNIC", "HEBREW", "ARABIC", "NKO", "MALAYALAM", "MYANMAR",
    "ETHIOPIC", "ORIYA", "AHOM", "BAMUM", "TIRHUTA",
])  # fmt: skip
#: Letters that living languages write, or that stand for a sound.
_NO_LIGATURES = "æœǆɱᵯꞵǁ"
#: What no source says: a variant read as another word's character, capitals that have no small look-alike.
_VARIANTS = {"妳": "你", "靑": "青", "胷": "胸"}
_NOT_VARIANTS = "卍丼"
_STAND_INS = {"ͷ": "n", "ϛ": "c"}
_HEADER = '''"""Tables of characters that are read alike. Written by make_tables.py; do not edit.

Traditional to simplified: OpenCC's TSCharacters.txt and STCharacters.txt (github.com/BYVoid/OpenCC, Apache-2.0).
Variants that Taiwan, Hong Kong, Japan or Korea encode: Unihan_Variants.txt 14. Look-alikes: Unicode's confusables.txt
13 (unicode.org/reports/tr39). Both of these: Unicode License.
"""

from __future__ import annotations
'''

_SYLLABLES = '''"""Chinese characters by their syllables. Written by make_tables.py; do not edit.

Of pypinyin's pinyin_dict.json (github.com/mozillazg/python-pinyin, MIT), the characters of GB 2312.
"""

from __future__ import annotations

#: Syllables, each with the characters that are read so.
SYLLABLES = '''


def _bare(text: str) -> str:
    """Undo compatibility forms and case, and take the marks off."""
    folded = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", text).casefold())
    return "".join(character for character in folded if not unicodedata.combining(character))


def _letter(text: str) -> bool:
    return len(text) == 1 and text.isascii() and text.isalpha()


def confusables(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield pairs of a character and what it looks like."""
    for line in lines:
        row = line.lstrip("\ufeff").split("#")[0].split(";")
        if len(row) == 3:
            source, target = ("".join(chr(int(code, 16)) for code in part.split()) for part in row[:2])
            if len(source) == 1:
                yield source, target


def simplified(lines: Iterable[str], pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the first simplified form of each traditional character, and of each radical its character."""
    table = {}
    for line in lines:
        if line.strip() and not line.startswith("#"):
            old, new = line.split("\t")[:2]
            if (first := new.split()[0]) != old:
                table[old] = first
    for source, target in pairs:
        if "\u2e80" <= source <= "\u2eff" and len(target) == 1:
            table.setdefault(source, table.get(target, target))
    return {old: table.get(new, new) for old, new in table.items()}


def _encoded(character: str, *encodings: str) -> bool:
    for encoding in encodings:
        try:
            return bool(character.encode(encoding))
        except UnicodeEncodeError:
            continue
    return False


def _named(code: str) -> str:
    return chr(int(code.partition("+")[2], 16))


def variants(
    to_traditional: Iterable[str], unihan: Iterable[str], known: Mapping[str, str], *, common: str = "gb2312"
) -> dict[str, str]:
    """Return the simplified character of each variant that has one alone, is none itself and is not known yet."""
    found: dict[str, set[str]] = defaultdict(set)
    for line in to_traditional:
        if line.strip() and not line.startswith("#"):
            new, olds = line.strip().split("\t")[:2]
            for old in olds.split():
                found[old].add(new)
    for line in unihan:
        row = line.rstrip("\n").split("\t")
        if len(row) == 3 and row[1] in {"kZVariant", "kSemanticVariant"}:
            source, *its = (_named(code.partition("<")[0]) for code in (row[0], *row[2].split()))
            if _encoded(source, "big5hkscs", "euc_jisx0213", "cp949"):
                found[source] |= {known.get(target, target) for target in its}
    table = {}
    for source, several in found.items():
        targets = sorted(target for target in several if _encoded(target, common))
        alone = len(targets) == 1 and source not in known and not _encoded(source, common)
        if alone and source not in _NOT_VARIANTS and unicodedata.normalize("NFKC", source) == source:
            table[source] = targets[0]
    return table | _VARIANTS


def with_small_forms(table: Mapping[str, str]) -> dict[str, str]:
    """Return a table that knows its capitals' small letters too: texts are looked at without their capitals."""
    return {source.casefold(): latin for source, latin in table.items() if len(source.casefold()) == 1} | dict(table)


def ligatures(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return Latin letters that look like several."""
    return {
        source: bare
        for source, target in pairs
        if unicodedata.name(source, "").startswith("LATIN SMALL") and source not in _NO_LIGATURES
        if not source.isascii() and source.isalpha() and unicodedata.normalize("NFKD", source) == source
        if len(bare := _bare(target)) > 1 and bare.isascii() and bare.isalpha()
    }


def strangers(pairs: Iterable[tuple[str, str]], known: Mapping[str, str]) -> dict[str, str]:
    """Return other scripts' letters that look like an ASCII letter, but among such letters only."""
    return {
        source: _bare(target)
        for source, target in pairs
        if unicodedata.name(source, "?").split()[0] in _STRANGERS and source not in known
        if source.isalpha() and unicodedata.normalize("NFKD", source) == source and _letter(_bare(target))
    }


def marks() -> str:
    """Return the marks of other scripts than Latin, Greek and Cyrillic, as ranges of a regular expression."""
    return _ranges(lambda one: unicodedata.category(one)[0] == "M" and not is_mark(one) and bool(fold_character(one)))


def numbers() -> str:
    """Return the signs for numbers that are no digits, written otherwise nowhere."""
    return _ranges(lambda one: unicodedata.category(one) == "No" and unicodedata.normalize("NFKC", one) == one)


def _ranges(meant: Callable[[str], bool]) -> str:
    ranges: list[list[int]] = []
    for code in range(0x370, 0x1F000):
        if not meant(chr(code)):
            continue
        if ranges and ranges[-1][1] == code - 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    return "".join(chr(first) if first == last else f"{chr(first)}-{chr(last)}" for first, last in ranges)


def lookalikes(pairs: Iterable[tuple[str, str]]) -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
    """Return what looks like an ASCII letter: other scripts' letters, Latin ones, and Latin ones with a stroke."""
    others: dict[str, str] = dict(_STAND_INS)
    latin: dict[str, str] = {}
    strokes: dict[str, str] = {}
    for source, target in pairs:
        if not _letter(_bare(target)) or _letter(_bare(source)) or not source.isalpha():
            continue
        script = unicodedata.name(source, "?").split()[0]
        marked = len(unicodedata.normalize("NFKD", target)) > 1
        if script in _OTHER_SCRIPTS and not marked:
            others[source] = _bare(target)
        elif script == "LATIN":
            (strokes if marked else latin)[source] = _bare(target)
    for source in map(chr, range(0x250, 0xAC00)):
        name = unicodedata.name(source, "")
        for kind in ("LATIN LETTER SMALL CAPITAL ", "LATIN SMALL LETTER TURNED "):
            if name.startswith(kind) and _letter(_bare(last := name.removeprefix(kind))):
                latin[source] = _bare(last)
    return others, with_small_forms(latin), with_small_forms(strokes)


def _syllable(spoken: str) -> str:
    return _bare(unicodedata.normalize("NFD", spoken).replace("u\u0308", "v"))


def pinyin(readings: dict[str, str]) -> dict[str, str]:
    """Return the characters of each syllable, without tones; of each character its first two readings."""
    table: dict[str, str] = defaultdict(str)
    for code, spoken in readings.items():
        try:
            chr(int(code)).encode("gb2312")
        except UnicodeEncodeError:
            continue
        for syllable in dict.fromkeys(_syllable(one) for one in spoken.split(",")[:2]):
            table[syllable] += chr(int(code))
    return dict(sorted(table.items()))


def _strings(text: str, width: int, *, as_ascii: bool = False) -> str:
    parts = [text[start : start + width] for start in range(0, len(text), width)]
    parts = [ascii(part) if as_ascii else json.dumps(part, ensure_ascii=False) for part in parts]
    return "(\n    " + "\n    ".join(parts) + "\n)\n"


def _pairs(name: str, table: dict[str, str], width: int, said: str) -> str:
    ordered = sorted(table)
    return (
        f"\n#: {said}\n{name} = dict(\n    zip(\n        "
        + _strings("".join(ordered), width).strip().replace("\n", "\n        ")
        + ",\n        "
        + _strings("".join(table[one] for one in ordered), width).strip().replace("\n", "\n        ")
        + ",\n        strict=True,\n    )\n)\n"
    )


def main(paths: Sequence[str]) -> None:
    """Read the three sources and write the module."""
    simple, traditional, unihan, confusing, spoken = (Path(path).read_text("utf-8") for path in paths)
    pairs = list(confusables(confusing.splitlines()))
    characters = simplified(simple.splitlines(), pairs)
    characters |= variants(traditional.splitlines(), unihan.splitlines(), characters)
    characters = {old: characters.get(new, new) for old, new in characters.items()}
    others, latin, strokes = lookalikes(pairs)
    sounds = " ".join(syllable + characters for syllable, characters in pinyin(json.loads(spoken)).items())
    several = " ".join(letter + letters for letter, letters in sorted(ligatures(pairs).items()))
    parts = [
        _HEADER,
        _pairs("SIMPLIFIED", characters, 50, "Traditional character or variant: simplified."),
        _pairs("LOOKALIKES", others, 50, "Letter of another script: the Latin letter it looks like."),
        _pairs("STRANGERS", strangers(pairs, others), 50, "The same, where it stands among Latin letters only."),
        _pairs("LATIN", latin, 50, "Odd Latin letter, small capitals among them: the plain one."),
        _pairs("STROKES", strokes, 50, "Letter with a stroke or hook: the plain one."),
        "\n#: Latin letters, each with those it is made of.\nLIGATURES = " + _strings(several, 100),
        "\n#: Marks of scripts that are letters to their readers, as ranges.\nMARKS = "
        + _strings(marks(), 14, as_ascii=True),
        "\n#: Numbers that are no digits, as ranges.\nNUMBERS = " + _strings(numbers(), 14, as_ascii=True),
    ]
    Path(__file__).with_name("tables.py").write_text("".join(parts), "utf-8")
    Path(__file__).with_name("syllables.py").write_text(_SYLLABLES + _strings(sounds, 52), "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
