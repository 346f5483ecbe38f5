#!/usr/bin/env python3
"""Compares the word filter's matcher with others: how fast over clean text, how long to load, how many evasions seen.

    pip install -e '.[bench]' && loadtests/bench/words.py [--sizes 1000,10000,100000]

One core, hot, CPU time, the best of many rounds. The texts are ordinary Chinese with its marks and ordinary English, no
entry is in them. Entries are random: two to five Chinese characters, or Latin words of four to ten letters. The others
fold by ``lower()`` alone, which is all they know; the matcher folds as its documentation says.
"""

from __future__ import annotations

import argparse
import random
import re
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from types import SimpleNamespace
from typing import Any, NamedTuple

CHINESE = (
    "机器学习，是人工智能的一个分支。它的目标：让计算机从数据中学习，而不是按规则编程！你觉得呢？“很好”，他说（2023年）、《数据》与GPU显卡等。"
    * 40
)
ENGLISH = (
    "The quick brown fox jumps over the lazy dog, and it's well-known that nothing like this can be done in a day. "
    * 75
)
HIDDEN = ("赌博", "forbiddenzebra", "shit")
EVASIONS = [
    *("赌博", "赌 博", "赌。。。博", "赌*-博", "賭博", "賭\u200b博", "赌\n博", "赌😀博"),
    *(
        "forbiddenzebra",
        "ForBiddenZebra",
        "ｆorbiddenzebra",
        "f\u200borbiddenzebra",
        "fоrbiddenzebra",
        "ⓕⓞⓡⓑⓘⓓⓓⓔⓝⓩⓔⓑⓡⓐ",
    ),
    *("shit", "s-h-i-t", "s h i t", "ѕһіt", "s̶h̶i̶t̶", "🇸🇭🇮🇹"),
]
INNOCENT = ["this hit song", "ashitaka", "赌。博物馆", "赌\n\n博客", "s. hit"]
ROUNDS = 15


class Subject(NamedTuple):
    """Something that finds words: ``found`` says whether any is in a text."""

    found: Callable[[str], bool]


def sluice(entries: Sequence[str]) -> Subject:
    matching, wordlist = (import_module(f"plugins.sensitive_words.{name}") for name in ("matcher", "wordlist"))
    made = (wordlist.Source("list").entry(word, number) for number, word in enumerate(entries, 1))
    matcher = matching.Matcher(entry for entry in made if entry is not None)

    def found(text: str) -> bool:
        reading: Any = SimpleNamespace(text=text)
        return not matcher.is_clean(reading) and bool(matcher.scan(text).found)

    return Subject(found)


def pyahocorasick(entries: Sequence[str]) -> Subject:
    automaton = import_module("ahocorasick").Automaton()
    for number, word in enumerate(entries):
        automaton.add_word(word.lower(), number)
    automaton.make_automaton()
    return Subject(lambda text: next(automaton.iter(text.lower()), None) is not None)


def ahocorasick_rs(entries: Sequence[str]) -> Subject:
    automaton = import_module("ahocorasick_rs").AhoCorasick([word.lower() for word in entries])
    return Subject(lambda text: bool(automaton.find_matches_as_indexes(text.lower())))


def flashtext(entries: Sequence[str]) -> Subject:
    processor = import_module("flashtext").KeywordProcessor()
    processor.add_keywords_from_list(list(entries))
    return Subject(lambda text: bool(processor.extract_keywords(text)))


def flashtext2(entries: Sequence[str]) -> Subject:
    processor = import_module("flashtext2").KeywordProcessor(case_sensitive=False)
    for word in entries:
        processor.add_keyword(word)
    return Subject(lambda text: bool(processor.extract_keywords(text)))


def alternation(entries: Sequence[str]) -> Subject:
    pattern = re.compile("|".join(map(re.escape, entries)), re.IGNORECASE)
    return Subject(lambda text: pattern.search(text) is not None)


SUBJECTS = {
    "Sluice": sluice,
    "pyahocorasick": pyahocorasick,
    "ahocorasick_rs": ahocorasick_rs,
    "flashtext": flashtext,
    "flashtext2": flashtext2,
    "`re`, one alternation": alternation,
}


def random_entries(count: int) -> list[str]:
    rng = random.Random(5)
    entries = set(HIDDEN)
    while len(entries) < count:
        if rng.random() < 0.7:
            entries.add("".join(chr(rng.randint(0x4E00, 0x9FA5)) for _ in range(rng.choice([2, 3, 3, 4, 4, 5]))))
        else:
            entries.add("".join(rng.choices("etaoinshrdlucmfwypvbgkjqxz", k=rng.randint(4, 10))))
    return sorted(entries)


def megabytes_a_second(found: Callable[[str], bool], text: str, patience: float) -> float:
    if found(text):
        raise SystemExit("the text is not clean")
    best, until = float("inf"), time.process_time() + patience
    for _ in range(ROUNDS):
        began = time.process_time()
        found(text)
        best = min(best, time.process_time() - began)
        if time.process_time() > until:
            break
    return len(text.encode()) / best / 1e6


def measure(name: str, count: int) -> None:
    """Measure one subject with one number of entries, in a process of its own, and print a row of the table."""
    entries = random_entries(count)
    SUBJECTS[name](HIDDEN)  # imports, and tables that fill once
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.process_time()
    subject = SUBJECTS[name](entries)
    loading = time.process_time() - began
    memory = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    seen = sum(map(subject.found, EVASIONS))
    wrong = sum(map(subject.found, INNOCENT))
    speeds = [megabytes_a_second(subject.found, text, 5) for text in (CHINESE, ENGLISH)]
    figures = [f"{speed:.0f}" if speed >= 10 else f"{speed:.2g}" for speed in speeds]
    print(
        f"| {name} | {count:,} | {figures[0]} | {figures[1]} | {loading:.2f} | {memory:.0f} "
        f"| {seen} of {len(EVASIONS)} | {wrong} of {len(INNOCENT)} |",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="1000,10000,100000")
    parser.add_argument("--patience", type=float, default=120, help="seconds for one row; then it is left out")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        measure(options.one[0], int(options.one[1]))
        return
    print("| | entries | Chinese, MB/s | English, MB/s | load, s | load, MB | evasions seen | clean text hit |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    for count in map(int, options.sizes.split(",")):
        for name in SUBJECTS:
            try:
                subprocess.run(
                    [sys.executable, __file__, "--one", name, str(count)], check=True, timeout=options.patience
                )
            except subprocess.TimeoutExpired:
                print(f"| {name} | {count:,} | – | – | over {options.patience:.0f} | | | |", flush=True)
            except subprocess.CalledProcessError:
                print(f"| {name} | {count:,} | failed | | | | | |", flush=True)


if __name__ == "__main__":
    main()
