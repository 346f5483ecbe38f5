from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from gateway.record import Hit, Listing, Record, Run
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.table import Table

CHAT = "/v1/chat/completions"


@pytest.fixture
def metrics() -> Iterator[Metrics]:
    with counting() as made:
        yield made


@contextlib.contextmanager
def counting(path: Path | None = None) -> Iterator[Metrics]:
    table = Table(path)
    made = Metrics(table, version="1.2.3")
    made.known(models=["m", "n"], plugins=["words"])
    made.engines(["m-0"])
    yield made
    del made
    table.close()


def scrape(metrics: Metrics) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    families = text_string_to_metric_families(metrics.render().decode())
    return {(s.name, frozenset(s.labels.items())): s.value for family in families for s in family.samples}


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return scrape(metrics).get((name, frozenset(labels.items())))


def record(**facts: object) -> Record:
    made = Record(route=CHAT, model="m", total_s=0.2)
    for name, fact in facts.items():
        setattr(made, name, fact)
    return made


def test_a_request_counts_once_in_each_of_its_metrics(metrics: Metrics) -> None:
    metrics.finished(
        record(
            prompt_tokens=11,
            completion_tokens=7,
            first_text_s=0.04,
            phases={"auth": 2e-5, "decode": 0.1},
            runs={"words": Run("ran", 3e-5)},
        )
    )
    assert value(metrics, "sluice_requests_total", route=CHAT, model="m", outcome="ok") == 1
    assert value(metrics, "sluice_request_seconds_count", route=CHAT, model="m") == 1
    assert value(metrics, "sluice_request_seconds_sum", route=CHAT, model="m") == pytest.approx(0.2)
    assert value(metrics, "sluice_tokens_total", model="m", kind="prompt") == 11
    assert value(metrics, "sluice_tokens_total", model="m", kind="completion") == 7
    assert value(metrics, "sluice_ttft_seconds_bucket", le="0.05") == 1
    assert value(metrics, "sluice_ttft_seconds_bucket", le="0.025") == 0
    assert value(metrics, "sluice_phase_seconds_sum", phase="decode") == pytest.approx(0.1)
    assert value(metrics, "sluice_phase_seconds_count", phase="queue") == 0
    assert value(metrics, "sluice_plugin_runs_total", plugin="words", outcome="ran") == 1
    assert value(metrics, "sluice_plugin_seconds_sum", plugin="words") == pytest.approx(3e-5)


def test_what_logprobs_cost_is_told_apart_from_what_a_plain_answer_costs(metrics: Metrics) -> None:
    metrics.finished(record(phases={"first_token": 20.0}, sampling="logprobs", stream=True))
    metrics.finished(record(phases={"first_token": 0.1}))
    metrics.finished(record())  # the engine never began
    name = "sluice_engine_first_seconds"
    assert value(metrics, f"{name}_sum", sampling="logprobs", stream="yes") == 20
    assert value(metrics, f"{name}_sum", sampling="plain", stream="no") == pytest.approx(0.1)
    assert value(metrics, f"{name}_count", sampling="plain", stream="no") == 1


def test_a_value_on_a_bound_belongs_to_that_bucket(metrics: Metrics) -> None:
    metrics.chunk_gap(0.01)
    assert value(metrics, "sluice_chunk_gap_seconds_bucket", le="0.01") == 1
    assert value(metrics, "sluice_chunk_gap_seconds_bucket", le="0.005") == 0


@given(st.lists(st.floats(0, 1e5)))
def test_a_histogram_loses_nothing(gaps: list[float]) -> None:
    with counting() as metrics:
        for gap in gaps:
            metrics.chunk_gap(gap)
        seen = scrape(metrics)
    buckets = {
        dict(labels)["le"]: count for (name, labels), count in seen.items() if name == "sluice_chunk_gap_seconds_bucket"
    }
    for bound, count in buckets.items():
        assert count == sum(gap <= float(bound) for gap in gaps)
    assert seen["sluice_chunk_gap_seconds_count", frozenset()] == len(gaps)
    assert seen["sluice_chunk_gap_seconds_sum", frozenset()] == pytest.approx(sum(gaps))


