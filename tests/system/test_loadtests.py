"""The load tests themselves, as people run them: locust in a process of its own, on a gateway before a fake engine."""

from __future__ import annotations

import csv
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.engine_fixture import RealEngine
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
    command: list[str | Path] = [
        LOCUST,
        "-f",
        ROOT / "loadtests" / "locustfile.py",
        "-H",
        gateway.url,
        "--key",
        TEAM,
        "--headless",
    ]
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


def test_every_option_but_the_key_is_a_field_of_the_web_page(
    paced_gateway: Gateway, tmp_path: Path, free_port: int
) -> None:
    file = ROOT / "loadtests" / "locustfile.py"
    said = f"-f {file} -H {paced_gateway.url} --web-host 127.0.0.1 --web-port {free_port} --key a-secret-of-mine"
    with subprocess.Popen([LOCUST, *said.split()], cwd=tmp_path, stderr=subprocess.DEVNULL) as locust:
        try:
            page = page_of(f"http://127.0.0.1:{free_port}/")
        finally:
            locust.terminate()
    declared = set(re.findall(r'add_argument\(\s*"--([a-z-]+)"', file.read_text("utf-8"))) - {"key"}
    assert len(declared) > 8
    assert [option for option in declared if f'"{option.replace("-", "_")}": {{' not in page] == []
    assert "a-secret-of-mine" not in page


def page_of(url: str) -> str:
    """Ask for a page until there is somebody to answer."""
    end = time.monotonic() + 20
    while True:
        try:
            return httpx.get(url, timeout=10).text
        except httpx.TransportError:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)


@pytest.mark.engine
def test_a_real_engine_under_load_is_measured(
    real_engine: RealEngine, start_gateway: StartGateway, tmp_path: Path
) -> None:
    gateway = start_gateway(configuration([model("smollm2", real_engine.url)]))
    words = ("-u", "4", "--model", "smollm2", "--max-tokens", "8", "--slo", "errors=0%", "Batch", "SharedPrompt")
    code, told, rows = run(gateway, tmp_path, *words, "--long-characters", "400", seconds="5s")
    assert code == 0, told[-2000:]
    counted = {(row["Type"], row["Name"]): row for row in rows}
    assert int(counted["TTFT", "batch"]["Request Count"]) > 0
    assert 1 < float(counted["ITL", "batch"]["Median Response Time"]) < 2000
    assert "errors=0%: held" in told
