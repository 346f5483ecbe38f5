#!/usr/bin/env python3
"""What does the gateway add to a real engine? Paired rounds, straight to vLLM and through Sluice, in one run.

    .venv/bin/python loadtests/bench/direct.py                          starts both, from this checkout
    .venv/bin/python loadtests/bench/direct.py --engine URL --gateway URL --model NAME
    .venv/bin/python loadtests/bench/direct.py --vllm-bench --locust 20   with vLLM's `bench serve` and with Locust too

The order changes from round to round and ratios are taken within a round: two rounds differ by more than the gateway
adds. Throughput is tokens a second; all answers have one length. The median of the ratios is told with their spread.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from gateways import free_port
from procs import Process

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parents[1]
START_LIMIT_S = 240
Figures = dict[str, dict[str, list[float]]]
Client = Callable[[str, argparse.Namespace, Path, int], dict[str, float]]
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
    command += ["--body", '{"ignore_eos": true, "temperature": 0}', "--drain", "500"]  # answers of one length
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        sys.exit(f"direct.py: {done.stderr.strip().splitlines()[-1:]}")
    measured: dict[str, Any] = json.loads(done.stdout)
    if wrong := measured["errors"] + measured["unfinished"]:
        sys.exit(f"direct.py: {wrong} answers from {url} were wrong, or never came")
    return measured


def bench_serve(url: str, args: argparse.Namespace, work: Path, seed: int) -> dict[str, float]:
    """One run of vLLM's own client. A seed is used once: the engine keeps the prefixes that it has seen."""
    command = [str(args.engine_python), "-c", BENCH_SERVE, "--backend", "openai-chat", "--base-url", url]
    command += ["--endpoint", "/v1/chat/completions", "--model", args.model, "--tokenizer", str(args.weights)]
    command += ["--dataset-name", "random", "--random-input-len", "64", "--random-output-len", str(args.tokens)]
    command += ["--num-prompts", "64", "--max-concurrency", "32", "--ignore-eos", "--disable-tqdm", "--save-result"]
    command += ["--result-dir", str(work), "--result-filename", "bench.json", "--seed", str(seed)]
    env = {**os.environ, "OPENAI_API_KEY": args.key, "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False, env=env)
    if done.returncode:
        sys.exit(f"direct.py: vllm bench serve: {done.stderr.strip().splitlines()[-1:]}")
    found = json.loads((work / "bench.json").read_text())
    if found["completed"] != 64:
        sys.exit(f"direct.py: vllm bench serve: {found['completed']} of 64 answers came from {url}")
    return {name: found[name] for name in ("output_throughput", "median_ttft_ms", "median_itl_ms")}


def locust(url: str, args: argparse.Namespace, work: Path, _: int) -> dict[str, float]:
    """One run of our own load test: a flood of eight callers."""
    command = [str(args.locust_command), "-f", str(CHECKOUT / "loadtests/locustfile.py"), "-H", url, "--headless"]
    command += ["--only-summary", "-u", "8", "-t", f"{args.locust}s", "--csv", str(work / "locust"), "Batch"]
    command += ["--model", args.model, "--key", args.key, "--max-tokens", str(args.tokens), "--slo", "errors=0%"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=args.locust + 120, check=False)
    if done.returncode:
        sys.exit(f"direct.py: locust: {done.stdout.strip().splitlines()[-1:]} {done.stderr.strip().splitlines()[-3:]}")
    with (work / "locust_stats.csv").open() as lines:
        rows = {row["Type"]: row for row in csv.DictReader(lines)}
    return {
        "output_throughput": sum(float(rows[kind]["Requests/s"]) for kind in ("TTFT", "ITL")),
        "median_ttft_ms": float(rows["TTFT"]["Median Response Time"]),
        "median_itl_ms": float(rows["ITL"]["Median Response Time"]),
    }


def other_client(name: str, ask: Client, urls: Mapping[str, str], args: argparse.Namespace, work: Path) -> Figures:
    """Two pairs by another client, there and back again, so that what drifts falls on both alike."""
    order = ["direct", "gateway", "gateway", "direct"]
    runs = [(way, ask(urls[way], args, work, seed)) for seed, way in enumerate(order)]
    found = {way: {figure: [run[figure] for its, run in runs if its == way] for figure in runs[0][1]} for way in urls}
    for figure in runs[0][1]:
        told = (f"{statistics.mean(found[way][figure]):.2f} {way} {found[way][figure]}" for way in urls)
        print(f"{name}: {figure}: {', '.join(told)}", flush=True)
    return found


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


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="what the gateway adds to a real engine; see the top of this file")
    parser.add_argument("--engine", help="a running engine's URL")
    parser.add_argument("--gateway", help="a running gateway's URL, in front of that engine")
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--key", default="none")
    parser.add_argument("--weights", type=Path, default=CHECKOUT / ".cache/models/SmolLM2-135M-Instruct")
    parser.add_argument("--engine-python", type=Path, default=CHECKOUT / ".engine-venv/bin/python")
    parser.add_argument("--sluice", type=Path, default=CHECKOUT / ".venv/bin/sluice")
    parser.add_argument("--locust-command", type=Path, default=CHECKOUT / ".venv/bin/locust")
    parser.add_argument("--streams", default="1,32", help="how many at once, comma between")
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--vllm-bench", action="store_true", help="two pairs with vLLM's own client as well")
    parser.add_argument("--locust", type=int, default=0, metavar="S", help="two pairs with Locust, S seconds each run")
    parser.add_argument("--out", type=Path, default=Path("direct.json"))
    return parser.parse_args()


def main() -> None:
    args = arguments()
    found: dict[str, Any] = {"paired": []}
    with tempfile.TemporaryDirectory(prefix="direct-") as scratch, started(args, Path(scratch)) as (engine, gateway):
        for streams in map(int, args.streams.split(",")):
            paired = compare(engine, gateway, args, streams)
            found["paired"].append(paired)
            print(
                f"{streams} streams: throughput × {spread(paired['throughput'])} of direct;"
                f" first text +{spread(paired['ttft_ms_added'])} ms on {statistics.median(paired['ttft_ms']):.1f};"
                f" between tokens +{spread(paired['gap_ms_added'])} ms on {statistics.median(paired['gap_ms']):.1f}",
                flush=True,
            )
        urls = {"direct": engine, "gateway": gateway}
        if args.vllm_bench:
            found["vllm_bench"] = other_client("vllm bench serve", bench_serve, urls, args, Path(scratch))
        if args.locust:
            found["locust"] = other_client("locust", locust, urls, args, Path(scratch))
    args.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
