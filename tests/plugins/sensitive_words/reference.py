"""The obvious way to find words, slow and easy to believe: what the matcher and its streams are held against."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from plugins.sensitive_words.fold import WORD, fold_character
from plugins.sensitive_words.matcher import Found
from plugins.sensitive_words.wordlist import ANYONE, Asker, Entry


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


def find(text: str, entries: Sequence[Entry], asker: Asker = ANYONE) -> list[Found]:
    """Return everything that counts, by its place."""
    pairs = [(folded, index) for index, character in enumerate(text) for folded in fold_character(character)]
    folded = "".join(character for character, _ in pairs)
    found = []
    for order, entry in enumerate(entries):
        if not entry.rule.applies(asker):
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


def judge(text: str, entries: Sequence[Entry], asker: Asker = ANYONE) -> Verdict:
    """Return what a caller may see of the whole text."""
    matches = find(text, entries, asker)
    hits = []
    for match in matches:
        hits.append((match.start, match.end, match.rule.id))
        if match.rule.action == "block":
            return Verdict(_covered(text[: match.start], matches), hits, match.rule.id)
    return Verdict(_covered(text, matches), hits, None)


def _covered(text: str, matches: Sequence[Found]) -> str:
    """Of what overlaps, the first (the longest of those) says what takes the place of all."""
    shown = ""
    inside: str | None = None  # the replacement of which we are inside; None: masks
    spans = [(start, -end, rule.replacement) for start, end, rule in matches if rule.action in {"mask", "replace"}]
    reach = 0
    for index, character in enumerate(text):
        starting = sorted((span for span in spans if span[0] == index), key=lambda span: span[1])
        for _, end, replacement in starting:
            if index >= reach:
                inside = replacement
                shown += replacement or ""
            reach = max(reach, -end)
        if index >= reach:
            shown += character
        elif inside is None:
            shown += "*"
    return shown
