"""Tensor parallelism as it is, not as it is configured: two ranks on the CPU, and a stream through the gateway."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.engine.up import Wishes
from tests.engine_fixture import ENGINE_PYTHON, RealEngine, default_model, running_engine
from tests.harness import ROOT, configuration, hear, model, running_gateway

pytestmark = pytest.mark.engine

#: SmolLM2 has 9 heads, which no two ranks can share.
MAKE_TINY = ROOT / "loadtests" / "bench" / "make_tiny.py"


@pytest.fixture(scope="module")
def split_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealEngine]:
    directory = tmp_path_factory.mktemp("models") / "splittable"
    subprocess.run([ENGINE_PYTHON, MAKE_TINY, default_model(), directory], check=True, capture_output=True)
    wishes = Wishes(model=str(directory), tensor_parallel=2, args=("--kv-cache-memory-bytes", "64M"))
    with running_engine(wishes) as engine:
        yield engine


def test_two_ranks_hold_the_model_and_stream_through_the_gateway(split_engine: RealEngine, tmp_path: Path) -> None:
    log = split_engine.log.read_text()
    for rank in ("0", "1"):
        assert f"world_size=2 rank={rank} " in log
        assert re.search(rf"Worker_TP{rank} .*KV cache", log)

    entry = {**model("splittable", split_engine.url), "max_output_tokens": 64}
    with running_gateway(configuration([entry]), tmp_path) as gateway:
        heard = hear(gateway, {"model": "splittable", "max_tokens": 8, "ignore_eos": True})
    assert heard.status == 200, heard.raw
    assert heard.done
    assert heard.finishes() == ["length"]
    assert len(heard.events) >= 8
