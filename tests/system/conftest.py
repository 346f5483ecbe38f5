"""What the system tests share: a fake engine, a gateway in front of it, and gateways of a test's own."""

from __future__ import annotations

import contextlib
import itertools
import json
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gateway.engine.up import Wishes
from tests.engine_fixture import ENGINE_PYTHON, RealEngine, default_model, running_engine
from tests.fakes.vllm import FakeVLLM
from tests.harness import ROOT, Gateway, configuration, model, running_gateway

#: Engines that a test may break.
FRAGILE = [f"fragile-{number}" for number in range(8)]
_next = itertools.cycle(FRAGILE)

StartGateway = Callable[..., Gateway]


@pytest.fixture(scope="session")
def _engine() -> Iterator[FakeVLLM]:
    with FakeVLLM() as fake:
        yield fake


@pytest.fixture
def fake(_engine: FakeVLLM) -> Iterator[FakeVLLM]:
    """The fake engine behind ``gateway``, with nothing scripted and nothing recorded."""
    _engine.reset()
    yield _engine
    _engine.reset()


@pytest.fixture(scope="session")
def gateway(_engine: FakeVLLM, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """The fixture configuration in front of the fake engine, started once."""
    models = [
        model("smollm2", _engine.url, aliases=["gpt-4o-mini"]),
        model("org/m-1", _engine.url),
        *(model(name, _engine.url) for name in FRAGILE),
    ]
    with running_gateway(configuration(models), tmp_path_factory.mktemp("gateway")) as started:
        yield started


@pytest.fixture
def fragile() -> str:
    """A model whose engine the test may break."""
    return next(_next)


@pytest.fixture
def start_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartGateway]:
    """Start a gateway of the test's own; it ends with the test."""
    with contextlib.ExitStack() as running:

        def start(config: Mapping[str, Any], **options: Any) -> Gateway:
            folder: Path = options.pop("folder", None) or tmp_path_factory.mktemp("gateway")
            return running.enter_context(running_gateway(config, folder, **options))

        yield start


@pytest.fixture(scope="session")
def small_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealEngine]:
    """A real vLLM that is short of everything: SmolLM2 in 4 bits, 768 tokens of KV cache, and a profiler.

    Its ``folder`` has the model in ``w4a16`` and what it was profiled in ``traces``.
    """
    folder = tmp_path_factory.mktemp("small")
    script = ROOT / "tests" / "engine_quantised.py"
    words = [ENGINE_PYTHON, script, default_model(), folder / "w4a16", "w4a16"]
    subprocess.run([str(word) for word in words], check=True, timeout=120)
    profiler = {"profiler": "torch", "torch_profiler_dir": str(folder / "traces"), "torch_profiler_with_stack": False}
    blocks = ("--kv-cache-memory-bytes", str(6 * 2_949_120), "--max-num-seqs", "8")  # of 128 tokens each
    args = (*blocks, "--served-model-name", "smollm2", "--quantization", "compressed-tensors")
    wishes = Wishes(
        model=str(folder / "w4a16"), max_model_len=512, args=(*args, "--profiler-config", json.dumps(profiler))
    )
    with running_engine(wishes) as engine:
        yield replace(engine, folder=folder)
