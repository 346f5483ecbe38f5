"""Load in the shape of real use on an OpenAI-compatible server. README.md beside it tells how to read the numbers.

locust -f loadtests/locustfile.py -H http://127.0.0.1:8080                        the web page, all scenarios
locust -f loadtests/locustfile.py -H … --headless -u 50 -t 60s Chat Batch         two of them, a minute
locust -f loadtests/locustfile.py -H … --headless --shape knee --slo ttft_p95=1s Batch
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # locust runs this as a file, from any folder

from locust import LoadTestShape, events
from locust.env import Environment

from loadtests.measures import Objective, Step, knee, percentile, recommended, since, told
from loadtests.scenarios import Batch, Chat, Evaders, Leavers, Rag, SharedPrompt, SlowReaders
from loadtests.shapes import SHAPES, stairs

__all__ = ["Batch", "Chat", "Evaders", "Form", "Leavers", "Rag", "SharedPrompt", "SlowReaders"]


@events.init_command_line_parser.add_listener
def options(parser: Any) -> None:
    """Declare what can be said beside Locust's own options; all but the key have a field on the web page too."""
    parser.add_argument("--model", default="smollm2", help="the model's name")
    key = {"default": "none", "env_var": "SLUICE_LOAD_KEY", "is_secret": True, "help": "the caller's key"}
    parser.add_argument("--key", **key, include_in_web_ui=False)  # the page would hold it, for all who open it
    parser.add_argument("--max-tokens", type=int, default=64, help="the longest answer")
    parser.add_argument("--long-characters", type=int, default=4000, help="a long input's length")
    parser.add_argument("--blocked-words", default="赌博,forbiddenzebra", help="what Evaders say, comma between")
    parser.add_argument("--rest", type=float, default=0.2, help="seconds that SlowReaders rest after each line")
    parser.add_argument("--deadline", type=float, default=10.0, help="seconds; a later answer is no goodput")
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds of silence after which a caller gives up")
    parser.add_argument("--shape", choices=[*SHAPES, "knee"], default="steady", help="how the load changes with time")
    parser.add_argument("--step-s", type=float, default=15.0, help="seconds of each step on the way to the knee")
    parser.add_argument(
        "--slo", action="append", default=[], help="e.g. ttft_p95=300ms; missed ones make the exit code 1"
    )


@events.init.add_listener
def objectives(environment: Environment, **_: Any) -> None:
    """Read the objectives before anything runs."""
    try:
        for said in environment.parsed_options.slo if environment.parsed_options else ():
            Objective.parse(said)
    except ValueError as fault:
        sys.exit(f"--slo {fault}")


@events.quitting.add_listener
def judge(environment: Environment, **_: Any) -> None:
    """Say of each objective whether it was held; the exit code is theirs where there are any."""
    objectives = [Objective.parse(said) for said in environment.parsed_options.slo]
    if not objectives:
        return
    verdicts = [each.verdict(told(environment.stats, each)) for each in objectives]
    for _, line in verdicts:
        print(line)
    environment.process_exit_code = 0 if all(held for held, _ in verdicts) else 1


class Form(LoadTestShape):
    """Follows ``--shape``: over ``--run-time`` (60 s if nothing is said), or step by step to the knee."""

    use_common_options = True

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[Step] = []
        self._counted: tuple[Any, int, int, int] = ({}, 0, 0, 0)

    def tick(self) -> tuple[int, float] | None:
        """Say how many callers there are to be now; None: the end."""
        asked = self.runner.environment.parsed_options
        at, users = self.get_run_time(), asked.num_users or 10
        if asked.shape == "knee":
            return self._climb(at, asked)
        length = asked.run_time or 60
        if at >= length and (asked.run_time or asked.headless):
            return None
        return SHAPES[asked.shape](min(at, length), length, users), asked.spawn_rate or users

    def _climb(self, at: float, asked: Any) -> tuple[int, float] | None:
        if at >= (len(self.steps) + 1) * asked.step_s:
            self.steps.append(self._measured(stairs(len(self.steps)), asked))
            if found := knee(self.steps, self._target(asked).limit):
                self._recommend(found)
                return None
        users = stairs(len(self.steps))
        return (users, users) if users <= (asked.num_users or 1000) else self._recommend(self.steps[-1])

    @staticmethod
    def _target(asked: Any) -> Objective:
        given = (Objective.parse(said) for said in asked.slo)
        return next((each for each in given if each.kind == "ttft"), Objective.parse("ttft_p95=1s"))

    def _measured(self, users: int, asked: Any) -> Step:
        """Return what came of the step that is over: the statistics now less those before."""
        entries = self.runner.environment.stats.entries
        times: dict[float, int] = {}
        tokens = requests = failures = 0
        for (_, kind), entry in entries.items():
            if kind == "TTFT":
                for value, count in entry.response_times.items():
                    times[value] = times.get(value, 0) + count
            tokens += entry.num_requests if kind in {"ITL", "TTFT"} else 0
            requests += entry.num_requests if kind == "POST" else 0
            failures += entry.num_failures if kind == "POST" else 0
        before, self._counted = self._counted, (times, tokens, requests, failures)
        target = self._target(asked)
        step = Step(
            users,
            percentile(since(times, before[0]), target.share or 0.95),
            (tokens - before[1]) / asked.step_s,
            (failures - before[3]) / max(1, requests - before[2]),
        )
        print(f"{step.users} at once: {step.tokens_s:.1f} tokens/s, TTFT {step.ttft_ms} ms, {step.errors:.1%} failed")
        return step

    @staticmethod
    def _recommend(step: Step) -> None:
        print(f"the knee: {step.users} at once, {step.tokens_s:.1f} tokens/s, TTFT {step.ttft_ms} ms")
        print(f"set max_in_flight: {recommended(step)}   # the largest batch within the target, less 20 %")
