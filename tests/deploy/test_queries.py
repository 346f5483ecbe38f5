"""Every query that we ship asks for metrics and labels that a real scrape of gateway and vLLM has."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import httpx
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from gateway.telemetry import catalogue
from tests.deploy.chart import ROOT
from tests.deploy.queries import ADDED, DCGM, GRAFANA, PROMETHEUS, Query, asked, rules, shipped
from tests.engine_fixture import RealEngine
from tests.harness import Gateway, free_port, hear, until
from tests.tools import needs, tool

QUERIES = sorted(set(shipped()), key=lambda query: (query.where, query.text))
OURS = {metric.name: frozenset(metric.labels) for metric in (*catalogue.CATALOGUE, *catalogue.PROCESS)}
RECORDED: dict[str, frozenset[str]] = {
    rule["record"]: frozenset().union(*(each.labels for each in asked(rule["expr"])))
    for file in ("targets.yaml", "sluice.rules.yaml")
    for rule in rules(file)
    if "record" in rule
}


def series(metrics: str) -> dict[str, frozenset[str]]:
    """Names of a scrape's samples (and of metrics that have none yet) and the labels they have."""
    found: dict[str, frozenset[str]] = {}
    for family in text_string_to_metric_families(metrics):
        kinds = {"histogram": ("_bucket", "_sum", "_count"), "counter": ("_total",)}
        for suffix in kinds.get(family.type, ("",)):
            found.setdefault(f"{family.name}{suffix}", frozenset())
        for sample in family.samples:
            found[sample.name] = found.get(sample.name, frozenset()) | frozenset(sample.labels)
    return found


def missing(query: Query, known: Mapping[str, frozenset[str]], prefix: str) -> list[str]:
    faults = []
    for each in asked(query.text):
        if not each.metric.startswith(prefix):
            continue
        if each.metric not in known:
            faults.append(each.metric)
        else:
            faults += [f"{each.metric}{{{label}}}" for label in sorted(each.labels - known[each.metric] - ADDED)]
    return faults


def base(metric: str) -> str:
    return metric if metric in OURS else re.sub(r"_(bucket|sum|count)$", "", metric)


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query.where)
def test_a_query_asks_for_what_somebody_measures(query: Query) -> None:
    known = {**RECORDED, **DCGM}
    for each in asked(query.text):
        if each.metric.startswith(("sluice_", "process_")):
            labels = OURS.get(base(each.metric))
            assert labels is not None, f"{each.metric} is not in the catalogue"
            assert each.labels <= labels | ADDED, each.metric
        elif not each.metric.startswith("vllm:"):
            assert each.metric in known
            assert each.labels <= known[each.metric] | ADDED, each.metric


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query.where)
def test_values_that_are_asked_for_are_values_that_there_are(query: Query) -> None:
    known = {
        "outcome": {*catalogue.OUTCOMES, "ok", "ran", "skipped", "failed", "timed_out", "refused"},
        "phase": set(catalogue.PHASES),
    }
    for each in asked(query.text):
        for label, value in each.values:
            assert label not in known or set(value.split("|")) <= known[label], value


def test_a_scrape_of_the_gateway_has_all_of_ours(gateway: Gateway) -> None:
    assert hear(gateway, {}).done
    known = series(gateway.get("/metrics").text)
    assert [fault for query in QUERIES for fault in missing(query, {**known, **_unseen(known)}, "sluice_")] == []


def _unseen(known: Mapping[str, frozenset[str]]) -> dict[str, frozenset[str]]:
    """Metrics that the scrape has but no series of yet: their labels are the catalogue's."""
    return {name: OURS.get(base(name), frozenset()) for name, labels in known.items() if labels <= {"le"}}


@pytest.mark.engine
def test_a_scrape_of_a_real_vllm_has_all_of_its_own(real_engine: RealEngine) -> None:
    known = series(httpx.get(f"{real_engine.url}/metrics", timeout=10).text)
    assert [fault for query in QUERIES for fault in missing(query, known, "vllm:")] == []


def test_the_dashboards_are_what_their_code_writes(tmp_path: Path) -> None:
    import runpy  # noqa: PLC0415 -- the script is no module of ours

    written = runpy.run_path(str(GRAFANA / "dashboards.py"))["written"]()
    for name, text in written.items():
        assert (GRAFANA / name).read_text("utf-8") == text, "run deploy/grafana/dashboards.py"


