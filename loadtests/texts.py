"""What callers say, in Chinese and English: every text another one, made from a seed."""

from __future__ import annotations

import random

SUBJECTS = (
    ("怎样用一句话解释分页注意力？", "Explain paged attention in one sentence."),
    ("请给新同事写一段欢迎词。", "Write a short welcome for a new colleague."),
    ("周末去杭州，有什么建议？", "Any advice for a weekend in Lisbon?"),
    ("这段代码为什么会慢？", "Why might this piece of code be slow?"),
    ("把下面的话改得更礼貌一些。", "Make the following sentence more polite."),
    ("订单还没有发货，请帮我查一下。", "My order has not shipped yet, please look into it."),
)
SENTENCES = (
    "仓库在城东，每天早上八点开门，下午六点关门。",
    "The depot east of the river opens at eight and closes at six.",
    "本手册第三章说明了如何更换滤芯，以及多久检查一次。",
    "Chapter three of the manual tells how to change the filter, and how often to look at it.",
    "会议改到星期四下午两点，地点不变。",
    "The meeting has moved to Thursday at two, in the same room.",
    "请在提交之前核对地址、数量和联系电话。",
    "Check address, quantity and telephone number before you submit.",
)


def question(rng: random.Random) -> str:
    """Return a short question."""
    return f"{rng.choice(rng.choice(SUBJECTS))} ({rng.randrange(10**6)})"


def document(rng: random.Random, characters: int) -> str:
    """Return about so many characters of text in sentences."""
    parts: list[str] = []
    length = 0
    while length < characters:
        parts.append(f"{rng.choice(SENTENCES)} [{rng.randrange(10**4)}]")
        length += len(parts[-1]) + 1
    return "\n".join(parts)


def disguised(rng: random.Random, word: str) -> str:
    """Return a word as people write it who do not want it to be found."""
    ways = (
        lambda: word,
        lambda: "\u200b".join(word),
        lambda: "*".join(word) if not word.isascii() else "-".join(word),
        lambda: "".join(chr(ord(each) + 0xFEE0) if "!" <= each <= "~" else each for each in word),
        word.upper,
    )
    return rng.choice(ways)()
