#!/usr/bin/env python3
"""Does anything leak? Mixed load on a gateway for a while, with callers who leave and configurations that change.

    .venv/bin/python loadtests/soak.py --minutes 20        (make soak)

Starts the mock engine and `sluice serve` from this checkout, plays Locust's ``soak`` shape over it, rewrites the
configuration and the word list meanwhile, and samples the process: its memory, file descriptors, requests in flight.
Ends with 1 where memory grows steadily, a descriptor or a request is left over, or an answer was wrong.
"""

from __future__ import annotations

import argparse
import itertools
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(CHECKOUT), str(CHECKOUT / "loadtests" / "bench")]

from gateways import free_port  # noqa: E402 - found by the line above
from procs import Process  # noqa: E402 - likewise

from loadtests.leaks import Sample, faults  # noqa: E402 - likewise

#: Connections are kept for some seconds, here and in front of engines.
QUIET_S = 8.0
WARM_S = 25

CONFIG = """server: {{host: 127.0.0.1, port: {port}}}
models:
  - {{name: smollm2, max_in_flight: 512, engines: [{{url: "http://127.0.0.1:{engine}"}}]}}
chain:
  - plugin: normalize
  - plugin: clean_text
  - plugin: pii
  - plugin: sensitive_words
    options: {{lists: [words.txt], mask_char: "{mark}"}}
  - plugin: audit_log
    options: {{path: audit.jsonl, rotate_mb: 5}}
"""


def sample(process: Process, port: int, began: float) -> Sample:
    pid = process.popen.pid
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    in_flight = sum(float(value) for value in re.findall(r"^sluice_in_flight\{[^}]*\} (\S+)", text, re.MULTILINE))
    files = len(os.listdir(f"/proc/{pid}/fd"))
    return Sample(time.monotonic() - began, process.rss() / 2**20, files, int(in_flight))


def settled(process: Process, port: int, began: float) -> Sample:
    """A sample with nobody asking, after kept connections have had the time to close."""
    time.sleep(QUIET_S)
    end = time.monotonic() + 15
    while (now := sample(process, port, began)).in_flight and time.monotonic() < end:
        time.sleep(0.5)
    return now


def change(work: Path, config: str, number: int) -> None:
    """Rewrite the word list, and every other time the configuration."""
    (work / "words.new").write_text(f"赌博\nforbiddenzebra\nround{number}word\n", encoding="utf-8")
    (work / "words.new").rename(work / "words.txt")
    if number % 2:
        (work / "sluice.new").write_text(config.replace('mask_char: "*"', f'mask_char: "{"*#"[number // 2 % 2]}"'))
        (work / "sluice.new").rename(work / "sluice.yaml")


def run(args: argparse.Namespace, work: Path) -> list[str]:
    port, engine = free_port(), free_port()
    config = CONFIG.format(port=port, engine=engine, mark="*")
    (work / "sluice.yaml").write_text(config, encoding="utf-8")
    change(work, config, 0)
    mock = Process(
        [sys.executable, str(CHECKOUT / "loadtests/bench/mock_engine.py"), "--port", str(engine), "--model", "smollm2"],
        {"ITL_MS": "15"},
        work / "mock.log",
    )
    gateway = Process([str(args.sluice), "serve", "-c", str(work / "sluice.yaml")], {}, work / "gateway.log")
    try:
        return play(args, work, config, gateway, port)
    finally:
        gateway.stop()
        mock.stop()


def play(args: argparse.Namespace, work: Path, config: str, gateway: Process, port: int) -> list[str]:
    began = time.monotonic()
    while True:
        try:
            sample(gateway, port, began)
            break
        except OSError:
            if gateway.ended or time.monotonic() > began + 30:
                return [f"the gateway did not start: {gateway.fate()}"]
            time.sleep(0.1)
    said = [str(args.locust), "-f", str(CHECKOUT / "loadtests/locustfile.py"), "-H", f"http://127.0.0.1:{port}"]
    said += ["--headless", "--only-summary", "-u", str(args.users), "--rest", "0.02"]
    # What is loaded at its first use (tables of the word filter, long texts) is no leak: everybody comes, and often.
    warming = [*said, "--equal-weights", "-t", f"{WARM_S}s"]
    warm = subprocess.run(warming, capture_output=True, text=True, cwd=work, check=False)
    if warm.returncode not in {0, 1}:
        return [f"locust: {warm.stderr.strip().splitlines()[-1:]}"]
    command = [*said, "--shape", "soak", "-t", f"{args.minutes * 60:.0f}s"]
    command += ["--slo", "errors=0%", "--slo", "goodput=99%"]
    before = settled(gateway, port, began)
    load = subprocess.Popen(command, cwd=work, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    told: list[str] = []
    reader = threading.Thread(target=lambda: told.extend(load.stdout or []))
    reader.start()
    samples = []
    began = time.monotonic()
    for number in itertools.count(1):
        try:
            load.wait(args.minutes * 60 / 60)
            break
        except subprocess.TimeoutExpired:
            samples.append(sample(gateway, port, began))
            if number % 4 == 0:
                change(work, config, number)
                if number % 8 == 0:
                    gateway.popen.send_signal(signal.SIGHUP)
    reader.join()
    after = settled(gateway, port, began)
    print(*(line.rstrip() for line in told if re.search(r": (held|missed): |Refused", line)), sep="\n")
    memory = ", ".join(f"{each.mb:.0f}" for each in samples[:: max(1, len(samples) // 8)])
    print(f"{len(samples)} samples, MB: {memory};", end=" ")
    print(f"descriptors {before.files} before, {after.files} after; in flight after: {after.in_flight}")
    found = faults(samples, before, after)
    return [*found, "answers were wrong, see above"] if load.returncode else found


def main() -> None:
    parser = argparse.ArgumentParser(description="mixed load for a while; see the top of this file")
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--users", type=int, default=40)
    parser.add_argument("--sluice", type=Path, default=CHECKOUT / ".venv/bin/sluice")
    parser.add_argument("--locust", type=Path, default=CHECKOUT / ".venv/bin/locust")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="soak-") as scratch:
        found = run(args, Path(scratch))
    print("soak:", "; ".join(found) or "nothing leaks")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
