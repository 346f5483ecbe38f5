#!/usr/bin/env python3
"""What does the gateway add to a real engine? Paired rounds, straight to vLLM and through Sluice, in one run.

    .venv/bin/python loadtests/bench/direct.py                          starts both, from this checkout
    .venv/bin/python loadtests/bench/direct.py --engine URL --gateway URL --model NAME
    .venv/bin/python loadtests/bench/direct.py --vllm-bench             also with vLLM's own `bench serve`

The order changes from round to round and ratios are taken within a round: two rounds differ by more than the gateway
adds. Throughput is tokens a second; the median of the ratios is told with their spread.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gateways import free_port
from procs import Process

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parents[1]
START_LIMIT_S = 240
BENCH_SERVE = (
    "import asyncio; from vllm.utils.argparse_utils import FlexibleArgumentParser as P;"
    "from vllm.benchmarks.serve import add_cli_args, main; p = P(); add_cli_args(p); main(p.parse_args())"
)
#: Everything that belongs on a public route.
CHAIN = """chain:
  - plugin: normalize
  - plugin: clean_text
  - plugin: pii
  - plugin: sensitive_words
    options: {{lists: ["{words}"]}}
  - plugin: audit_log
    options: {{path: "{work}/audit.jsonl"}}
"""


def wait_for(url: str, process: Process) -> None:
    end = time.monotonic() + START_LIMIT_S
    while time.monotonic() < end:
        if process.ended:
            break
        with contextlib.suppress(OSError, urllib.error.URLError), urllib.request.urlopen(url, timeout=2):
            return
        time.sleep(0.2)
    sys.exit(f"direct.py: {url} does not answer: {process.fate()}")


@contextlib.contextmanager
def started(args: argparse.Namespace, work: Path) -> Iterator[tuple[str, str]]:
    """The engine's and the gateway's URL; what was not given is started."""
    running: list[Process] = []
    try:
        engine = args.engine
        if not engine:
            port = free_port()
            engine = f"http://127.0.0.1:{port}"
            command = [
                str(args.engine_python),
                "-m",
                "vllm.entrypoints.openai.api_server",
                "--model",
                str(args.weights),
            ]
            command += ["--served-model-name", args.model, "--host", "127.0.0.1", "--port", str(port)]
            command += ["--enforce-eager", "--kv-cache-memory-bytes", str(2**30), "--disable-uvicorn-access-log"]
            env = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "TORCHDYNAMO_DISABLE": "1"}
            env |= {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 2) - 1))}
            running.append(Process(command, env, work / "engine.log"))
            wait_for(f"{engine}/health", running[-1])
        gateway = args.gateway
        if not gateway:
            port = free_port()
            gateway = f"http://127.0.0.1:{port}"
            config = work / "sluice.yaml"
            models = f'models: [{{name: {args.model}, max_in_flight: 256, engines: [{{url: "{engine}"}}]}}]\n'
            chain = CHAIN.format(words=CHECKOUT / "words" / "block.txt", work=work)
            config.write_text(f"server: {{host: 127.0.0.1, port: {port}}}\n{models}{chain}", encoding="utf-8")
            running.append(Process([str(args.sluice), "serve", "-c", str(config)], {}, work / "gateway.log"))
            wait_for(f"{gateway}/readyz", running[-1])
        yield engine, gateway
    finally:
        for process in reversed(running):
            process.stop()


def load(url: str, args: argparse.Namespace, streams: int) -> dict[str, Any]:
    """Stream so many answers at once, and return what load.py measured."""
    command = [
        sys.executable,
        str(HERE / "load.py"),
        "--url",
        url,
        "--key",
        args.key,
        "--model",
        args.model,
        "--stream",
    ]
    command += ["-c", str(streams), "--requests", str(max(8, 2 * streams)), "--tokens", str(args.tokens)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        sys.exit(f"direct.py: {done.stderr.strip().splitlines()[-1:]}")
    measured: dict[str, Any] = json.loads(done.stdout)
    if measured["errors"]:
        sys.exit(f"direct.py: {measured['errors']} answers from {url} were wrong")
    return measured


def bench_serve(url: str, args: argparse.Namespace, work: Path, name: str) -> dict[str, Any]:
    """One run of vLLM's own client."""
    command = [str(args.engine_python), "-c", BENCH_SERVE, "--backend", "openai-chat", "--base-url", url]
    command += ["--endpoint", "/v1/chat/completions", "--model", args.model, "--tokenizer", str(args.weights)]
    command += ["--dataset-name", "random", "--random-input-len", "64", "--random-output-len", str(args.tokens)]
    command += ["--num-prompts", "64", "--max-concurrency", "32", "--ignore-eos", "--disable-tqdm", "--save-result"]
    command += ["--result-dir", str(work), "--result-filename", f"{name}.json"]
    env = {**os.environ, "OPENAI_API_KEY": args.key, "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False, env=env)
    if done.returncode:
        sys.exit(f"direct.py: vllm bench serve: {done.stderr.strip().splitlines()[-1:]}")
    measured: dict[str, Any] = json.loads((work / f"{name}.json").read_text())
    return measured


def spread(values: list[float]) -> str:
    return f"{statistics.median(values):.3f} ({min(values):.3f} to {max(values):.3f})"


def compare(engine: str, gateway: str, args: argparse.Namespace, streams: int) -> dict[str, Any]:
    for url in (engine, gateway):
        load(url, args, streams)  # warm
    rounds = []
    for number in range(args.rounds):
        order = [("direct", engine), ("gateway", gateway)]
        rounds.append({name: load(url, args, streams) for name, url in (order if number % 2 else order[::-1])})
    pairs = [(each["direct"], each["gateway"]) for each in rounds]
    return {
        "streams": streams,
        "throughput": [through["requests_s"] / direct["requests_s"] for direct, through in pairs],
        "ttft_ms_added": [through["ttft_ms"]["p50"] - direct["ttft_ms"]["p50"] for direct, through in pairs],
        "gap_ms_added": [through["gap_ms"]["p50"] - direct["gap_ms"]["p50"] for direct, through in pairs],
        "ttft_ms": [direct["ttft_ms"]["p50"] for direct, _ in pairs],
        "gap_ms": [direct["gap_ms"]["p50"] for direct, _ in pairs],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="what the gateway adds to a real engine; see the top of this file")
    parser.add_argument("--engine", help="a running engine's URL")
    parser.add_argument("--gateway", help="a running gateway's URL, in front of that engine")
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--key", default="none")
    parser.add_argument("--weights", type=Path, default=CHECKOUT / ".cache/models/SmolLM2-135M-Instruct")
    parser.add_argument("--engine-python", type=Path, default=CHECKOUT / ".engine-venv/bin/python")
    parser.add_argument("--sluice", type=Path, default=CHECKOUT / ".venv/bin/sluice")
    parser.add_argument("--streams", default="1,32", help="how many at once, comma between")
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--vllm-bench", action="store_true", help="one pair with vLLM's own client as well")
    parser.add_argument("--out", type=Path, default=Path("direct.json"))
    args = parser.parse_args()
    found: dict[str, Any] = {"paired": []}
    with tempfile.TemporaryDirectory(prefix="direct-") as scratch, started(args, Path(scratch)) as (engine, gateway):
        for streams in map(int, args.streams.split(",")):
            paired = compare(engine, gateway, args, streams)
            found["paired"].append(paired)
            print(f"{streams} streams: throughput × {spread(paired['throughput'])} of direct;", end=" ")
            print(
                f"first text +{spread(paired['ttft_ms_added'])} ms on {statistics.median(paired['ttft_ms']):.1f};",
                end=" ",
            )
            print(f"between tokens +{spread(paired['gap_ms_added'])} ms on {statistics.median(paired['gap_ms']):.1f}")
        if args.vllm_bench:
            both = {
                name: bench_serve(url, args, Path(scratch), name)
                for name, url in (("direct", engine), ("gateway", gateway))
            }
            found["vllm_bench"] = both
            for figure in ("output_throughput", "median_ttft_ms", "median_itl_ms"):
                direct, through = (both[name][figure] for name in ("direct", "gateway"))
                print(f"vllm bench serve: {figure}: {direct:.2f} direct, {through:.2f} through")
    args.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
