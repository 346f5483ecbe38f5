from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.engine.guard import compare, doubts
from gateway.engine.template import OnlyTheEngineKnows
from gateway.engine.tokenizer import Tokenizer
from gateway.errors import InvalidRequest, NoEngineAvailable
from tests.engine_fixture import RealEngine, default_model

Change = Callable[[dict[str, Any]], None]


@pytest.fixture(scope="module")
def engine() -> Tokenizer:
    """The files that the engine has."""
    return Tokenizer(default_model())


@pytest.fixture
def copied(engine: Tokenizer, tmp_path: Path) -> Path:
    """The files that the gateway has: the same, until a test plants a fault."""
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(engine.folder / name, tmp_path)
    return tmp_path


def changed(file: Path, change: Change) -> None:
    told = json.loads(file.read_text())
    change(told)
    file.write_text(json.dumps(told))


async def differences(files: Path, engine: Tokenizer) -> list[str]:
    async def post(path: str, body: dict[str, Any]) -> dict[str, Any]:
        assert path == "/tokenize"
        try:
            return {"tokens": list(engine.ids(body))}
        except OnlyTheEngineKnows:
            raise InvalidRequest("The template refuses it.") from None

    return await compare(Tokenizer(files), post)


async def test_sound_files_leave_nothing_to_say(copied: Path, engine: Tokenizer) -> None:
    assert doubts(Tokenizer(copied)) == []
    assert await differences(copied, engine) == []


@pytest.mark.engine
async def test_the_real_engine_makes_the_prompts_of_its_own_files(engine: Tokenizer, real_engine: RealEngine) -> None:
    async with httpx.AsyncClient(base_url=real_engine.url, timeout=60) as client:

        async def post(path: str, body: dict[str, Any]) -> dict[str, Any]:
            told: dict[str, Any] = (await client.post(path, json={**body, "model": real_engine.model})).json()
            return told

        assert await compare(engine, post) == []


# ---- faults of the files alone ----


def test_a_padding_side_that_parts_prompt_and_answer_is_named(copied: Path) -> None:
    changed(copied / "tokenizer_config.json", lambda told: told.update(padding_side="right"))
    (line,) = doubts(Tokenizer(copied))
    assert line.startswith(f"{copied}: padding side is right: ")


def test_a_tokenizer_that_cuts_is_named(copied: Path) -> None:
    cut = {"direction": "Right", "max_length": 512, "strategy": "LongestFirst", "stride": 0}
    changed(copied / "tokenizer.json", lambda told: told.update(truncation=cut))
    (line,) = doubts(Tokenizer(copied))
    assert "tokenizer.json cuts texts at 512 tokens" in line


def test_a_special_token_that_is_no_token_is_named(copied: Path) -> None:
    changed(copied / "tokenizer_config.json", lambda told: told.update(eos_token="<|end_of_turn|>"))
    (line,) = doubts(Tokenizer(copied))
    assert "special tokens: eos_token '<|end_of_turn|>' is no single token of tokenizer.json, but " in line


def test_files_without_an_end_are_named(copied: Path) -> None:
    changed(copied / "tokenizer_config.json", lambda told: told.pop("eos_token"))
    (line,) = doubts(Tokenizer(copied))
    assert "names no eos_token" in line


def test_a_bos_that_the_template_writes_twice_is_named(copied: Path) -> None:
    template = copied / "chat_template.jinja"
    template.write_text("{{ bos_token }}" + template.read_text())
    (line,) = doubts(Tokenizer(copied))
    assert line.endswith("stray double BOS: the chat template begins a prompt with '<|im_start|>' twice")


def test_a_vocabulary_that_does_not_know_a_language_is_named(copied: Path) -> None:
    changed(copied / "tokenizer.json", lambda told: told.update(pre_tokenizer={"type": "Whitespace"}))
    (line,) = doubts(Tokenizer(copied))
    assert "of a sample in several languages vanish" in line


