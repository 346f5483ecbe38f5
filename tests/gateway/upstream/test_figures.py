"""What engines tell of themselves is read, whoever they are."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.upstream.figures import Figures, prefix_hits, read

VLLM = b"""# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="smollm2"} 3.0
vllm:num_requests_running{engine="1",model_name="smollm2"} 2.0
vllm:num_requests_waiting{engine="0",model_name="smollm2"} 4.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="smollm2",reason="capacity"} 4.0
vllm:kv_cache_usage_perc{engine="0",model_name="smollm2"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="smollm2"} 0.5
vllm:cache_config_info{block_size="128",engine="0",kv_cache_size_tokens="46592",num_gpu_blocks="364"} 1.0
vllm:generation_tokens_total{engine="0",model_name="smollm2"} 1.5e+03
vllm:iteration_tokens_total_count{engine="0",model_name="smollm2"} 100.0
vllm:prefix_cache_queries_total{engine="0",model_name="smollm2"} 1000.0
vllm:prefix_cache_hits_total{engine="0",model_name="smollm2"} 750.0
"""


def test_vllms_figures_are_summed_over_its_ranks() -> None:
    assert read(VLLM) == Figures(running=5, waiting=4, kv_used=0.5, progress=1600, kv_tokens=46592)
    assert prefix_hits(VLLM) == (750, 1000)


@pytest.mark.parametrize(
    ("text", "figures"),
    [
        (b"sglang:num_running_reqs 2\nsglang:num_queue_reqs 1\nsglang:token_usage 0.1\n", Figures(2, 1, 0.1)),
        (b"llamacpp:requests_processing 1\nllamacpp:requests_deferred 0\n", Figures(1)),
        (b"vllm:num_requests_running 1\nvllm:gpu_cache_usage_perc 0.7\n", Figures(1, 0, 0.7)),
        (b"http_requests_total 7\n", None),
        (b"", None),
        (b"vllm:num_requests_running NaN\n", None),
        (b"vllm:num_requests_running 1.2.3\nvllm:num_requests_waiting 2\n", None),
    ],
)
def test_others_names_mean_the_same_and_what_is_not_there_is_not_told(text: bytes, figures: Figures | None) -> None:
    assert read(text) == figures


@given(st.binary(max_size=300))
@settings(max_examples=100)
def test_rubbish_is_no_figure_and_no_fault(rubbish: bytes) -> None:
    read(b"vllm:num_requests_running " + rubbish)
    prefix_hits(rubbish)