def test_names_that_callers_make_up_never_make_a_series(metrics: Metrics) -> None:
    for outcome in ("ok", "model_not_found"):
        metrics.finished(record(route="other", model="first-junk", outcome=outcome))
    before = set(scrape(metrics))
    for index in range(1000):
        metrics.finished(record(route=f"/junk/{index}", model=f"junk-{index}", outcome="model_not_found"))
        metrics.finished(record(route=f"/junk/{index}", model=f"junk-{index}", outcome="ok"))
        metrics.in_flight(f"junk-{index}", 1)
        metrics.in_flight(f"junk-{index}", -1)
    assert len(set(scrape(metrics)) - before) <= 2
    assert value(metrics, "sluice_requests_total", route="other", model="other", outcome="model_not_found") == 1001
    assert value(metrics, "sluice_in_flight", model="other") == 0
    assert len(metrics._exchanges) <= 4, "nor stay in memory"


def test_what_a_plugin_makes_up_is_bounded_too(metrics: Metrics) -> None:
    for index in range(3000):
        hit = Hit("words", f"rule {index}", "block", "request", tag=f"tag-{index}")
        metrics.finished(record(outcome=f"odd-{index}", hits=[hit], runs={f"plugin-{index}": Run(f"odd-{index}", 0.0)}))
    text = metrics.render().decode()
    assert text.count("sluice_blocks_total{") <= 1001
    assert text.count("sluice_plugin_runs_total{") == 1
    assert value(metrics, "sluice_requests_total", route=CHAT, model="m", outcome="other") == 3000
    assert value(metrics, "sluice_blocks_total", plugin="other", direction="other", tag="other") == 2000


def test_a_text_that_several_rules_hit_was_blocked_once(metrics: Metrics) -> None:
    hits = [
        Hit("words", "list.txt:1", "block", "request"),
        Hit("words", "list.txt:2", "block", "request"),
        Hit("words", "list.txt:3", "mask", "answer", tag="soft"),
        Hit("words", "list.txt:4", "block", "answer", shadow=True),
    ]
    metrics.finished(record(hits=hits, outcome="content_filter"))
    assert value(metrics, "sluice_blocks_total", plugin="words", direction="request", tag="none") == 1
    assert 'sluice_blocks_total{direction="answer"' not in metrics.render().decode()
    assert (
        value(
            metrics,
            "sluice_rule_hits_total",
            plugin="words",
            direction="request",
            action="block",
            tag="none",
            mode="enforce",
        )
        == 2
    )
    assert (
        value(
            metrics,
            "sluice_rule_hits_total",
            plugin="words",
            direction="answer",
            action="block",
            tag="none",
            mode="shadow",
        )
        == 1
    )


def test_hits_count_under_their_tag(metrics: Metrics) -> None:
    hits = [
        Hit("words", "list.txt:1", "tag", "request", tag="politics"),
        Hit("words", "list.txt:2", "tag", "request", tag="politics"),
        Hit("words", "list.txt:3", "replace", "answer"),
    ]
    metrics.finished(record(hits=hits))
    assert (
        value(
            metrics,
            "sluice_rule_hits_total",
            plugin="words",
            direction="request",
            action="tag",
            tag="politics",
            mode="enforce",
        )
        == 2
    )
    assert (
        value(
            metrics,
            "sluice_rule_hits_total",
            plugin="words",
            direction="answer",
            action="replace",
            tag="none",
            mode="enforce",
        )
        == 1
    )


def test_lists_are_counted_and_those_that_are_gone_are_gone(metrics: Metrics) -> None:
    metrics.lists(
        {("words", "a.txt"): Listing("a.txt", 3, "ffffffff"), ("words", "b.txt"): Listing("b.txt", 1, "00ab")}
    )
    assert value(metrics, "sluice_word_list_entries", plugin="words", list="a.txt") == 3
    assert value(metrics, "sluice_word_list_version", plugin="words", list="a.txt") == 0xFFFFFFFF
    assert value(metrics, "sluice_word_list_version", plugin="words", list="b.txt") == 0xAB
    metrics.lists({("words", "b.txt"): Listing("b.txt", 2, "00ac")})
    assert value(metrics, "sluice_word_list_entries", plugin="words", list="b.txt") == 2
    assert 'list="a.txt"' not in metrics.render().decode()
    metrics.lists({("words", "a.txt"): Listing("a.txt", 4, "v1.2")})
    assert "sluice_word_list_version{" not in metrics.render().decode(), "what a stranger's plugin calls a version"
    assert value(metrics, "sluice_word_list_entries", plugin="words", list="a.txt") == 4


