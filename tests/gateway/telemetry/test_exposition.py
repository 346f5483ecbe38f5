from __future__ import annotations

import os
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gateway.telemetry.catalogue import CATALOGUE
from gateway.telemetry.exposition import exposition
from gateway.telemetry.table import Key, Snapshot


def worker(name: str, *, alive: bool = True, pid: int = 0, **series: float | list[float]) -> Snapshot:
    found = {Key(key): value if isinstance(value, list) else [value] for key, value in series.items()}
    return Snapshot(name, pid, alive, found)


def samples(*workers: Snapshot) -> dict[str, float]:
    families = text_string_to_metric_families(exposition(workers).decode())
    return {sample.name: sample.value for family in families for sample in family.samples}


def test_counters_of_all_workers_add_up_also_of_the_dead() -> None:
    seen = samples(
        worker("0", sluice_log_lines_dropped_total=3.0), worker("1", alive=False, sluice_log_lines_dropped_total=4.0)
    )
    assert seen["sluice_log_lines_dropped_total"] == 7


def test_what_a_dead_worker_gauged_is_gone_with_it() -> None:
    seen = samples(worker("0", sluice_config_version=2.0), worker("1", alive=False, sluice_config_version=9.0))
    assert seen["sluice_config_version"] == 2


def test_states_are_not_added_up() -> None:
    assert (
        samples(worker("0", sluice_config_version=2.0), worker("1", sluice_config_version=3.0))["sluice_config_version"]
        == 3
    )


def test_a_histogram_s_count_is_always_the_sum_of_its_buckets() -> None:
    lag = next(metric for metric in CATALOGUE if metric.name == "sluice_event_loop_lag_seconds")
    values = [1.0] * (len(lag.buckets) + 1) + [12.5]
    seen = samples(worker("0", sluice_event_loop_lag_seconds=values), worker("1", sluice_event_loop_lag_seconds=values))
    assert seen["sluice_event_loop_lag_seconds_count"] == 2 * (len(lag.buckets) + 1)
    assert seen["sluice_event_loop_lag_seconds_sum"] == 25


def test_every_metric_has_its_help_and_type() -> None:
    text = exposition([]).decode()
    for metric in CATALOGUE:
        assert f"# HELP {metric.name} {metric.help}\n# TYPE {metric.name} {metric.kind}\n" in text


def test_each_living_process_tells_of_itself() -> None:
    families = {
        family.name: family
        for family in text_string_to_metric_families(
            exposition(
                [worker("7", pid=os.getpid()), worker("8", pid=2**22 + 1), worker("9", alive=False, pid=os.getpid())]
            ).decode()
        )
    }
    (resident,) = families["process_resident_memory_bytes"].samples
    assert resident.labels == {"worker": "7"}
    assert resident.value > 1_000_000
    assert families["process_cpu_seconds"].samples[0].value > 0
    assert families["process_open_fds"].samples[0].value >= 3
    assert families["process_start_time_seconds"].samples[0].value == pytest.approx(
        Path(f"/proc/{os.getpid()}").stat().st_ctime, abs=3600
    )
