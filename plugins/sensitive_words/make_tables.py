"""Writes tables.py anew from OpenCC's TSCharacters.txt, Unicode's confusables.txt and pypinyin's pinyin_dict.json.

python -m plugins.sensitive_words.make_tables TSCharacters.txt confusables.txt pinyin_dict.json
"""

from __future__ import annotations

import json
import sys
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

#: First words of the names of letters whose look-alikes are folded only where scripts are mixed.
_OTHER_SCRIPTS = frozenset([
    "CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE", "CANADIAN", "LISU", "COPTIC", "DESERET", "TIFINAGH", "GEORGIAN",
    "CARIAN", "LYCIAN", "ELBASAN", "WARANG", "OSAGE", "MIAO",
])  # fmt: skip
_HEADER = '''"""Tables of characters that are read alike. Written by make_tables.py; do not edit.

Traditional to simplified: OpenCC's TSCharacters.txt (github.com/BYVoid/OpenCC, Apache-2.0). Look-alikes: Unicode's
confusables.txt (unicode.org/reports/tr39, Unicode License), version 13. Pinyin: pypinyin's pinyin_dict.json
(github.com/mozillazg/python-pinyin, MIT), of it the characters of GB 2312.
"""

from __future__ import annotations
'''


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


def lookalikes(pairs: Iterable[tuple[str, str]]) -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
    """Return what looks like an ASCII letter: other scripts' letters, Latin ones, and Latin ones with a stroke."""
    others: dict[str, str] = {}
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
    return others, latin, strokes


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


def _strings(text: str, width: int) -> str:
    parts = [json.dumps(text[start : start + width], ensure_ascii=False) for start in range(0, len(text), width)]
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
    characters, confusing, spoken = (Path(path).read_text("utf-8") for path in paths)
    pairs = list(confusables(confusing.splitlines()))
    others, latin, strokes = lookalikes(pairs)
    sounds = " ".join(syllable + characters for syllable, characters in pinyin(json.loads(spoken)).items())
    parts = [
        _HEADER,
        _pairs("SIMPLIFIED", simplified(characters.splitlines(), pairs), 50, "Traditional character: simplified."),
        _pairs("LOOKALIKES", others, 50, "Letter of another script: the Latin letter it looks like."),
        _pairs("LATIN", latin, 50, "Odd Latin letter, small capitals among them: the plain one."),
        _pairs("STROKES", strokes, 50, "Letter with a stroke or hook: the plain one."),
        "\n#: Syllables, each with the characters that are read so.\nSYLLABLES = " + _strings(sounds, 52),
    ]
    Path(__file__).with_name("tables.py").write_text("".join(parts), "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
