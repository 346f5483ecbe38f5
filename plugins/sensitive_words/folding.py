"""How texts are read before words are looked for in them: the options of it, as one value."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Folding:
    """``max_skip``: separators of several kinds skipped between two characters of a word, 0 for none of any kind.

    ``confusables``: look-alikes of other scripts count where scripts are mixed. ``repeats``: a run of one letter
    counts once. ``pinyin``: Chinese entries match their pinyin too.
    """

    max_skip: int = 3
    confusables: bool = True
    repeats: bool = False
    pinyin: bool = False
