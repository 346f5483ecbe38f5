"""How many tokens does `normalize` save? A sample as people type it and as the plugin writes it, counted by tokenizers.

    .venv/bin/python -m loadtests.bench.tokens --tokenizer .cache/models/SmolLM2-135M-Instruct --qwen qwen.tiktoken

`--tokenizer` names a folder with tokenizer.json, and may be given more than once. `--qwen` names Qwen's ranks, as the
package dashscope ships them (dashscope/resources/qwen.tiktoken); they are read with tiktoken. The sample is made here.
"""

from __future__ import annotations

import argparse
import base64
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from tokenizers import Tokenizer

from plugins.normalize import Narrower, without_controls

Count = Callable[[str], int]

#: Kinds of text, each as it is typed, pasted or logged.
SAMPLE = {
    "chat, full-width punctuation": (
        "你好，我想问一下：我的订单（编号２０２６１１２９）什么时候能到？昨天客服说“今天送达”，可是到现在还没有消息！"
        "如果今天不能到的话，能不能退款；或者换一个地址？谢谢！"
    ),
    "forms, full-width letters and digits": (
        "姓名：ＺＨＡＮＧ　ＷＥＩ　　电话：０１０－８８８８６６６６　　型号：ＡＢＣ－１２３／Ｘ"
        "　　数量：１，０００　　单价：￥９９．５０"
        "　　合计：￥９９，５００．００　　邮箱：ｚｈａｎｇ＠ｅｘａｍｐｌｅ．ｃｏｍ"
    ),
    "a terminal's output": (
        "\x1b[32m✔\x1b[0m \x1b[1mbuild\x1b[22m finished in \x1b[33m12.4s\x1b[39m\n\x1b[31merror\x1b[0m: "
        "\x1b[4mapp/main.py\x1b[24m:\x1b[36m42\x1b[39m undefined name \x1b[35m'foo'\x1b[39m\r\n"
        "\x1b[2K\x1b[1G\x00\x07done"
    ),
    "plain English": "Please translate the following paragraph and keep the names: Alice met Bob at 10:30 in Paris.",
    "plain Chinese": "请把下面这段话翻译成英文并保留人名张三和李四以及时间地点不要增加任何解释",
}
#: The usual pattern by which Qwen parts texts.
_QWEN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def from_folder(folder: Path) -> Count:
    tokens = Tokenizer.from_file(str(folder / "tokenizer.json"))
    return lambda text: len(tokens.encode(text, add_special_tokens=False).ids)


def from_ranks(file: Path) -> Count:
    tiktoken = import_module("tiktoken")  # only for those who have it
    lines = (line.split() for line in file.read_bytes().splitlines() if line)
    ranks = {base64.b64decode(token): int(rank) for token, rank in lines}
    encoding = tiktoken.Encoding("qwen", pat_str=_QWEN, mergeable_ranks=ranks, special_tokens={})
    return lambda text: len(encoding.encode_ordinary(text))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokenizer", type=Path, action="append", default=[], help="a folder with tokenizer.json")
    parser.add_argument("--qwen", type=Path, help="Qwen's ranks")
    given = parser.parse_args()
    counts = {folder.name: from_folder(folder) for folder in given.tokenizer}
    if given.qwen:
        counts["Qwen"] = from_ranks(given.qwen)
    narrow = Narrower("")
    print(f"| text | {' | '.join(counts)} |\n|---|{'---|' * len(counts)}")
    for name, text in SAMPLE.items():
        plain = without_controls(narrow.all(text))
        pairs = [(count(text), count(plain)) for count in counts.values()]
        print(f"| {name} | {' | '.join(f'{a} → {b} ({b / a - 1:+.0%})' for a, b in pairs)} |")


if __name__ == "__main__":
    main()
