"""Tensor parallelism as it is, not as it is configured: two ranks on the CPU, and a stream through the gateway."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.engine.up import Wishes
from tests.engine_fixture import ENGINE_PYTHON, RealEngine, default_model, running_engine
from tests.harness import configuration, hear, model, running_gateway

pytestmark = pytest.mark.engine

#: SmolLM2 has 9 heads, which no two ranks can share. This one has 4, and random weights; its words are SmolLM2's.
MAKE_SPLITTABLE = """
import shutil, sys
import torch
from transformers import LlamaConfig, LlamaForCausalLM
source, target = sys.argv[1:]
config = LlamaConfig(vocab_size=49152, hidden_size=128, intermediate_size=256, num_hidden_layers=2,
                     num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=512,
                     bos_token_id=1, eos_token_id=2, pad_token_id=2)
LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(target)
for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
    shutil.copy(f"{source}/{name}", target)
"""


@pytest.fixture(scope="module")
def split_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealEngine]:
    directory = tmp_path_factory.mktemp("models") / "splittable"
    subprocess.run([ENGINE_PYTHON, "-c", MAKE_SPLITTABLE, default_model(), directory], check=True, capture_output=True)
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
