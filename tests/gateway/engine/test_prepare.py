from __future__ import annotations

import asyncio
import io
import os
import struct
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from gateway.engine.failure import CannotStart
from gateway.engine.model import Model
from gateway.engine.prepare import DEFAULT, prepare, served_name, tokenizer_of
from gateway.engine.progress import Progress

#: Stands for the engine's interpreter: runs whichever script it is given as FAKE_SCRIPT says.
FAKE = """\
import json, os, pathlib, struct, sys, time
script, argument = sys.argv[1:]
todo = os.environ["FAKE_SCRIPT"]
print("script", pathlib.Path(script).name, argument)
if todo == "fails":
    print("the hub has no model of that name", file=sys.stderr); sys.exit(1)
target = pathlib.Path(os.environ.get("FAKE_TARGET", argument)); target.mkdir(parents=True, exist_ok=True)
(target / "config.json").write_text('{"num_attention_heads": 9}'); (target / "tokenizer.json").write_text("{}")
if todo == "hangs":
    time.sleep(60)
if todo != "half":
    (target / "model.safetensors").write_bytes(struct.pack("<Q", 2) + b"{}")
print(target)
"""


class Bench:
    def __init__(self, folder: Path) -> None:
        self.cache = folder / "cache"
        self.told = io.StringIO()
        self.python = folder / "python"
        self.python.write_text(f"#!{sys.executable}\n{FAKE}")
        self.python.chmod(0o755)

    async def prepare(self, model: str | None, todo: str = "works", **environ: str) -> Model:
        return await prepare(
            model,
            name="m",
            python=self.python,
            cache=self.cache,
            environ={**os.environ, "FAKE_SCRIPT": todo, **environ},
            progress=Progress(self.told),
        )

    def cached(self) -> list[str]:
        return sorted(path.name for path in self.cache.iterdir()) if self.cache.exists() else []


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


async def test_the_default_model_is_made_once_and_then_only_read(bench: Bench) -> None:
    model = await bench.prepare(None)
    assert model.source == str(bench.cache / DEFAULT)
    assert model.heads == 9
    assert "making SmolLM2-135M-Instruct" in bench.told.getvalue()
    assert await bench.prepare(None, "fails") == model
    assert bench.cached() == [DEFAULT]


async def test_a_half_made_one_never_takes_the_place_and_is_told(bench: Bench) -> None:
    with pytest.raises(CannotStart, match=r"left it unfinished: no weights"):
        await bench.prepare(None, "half")
    assert bench.cached() == []


async def test_a_broken_one_in_the_cache_is_made_anew(bench: Bench) -> None:
    await bench.prepare(None)
    weights = bench.cache / DEFAULT / "model.safetensors"
    weights.write_bytes(struct.pack("<Q", 99))
    await bench.prepare(None)
    assert weights.read_bytes() == struct.pack("<Q", 2) + b"{}"


async def test_stopping_in_the_middle_leaves_no_half_model_and_no_process(bench: Bench) -> None:
    making = asyncio.get_running_loop().create_task(bench.prepare(None, "hangs"))
    async with asyncio.timeout(10):
        while not any(bench.cache.glob(".making-*/config.json")):
            await asyncio.sleep(0.02)
    making.cancel()
    with pytest.raises(asyncio.CancelledError):
        await making
    assert bench.cached() == []


async def test_what_a_killed_run_left_is_cleared_away_and_a_running_ones_is_not(bench: Bench) -> None:
    ours = bench.cache / f".making-{os.getppid()}-x"
    for left in (bench.cache / ".making-999999999-x", ours):
        left.mkdir(parents=True)
    await bench.prepare(None)
    assert bench.cached() == [ours.name, DEFAULT]


async def test_no_place_for_it_and_no_disk_are_one_line_each(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.cache.write_text("a file")
    with pytest.raises(CannotStart, match=r"cannot keep the model in .*/cache: File exists"):
        await bench.prepare(None)
    bench.cache.unlink()
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=2**29))
    with pytest.raises(CannotStart, match=r"the model needs 1 GiB of disk, 0\.5 GiB are free at "):
        await bench.prepare(None)


async def test_a_directory_is_taken_as_it_is(bench: Bench, tmp_path: Path) -> None:
    await bench.prepare(None)
    directory = bench.cache / DEFAULT
    assert (await bench.prepare(str(directory), "fails")).source == str(directory)
    with pytest.raises(CannotStart, match="is not a whole model: no such directory"):
        await bench.prepare(str(tmp_path / "nowhere"))


async def test_a_hubs_name_is_fetched_by_the_engines_own_client(bench: Bench, tmp_path: Path) -> None:
    model = await bench.prepare("Qwen/Qwen3-0.6B", FAKE_TARGET=str(tmp_path / "hub"))
    assert model.source == str(tmp_path / "hub")
    assert "fetching Qwen/Qwen3-0.6B" in bench.told.getvalue()


async def test_what_the_hub_says_is_told_in_one_line(bench: Bench) -> None:
    with pytest.raises(CannotStart) as failure:
        await bench.prepare("Qwen/none", "fails")
    assert str(failure.value) == "cannot get the model: the hub has no model of that name"


@pytest.mark.parametrize("name", ["a/b/c", "http://x/y", "", "-rf", "a b"])
async def test_neither_a_directory_nor_a_name_is_refused(bench: Bench, name: str) -> None:
    with pytest.raises(CannotStart, match="neither a directory nor a hub's name"):
        await bench.prepare(name)


def test_clients_call_it_by_the_directorys_or_the_hubs_name(tmp_path: Path) -> None:
    assert served_name(None) == "smollm2"
    assert served_name(str(tmp_path / "my-model") + "/") == "my-model"
    assert served_name("Qwen/Qwen3-0.6B") == "Qwen/Qwen3-0.6B"


def test_an_engines_folder_counts_tokens_once_it_is_here(tmp_path: Path) -> None:
    assert tokenizer_of(None, tmp_path) is None
    assert tokenizer_of("owner/model", tmp_path) is None
    folder = tmp_path / DEFAULT
    folder.mkdir()
    assert tokenizer_of(None, tmp_path) is None
    (folder / "tokenizer.json").write_text("{}")
    assert tokenizer_of(None, tmp_path) == tokenizer_of(str(folder), tmp_path) == folder
