#!/usr/bin/env python3
"""Do prompts that begin alike find the prefix cache that knows them? Two real vLLM processes, by their own metrics.

    .venv/bin/python loadtests/bench/prefix.py                    starts both, with a tiny model of random weights
    .venv/bin/python loadtests/bench/prefix.py --engines URL URL --model NAME

Many system prompts, each asked several times in random order, more of them than one engine's cache holds and fewer
than both do together; once with `keep_prefixes` and once without, with other prompts each time. Told is the part of
the prompt tokens that the engines found in their caches (vllm:prefix_cache_hits_total over …_queries_total).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import re
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from direct import ENGINE_ENV, ONE_PROCESS, wait_for
from gateways import free_port
from procs import Process

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parents[1]
PYTHON = CHECKOUT / ".engine-venv" / "bin" / "python"
SMOLLM2 = CHECKOUT / ".cache" / "models" / "SmolLM2-135M-Instruct"
#: A model that answers at once: what is measured is the cache, not the arithmetic.
MAKE_TINY = HERE / "make_tiny.py"
CONFIG = """
server: {{host: 127.0.0.1, port: {port}}}
models:
  - name: {model}
    keep_prefixes: {keep}
    engines: [{{url: "{one}"}}, {{url: "{two}"}}]
chain: []
"""
#: KV cache of each engine, in bytes: of this model 20,000 tokens.
CACHE = "10240000"


@contextlib.contextmanager
def engines(work: Path, count: int = 2, cache: str = CACHE, more: Sequence[str] = ()) -> Iterator[list[str]]:
    """Start engines of the tiny model, with ``more`` flags; yield their addresses."""
    model = work / "tiny"
    making = Process([str(PYTHON), str(MAKE_TINY), str(SMOLLM2), str(model)], {}, work / "make.log")
    while not making.ended:
        time.sleep(0.2)
    ports = [free_port() for _ in range(count)]
    flags = ["--served-model-name", "tiny", "--max-model-len", "1024", "--enforce-eager", "--dtype", "bfloat16"]
    flags += ["--kv-cache-memory-bytes", cache, "--gpu-memory-utilization", "0.2", *ONE_PROCESS, *more]
    module = [str(PYTHON), "-m", "vllm.entrypoints.openai.api_server", "--model", str(model), *flags]
    started = [Process([*module, "--port", str(port)], ENGINE_ENV, work / f"{port}.log") for port in ports]
    try:
        for port, process in zip(ports, started, strict=True):
            wait_for(f"http://127.0.0.1:{port}/health", process)
        yield [f"http://127.0.0.1:{port}" for port in ports]
    finally:
        for process in started:
            process.stop()


def cached(url: str) -> tuple[float, float]:
    """Return prompt tokens found in the cache, and looked for."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    hits, asked = (
        sum(float(value) for value in re.findall(rf"^vllm:prefix_cache_{name}_total{{.*}} (\S+)$", text, re.MULTILINE))
        for name in ("hits", "queries")
    )
    return hits, asked


def prompts(count: int, words: int, seed: int) -> list[str]:
    """Make system prompts that differ from their first word on."""
    draw = random.Random(seed)
    words_of = [f"{first}{last}" for first in ("wa", "sto", "ri", "clo") for last in ("ter", "ne", "ver", "ud")]
    return [" ".join(draw.choice(words_of) for _ in range(words)) for _ in range(count)]


def ask(url: str, model: str, system: str, question: str) -> None:
    body = {
        "model": model,
        "max_tokens": 1,
        "messages": [{"role": "system", "content": system}, {"role": "user", "content": question}],
    }
    request = urllib.request.Request(
        f"{url}/v1/chat/completions", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=120) as answer:
        answer.read()


def all_ready(url: str, model: str) -> bool:
    with urllib.request.urlopen(f"{url}/readyz", timeout=10) as answer:
        return all(json.load(answer)["models"][model]["engines"].values())


def measure(urls: list[str], model: str, work: Path, *, keep: bool, count: int, rounds: int) -> float:
    """Return the part of the prompt tokens that came from a cache."""
    port = free_port()
    config = work / f"sluice-{keep}.yaml"
    config.write_text(CONFIG.format(port=port, model=model, keep=str(keep).lower(), one=urls[0], two=urls[1]))
    gateway = Process(
        [str(CHECKOUT / ".venv" / "bin" / "sluice"), "serve", "-c", str(config)], {}, work / f"{keep}.log"
    )
    try:
        url = f"http://127.0.0.1:{port}"
        wait_for(f"{url}/readyz", gateway)
        while not all_ready(url, model):  # a cold engine gets nothing while the other serves
            time.sleep(0.5)
        asked = [
            (system, f"Question {number}?") for system in prompts(count, 500, int(keep)) for number in range(rounds)
        ]
        random.Random(7).shuffle(asked)
        before = [cached(each) for each in urls]
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda each: ask(url, model, *each), asked))
        after = [cached(each) for each in urls]
        parts = [tuple(b - a for a, b in zip(*pair, strict=True)) for pair in zip(before, after, strict=True)]
        print(f"  each engine: {', '.join(f'{hits:.0f} of {total:.0f} tokens' for hits, total in parts)}")
        return sum(hits for hits, _ in parts) / sum(total for _, total in parts)
    finally:
        gateway.stop()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--engines", nargs=2, metavar="URL", help="two running vLLM of one model")
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--prompts", type=int, default=48)
    parser.add_argument("--rounds", type=int, default=6, help="questions to each prompt")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sluice-prefix-") as folder:
        work = Path(folder)
        running = contextlib.nullcontext(given.engines) if given.engines else engines(work)
        with running as urls:
            for keep in (False, True):
                part = measure(urls, given.model, work, keep=keep, count=given.prompts, rounds=given.rounds)
                print(
                    f"keep_prefixes: {str(keep).lower()}: {part:.1%} of the prompt tokens came from a cache", flush=True
                )
    return 0


if __name__ == "__main__":
    sys.exit(main())
