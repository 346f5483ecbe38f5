"""The obvious way to find words, slow and easy to believe: what the matcher and its streams are held against."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from plugins.sensitive_words.fold import WORD, fold_character
from plugins.sensitive_words.matcher import Found
from plugins.sensitive_words.wordlist import Entry


class Verdict(NamedTuple):
    """What is shown of a text, which rules fired where, and the rule that ended it."""

    shown: str
    hits: list[tuple[int, int, str]]
    blocked: str | None


def _boundaries_hold(entry: Entry, left: str, right: str) -> bool:
    word, rule = entry
    if rule.left and (left[-1:] in WORD or (word[0].isdecimal() and re.search(r"\d\.$", left))):
        return False
    if rule.right and (right[:1] in WORD or (word[-1].isdecimal() and re.match(r"\.\d", right))):
        return False
    return not (re.match("[\u3041-\u30ff]", word[-1]) and re.match("[\u3099\u309a]", right))


def find(text: str, entries: Sequence[Entry], key: str | None = None) -> list[Found]:
    """Return everything that counts, by its place."""
    pairs = [(folded, index) for index, character in enumerate(text) for folded in fold_character(character)]
    folded = "".join(character for character, _ in pairs)
    found = []
    for order, entry in enumerate(entries):
        if entry.rule.keys is not None and key not in entry.rule.keys:
            continue
        for start in range(len(folded)):
            end = start + len(entry.word)
            if folded[start:end] == entry.word and _boundaries_hold(entry, folded[:start], folded[end:]):
                found.append((pairs[start][1], pairs[end - 1][1] + 1, end, start, order, entry.rule))
    matches = [Found(start, end, rule) for start, end, *_, rule in sorted(found, key=lambda match: match[:5])]
    allows = [
        (start, end)
        for start, end, rule in matches
        if rule.action == "allow" and all(map(fold_character, text[start:end]))
    ]
    return [
        match
        for match in matches
        if match.rule.action != "allow" and not any(start <= match.start and match.end <= end for start, end in allows)
    ]


def judge(text: str, entries: Sequence[Entry], key: str | None = None) -> Verdict:
    """Return what a caller may see of the whole text."""
    masked: set[int] = set()
    hits = []
    for match in find(text, entries, key):
        hits.append((match.start, match.end, match.rule.id))
        if match.rule.action == "block":
            return Verdict(_masked(text[: match.start], masked), hits, match.rule.id)
        if match.rule.action == "mask":
            masked.update(range(match.start, match.end))
    return Verdict(_masked(text, masked), hits, None)


def _masked(text: str, places: set[int]) -> str:
    return "".join("*" if index in places else character for index, character in enumerate(text))
