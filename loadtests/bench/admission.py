#!/usr/bin/env python3
"""What the queue before a model is worth: a real vLLM with little KV cache, asked for twice what it can do.

    .venv/bin/python loadtests/bench/admission.py [--seconds 40] [--deadline 8]

Three questions, each put to the bare engine and to the gateway before it, in turn:

- What does the bare engine do at its best? (Kept busy by 32 callers at a time.)
- Of requests that come at twice that pace, how many are answered to their end before their deadline, and how often does
  the engine throw out a running request for want of KV blocks (vllm:num_preemptions_total)?
- While a flood of batch requests runs, how long does a short interactive request wait for its first token, beside what
  it waits where nothing else runs, and beside one engine step?

The model is tiny and its weights random: what is measured is the queueing, not the arithmetic.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from direct import wait_for
from gateways import free_port
from prefix import CHECKOUT, engines
from procs import Process

#: 33 blocks of 128 tokens, 512 bytes a token: room for about eight requests of the size below.
CACHE = 33 * 128 * 512
CONFIG = """
server: {{host: 127.0.0.1, port: {port}}}
models:
  - name: tiny
    max_in_flight: 64
    max_output_tokens: 900
    engines: [{{url: "{engine}", served_model: tiny}}]
    queue: {{length: 512, max_wait_s: 60, timeout_s: {timeout}, batch_share: {share}}}
chain: []
"""
PROMPT = "Tell me what you know about water, rivers and stones. " * 8


@dataclass
class Tally:
    """What became of the requests of one run: seconds until the end, or until the first token; refusals by status."""

    ended: list[float] = field(default_factory=list)
    first: list[float] = field(default_factory=list)
    refused: int = 0
    failed: int = 0


@contextlib.contextmanager
def gateway(work: Path, url: str, timeout: float, share: float = 0.6) -> Iterator[str]:
    """Start the gateway before the engine; yield its address when it knows the engine's capacity."""
    port = free_port()
    config = work / f"sluice-{port}.yaml"
    config.write_text(CONFIG.format(port=port, engine=url, timeout=timeout, share=share))
    sluice = str(CHECKOUT / ".venv" / "bin" / "sluice")
    process = Process([sluice, "serve", "-c", str(config)], {}, work / f"{port}.log")
    try:
        wait_for(f"http://127.0.0.1:{port}/readyz", process)
        while not number(f"http://127.0.0.1:{port}", "sluice_capacity_tokens"):
            time.sleep(0.2)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.stop()


def number(url: str, name: str) -> float:
    """Read one metric, summed over its series."""
    text = httpx.get(f"{url}/metrics", timeout=10).text
    return sum(float(value) for value in re.findall(rf"^{name}(?:{{.*}})? (\S+)$", text, re.MULTILINE))


def request(draw: random.Random) -> dict[str, Any]:
    """Draw a request: some 120 tokens of prompt, and an answer of 60 to 700 tokens, of which most are short."""
    tokens = min(700, 60 + int(draw.expovariate(1 / 200)))
    messages = [{"role": "user", "content": f"{draw.random()} {PROMPT}"}]
    return {"model": "tiny", "messages": messages, "max_tokens": tokens, "ignore_eos": True}


async def whole(client: httpx.AsyncClient, body: dict[str, Any], tally: Tally, patience: float) -> None:
    """Ask, and leave when the deadline has passed."""
    began = time.perf_counter()
    try:
        async with asyncio.timeout(patience):
            answer = await client.post("/v1/chat/completions", json=body)
    except TimeoutError:
        tally.failed += 1
        return
    except httpx.HTTPError:
        tally.failed += 1
        return
    if answer.status_code == 200:
        tally.ended.append(time.perf_counter() - began)
    elif answer.status_code == 429:
        tally.refused += 1
    else:
        tally.failed += 1


async def short(client: httpx.AsyncClient, tally: Tally) -> None:
    """Ask for a few words as a stream, and note when they come."""
    body = {"model": "tiny", "messages": [{"role": "user", "content": f"{random.random()} Hi"}], "max_tokens": 8}
    began = time.perf_counter()
    first = None
    async with client.stream("POST", "/v1/chat/completions", json={**body, "stream": True, "ignore_eos": True}) as told:
        async for line in told.aiter_lines():
            if not line.startswith("data: {"):
                continue
            choices = json.loads(line[6:])["choices"]
            if not choices or not choices[0]["delta"].get("content"):
                continue
            if first is None:
                first = time.perf_counter() - began
    if first is None:
        tally.failed += 1
    else:
        tally.first.append(first)


def client_of(url: str) -> httpx.AsyncClient:
    limits = httpx.Limits(max_connections=1000, max_keepalive_connections=1000)
    return httpx.AsyncClient(base_url=url, timeout=300, limits=limits)


async def in_turn(url: str, at_once: int, seconds: float, ask: Callable[..., Awaitable[None]], **more: Any) -> Tally:
    """Keep so many requests running for so long; what still runs then is left."""
    tally, draw, over = Tally(), random.Random(1), time.perf_counter() + seconds

    async def one() -> None:
        while time.perf_counter() < over:
            await ask(client, {**request(draw), **more}, tally, 300)

    async with client_of(url) as client:
        running = [asyncio.ensure_future(one()) for _ in range(at_once)]
        try:
            await asyncio.wait(running, timeout=seconds)
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
    return tally


