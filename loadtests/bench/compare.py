#!/usr/bin/env python3
"""Compares gateways in front of one mock engine: CPU time, memory, start-up and latency.

    ./setup.sh && ./compare.py --checkout ..                    all that can be started
    ./compare.py --gateways nginx,vllm-router,sluice-full --scenarios whole,stream
    ./compare.py --gateway 'mine=PORT={port} ./serve --engine {engine}'

The figure of merit is CPU time (user and system) of a gateway's whole process tree for each request
or streamed chunk. Rounds are interleaved (A B C A B C ...) and ratios are taken within a round, so
that a machine whose speed drifts still gives the same ratios; absolute figures hold for one run.
Prints one table and writes everything as JSON. README.md says what each figure means.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import platform
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import gateways
from gateways import KNOWN, MODEL, Bench, Gateway, Unavailable
from procs import Process
from results import SCENARIOS, Contestant, Scenario, ratio, table
from texts import answer_text

HERE = Path(__file__).resolve().parent
START_LIMIT_S = 120
CHECK_TOKENS = 120


class Failed(Exception):
    """A gateway that did not start, or broke."""


class Mock:
    """The engine behind all gateways."""

    def __init__(self, python: Path, work: Path) -> None:
        self.port = gateways.free_port()
        command = [str(python), str(HERE / "mock_engine.py"), "--port", str(self.port), "--model", MODEL]
        self.process = Process(command, {}, work / "mock.log")
        end = time.monotonic() + 10
        while True:
            try:
                self.set()
                return
            except OSError:
                if time.monotonic() > end or self.process.ended:
                    raise SystemExit(f"compare.py: no mock engine: {self.process.fate()}") from None
                time.sleep(0.02)

    def set(self, itl_ms: float = 0, ttft_ms: float = 0, burst: int = 1) -> dict[str, Any]:
        """Changes the pace and returns all counters."""
        settings = json.dumps({"itl_ms": itl_ms, "ttft_ms": ttft_ms, "burst": burst})
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        connection.request("PUT", "/mock", settings)
        state: dict[str, Any] = json.loads(connection.getresponse().read())
        connection.close()
        return state


class Comparison:
    def __init__(self, args: argparse.Namespace, work: Path) -> None:
        self.args, self.work = args, work
        self.python = args.peers / "bin" / "python"
        if not self.python.exists():
            raise SystemExit(f"compare.py: no {self.python}: run {HERE / 'setup.sh'} first")
        self.mock = Mock(self.python, work)
        self.bench = Bench(work, self.mock.port, args.key, args.peers, args.checkout, args.sluice)
        self.contestants: list[Contestant] = []

    # -- starting ---------------------------------------------------------------------------------

    def build(self, name: str, make: Callable[[], Gateway]) -> None:
        contestant = Contestant(name)
        self.contestants.append(contestant)
        try:
            contestant.gateway = make()
            contestant.version = contestant.gateway.version
        except (Unavailable, OSError) as why:
            self.fail(contestant, str(why))

    def fail(self, contestant: Contestant, why: str) -> None:
        contestant.failed = why
        say(f"{contestant.name}: out: {why}")
        self.stop(contestant)

    def stop(self, contestant: Contestant) -> None:
        if contestant.process:
            contestant.process.stop()
            contestant.process = None

    def start(self, contestant: Contestant) -> None:
        """Starts it, waits until it answers a completion, and notes how long that took."""
        gateway = contestant.gateway
        assert gateway
        if not gateway.command:
            return
        begin = time.monotonic()
        contestant.process = Process(gateway.command, gateway.env, self.work / f"{contestant.name}.log")
        why = ""
        while time.monotonic() < begin + START_LIMIT_S:
            if contestant.process.ended:
                raise Failed("it did not start")
            try:
                status, body = self.ask(gateway, stream=False)
                if status == 200:
                    contestant.starts_s.append(round(time.monotonic() - begin, 3))
                    return
                why = f"{status} {body[:200]!r}"
            except (OSError, http.client.HTTPException) as error:
                why = repr(error)
            time.sleep(0.01)
        raise Failed(f"no answer in {START_LIMIT_S} s: {why}")

    def ask(self, gateway: Gateway, stream: bool) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=20)
        try:
            messages = [{"role": "user", "content": "你好，请介绍一下你自己。 Hello!"}]
            body = {"model": MODEL, "messages": messages, "max_tokens": CHECK_TOKENS, "stream": stream}
            headers = {"content-type": "application/json", "authorization": f"Bearer {self.args.key}"}
            connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def check_text(self, contestant: Contestant) -> None:
        """Does the caller get exactly the engine's text, whole and streamed?"""
        assert contestant.gateway
        faults = []
        for stream in (False, True):
            status, body = self.ask(contestant.gateway, stream)
            try:
                text = streamed_text(body) if stream else json.loads(body)["choices"][0]["message"]["content"]
            except (ValueError, LookupError, TypeError) as error:
                text = repr(error)
            if status != 200 or text != answer_text(CHECK_TOKENS):
                faults.append(f"{'stream' if stream else 'whole'}: {status} {text[:80]!r}")
        contestant.text = "; ".join(faults) or "same"

    # -- measuring --------------------------------------------------------------------------------

    def load(self, contestant: Contestant, *options: str) -> list[str]:
        assert contestant.gateway
        return [
            str(self.python),
            str(HERE / "load.py"),
            "--url",
            f"http://127.0.0.1:{contestant.gateway.port}",
            "--key",
            self.args.key,
            "--model",
            MODEL,
            *options,
        ]

    def run_load(self, contestant: Contestant, *options: str) -> dict[str, Any]:
        command = self.load(contestant, *options)
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        if done.returncode:
            raise Failed(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "the client failed")
        result: dict[str, Any] = json.loads(done.stdout)
        if contestant.process and contestant.process.ended:
            raise Failed("under load")
        return result

    def measure_memory(self, contestant: Contestant) -> None:
        """On a fresh process: resident bytes when idle, and with many streams open that say nothing."""
        self.mock.set()
        for options in (["--requests", "40"], ["--requests", "40", "--stream"]):
            self.run_load(contestant, "-c", "4", *options)
        if not contestant.process:
            return
        time.sleep(1)
        contestant.rss_idle = contestant.process.rss()
        self.mock.set(itl_ms=3.6e6, burst=16)
        options = ["-c", str(self.args.open_streams), "--hold", "--tokens", "200"]
        holder = subprocess.Popen(
            self.load(contestant, *options), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        try:
            assert holder.stdout
            opened = json.loads(holder.stdout.readline() or b"{}")
            time.sleep(1)
            contestant.rss_open, contestant.open_streams = contestant.process.rss(), opened.get("open", 0)
        finally:
            holder.communicate(timeout=60)
            self.mock.set()
        if contestant.open_streams < self.args.open_streams:
            say(f"{contestant.name}: only {contestant.open_streams} of {self.args.open_streams} streams opened")

    def measure(self, contestant: Contestant, scenario: Scenario) -> dict[str, Any]:
        options = [
            "-c",
            str(scenario.concurrency),
            "--tokens",
            str(scenario.tokens),
            "--ramp",
            str(scenario.ramp_s),
            "--prompt-bytes",
            str(scenario.prompt_bytes),
        ]
        if scenario.one_wave:
            options += ["--requests", str(scenario.concurrency)]
        else:
            options += ["--seconds", str(self.args.seconds)]
        if scenario.stream:
            options.append("--stream")
        before = self.mock.set(itl_ms=scenario.itl_ms)
        cpu = contestant.process.cpu() if contestant.process else 0.0
        result = self.run_load(contestant, *options)
        if contestant.process:
            cpu = contestant.process.cpu() - cpu
            units = result["requests"] * (scenario.tokens if scenario.unit == "chunk" else 1)
            result["cpu_us"] = cpu * 1e6 / max(1, units)
        after = self.mock.set()
        asked = after["requests"] + after["other_requests"] - before["requests"] - before["other_requests"]
        result["engine_calls"] = asked / max(1, result["requests"])
        return result

    # -- the whole run ----------------------------------------------------------------------------

    def guarded(self, contestant: Contestant, step: Callable[[Contestant], Any]) -> None:
        """One step of one gateway; a gateway that breaks is out, the others go on."""
        if contestant.failed:
            return
        try:
            step(contestant)
        except (Failed, OSError, http.client.HTTPException, subprocess.SubprocessError) as why:
            process = contestant.process
            broke = f"{process.fate()}; " if process and process.ended else ""
            self.fail(contestant, f"{broke}{why}")

    def begin(self, contestant: Contestant) -> None:
        if self.args.open_streams and contestant.cpu_counts:
            say(f"{contestant.name}: memory")
            self.start(contestant)
            self.measure_memory(contestant)
            self.stop(contestant)
        self.start(contestant)
        while contestant.cpu_counts and len(contestant.starts_s) < 3 and contestant.starts_s[0] < 5:
            self.stop(contestant)
            self.start(contestant)
        self.check_text(contestant)
        for options in (["--seconds", "1"], ["--seconds", "1", "--stream"]):
            self.run_load(contestant, "-c", "8", *options)

    def scenario(self, name: str) -> None:
        scenario = SCENARIOS[name]
        rounds = min(self.args.rounds, scenario.most_rounds)
        for number in range(rounds):
            say(f"{name}: round {number + 1} of {rounds}")
            for contestant in self.contestants:
                self.guarded(contestant, lambda c: c.rounds.setdefault(name, []).append(self.measure(c, scenario)))

    def run(self) -> None:
        for contestant in self.contestants:
            self.guarded(contestant, self.begin)
        for name in self.args.scenarios:
            self.scenario(name)
        for contestant in self.contestants:
            if contestant.process:
                contestant.rss_peak = contestant.process.peak_rss()

    def close(self) -> None:
        for contestant in self.contestants:
            if contestant.process:
                contestant.process.ask_to_stop()
        for contestant in self.contestants:
            self.stop(contestant)
        self.mock.process.stop()


def streamed_text(body: bytes) -> str:
    text, done = "", False
    for line in body.decode().splitlines():
        if line == "data: [DONE]":
            done = True
        elif line.startswith("data: "):
            for choice in json.loads(line[6:])["choices"]:
                text += choice["delta"].get("content") or ""
    return text if done else text + " (no [DONE])"


def report(comparison: Comparison) -> dict[str, Any]:
    args = comparison.args
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        "",
    )
    by_name = {c.name: c for c in comparison.contestants}
    ratios = {
        base: {c.name: {name: ratio(c, by_name[base], name) for name in args.scenarios} for c in comparison.contestants}
        for base in by_name
        if any(by_name[base].rounds.values())
    }
    return {
        "when": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "machine": {"cpu": model, "cores": os.cpu_count(), "kernel": platform.release()},
        "settings": {"rounds": args.rounds, "seconds": args.seconds, "open_streams": args.open_streams},
        "scenarios": {name: asdict(SCENARIOS[name]) for name in args.scenarios},
        "gateways": {c.name: c.report() for c in comparison.contestants},
        "cpu_ratio_to": ratios,
    }


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="compares gateways; see the top of this file and README.md")
    parser.add_argument(
        "--gateways",
        default="direct,nginx,vllm-router,litellm,sluice-plain,sluice-full",
        help=f"which of {', '.join(KNOWN)}",
    )
    parser.add_argument(
        "--gateway",
        action="append",
        default=[],
        metavar="NAME=COMMAND",
        help="one more, started by a command with {port} and {engine} in it; can be repeated",
    )
    parser.add_argument("--scenarios", default=",".join(SCENARIOS), help="which of them, in this order (default: all)")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=0.6, help="of load for each gateway in each round")
    parser.add_argument("--open-streams", type=int, default=500, help="for the memory figures; 0: leave them out")
    parser.add_argument("--checkout", type=Path, default=Path.cwd(), help="where .venv/bin/sluice is (default: here)")
    parser.add_argument("--sluice", type=Path, help="another sluice command than the checkout's")
    parser.add_argument(
        "--peers",
        type=Path,
        default=Path(os.environ.get("PEERS", HERE / ".peers")),
        help="the virtual environment that setup.sh made",
    )
    parser.add_argument("--key", default="sk-bench-5f0c0d6e4a7b4b0c9d7e", help="the API key that all of them take")
    parser.add_argument("--out", type=Path, default=Path("compare.json"), help="where the JSON goes")
    parser.add_argument("--keep", type=Path, help="keep configurations and logs in this folder")
    args = parser.parse_args()
    args.gateways = [name for name in args.gateways.split(",") if name]
    args.scenarios = [name for name in args.scenarios.split(",") if name]
    for name in args.gateways:
        if name not in KNOWN:
            parser.error(f"no gateway {name!r}; known: {', '.join(KNOWN)}")
    for name in args.scenarios:
        if name not in SCENARIOS:
            parser.error(f"no scenario {name!r}; known: {', '.join(SCENARIOS)}")
    for text in args.gateway:
        if not text.partition("=")[2]:
            parser.error(f"--gateway takes NAME=COMMAND, not {text!r}")
    args.checkout, args.peers = args.checkout.resolve(), args.peers.absolute()
    return args


def main() -> None:
    args = arguments()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(143))
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65536) if hard != resource.RLIM_INFINITY else 65536, hard))
    with tempfile.TemporaryDirectory(prefix="compare-") as scratch:
        work = args.keep.absolute() if args.keep else Path(scratch)
        work.mkdir(parents=True, exist_ok=True)
        comparison = Comparison(args, work)
        try:
            for name in args.gateways:
                comparison.build(name, lambda make=KNOWN[name]: make(comparison.bench))  # type: ignore[misc]
            for text in args.gateway:
                name, _, command = text.partition("=")
                comparison.build(name, lambda n=name, c=command: gateways.custom(n, c, comparison.bench))  # type: ignore[misc]
            comparison.run()
        finally:
            comparison.close()
        args.out.write_text(json.dumps(report(comparison), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(table(comparison.contestants, args.scenarios))
    if not any(c.rounds or c.rss_idle for c in comparison.contestants):
        sys.exit("compare.py: no gateway could be measured")


if __name__ == "__main__":
    main()
