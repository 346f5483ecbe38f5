"""How often each way of cutting keeps the sentence that holds the answer; docs/plugins/length.md shows the table.

python -m loadtests.bench.length

The texts are made here, from a fixed seed, or are Python's own manual (``pydoc_data.topics``); the sentence is put in
at a random place, but neither first nor last. ``own`` puts nothing in: the answer is any sentence of the manual.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pydoc_data.topics import topics
from typing import NamedTuple

from plugins.length.cutting import Cutter, Way
from plugins.length.sentences import sentences

SHARES = (0.1, 0.25, 0.5)
CUTS: tuple[Way, ...] = ("semantic", "head", "tail")
WAYS = (*CUTS, "random")


class Case(NamedTuple):
    """A long text and the sentence in it that an answer needs."""

    text: str
    answer: str


EN = (
    "The {who} of the {where} office reported that {what} rose by {n} percent in {month}.",
    "In {month} the {where} office received {n} requests about {what}, more than the {who} had expected.",
    "The {who} asked the {where} office to review {what} before the end of {month}.",
    "Spending on {what} stayed at {n} thousand, as the {who} of the {where} office had planned.",
    "It was agreed that the {who} will present {what} to the {where} office in {month}.",
)
ZH = (
    "{where}办公室的{who}报告，{month}的{what}增长了百分之{n}。",
    "{month}，{where}办公室收到{n}份关于{what}的申请，超出{who}的预期。",
    "{who}要求{where}办公室在{month}底前复查{what}。",
    "{where}办公室的{who}表示，{what}的支出保持在{n}万元。",
    "会议决定由{who}在{month}向{where}办公室介绍{what}。",
)
FILL_EN = {
    "who": ("manager", "director", "treasurer", "auditor"),
    "where": ("northern", "southern", "coastal", "central"),
    "what": ("travel", "training", "printing", "road repair", "street lighting", "staff housing"),
    "month": ("January", "March", "May", "July", "September"),
}
FILL_ZH = {
    "who": ("经理", "主任", "会计", "审计员"),
    "where": ("北区", "南区", "沿海", "中央"),
    "what": ("差旅", "培训", "印刷", "道路维修", "路灯照明", "员工住房"),
    "month": ("一月", "三月", "五月", "七月", "九月"),
}
ANSWERS_EN = (
    "Anna's new telephone extension is {n}.",
    "The spare key hangs behind the blue cabinet on floor {n}.",
    "Parcels for the laboratory must carry the label K-{n}.",
    "Whoever loses a badge pays a fee of {n} euros at reception.",
    "The generator is switched over by turning valve {n} to the left.",
)
ANSWERS_ZH = (
    "小王的新分机号是{n}。",
    "备用钥匙挂在{n}楼蓝色柜子后面。",
    "寄往实验室的包裹必须贴上K-{n}标签。",
    "丢失门禁卡要在前台交{n}元工本费。",
    "切换发电机时把{n}号阀门向左拧。",
)
LOG = (
    "2026-03-0{d} 10:{n}:07 INFO worker-{d} request finished status=200 path=/v1/items/{n} ms={n}",
    "2026-03-0{d} 10:{n}:07 INFO worker-{d} cache refreshed entries={n} ms={n}",
    "2026-03-0{d} 10:{n}:07 DEBUG worker-{d} heartbeat sent to coordinator seq={n}",
)
FAULTS = (
    "2026-03-0{d} 10:{n}:07 ERROR disk /dev/sdb1 read-only after journal abort",
    "2026-03-0{d} 10:{n}:07 WARN certificate of the payment provider expires tomorrow",
    "2026-03-0{d} 10:{n}:07 INFO operator lowered the retention to {d} days by hand",
)


def report(
    dice: random.Random, templates: tuple[str, ...], fill: dict[str, tuple[str, ...]], between: str
) -> list[str]:
    """Write sentences that a committee would have written."""
    chosen = [({name: dice.choice(words) for name, words in fill.items()}, dice.choice(templates)) for _ in range(80)]
    return [template.format(n=dice.randint(2, 99), **words) + between for words, template in chosen]


def hidden(dice: random.Random, parts: list[str], answer: str) -> Case:
    """Put the answer between the parts."""
    at = dice.randint(1, len(parts) - 1)
    return Case("".join([*parts[:at], answer, *parts[at:]]), answer.strip())


def manual(dice: random.Random) -> tuple[list[str], list[str]]:
    """Choose a page of Python's manual and another, as sentences."""
    long = sorted(name for name, text in topics.items() if 6_000 < len(text) < 60_000)
    page, other = (topics[name] for name in dice.sample(long, 2))
    return split(page), split(other)


def split(text: str) -> list[str]:
    """Part a text as the plugin does."""
    return [text[start:end] for start, end in sentences(text)]


def cases(kind: str, count: int, seed: int = 1) -> Iterator[Case]:
    """Make the texts of one kind."""
    dice = random.Random(seed)  # the same texts every time
    for _ in range(count):
        number = {"n": dice.randint(10, 99), "d": dice.randint(1, 9)}
        if kind == "report, English":
            yield hidden(dice, report(dice, EN, FILL_EN, " "), dice.choice(ANSWERS_EN).format(**number) + " ")
        elif kind == "report, Chinese":
            yield hidden(dice, report(dice, ZH, FILL_ZH, ""), dice.choice(ANSWERS_ZH).format(**number))
        elif kind == "log":
            lines = [dice.choice(LOG).format(n=dice.randint(10, 59), d=dice.randint(1, 9)) + "\n" for _ in range(150)]
            yield hidden(dice, lines, dice.choice(FAULTS).format(**number) + "\n")
        else:
            page, other = manual(dice)
            said = [part for part in (other if kind == "manual" else page[1:-1]) if 40 < len(part.strip()) < 200]
            answer = dice.choice(said)
            yield hidden(dice, page, answer) if kind == "manual" else Case("".join(page), answer.strip())


KINDS = ("report, English", "report, Chinese", "log", "manual", "manual, own")


def at_random(text: str, length: int, dice: random.Random) -> str:
    """Keep sentences drawn at random, in order."""
    parts = split(text)
    kept, left = set(), length
    for at in dice.sample(range(len(parts)), len(parts)):
        if len(parts[at]) <= left:
            kept.add(at)
            left -= len(parts[at])
    return "".join(parts[at] for at in sorted(kept))


def kept(kind: str, share: float, count: int) -> dict[str, float]:
    """Return for each way of cutting how often it keeps the answer where ``share`` of the text may stay."""
    dice = random.Random(2)
    found = dict.fromkeys(WAYS, 0)
    for text, answer in cases(kind, count):
        length = int(len(text) * share)
        for way in CUTS:
            found[way] += answer in Cutter(text, way, " […] ").cut(length)
        found["random"] += answer in at_random(text, length, dice)
    return {way: times / count for way, times in found.items()}


def main() -> None:
    """Print the table."""
    print(f"| text | kept of it | {' | '.join(WAYS)} |")
    print(f"|---|---|{'---|' * len(WAYS)}")
    for kind in KINDS:
        for share in SHARES:
            row = kept(kind, share, 200)
            print(f"| {kind} | {share:.0%} | {' | '.join(f'{row[way]:.0%}' for way in WAYS)} |")


if __name__ == "__main__":
    main()