async def burst(url: str, pace: float, seconds: float, patience: float) -> Tally:
    """Let requests come at random moments (Poisson), whatever becomes of them; each leaves when its patience ends."""
    tally, draw = Tally(), random.Random(2)
    async with client_of(url) as client, asyncio.TaskGroup() as group:
        comes = time.perf_counter()
        over = comes + seconds
        while comes < over:  # a schedule of its own, so that a busy machine does not thin the load out
            group.create_task(whole(client, request(draw), tally, patience))
            comes += draw.expovariate(pace)
            await asyncio.sleep(max(0.0, comes - time.perf_counter()))
    return tally


async def interactive(url: str, count: int, flood: int) -> Tally:
    """Ask short questions one after the other, with so many batch requests running beside them."""
    tally = Tally()
    beside = asyncio.ensure_future(in_turn(url, flood, 600, whole, service_tier="flex")) if flood else None
    await asyncio.sleep(8 if flood else 0)
    async with client_of(url) as client:
        for _ in range(3):
            await short(client, Tally())
        for _ in range(count):
            await short(client, tally)
            await asyncio.sleep(0.2)
    if beside is not None:
        beside.cancel()
        await asyncio.gather(beside, return_exceptions=True)
    return tally


def p95(values: list[float]) -> float:
    return statistics.quantiles(values, n=20)[-1] if len(values) > 1 else float("nan")


def goodput(bare: str, before: str, pace: float, given: argparse.Namespace) -> None:
    """Send the burst to both, and tell; callers leave at their deadline, or wait as OpenAI's SDK does, ten minutes."""
    print(f"\nTwice that, {2 * pace:.1f} requests a second for {given.seconds:.0f} s, deadline {given.deadline:.0f} s:")
    for whose, patience in (
        ("callers leave at their deadline", given.deadline),
        ("callers wait, as the SDK does", 600),
    ):
        for name, url in (("bare engine", bare), ("with the queue", before)):
            preempted = number(bare, "vllm:num_preemptions_total")
            tally = asyncio.run(burst(url, 2 * pace, given.seconds, patience))
            preempted = number(bare, "vllm:num_preemptions_total") - preempted
            good = sum(took <= given.deadline for took in tally.ended)
            late = len(tally.ended) - good + tally.failed
            print(
                f"  {whose}: {name:<16} {good:4d} in time ({good / given.seconds:.2f}/s), {tally.refused} refused, "
                f"{late} too late, {preempted:.0f} preemptions",
                flush=True,
            )
            time.sleep(3)


def waits(bare: str, before: str, given: argparse.Namespace) -> None:
    """Put short questions into a flood at both, and tell."""
    print(f"\nShort interactive requests beside a flood of {given.flood} batch requests at a time, first token in ms:")
    for name, url in (("bare engine", bare), ("with the queue", before)):
        calm = asyncio.run(interactive(url, given.count, 0))
        before_it = [number(bare, f"vllm:inter_token_latency_seconds_{part}") for part in ("sum", "count")]
        flooded = asyncio.run(interactive(url, given.count, given.flood))
        after_it = [number(bare, f"vllm:inter_token_latency_seconds_{part}") for part in ("sum", "count")]
        step = (after_it[0] - before_it[0]) / max(1.0, after_it[1] - before_it[1])
        bound = 1.3 * p95(calm.first) + step
        print(
            f"  {name:<16} unloaded p50 {statistics.median(calm.first) * 1e3:.0f} p95 {p95(calm.first) * 1e3:.0f}; "
            f"in the flood p50 {statistics.median(flooded.first) * 1e3:.0f} p95 {p95(flooded.first) * 1e3:.0f}; "
            f"an engine step {step * 1e3:.0f}; 1.3 x unloaded p95 + a step {bound * 1e3:.0f}"
        )
        time.sleep(3)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="what the queue before a model is worth")
    parser.add_argument("--seconds", type=float, default=40, help="length of the burst")
    parser.add_argument("--deadline", type=float, default=8, help="of a request in the burst, in seconds")
    parser.add_argument("--flood", type=int, default=24, help="batch requests at a time")
    parser.add_argument("--count", type=int, default=40, help="short requests")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sluice-admission-") as folder, contextlib.ExitStack() as life:
        work = Path(folder)
        (bare,) = life.enter_context(engines(work, 1, str(CACHE), ["--no-enable-prefix-caching"]))
        asyncio.run(in_turn(bare, 4, 5, whole))  # warm
        best = asyncio.run(in_turn(bare, 32, 15, whole))
        pace = len(best.ended) / 15
        times = f"p50 {statistics.median(best.ended):.1f} s, p95 {p95(best.ended):.1f} s"
        print(f"At its best: {pace:.2f} requests a second, {times}", flush=True)
        with gateway(work, bare, given.deadline / 2) as before:
            goodput(bare, before, pace, given)
        with gateway(work, bare, 300) as before:
            waits(bare, before, given)
    return 0


if __name__ == "__main__":
    sys.exit(main())
