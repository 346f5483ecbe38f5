"""What an entry is looked for as: its letters as a copy has them, and what else it takes to be that entry."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from plugins.sensitive_words.fold import WORD
from plugins.sensitive_words.folding import Folding
from plugins.sensitive_words.gaps import sign
from plugins.sensitive_words.pinyin import spelled as pinyin
from plugins.sensitive_words.skeleton import Letter, most_marked, spelling
from plugins.sensitive_words.wordlist import Entry, Rule

SOLID = None  # inside a syllable of pinyin nothing is skipped

Gaps = Sequence[str | None]


class Form(NamedTuple):
    """An entry as it is looked for. ``key`` is its letters as a copy has them; ``gaps[i]`` stands after the i-th.

    ``gaps`` is None where the entry has no separators, ``letters`` where nothing but its key says how it is written.
    ``counts``: of each letter of the key, the run that it stands for, where repeats count once. ``spaced``: some are
    of scripts that put spaces between words.
    """

    rule: Rule
    word: str
    order: int
    key: str
    left: bool
    right: bool
    gaps: Gaps | None = None
    letters: Sequence[Letter] | None = None
    counts: Sequence[int] | None = None
    pinyin: bool = False
    spaced: bool = True


def forms(order: int, entry: Entry, folding: Folding) -> Iterator[Form]:
    """Yield what to look for: the entry, and with ``pinyin`` the ways to spell it."""
    word, rule = entry
    if word.isascii() and word.isalnum() and not folding.repeats:
        yield Form(rule, word, order, word, rule.left, rule.right)
        return
    spelled = spelling(word)
    letters = [one for one in spelled if one.read_as not in " -"]
    if not letters:
        if spelled:  # symbols alone; marks alone are nothing
            yield Form(rule, word, order, "", rule.left, rule.right)
        return
    key = "".join([one.read_as for one in letters])
    key = word if key == word else key  # one string is enough for both
    gaps = _gaps(spelled) if len(letters) < len(spelled) else None
    plain = all(one.read_as == one.letter and not one.marks for one in letters)
    spaced = not WORD.isdisjoint(key)
    form = Form(rule, word, order, key, rule.left, rule.right, gaps, None if plain else letters, spaced=spaced)
    yield _once(form) if folding.repeats else form
    if folding.pinyin and rule.action != "allow":
        for syllables in pinyin(key):
            form = Form(rule, word, order, "".join(syllables), True, True, _joints(syllables), pinyin=True)
            yield _once(form) if folding.repeats else form


def _once(form: Form) -> Form:
    """Let a run of one letter in a key count once."""
    key, gaps, letters = form.key, form.gaps, form.letters
    last = [at for at in range(len(key)) if at + 1 == len(key) or key[at] != key[at + 1] or (gaps and gaps[at])]
    counts = [at - before for before, at in pairwise([-1, *last])]
    return form._replace(
        key="".join(key[at] for at in last),
        gaps=gaps and [gaps[at] for at in last],
        counts=counts,
        letters=letters and [most_marked(letters[before + 1 : at + 1]) for before, at in pairwise([-1, *last])],
    )


def _gaps(spelled: Sequence[Letter]) -> list[str]:
    gaps: list[str] = []
    for one in spelled:
        if one.read_as not in " -":
            gaps.append("")
        elif gaps:
            gaps[-1] += sign(one.raw)
    return gaps


def _joints(syllables: Sequence[str]) -> list[str | None]:
    gaps: list[str | None] = []
    for syllable in syllables:
        gaps += [*[SOLID] * (len(syllable) - 1), ""]
    return gaps
