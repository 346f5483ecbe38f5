"""The load tests themselves, as people run them: locust in a process of its own, on a gateway before a fake engine."""

from __future__ import annotations

import csv
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.script import answers, paced, says
from tests.fakes.vllm import FakeVLLM
from tests.harness import ROOT, TEAM, Gateway, configuration, model
from tests.system.conftest import StartGateway

LOCUST = Path(sys.executable).with_name("locust")


@pytest.fixture
def paced_gateway(fake: FakeVLLM, start_gateway: StartGateway) -> Gateway:
    fake.always(says(*paced("word ", 5, 0.02)))
    return start_gateway(configuration([model("smollm2", fake.url, max_in_flight=200)]))


def run(gateway: Gateway, folder: Path, *words: str, seconds: str = "4s") -> tuple[int, str, list[dict[str, Any]]]:
    """Run the load; return the exit status, what it said, and its statistics."""
    command: list[str | Path] = [LOCUST, "-f", ROOT / "loadtests" / "locustfile.py", "-H", gateway.url, "--key", TEAM, "--headless"]
    command += ["-t", seconds, "--csv", folder / "run", "--html", folder / "report.html", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    file = folder / "run_stats.csv"
    rows = list(csv.DictReader(file.read_text().splitlines())) if file.exists() else []
    return done.returncode, done.stdout + done.stderr, rows


def test_every_scenario_measures_what_matters(paced_gateway: Gateway, tmp_path: Path) -> None:
    code, told, rows = run(paced_gateway, tmp_path, "-u", "20", "-r", "20", "--slo", "errors=0%", "--rest", "0.01")
    counted = {(row["Type"], row["Name"]): row for row in rows}
    for scenario in ("batch", "chat", "rag", "shared_prompt", "slow_readers"):
        for kind in ("POST", "TTFT", "ITL", "tokens/s", "goodput"):
            assert int(counted[kind, scenario]["Request Count"]) > 0, (kind, scenario)
    assert int(counted["left", "leavers"]["Request Count"]) > 0
    assert int(counted["block", "evaders"]["Request Count"]) > 0
    assert 10 < float(counted["ITL", "batch"]["Median Response Time"]) < 60
    assert (code, "errors=0%: held" in told) == (0, True), told[-2000:]
    assert "Locust Test Report" in (tmp_path / "report.html").read_text()


def test_a_missed_objective_is_the_exit_code(paced_gateway: Gateway, tmp_path: Path) -> None:
    code, told, _ = run(paced_gateway, tmp_path, "-u", "2", "--slo", "ttft_p95=1ms", "Batch", seconds="2s")
    assert code == 1
    assert re.search(r"ttft_p95=1ms: missed: \d", told)


def test_what_the_server_refuses_is_counted_by_its_code(fake: FakeVLLM, paced_gateway: Gateway, tmp_path: Path) -> None:
    fake.always(answers({"error": {"message": "no", "type": "x", "code": 500}}, 500))
    code, told, _ = run(paced_gateway, tmp_path, "-u", "2", "Batch", seconds="2s")
    assert code == 1
    assert re.search(r"POST batch: Refused\('50[23] ", told)


def test_the_way_to_the_knee_ends_with_a_number_to_set(paced_gateway: Gateway, tmp_path: Path) -> None:
    words = ("--shape", "knee", "--step-s", "1", "-u", "6", "--slo", "ttft_p95=5s", "Batch")
    code, told, _ = run(paced_gateway, tmp_path, *words, seconds="30s")
    assert code == 0, told[-2000:]
    assert re.search(r"the knee: \d+ at once, [\d.]+ tokens/s", told)
    assert re.search(r"set max_in_flight: \d+", told)


def test_an_objective_that_is_none_ends_it_at_once(paced_gateway: Gateway, tmp_path: Path) -> None:
    code, told, _ = run(paced_gateway, tmp_path, "--slo", "ttft=quick", "Batch")
    assert code == 1
    assert "--slo 'ttft=quick': an objective looks like ttft_p95=300ms" in told
    assert "Traceback" not in told
