from __future__ import annotations

import asyncio
import io

import pytest

from gateway.engine.progress import Progress

LOG = """\
(APIServer pid=1) INFO 11-29 16:58:48 [api_utils.py:286] non-default args: {'host': '127.0.0.1'}
(EngineCore pid=2) INFO 11-29 16:59:01 [core.py:133] Initializing a V1 LLM engine (v0.32.0) with config: model='x'
(Worker pid=3) INFO 11-29 16:59:08 [cpu_model_runner.py:68] Starting to load model x...
Loading safetensors checkpoint shards:   0% Completed | 0/2 [00:00<?, ?it/s]
Loading safetensors checkpoint shards:  50% Completed | 1/2 [00:00<00:00,  1.34it/s]
(Worker pid=3) INFO 11-29 16:59:09 [default_loader.py:501] Loading weights took 0.75 seconds
(EngineCore pid=2) INFO 11-29 16:59:11 [kv_cache_utils.py:2327] CPU KV cache size: 46,592 tokens, Maximum concurrency
(APIServer pid=1) INFO 11-29 16:59:15 [entry.py:140] Starting vLLM server on http://127.0.0.1:8190
"""


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_without_a_terminal_each_phase_is_a_line() -> None:
    stream = io.StringIO()
    progress = Progress(stream)
    for line in LOG.splitlines():
        progress.log_line(line)
    assert [line.removeprefix("engine: ").partition(" …")[0] for line in stream.getvalue().splitlines()] == [
        "reading the model's configuration",
        "starting the engine's processes",
        "loading the weights",
        "weights loaded, planning memory",
        "preparing the KV cache (46,592 tokens)",
        "opening the API",
    ]


def test_on_a_terminal_one_line_is_drawn_anew_with_its_details() -> None:
    stream = Terminal()
    progress = Progress(stream)
    for line in LOG.splitlines():
        progress.log_line(line)
    progress.tick()
    progress.say("ready")
    assert "\n" not in stream.getvalue()[:-1]
    assert "loading the weights (50%) … 0 s" in stream.getvalue()
    assert stream.getvalue().endswith("\r\x1b[Kengine: ready\n")


def test_a_long_phase_is_told_again_with_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("gateway.engine.progress.time.monotonic", lambda: now)
    stream = io.StringIO()
    progress = Progress(stream)
    progress.phase("loading")
    for _ in range(40):
        now += 1.0
        progress.tick()
    assert stream.getvalue() == "engine: loading … 0 s\nengine: loading … 15 s\nengine: loading … 30 s\n"
    assert progress.elapsed() == 40


async def test_time_goes_on_by_itself() -> None:
    stream = Terminal()
    progress = Progress(stream)
    progress.phase("making a model")
    clock = asyncio.get_running_loop().create_task(progress.keep_time())
    async with asyncio.timeout(5):
        while "making a model … 1 s" not in stream.getvalue():
            await asyncio.sleep(0.02)
    clock.cancel()
