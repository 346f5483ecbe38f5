"""The engines' stages: what each says of vLLM's numbers, and of the gateway's where there are none."""

from __future__ import annotations

from gateway.why.engines import decode, engine_queue, liveness, prefill, sampling
from gateway.why.window import Snapshot, Window
from tests.gateway.why.exposition import phases, text, window

STEPS = {"vllm:generation_tokens_total": 100.0, "vllm:prompt_tokens_total": 500.0, "vllm:num_requests_running": 2.0}


def snapshots(trouble: str | None) -> Window:
    troubles = {"m-0": trouble} if trouble else {}
    after = Snapshot(at=10.0, gateway=text(phases(1)), engines={"m-0": None}, troubles=troubles)
    return Window(Snapshot(at=0.0, gateway=""), after)


def test_a_refused_connection_is_a_dead_engine_and_silence_a_stalled_one() -> None:
    assert liveness(snapshots("refused")).cause == "dead engine"
    assert liveness(snapshots("no answer in time")).cause == "engine stall"


def test_an_engine_that_runs_and_generates_nothing_stands_still() -> None:
    still = window(phases(0), STEPS, engine_before=STEPS)
    assert liveness(still).cause == "engine stall"
    assert liveness(still).blocking
    moved = window(phases(0), STEPS, engine_before=STEPS | {"vllm:generation_tokens_total": 99.0})
    assert liveness(moved).cause == "pace"


def test_an_engine_without_figures_stands_still_when_nothing_at_all_comes() -> None:
    busy = {"sluice_in_flight": 2.0}
    assert liveness(window(busy, before=busy)).cause == "engine stall"
    assert liveness(window(busy | {"sluice_chunk_gap_seconds_count": 5.0}, before=busy)).cause == "pace"


def test_one_that_the_gateway_holds_ill_is_dead_with_what_became_of_requests() -> None:
    ill = {'sluice_engine_up{engine="m-0"}': 0.0, 'sluice_requests_total{outcome="no_engine_available"}': 4.0}
    found = liveness(window(ill))
    assert found.cause == "dead engine"
    assert "4 requests ended with no_engine_available" in found.evidence


def test_preemptions_or_a_full_cache_with_waiting_are_kv_pressure() -> None:
    waiting = {"vllm:num_requests_waiting": 4.0, "vllm:kv_cache_usage_perc": 0.97}
    assert engine_queue(window(phases(2, decode=4.0), STEPS | waiting)).cause == "KV pressure"
    preempted = {"vllm:num_preemptions_total": 3.0, "vllm:kv_cache_usage_perc": 0.2}
    found = engine_queue(window(phases(2, decode=4.0), STEPS | preempted))
    assert (found.cause, found.seconds) == ("KV pressure", 1.0)
    assert engine_queue(window(phases(2), STEPS | waiting | {"vllm:kv_cache_usage_perc": 0.3})).cause == "engine queue"


def test_many_more_tokens_read_than_written_are_a_flood() -> None:
    took = {"vllm:request_prefill_time_seconds_sum": 9.0, "vllm:request_prefill_time_seconds_count": 3.0}
    flood = STEPS | {"vllm:prompt_tokens_total": 5000.0}
    found = prefill(window(phases(3), flood | took))
    assert (found.cause, found.seconds) == ("prefill flood", 3.0)
    assert "500 prompt tokens/s computed, 10 generated" in found.evidence
    assert prefill(window(phases(3), STEPS | took)).cause == "pace"
    cached = flood | {"vllm:prefix_cache_hits_total": 4900.0, "vllm:prefix_cache_queries_total": 5000.0}
    assert prefill(window(phases(3), cached | took)).cause == "pace"


def test_logprobs_that_begin_much_later_than_plain_answers_are_named_and_are_no_prefill() -> None:
    name = "sluice_engine_first_seconds"
    first = {
        f'{name}_sum{{sampling="plain",stream="yes"}}': 1.0,
        f'{name}_count{{sampling="plain",stream="yes"}}': 10.0,
        f'{name}_sum{{sampling="logprobs",stream="yes"}}': 20.1,
        f'{name}_count{{sampling="logprobs",stream="yes"}}': 1.0,
    }
    seen = window(phases(11, first_token=21.1) | first)
    found = sampling(seen)
    assert found.cause == "logprobs"
    assert round(found.seconds, 3) == round(20 / 11, 3)
    assert prefill(seen).seconds < 0.2
    for each in list(first):  # nothing to compare with: nothing is said
        if "plain" in each:
            del first[each]
    assert sampling(window(phases(1, first_token=20.1) | first)).cause == "pace"


def test_a_step_is_bound_by_bandwidth_with_few_sequences_and_by_compute_with_many() -> None:
    few = decode(window(phases(2, decode=4.0, client_write=1.0), STEPS))
    assert "memory bandwidth" in few.evidence
    assert few.seconds == 1.5
    many = STEPS | {"vllm:num_requests_running": 90.0}
    assert "bound by compute" in decode(window(phases(2), many)).evidence


def test_pieces_that_come_in_time_but_for_a_few_are_a_stall() -> None:
    gaps = {
        'sluice_chunk_gap_seconds_bucket{le="0.05"}': 95.0,
        'sluice_chunk_gap_seconds_bucket{le="5"}': 100.0,
        'sluice_chunk_gap_seconds_bucket{le="+Inf"}': 100.0,
    }
    assert decode(window(phases(2, decode=4.0) | gaps)).cause == "engine stall"
