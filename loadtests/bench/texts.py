"""The text that flows in the benchmarks, and words that never occur in it.

Only the standard library, so that every tool here can import it.
As a command it prints a word list: python3 texts.py 10000 > words.txt
"""

from __future__ import annotations

import random
import sys
import unicodedata
from collections.abc import Iterator

# What the mock engine answers: token i of an answer is ANSWER[i % len(ANSWER)]. Mixed Chinese and
# English in pieces as a tokenizer makes them, so that words span chunks in both scripts.
ANSWER = [
    "Machine",
    " learning",
    " is",
    " a",
    " way",
    " to",
    " find",
    " rules",
    " in",
    " data",
    ".",
    " ",
    "机器",
    "学习",
    "让",
    "计算",
    "机",
    "从",
    "数据",
    "中",
    "找出",
    "规律",
    "，",
    "而",
    "不",
    "是",
    "由",
    "人",
    "写",
    "下",
    "每",
    "一条",
    "规则",
    "。",
    " For",
    " example",
    ",",
    " a",
    " model",
    " that",
    " has",
    " seen",
    " a",
    " thousand",
    " houses",
    " can",
    " guess",
    " the",
    " price",
    " of",
    " the",
    " next",
    " one",
    ":",
    " ",
    "面积",
    " ",
    "80",
    " ",
    "平方",
    "米",
    "，",
    "两",
    "间",
    "卧室",
    "，",
    "靠近",
    "地铁",
    "，",
    "大约",
    "三",
    "百",
    "万",
    "元",
    "。",
    "\n\n",
    "结果",
    "只是",
    "估计",
    "，",
    "请",
    "自己",
    "再",
    "核对",
    "一遍",
    " ",
    "👍",
    "。",
    " ",
]

_SYSTEM = "You are a helpful assistant. 回答要简短、准确。"
_QUESTIONS = [
    "请解释一下机器学习，并举一个例子说明。 Explain with an example please, thank you.",
    "怎样把一张表里的重复记录找出来？ Show me the query and say why it works.",
    "帮我把这段会议记录整理成三点。 Keep the names of the people and the dates.",
    "北京到上海坐火车要多久？ Compare it with the plane, door to door.",
    "写一个函数计算两个日期之间的天数。 In Python, with a test or two.",
    "这份合同里有哪些条款需要注意？ List them in the order of their risk.",
    "把下面的句子翻译成英文，语气正式一些。 Do not change the numbers in it.",
    "为什么天空是蓝色的？ Answer as if I were ten years old.",
]
_SENTENCES = [
    "本季度的销售额比去年同期增长了百分之十二，主要来自华东和华南地区。",
    "客户反馈新版本的界面更清楚，但是导出报表的速度还需要改进。",
    "项目组计划在下个月完成测试环境的迁移，届时会提前一周通知大家。",
    "天气预报说周末有小雨，户外活动改在体育馆里举行，请带好水杯。",
    "这台设备的保修期是三年，出现故障时请先查看说明书第十五页。",
    "老师让同学们读完课文以后，用自己的话写一篇不少于三百字的短文。",
    "图书馆每天早上九点开门，晚上十点关门，节假日时间另行公布。",
    "医生建议他多走路、少吃盐，每个月量一次血压并且记录下来。",
    "从车站出来往右走五分钟，过了邮局就能看到那家面馆的招牌。",
    "新员工入职后要先参加安全培训，考核合格才能进入生产车间。",
    "农历八月十五是中秋节，家人团聚在一起吃月饼、赏月、聊天。",
    "这篇论文提出了一种更省内存的算法，并在三个数据集上做了实验。",
    "由于原材料价格上涨，供应商希望从下个季度开始调整合同单价。",
    "小区物业通知，明天上午九点到十二点停水，请居民提前储水备用。",
    "软件更新以后，旧的配置文件会自动转换，原文件保存在备份目录。",
    "他把钥匙忘在办公室里了，只好给同事打电话请人帮忙送过来。",
]


def answer_text(tokens: int) -> str:
    """The whole text of an answer of so many tokens."""
    return "".join(ANSWER[i % len(ANSWER)] for i in range(tokens))


def prompts(size: int = 0, variants: int = 64) -> list[list[dict[str, str]]]:
    """Conversations, each different; with a size, Chinese user turns of about so many UTF-8 bytes."""
    rng = random.Random(7)
    made = []
    for number in range(variants):
        if size:
            text = f"第{number}份材料："
            while len(text.encode()) < size - 90:
                text += rng.choice(_SENTENCES)
            text += "请概括要点。"
        else:
            text = f"{number}. " + " ".join(_QUESTIONS[(number + k) % len(_QUESTIONS)] for k in range(4))
        made.append([{"role": "system", "content": _SYSTEM}, {"role": "user", "content": text}])
    return made


def _folded(text: str) -> str:
    return "".join(c for c in unicodedata.normalize("NFKC", text).lower() if c.isalnum())


def _common_characters() -> list[str]:
    """The 3,755 most used simplified characters (GB 2312, level 1)."""
    pairs = (bytes((high, low)) for high in range(0xB0, 0xD8) for low in range(0xA1, 0xFF))
    return [c for c in (pair.decode("gb2312", "ignore") for pair in pairs) if c]


def words(count: int) -> Iterator[str]:
    """Distinct random words, half Chinese (2 to 6 characters), half Latin (5 to 10 letters).

    None of them occurs in any text of this module, whatever its case, width and punctuation. The
    first 10,000 of 100,000 are the 10,000, so that a longer list differs in length alone.
    """
    rng = random.Random(1)
    common = _common_characters()
    flowing = answer_text(2 * len(ANSWER)) + _SYSTEM + "".join(_QUESTIONS + _SENTENCES)
    flowing = _folded(flowing + "".join(turn["content"] for talk in prompts() for turn in talk))
    taken: set[str] = set()
    while len(taken) < count:
        if len(taken) % 2:
            word = "".join(rng.choices(common, k=rng.randint(2, 6)))
        else:
            word = "".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(5, 10)))
        if word not in taken and word not in flowing:
            taken.add(word)
            yield word


if __name__ == "__main__":
    print("\n".join(words(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)))
