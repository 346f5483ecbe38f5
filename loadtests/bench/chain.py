#!/usr/bin/env python3
"""What does the chain cost? CPU time a request of every plugin together, beside the same gateway without any.

    .venv/bin/python loadtests/bench/chain.py              all plugins but those that have to buffer
    .venv/bin/python loadtests/bench/chain.py --each       and each of them alone

One mock engine, one gateway for each chain, rounds in turn: the difference is taken within a round, and the median of
the differences is told. Prompts have about 500 characters, most of them Chinese; answers 64 tokens, whole or streamed.
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
from texts import words

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parents[1]
#: As a public route would have them: the request passes them from top to bottom.
CHAIN: list[dict[str, Any]] = [
    {"plugin": "audit_log", "options": {"path": "audit.jsonl"}},
    {"plugin": "fallback", "options": {"text": "Later."}},
    {"plugin": "normalize"},
    {"plugin": "clean_text"},
    {"plugin": "sensitive_words", "options": {"lists": ["words.txt"]}},
    {"plugin": "pii"},
    {"plugin": "presets", "options": {"default": "chat"}},
    {"plugin": "system_prompt", "options": {"text": "You answer for Acme on {date}, and name no other company."}},
    {"plugin": "length"},
    {"plugin": "cache"},
    {"plugin": "confidence", "options": {"metric": "mean_probability"}},
    {"plugin": "json_answer"},
    {"plugin": "answer_sanity"},
    {"plugin": "stop_phrases", "options": {"phrases": ["\nUser:", "\nHuman:"]}},
    {"plugin": "envelope", "options": {"profile": "code_data"}},
]


def chains(each: bool) -> dict[str, list[dict[str, Any]]]:
    """Return the chains to be compared, by name; the first is the one without plugins."""
    alone = {entry["plugin"]: [entry] for entry in CHAIN} if each else {}
    return {"plain": [], "all": CHAIN, **alone}


@contextlib.contextmanager
def running(chain: list[dict[str, Any]], engine: str, work: Path) -> Iterator[tuple[Process, str]]:
    """Run a gateway with a chain, in a folder of its own."""
    work.mkdir()
    (work / "words.txt").write_text("\n".join(words(10_000)), encoding="utf-8")
    port = free_port()
    config = {
        "server": {"port": port},
        "models": [{"name": "m", "engines": [{"url": engine}], "max_output_tokens": 4096}],
        "chain": chain,
    }
    (work / "sluice.yaml").write_text(json.dumps(config), encoding="utf-8")  # JSON is YAML
    sluice = [str(CHECKOUT / ".venv/bin/sluice"), "serve", "-c", str(work / "sluice.yaml")]
    process = Process(sluice, {**os.environ}, work / "log")
    try:
        url = f"http://127.0.0.1:{port}"
        _wait(f"{url}/readyz", process)
        yield process, url
    finally:
        process.stop()


def _wait(url: str, process: Process) -> None:
    end = time.monotonic() + 30
    while time.monotonic() < end and not process.ended:
        with contextlib.suppress(OSError, urllib.error.URLError), urllib.request.urlopen(url, timeout=2):
            return
        time.sleep(0.1)
    sys.exit(f"chain.py: {url} does not answer: {process.fate()}")


def load(url: str, seconds: float, stream: bool) -> int:
    """Send requests for some seconds; return how many were answered."""
    command = [sys.executable, str(HERE / "load.py"), "--url", url, "-c", "16", "--seconds", str(seconds)]
    done = subprocess.run(
        [*command, "--tokens", "64", "--prompt-bytes", "1400", *(["--stream"] if stream else [])],
        capture_output=True,
        text=True,
        check=True,
    )
    told = json.loads(done.stdout)
    if told["errors"]:
        sys.exit(f"chain.py: {told}")
    return int(told["requests"])


def measure(
    chains_: dict[str, list[dict[str, Any]]], rounds: int, seconds: float, stream: bool
) -> dict[str, list[float]]:
    """Return for each chain µs of CPU a request, round by round."""
    found: dict[str, list[float]] = {name: [] for name in chains_}
    with tempfile.TemporaryDirectory(prefix="sluice-chain-") as folder, contextlib.ExitStack() as stack:
        work, port = Path(folder), free_port()
        mock = Process(
            [sys.executable, str(HERE / "mock_engine.py"), "--port", str(port)], {**os.environ}, work / "mock"
        )
        stack.callback(mock.stop)
        engine = f"http://127.0.0.1:{port}"
        _wait(f"{engine}/health", mock)
        gateways = {name: stack.enter_context(running(chain, engine, work / name)) for name, chain in chains_.items()}
        for url in (url for _, url in gateways.values()):
            load(url, 0.5, stream)
        for turn in range(rounds):
            order = list(gateways.items())
            for name, (process, url) in order[:: 1 if turn % 2 else -1]:
                before = process.cpu()
                count = load(url, seconds, stream)
                found[name].append((process.cpu() - before) / count * 1e6)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--each", action="store_true", help="also each plugin alone")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=1.5, help="of one round of one gateway")
    given = parser.parse_args()
    print("| chain | whole answer, µs | added | streamed answer of 64 tokens, µs | added |\n|---|---|---|---|---|")
    whole, streamed = (measure(chains(given.each), given.rounds, given.seconds, stream) for stream in (False, True))
    for name in whole:
        row = []
        for found in (whole, streamed):
            added = [one - plain for one, plain in zip(found[name], found["plain"], strict=True)]
            row += [f"{statistics.median(found[name]):.0f}", f"{statistics.median(added):.0f}"]
        print(f"| {name} | {' | '.join(row)} |")


if __name__ == "__main__":
    main()
