"""Looks whether a model's tokenizer files are sound, and whether its engine makes the same prompts of them.

An engine with another template or tokenizer than the model was trained with is the usual cause of "it talks nonsense":
nothing fails, the answers are merely bad. Each thing found is told in one line.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any

import structlog

from gateway.engine.template import OnlyTheEngineKnows
from gateway.engine.tokenizer import CONFIG, TOKENIZER, Tokenizer
from gateway.errors import Failure
from gateway.upstream import asking
from gateway.upstream.engine import Engine
from gateway.upstream.fleet import Fleet
from gateway.upstream.models import read_models

log = structlog.get_logger()

Post = Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]
"""Asks the engine: a path, a body; returns the answer's object. Raises Failure."""

_SAMPLE = (
    'The price is 1,234.50 € (tax: 7.5%), isn\'t it?\n\tprint(f"{x!r:>10}")  # naïve café, Ωμέγα, Привет\n'
    "你好,世界。请把这句话翻译成英文:我们明天上午九点在北京见面,可以吗?价格是¥99。謝謝! 😀"
)
_UNKNOWN = 0.01  # of a sample's tokens; over it texts are mangled, not merely rare words

_ASK = {"role": "user", "content": "What is the capital of France?"}
_CHATS: Mapping[str, Sequence[Mapping[str, Any]]] = {
    "one question": [_ASK],
    "a system message": [{"role": "system", "content": "Answer in one word."}, _ASK],
    "several turns": [
        _ASK,
        {"role": "assistant", "content": "Paris."},
        {"role": "user", "content": "  And of 日本?请用中文回答。\n"},
    ],
    "parts of a text": [{"role": "user", "content": [{"type": "text", "text": "One."}, {"type": "text", "text": "2"}]}],
}
_PROMPT = "Once upon a time, 从前有座山"
_PATIENCE_S = 60.0  # an engine that has just come up may be compiling
_SHOWN = 24  # characters of a prompt that a line quotes: the texts are our own, nobody's secret


async def look(tokenizer: Tokenizer, engine: Engine, model: str) -> None:
    """Log, as warnings, what is wrong between a model's files and an engine that has come up."""
    try:
        found = await asyncio.to_thread(doubts, tokenizer)
        found += await compare(tokenizer, asking_of(engine, model))
    except Failure as failure:
        log.info("prompts_not_compared", engine=engine.name, model=model, why=str(failure.code))
        return
    for line in found:
        log.warning("prompts_differ", engine=engine.name, model=model, said=line)


async def examine(tokenizer: Tokenizer | None, engine: Engine, model: str) -> list[str] | None:
    """Return in one line each what an engine is not that was configured; None where it does not answer."""
    await read_models(engine, _PATIENCE_S)
    if not engine.cards:
        return None
    served = [str(card["id"]) for card in engine.cards]
    if engine.served_model is not None and engine.served_model not in served:
        return [f"serves no model {engine.served_model!r}, but {', '.join(served[:5])}"]
    if tokenizer is None:
        return []
    try:
        return await compare(tokenizer, asking_of(engine, model))
    except Failure as failure:
        return [f"does not tell the tokens of a prompt: {failure}"]


def asking_of(engine: Engine, model: str) -> Post:
    """Return how one engine is asked, ``model`` being the name that callers use."""
    return lambda path, body: asking.ask(Fleet((engine,)), path, body, model, "guard", _PATIENCE_S)


def doubts(tokenizer: Tokenizer) -> list[str]:
    """Return what is wrong, or suspicious, with the files themselves. It works for some milliseconds."""
    return [
        f"{tokenizer.folder}: {line}" for look in (_sides, _specials, _beginning, _unknown) for line in look(tokenizer)
    ]


def _sides(tokenizer: Tokenizer) -> Iterator[str]:
    told = tokenizer.config.get("padding_side")
    if told == "right" or (tokenizer.padding or {}).get("direction") == "right":
        yield (
            "padding side is right: an engine that pads a batch puts it between prompt and answer; "
            f'set "padding_side": "left" in {CONFIG}'
        )
    if tokenizer.truncation is not None:
        yield f"{TOKENIZER} cuts texts at {tokenizer.truncation['max_length']} tokens: remove its section truncation"


def _specials(tokenizer: Tokenizer) -> Iterator[str]:
    for name, token in tokenizer.special.items():
        ids = tokenizer.tokens.encode(token, add_special_tokens=False).ids
        if tokenizer.tokens.token_to_id(token) is None or len(ids) != 1:
            yield f"special tokens: {name} {token!r} is no single token of {TOKENIZER}, but {len(ids)}"
    if "eos_token" not in tokenizer.special:
        yield f"special tokens: {CONFIG} names no eos_token: nothing tells where an answer ends"