def test_every_alert_says_what_is_wrong_how_bad_it_is_and_where_its_page_is() -> None:
    for rule in rules("sluice.rules.yaml"):
        if "alert" in rule:
            assert rule["labels"]["severity"] in {"critical", "warning"}
            assert rule["annotations"]["summary"]
            assert rule["annotations"]["runbook_url"] == f"docs/runbooks/{rule['alert']}.md"


def test_every_alert_is_tested_both_ways() -> None:
    tests = yaml.safe_load((PROMETHEUS / "rules.test.yaml").read_text("utf-8"))["tests"]
    cases = [case for test in tests for case in test["alert_rule_test"]]
    for rule in rules("sluice.rules.yaml"):
        if "alert" in rule:
            fires = {bool(case["exp_alerts"]) for case in cases if case["alertname"] == rule["alert"]}
            assert fires == {True, False}, rule["alert"]


@needs("promtool")
def test_promtool_takes_the_rules_and_their_tests_pass() -> None:
    for arguments in (
        ["check", "rules", "targets.yaml", "sluice.rules.yaml"],
        ["check", "config", "prometheus.yaml"],
        ["test", "rules", "rules.test.yaml"],
    ):
        done = subprocess.run(
            [tool("promtool"), *arguments], cwd=PROMETHEUS, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def prometheus(gateway: Gateway, tmp_path: Path) -> Iterator[str]:
    """Start a Prometheus that scrapes the gateway and evaluates our rules, every second."""
    for file in ("targets.yaml", "sluice.rules.yaml"):
        shutil.copy(PROMETHEUS / file, tmp_path)
    config = yaml.safe_load((PROMETHEUS / "prometheus.yaml").read_text("utf-8"))
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    for job in config["scrape_configs"]:
        job["static_configs"] = [{"targets": [f"127.0.0.1:{gateway.port}"]}] if job["job_name"] == "sluice" else []
    (tmp_path / "prometheus.yaml").write_text(yaml.safe_dump(config))
    port = free_port()
    process = subprocess.Popen(
        [
            tool("prometheus"),
            "--config.file=prometheus.yaml",
            "--storage.tsdb.path=data",
            f"--web.listen-address=127.0.0.1:{port}",
        ],
        cwd=tmp_path,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(20)


@needs("prometheus")
def test_a_live_prometheus_answers_every_query_and_records_from_the_gateway(gateway: Gateway, prometheus: str) -> None:
    def ask(query: str) -> httpx.Response:
        return httpx.post(f"{prometheus}/api/v1/query", data={"query": query}, timeout=5)

    def rate() -> bool:
        try:
            hear(gateway, {})
            found = ask("sluice:requests:rate5m").json()["data"]["result"]
        except (httpx.HTTPError, ValueError):
            return False
        return bool(found) and float(found[0]["value"][1]) > 0

    until(rate, within=30, otherwise="Prometheus has recorded nothing")
    for query in QUERIES:
        answer = ask(query.text)
        assert answer.status_code == 200, f"{query.where}: {answer.text}"


STEPS = ("Entry to engine", "Queue", "Decode step", "KV blocks", "Post-processing")


def test_every_alert_has_its_page_and_its_steps_are_in_the_order_that_finds_faults_cheapest() -> None:
    pages = {path.stem: path.read_text("utf-8") for path in (ROOT / "docs" / "runbooks").glob("Sluice*.md")}
    assert set(pages) == {rule["alert"] for rule in rules("sluice.rules.yaml") if "alert" in rule}
    index = (ROOT / "docs" / "runbooks" / "README.md").read_text("utf-8")
    for alert, page in pages.items():
        assert f"[{alert}]({alert}.md)" in index
        assert re.findall(r"^\d\. \*\*([^*]+)\.\*\*", page, re.MULTILINE) == list(STEPS), alert
        assert "## Mend it" in page


def test_panels_that_pages_name_are_panels_that_there_are() -> None:
    titles = {
        panel["title"]
        for board in ("traffic.json", "engine.json")
        for panel in json.loads((GRAFANA / board).read_text("utf-8"))["panels"]
    }
    for path in (ROOT / "docs" / "runbooks").glob("*.md"):
        named = set(re.findall(r"(?<![*\w])\*([A-Z][^*]+)\*(?!\*)", path.read_text("utf-8")))
        assert named <= titles, f"{path.name}: {named - titles}"
