"""How Chinese entries are spelled in Latin letters, without tones."""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from itertools import islice, product

from plugins.sensitive_words.syllables import SYLLABLES

_READINGS = 8  # of an entry; a longer one of many readings is spelled in the first few ways


@cache
def _syllables() -> dict[str, list[str]]:
    table = defaultdict(list)
    for row in SYLLABLES.split(" "):
        syllable = "".join(letter for letter in row if letter.isascii())
        for character in row[len(syllable) :]:
            table[character].append(syllable)
    return dict(table)


def spelled(word: str) -> list[tuple[str, ...]]:
    """Return the ways to spell a simplified Chinese word, as syllables; none where not all of it is Chinese.

    One character alone has no spelling of its own: its syllable is a hundred others'.
    """
    table = _syllables()
    if len(word) < 2 or not all(character in table for character in word):
        return []
    return list(islice(product(*(table[character] for character in word)), _READINGS))