def test_texts_that_become_unknown_tokens_are_named(copied: Path) -> None:
    def word_level(told: dict[str, Any]) -> None:
        known = {"<|endoftext|>": 0, "<|im_start|>": 1, "<|im_end|>": 2, "price": 3}
        told.update(pre_tokenizer={"type": "Whitespace"}, decoder=None, post_processor=None, normalizer=None)
        told.update(model={"type": "WordLevel", "vocab": known, "unk_token": "<|endoftext|>"}, added_tokens=[])

    changed(copied / "tokenizer.json", word_level)
    lines = doubts(Tokenizer(copied))
    assert any("unknown tokens: " in line and "become '<|endoftext|>'" in line for line in lines)


# ---- the engine's prompts are others ----


async def test_a_template_that_adds_a_space_is_named(copied: Path, engine: Tokenizer) -> None:
    template = copied / "chat_template.jinja"
    template.write_text(template.read_text().replace("message['content']", "message['content'] + ' '"))
    lines = await differences(copied, engine)
    assert lines[0].startswith("white space: for one question the engine writes '' where the files write ' ', at ")
    assert len(lines) == 4


async def test_a_template_that_loses_a_line_end_is_named(copied: Path, engine: Tokenizer) -> None:
    template = copied / "chat_template.jinja"
    template.write_text(template.read_text().replace("assistant\n", "assistant"))
    lines = await differences(copied, engine)
    assert lines[0].startswith("white space: for one question the engine writes '\\n' where the files write ''")


async def test_another_template_is_named(copied: Path, engine: Tokenizer) -> None:
    (copied / "chat_template.jinja").write_text("{% for m in messages %}[INST] {{ m.content }} [/INST]{% endfor %}")
    lines = await differences(copied, engine)
    assert lines[0].startswith("chat template: for one question the engine writes '<|im_start|>system\\nYou a'")


async def test_a_template_that_refuses_what_the_engine_takes_is_named(copied: Path, engine: Tokenizer) -> None:
    template = copied / "chat_template.jinja"
    refusal = "{% if messages[0].role == 'system' %}{{ raise_exception('no') }}{% endif %}"
    template.write_text(refusal + template.read_text())
    assert await differences(copied, engine) == ["chat template: a system message is refused by the files alone"]
    assert await differences(engine.folder, Tokenizer(copied)) == [
        "chat template: a system message is refused by the engine alone"
    ]


async def test_another_tokenizer_is_named(copied: Path, engine: Tokenizer) -> None:
    def fewer_merges(told: dict[str, Any]) -> None:
        del told["model"]["merges"][2000:]

    changed(copied / "tokenizer.json", fewer_merges)
    lines = await differences(copied, engine)
    assert lines[0].startswith("tokenizer: for a plain prompt the engine has ")
    assert any(line.startswith("tokenizer: for one question the engine has ") for line in lines)


async def test_special_tokens_that_only_one_adds_are_named(copied: Path, engine: Tokenizer) -> None:
    def adds_bos(told: dict[str, Any]) -> None:
        bos = {"SpecialToken": {"id": "<|im_start|>", "type_id": 0}}
        told["post_processor"] = {
            "type": "TemplateProcessing",
            "single": [bos, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [],
            "special_tokens": {"<|im_start|>": {"id": "<|im_start|>", "ids": [1], "tokens": ["<|im_start|>"]}},
        }

    changed(copied / "tokenizer.json", adds_bos)
    assert await differences(copied, engine) == [
        "special tokens: to a plain prompt the engine adds nothing, the files <|im_start|>"
    ]


async def test_an_engine_that_begins_with_two_bos_is_named(copied: Path, engine: Tokenizer) -> None:
    template = copied / "chat_template.jinja"
    template.write_text("{{ bos_token }}" + template.read_text())
    assert await differences(engine.folder, Tokenizer(copied)) == [
        "stray double BOS: the engine begins a chat with '<|im_start|>' twice"
    ]


async def test_an_engine_that_does_not_answer_is_told_as_its_failure(engine: Tokenizer) -> None:
    async def post(path: str, body: dict[str, Any]) -> dict[str, Any]:
        raise NoEngineAvailable("None.")

    with pytest.raises(NoEngineAvailable):
        await compare(engine, post)
