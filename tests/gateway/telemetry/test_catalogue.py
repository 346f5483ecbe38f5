from __future__ import annotations

import re
from pathlib import Path

from gateway.telemetry.catalogue import CATALOGUE, OUTCOMES, PROCESS, Kind, describe

ROOT = Path(__file__).parents[3]

#: What dashboards and alerts of others rely on: names and labels stay as they are.
PROMISED = {
    "sluice_requests_total": {"route", "model", "outcome"},
    "sluice_request_seconds": {"route", "model"},
    "sluice_in_flight": {"model"},
    "sluice_tokens_total": {"model", "kind"},
    "sluice_ttft_seconds": set(),
    "sluice_chunk_gap_seconds": set(),
    "sluice_phase_seconds": {"phase"},
    "sluice_queue_depth": {"model"},
    "sluice_plugin_runs_total": {"plugin", "outcome"},
    "sluice_plugin_seconds": {"plugin"},
    "sluice_blocks_total": {"plugin", "direction", "tag"},
    "sluice_config_reloads_total": {"outcome"},
    "sluice_config_version": set(),
    "sluice_engine_up": {"engine"},
}


def test_the_promised_metrics_keep_their_names_and_labels() -> None:
    declared = {metric.name: set(metric.labels) for metric in CATALOGUE}
    assert {name: declared[name] for name in PROMISED} == PROMISED


def test_the_page_of_metrics_is_the_catalogue_s() -> None:
    page = (ROOT / "docs/metrics.md").read_text("utf-8")
    assert page == describe(), "python -m gateway.telemetry.catalogue > docs/metrics.md"


def test_names_follow_prometheus_s_conventions() -> None:
    for metric in (*CATALOGUE, *PROCESS):
        assert re.fullmatch(r"(sluice|process)(_[a-z]+)+", metric.name)
        assert metric.name.endswith("_total") == (metric.kind is Kind.COUNTER)
        assert bool(metric.buckets) == (metric.kind is Kind.HISTOGRAM)
        assert metric.help.endswith(".")


def test_buckets_rise_and_fit_the_table() -> None:
    for metric in CATALOGUE:
        assert list(metric.buckets) == sorted(set(metric.buckets))
        assert len(metric.buckets) + 2 <= 64


def test_every_failure_s_code_is_an_outcome() -> None:
    assert {"ok", "client_left", "content_filter", "no_engine_available", "internal_error", "queue_full"} <= OUTCOMES