def test_gauges_are_there_from_the_start_and_return_to_zero(metrics: Metrics) -> None:
    assert value(metrics, "sluice_in_flight", model="m") == 0
    metrics.in_flight("m", 1)
    metrics.in_flight("m", 1)
    assert value(metrics, "sluice_in_flight", model="m") == 2
    metrics.in_flight("m", -1)
    metrics.in_flight("m", -1)
    assert value(metrics, "sluice_in_flight", model="m") == 0
    metrics.queue_depth("m", 3)
    assert value(metrics, "sluice_queue_depth", model="m") == 3


def test_a_request_may_end_after_a_reload_has_dropped_its_model(metrics: Metrics) -> None:
    metrics.in_flight("m", 1)
    metrics.known(models=["n"])
    metrics.in_flight("m", -1)
    assert value(metrics, "sluice_in_flight", model="m") == 0
    assert value(metrics, "sluice_in_flight", model="other") is None


def test_a_model_that_a_reload_drops_leaves_no_queue_behind(metrics: Metrics) -> None:
    names = ("sluice_queue_depth", "sluice_reserved_tokens", "sluice_capacity_tokens")
    metrics.queue_depth("m", 2)
    metrics.reserved("m", 1042, 4096)
    metrics.known(models=["n"])
    metrics.queue_depth("m", 0)
    assert [value(metrics, name, model="m") for name in names] == [None, None, None]
    metrics.known(models=["m", "n"])
    assert value(metrics, "sluice_queue_depth", model="m") == 0


def test_an_engine_that_a_reload_removes_has_no_state_any_more(metrics: Metrics) -> None:
    metrics.engine_up("m-0", up=True)
    assert value(metrics, "sluice_engine_up", engine="m-0") == 1
    metrics.engine_up("m-0", up=False)
    assert value(metrics, "sluice_engine_up", engine="m-0") == 0
    metrics.known(models=["m"])
    metrics.engines(["m-1"])
    assert value(metrics, "sluice_engine_up", engine="m-0") is None


def test_reloads_and_the_version_in_force_are_told(metrics: Metrics) -> None:
    metrics.config_version(1)
    metrics.reload("ok", 2)
    metrics.reload("refused", 2)
    assert value(metrics, "sluice_config_reloads_total", outcome="ok") == 1
    assert value(metrics, "sluice_config_reloads_total", outcome="refused") == 1
    assert value(metrics, "sluice_config_version") == 2


def test_a_worker_that_takes_a_dead_one_s_place_keeps_its_counts_but_not_its_gauges(tmp_path: Path) -> None:
    with counting(tmp_path / "worker-0") as first:
        first.finished(record())
        first.in_flight("m", 1)
        first.engine_up("m-0", up=True)
    with counting(tmp_path / "worker-0") as second:
        second.finished(record())
        assert value(second, "sluice_requests_total", route=CHAT, model="m", outcome="ok") == 2
        assert value(second, "sluice_in_flight", model="m") == 0
        assert value(second, "sluice_engine_up", engine="m-0") is None


async def test_a_loop_that_is_held_up_shows_in_its_lag(metrics: Metrics) -> None:
    watching = asyncio.get_running_loop().create_task(metrics.watch_loop())
    while not value(metrics, "sluice_event_loop_lag_seconds_count"):
        await asyncio.sleep(0.05)
    watching.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await watching
    assert value(metrics, "sluice_event_loop_lag_seconds_sum") is not None


def test_requests_at_an_engine_are_summed_over_the_workers_that_live(tmp_path: Path) -> None:
    workers = [Metrics(Table(tmp_path / f"worker-{number}")) for number in range(2)]
    for worker in workers:
        worker.engines(["m-0", "m-1"])
        worker.engine_in_flight("m-0", 3)
    workers[1].engine_in_flight("m-1", 1)
    assert workers[0].engines_in_flight() == {"m-0": 6, "m-1": 1}
    for worker in workers:
        worker.engines(["m-1"])
    assert workers[0].engines_in_flight() == {"m-1": 1}


def test_copies_and_their_originals_are_counted_beside_each_other(metrics: Metrics) -> None:
    metrics.mirrored("m-0", "copy", "ok", 2.0, 30)
    metrics.mirrored("m-0", "original", "ok", 1.5, 28)
    metrics.mirrored("made-up", "copy", "ok", 1.0, 1)
    text = metrics.render().decode()
    assert 'sluice_mirror_requests_total{engine="m-0",outcome="ok",side="copy"} 1.0' in text
    assert 'sluice_mirror_seconds_total{engine="m-0",side="original"} 1.5' in text
    assert 'sluice_mirror_tokens_total{engine="m-0",side="copy"} 30.0' in text
    assert "made-up" not in text
