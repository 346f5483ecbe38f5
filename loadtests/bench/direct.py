#!/usr/bin/env python3
"""What does the gateway add to a real engine? Paired rounds, straight to vLLM and through Sluice, in one run.

Through Sluice twice, if it is started here: without plugins (what the gateway itself adds), and with all that belongs
on a public route, where a filter may keep a word until it knows what follows.

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


#: vLLM's threads spin while they wait, and its core while it waits for a worker process: with all cores for themselves
#: they starve whoever asks, and the gateway. One process with few threads leaves a core of a small machine to them.
ONE_PROCESS = ("--distributed-executor-backend", "vllm.v1.executor.uniproc_executor.UniProcExecutor")
ENGINE_ENV = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "TORCHDYNAMO_DISABLE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
}


def engine_command(args: argparse.Namespace, port: int) -> tuple[list[str], dict[str, str]]:
    """Return the command and the environment of an engine on the CPU."""
    command = [str(args.engine_python), "-m", "vllm.entrypoints.openai.api_server", "--model", str(args.weights)]
    command += ["--served-model-name", args.model, "--host", "127.0.0.1", "--port", str(port)]
    command += ["--enforce-eager", "--kv-cache-memory-bytes", str(2**30), "--disable-uvicorn-access-log"]
    threads = {"OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 2) - 1))}
    return [*command, *ONE_PROCESS], {**ENGINE_ENV, **threads}


@contextlib.contextmanager
def started(args: argparse.Namespace, work: Path) -> Iterator[dict[str, str]]:
    """The URL of each way to the engine; what was not given is started."""
    running: list[Process] = []
    try:
        engine = args.engine
        if not engine:
            port = free_port()
            engine = f"http://127.0.0.1:{port}"
            running.append(Process(*engine_command(args, port), work / "engine.log"))
            wait_for(f"{engine}/health", running[-1])
        ways = {"direct": engine} | ({"gateway": args.gateway} if args.gateway else {})
        for name, chain in {} if args.gateway else {"plain": "", "full": CHAIN}.items():
            port = free_port()
            ways[name] = f"http://127.0.0.1:{port}"
            config = work / f"{name}.yaml"
            models = f'models: [{{name: {args.model}, max_in_flight: 256, engines: [{{url: "{engine}"}}]}}]\n'
            plugins = chain.format(words=CHECKOUT / "words" / "block.txt", work=work)
            config.write_text(f"server: {{host: 127.0.0.1, port: {port}}}\n{models}{plugins}", encoding="utf-8")
            running.append(Process([str(args.sluice), "serve", "-c", str(config)], {}, work / f"{name}.log"))
            wait_for(f"{ways[name]}/readyz", running[-1])
        yield ways
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
        "answers_s": float(rows["POST"]["Requests/s"]),  # not pieces: a filter may join two
        "median_ttft_ms": float(rows["TTFT"]["Median Response Time"]),
        "median_itl_ms": float(rows["ITL"]["Median Response Time"]),
    }


def other_client(name: str, ask: Client, ways: Mapping[str, str], args: argparse.Namespace, work: Path) -> Figures:
    """Two runs each way by another client, there and back again, so that what drifts falls on all alike."""
    runs = [(way, ask(ways[way], args, work, seed)) for seed, way in enumerate([*ways, *reversed(ways)])]
    found = {way: {figure: [run[figure] for its, run in runs if its == way] for figure in runs[0][1]} for way in ways}
    for figure in runs[0][1]:
        told = (f"{statistics.mean(found[way][figure]):.2f} {way} {found[way][figure]}" for way in ways)
        print(f"{name}: {figure}: {', '.join(told)}", flush=True)
    return found


def spread(values: list[float], sign: str = "-") -> str:
    return f"{statistics.median(values):{sign}.3f} ({min(values):{sign}.3f} to {max(values):{sign}.3f})"


def compare(ways: Mapping[str, str], args: argparse.Namespace, streams: int) -> dict[str, Any]:
    """Ask each way in turn, ``--rounds`` times, and say what each gateway adds to the direct one of its round."""
    for url in ways.values():
        load(url, args, streams)  # warm
    names = list(ways)
    rounds = []
    for number in range(args.rounds):
        turn = number % len(names)
        rounds.append({name: load(ways[name], args, streams) for name in names[turn:] + names[:turn]})
    found: dict[str, Any] = {"streams": streams}
    for figure in ("ttft_ms", "gap_ms"):
        found[figure] = [each["direct"][figure]["p50"] for each in rounds]
    for name in names[1:]:
        found[name] = {"throughput": [each[name]["requests_s"] / each["direct"]["requests_s"] for each in rounds]}
        for figure in ("ttft_ms", "gap_ms"):
            found[name][figure] = [each[name][figure]["p50"] - each["direct"][figure]["p50"] for each in rounds]
        print(
            f"{streams} streams, {name}: throughput × {spread(found[name]['throughput'])} of direct;"
            f" first text {spread(found[name]['ttft_ms'], '+')} ms on {statistics.median(found['ttft_ms']):.1f};"
            f" between tokens {spread(found[name]['gap_ms'], '+')} ms on {statistics.median(found['gap_ms']):.1f}",
            flush=True,
        )
    return found


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="what the gateway adds to a real engine; see the top of this file")
    parser.add_argument("--engine", help="a running engine's URL")
    parser.add_argument("--gateway", help="a running gateway's URL, in front of that engine (else two are started)")
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--key", default="none")
    parser.add_argument("--weights", type=Path, default=CHECKOUT / ".cache/models/SmolLM2-135M-Instruct")
    parser.add_argument("--engine-python", type=Path, default=CHECKOUT / ".engine-venv/bin/python")
    parser.add_argument("--sluice", type=Path, default=CHECKOUT / ".venv/bin/sluice")
    parser.add_argument("--locust-command", type=Path, default=CHECKOUT / ".venv/bin/locust")
    parser.add_argument("--streams", default="1,32", help="how many at once, comma between")
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--vllm-bench", action="store_true", help="vLLM's own client as well, twice each way")
    parser.add_argument(
        "--locust", type=int, default=0, metavar="S", help="Locust as well, twice each way, S seconds each"
    )
    parser.add_argument("--out", type=Path, default=Path("direct.json"))
    return parser.parse_args()


def main() -> None:
    args = arguments()
    with tempfile.TemporaryDirectory(prefix="direct-") as scratch, started(args, Path(scratch)) as ways:
        found: dict[str, Any] = {"paired": [compare(ways, args, int(streams)) for streams in args.streams.split(",")]}
        if args.vllm_bench:
            found["vllm_bench"] = other_client("vllm bench serve", bench_serve, ways, args, Path(scratch))
        if args.locust:
            found["locust"] = other_client("locust", locust, ways, args, Path(scratch))
    args.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