def _beginning(tokenizer: Tokenizer) -> Iterator[str]:
    bos = tokenizer.special.get("bos_token")
    try:
        prompt = tokenizer.prompt({"messages": [_ASK]})
    except OnlyTheEngineKnows:
        if tokenizer.template() is None:
            yield "there is no chat template: chats are counted by the engine"
        return
    if bos and prompt.startswith(bos * 2):
        yield f"stray double BOS: the chat template begins a prompt with {bos!r} twice"


def _unknown(tokenizer: Tokenizer) -> Iterator[str]:
    encoded = tokenizer.tokens.encode(_SAMPLE, add_special_tokens=False)
    name = tokenizer.special.get("unk_token")
    unknown = None if name is None else tokenizer.tokens.token_to_id(name)
    rate = sum(each == unknown for each in encoded.ids) / max(1, len(encoded.ids))
    if rate > _UNKNOWN:
        yield f"unknown tokens: {rate:.0%} of a sample in several languages become {name!r}"
    kept = "".join(_SAMPLE.split())
    lost = len(kept) - sum(map("".join(tokenizer.tokens.decode(encoded.ids).split()).count, set(kept)))
    if lost > _UNKNOWN * len(kept) and rate <= _UNKNOWN:
        yield f"unknown tokens: {lost / len(kept):.0%} of a sample in several languages vanish"


async def compare(tokenizer: Tokenizer, post: Post) -> list[str]:
    """Return, in one line each, where an engine makes another prompt than the files do. Raises Failure."""
    found = [await _of_prompt(tokenizer, post)]
    for name, messages in _CHATS.items():
        found.append(await _of_chat(tokenizer, post, name, {"messages": [dict(each) for each in messages]}))
    return list(dict.fromkeys(line for line in found if line))


async def _of_prompt(tokenizer: Tokenizer, post: Post) -> str | None:
    theirs, ours = await _both(tokenizer, post, {"prompt": _PROMPT})
    if theirs == ours or theirs is None or ours is None:
        return None
    special = {tokenizer.tokens.token_to_id(token) for token in tokenizer.special.values()}
    if [each for each in theirs if each not in special] != [each for each in ours if each not in special]:
        return _other_tokens("a plain prompt", theirs, ours)
    engine, files = (
        " ".join(str(tokenizer.tokens.id_to_token(each)) for each in ids if each in special) or "nothing"
        for ids in (theirs, ours)
    )
    return f"special tokens: to a plain prompt the engine adds {engine}, the files {files}"


async def _of_chat(tokenizer: Tokenizer, post: Post, name: str, chat: dict[str, Any]) -> str | None:
    theirs, ours = await _both(tokenizer, post, chat)
    if theirs is None or ours is None:  # a template may refuse a system message
        agreed = theirs is ours or tokenizer.template() is None
        return (
            None if agreed else f"chat template: {name} is refused by the {'files' if ours is None else 'engine'} alone"
        )
    bos = tokenizer.special.get("bos_token")
    if bos is not None and theirs[:2] == [tokenizer.tokens.token_to_id(bos)] * 2:
        return f"stray double BOS: the engine begins a chat with {bos!r} twice"
    if theirs == ours:
        return None
    texts = [tokenizer.tokens.decode(ids, skip_special_tokens=False) for ids in (theirs, ours)]
    if texts[0] == texts[1]:
        return _other_tokens(name, theirs, ours)
    at, engine, files = _difference(*texts)
    kind = "chat template" if (engine + files).strip() else "white space"
    return f"{kind}: for {name} the engine writes {engine!r} where the files write {files!r}, at character {at}"


async def _both(tokenizer: Tokenizer, post: Post, asked: dict[str, Any]) -> tuple[list[int] | None, list[int] | None]:
    """Return the engine's token ids and ours; None for who refuses."""
    try:
        ours: list[int] | None = list(await asyncio.to_thread(tokenizer.ids, asked))
    except OnlyTheEngineKnows:
        ours = None
    try:
        return list((await post("/tokenize", asked))["tokens"]), ours
    except Failure as failure:
        if failure.status != 400:
            raise
        return None, ours


def _other_tokens(name: str, theirs: Sequence[int], ours: Sequence[int]) -> str:
    counts = f"the engine has {len(theirs)} tokens, the files {len(ours)}"
    return f"tokenizer: for {name} {counts}, other ones from token {_agreed(theirs, ours)} on"


def _agreed(one: Sequence[Any], two: Sequence[Any]) -> int:
    """Return how much of the beginning of two sequences is the same."""
    pairs = enumerate(zip(one, two, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(two)))


def _difference(one: str, two: str) -> tuple[int, str, str]:
    """Return where two texts begin to differ, and what each has there up to where they agree again."""
    start = _agreed(one, two)
    end = _agreed(one[start:][::-1], two[start:][::-1])
    return start, one[start : len(one) - end][:_SHOWN], two[start : len(two) - end][:_SHOWN]
