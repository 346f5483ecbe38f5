from __future__ import annotations

import asyncio
import json
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.engine.tokenizer import Tokenizer, stamp
from tests.engine_fixture import RealEngine, default_model

WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}
CALL = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
ASK = {"role": "user", "content": "What is the capital of France?"}
ASKED: list[dict[str, Any]] = [
    {"messages": [ASK]},
    {
        "messages": [
            {"role": "system", "content": "你是一个助手。只用中文回答。"},
            {"role": "user", "content": "法国首都？"},
        ]
    },
    {
        "messages": [
            {"role": "system", "content": "Be brief."},
            ASK,
            {"role": "assistant", "content": "Paris."},
            {"role": "user", "content": "  那么日本呢？ 😀\n"},
        ]
    },
    {"messages": [{"role": "user", "content": [{"type": "text", "text": "One,"}, {"type": "text", "text": "two."}]}]},
    {"messages": [ASK], "tools": [WEATHER]},
    {
        "messages": [
            ASK,
            {"role": "assistant", "content": "", "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
        ],
        "tools": [WEATHER],
    },
    {"messages": [ASK], "add_generation_prompt": False},
    {"prompt": "Once upon a time, 从前有座山\t\n<|im_end|> end"},
]


@pytest.fixture(scope="module")
def folder() -> Path:
    return default_model()


@pytest.fixture
def copied(folder: Path, tmp_path: Path) -> Path:
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(folder / name, tmp_path)
    return tmp_path


@pytest.mark.engine
def test_every_count_is_the_engines_own(folder: Path, real_engine: RealEngine) -> None:
    tokenizer = Tokenizer(folder)
    with httpx.Client(base_url=real_engine.url, timeout=60) as client:
        for asked in ASKED:
            told = client.post("/tokenize", json={**asked, "model": real_engine.model}).json()
            assert list(tokenizer.ids(asked)) == told["tokens"], asked


@pytest.mark.engine
def test_what_an_engine_bills_for_a_chat_is_what_was_counted(folder: Path, real_engine: RealEngine) -> None:
    tokenizer = Tokenizer(folder)
    for asked in ASKED[:4]:
        body = {**asked, "model": real_engine.model, "max_tokens": 1}
        used = httpx.post(f"{real_engine.url}/v1/chat/completions", json=body, timeout=60).json()["usage"]
        assert used["prompt_tokens"] == len(tokenizer.ids(asked)), asked


async def test_counting_a_long_text_stops_nobody(folder: Path) -> None:
    tokenizer = Tokenizer(folder)
    text = "The quick brown fox. 你好，世界。 " * 20_000
    longest, over = 0.0, threading.Event()

    def beat() -> None:  # needs Python's lock at each of its steps, as the event loop does
        nonlocal longest
        last = time.perf_counter()
        while not over.is_set():
            time.sleep(0.001)
            longest, last = max(longest, time.perf_counter() - last), time.perf_counter()

    beating = asyncio.create_task(asyncio.to_thread(beat))
    began = time.perf_counter()
    count = await tokenizer.count({"prompt": text})
    took = time.perf_counter() - began
    over.set()
    await beating
    assert count is not None
    assert count > 200_000
    assert longest < took / 2


async def test_what_only_the_engine_knows_is_not_counted(copied: Path) -> None:
    (copied / "chat_template.jinja").unlink()
    tokenizer = Tokenizer(copied)
    assert await tokenizer.count({"messages": [ASK]}) is None
    assert await tokenizer.count({"prompt": "a b"}) == 2


async def test_a_template_may_stand_in_the_configuration_under_names(copied: Path) -> None:
    (copied / "chat_template.jinja").unlink()
    config = json.loads((copied / "tokenizer_config.json").read_text())
    config["chat_template"] = [
        {"name": "default", "template": "{{ messages[0].content }}"},
        {"name": "tool_use", "template": "tools: {{ messages[0].content }}"},
    ]
    config["bos_token"] = {"content": "<|im_start|>", "lstrip": False}
    (copied / "tokenizer_config.json").write_text(json.dumps(config))
    tokenizer = Tokenizer(copied)
    assert tokenizer.prompt({"messages": [{"role": "user", "content": "hi"}]}) == "hi"
    assert tokenizer.prompt({"messages": [{"role": "user", "content": "hi"}], "tools": [WEATHER]}) == "tools: hi"
    assert tokenizer.special["bos_token"] == "<|im_start|>"


def test_padding_and_truncation_of_the_file_change_no_count(copied: Path) -> None:
    whole = len(Tokenizer(copied).ids({"prompt": "one two three four five six"}))
    file = copied / "tokenizer.json"
    told = json.loads(file.read_text())
    told["truncation"] = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}
    told["padding"] = {
        "strategy": {"Fixed": 64},
        "direction": "Right",
        "pad_to_multiple_of": None,
        "pad_id": 0,
        "pad_type_id": 0,
        "pad_token": "<|endoftext|>",
    }
    file.write_text(json.dumps(told))
    assert len(Tokenizer(copied).ids({"prompt": "one two three four five six"})) == whole


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("tokenizer.json", '{"cut', "tokenizer.json cannot be used: "),
        ("tokenizer_config.json", '{"cut', "tokenizer_config.json cannot be read: "),
        ("chat_template.jinja", "{% if %}", "chat_template.jinja is no chat template: "),
    ],
)
def test_a_file_that_cannot_be_used_is_named_in_one_line(copied: Path, name: str, text: str, said: str) -> None:
    (copied / name).write_text(text)
    with pytest.raises(ValueError, match=said) as told:
        Tokenizer(copied)
    assert "\n" not in str(told.value)


def test_a_stamp_tells_files_that_have_changed(copied: Path) -> None:
    before = Tokenizer(copied).stamp
    assert stamp(copied) == before
    (copied / "chat_template.jinja").write_text("{{ messages }}")
    assert stamp(copied) != before
