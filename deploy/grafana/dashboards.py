"""The two dashboards: what callers feel, phase by phase; and the engines with their KV cache.

``python deploy/grafana/dashboards.py`` writes ``traffic.json`` and ``engine.json`` beside this file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from string import ascii_uppercase

from grafana_foundation_sdk.builders import common, dashboard, prometheus, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import LegendPlacement, TooltipDisplayMode
from grafana_foundation_sdk.models.dashboard import DataSourceRef, VariableRefresh

SOURCE = DataSourceRef(type_val="prometheus", uid="${source}")


@dataclass(frozen=True, slots=True)
class Graph:
    """One panel: its unit is Grafana's name for one, each query a pair of expression and legend."""

    title: str
    unit: str
    queries: Sequence[tuple[str, str]]
    says: str = ""


def quantiles(metric: str, *, by: str = "", only: str = "") -> list[tuple[str, str]]:
    """The median, p95 and p99 of a histogram, for each value of a label if one is named."""
    legend = f"{{{{{by}}}}} " if by else ""
    grouped = f"le, {by}" if by else "le"
    return [
        (
            f"histogram_quantile({share}, sum by ({grouped}) (rate({metric}_bucket{{{only}}}[$__rate_interval])))",
            f"{legend}p{share * 100:g}",
        )
        for share in (0.5, 0.95, 0.99)
    ]


def per_second(metric: str, by: str, only: str = "") -> str:
    """How fast a counter grows, for each value of a label."""
    return f"sum by ({by}) (rate({metric}{{{only}}}[$__rate_interval]))"


def share(part: str, whole: str, by: str, only: str, *, counters: bool = False) -> str:
    """How much of one metric another is, for each value of a label; nothing where there is no whole."""
    of, over = (
        f"rate({each}{{{only}}}[$__rate_interval])" if counters else f"{each}{{{only}}}" for each in (part, whole)
    )
    return f"sum by ({by}) ({of}) / (sum by ({by}) ({over}) > 0)"


MODEL = 'model=~"$model"'
SERVED = 'model_name=~"$model"'

TRAFFIC = (
    Graph("Requests by outcome", "reqps", [(per_second("sluice_requests_total", "outcome", MODEL), "{{outcome}}")]),
    Graph(
        "Failures that are ours",
        "percentunit",
        [
            ("sluice:errors:ratio_5m", "5 min"),
            ("sluice:errors:ratio_1h", "1 h"),
            ("1 - sluice:target:availability", "budget"),
        ],
        "Refusals of what a caller sent do not count.",
    ),
    Graph("In flight", "short", [(f"sum by (model) (sluice_in_flight{{{MODEL}}})", "{{model}}")]),
    Graph("First token", "s", [*quantiles("sluice_ttft_seconds"), ("sluice:target:first_token_p99_seconds", "target")]),
    Graph("Between two pieces", "s", quantiles("sluice_chunk_gap_seconds"), "Jitter shows here first."),
    Graph("Whole requests", "s", quantiles("sluice_request_seconds", by="model", only=MODEL)),
    Graph(
        "Time by phase",
        "s",
        [("sluice:phase_seconds:p95_5m", "{{phase}}")],
        "p95. From entry to engine, queue, first token, decode, post-processing: the highest line is where to look.",
    ),
    Graph("Queue", "short", [(f"sum by (model) (sluice_queue_depth{{{MODEL}}})", "{{model}}")]),
    Graph(
        "KV tokens reserved",
        "percentunit",
        [(share("sluice_reserved_tokens", "sluice_capacity_tokens", "model", MODEL), "{{model}}")],
        "What the gateway has promised away of what may be reserved; at 1 requests queue.",
    ),
    Graph("Tokens", "short", [(per_second("sluice_tokens_total", "model, kind", MODEL), "{{model}} {{kind}}")]),
    Graph(
        "Plugins, p95",
        "s",
        [
            (
                "histogram_quantile(0.95, sum by (plugin, le) (rate(sluice_plugin_seconds_bucket[$__rate_interval])))",
                "{{plugin}}",
            )
        ],
    ),
    Graph(
        "Plugins that did not run",
        "reqps",
        [(per_second("sluice_plugin_runs_total", "plugin, outcome", 'outcome!="ran"'), "{{plugin}} {{outcome}}")],
    ),
    Graph(
        "Blocks",
        "reqps",
        [(per_second("sluice_blocks_total", "plugin, direction, tag"), "{{plugin}} {{direction}} {{tag}}")],
    ),
    Graph(
        "Rules that fired",
        "reqps",
        [(per_second("sluice_rule_hits_total", "plugin, action, mode"), "{{plugin}} {{action}} {{mode}}")],
    ),
    Graph(
        "Reloads",
        "short",
        [("sum by (outcome) (increase(sluice_config_reloads_total[$__rate_interval]))", "{{outcome}}")],
    ),
    Graph(
        "Event loop lag",
        "s",
        quantiles("sluice_event_loop_lag_seconds"),
        "Over a few milliseconds every stream stutters.",
    ),
    Graph(
        "Memory", "bytes", [('sum by (instance) (process_resident_memory_bytes{job=~".*sluice.*"})', "{{instance}}")]
    ),
    Graph(
        "CPU",
        "percentunit",
        [('sum by (instance) (rate(process_cpu_seconds_total{job=~".*sluice.*"}[$__rate_interval]))', "{{instance}}")],
    ),
)

ENGINE = (
    Graph(
        "Engines in use",
        "short",
        [("max by (engine) (sluice_engine_up)", "{{engine}}")],
        "0: held ill by every gateway.",
    ),
    Graph(
        "Running",
        "short",
        [(f"sum by (model_name, instance) (vllm:num_requests_running{{{SERVED}}})", "{{model_name}} {{instance}}")],
    ),
    Graph(
        "Waiting in vLLM",
        "short",
        [(f"sum by (model_name, instance) (vllm:num_requests_waiting{{{SERVED}}})", "{{model_name}} {{instance}}")],
        "The queue belongs in the gateway: much here means that max_in_flight is too high.",
    ),
    Graph(
        "KV cache in use",
        "percentunit",
        [(f"max by (model_name, instance) (vllm:kv_cache_usage_perc{{{SERVED}}})", "{{model_name}} {{instance}}")],
    ),
    Graph(
        "Preemptions",
        "ops",
        [(per_second("vllm:num_preemptions_total", "model_name, instance", SERVED), "{{model_name}} {{instance}}")],
    ),
    Graph(
        "Prefix cache hits",
        "percentunit",
        [
            (
                share(
                    "vllm:prefix_cache_hits_total",
                    "vllm:prefix_cache_queries_total",
                    "model_name",
                    SERVED,
                    counters=True,
                ),
                "{{model_name}}",
            )
        ],
    ),
    Graph("Waiting for the scheduler", "s", quantiles("vllm:request_queue_time_seconds", only=SERVED)),
    Graph("Prefill", "s", quantiles("vllm:request_prefill_time_seconds", only=SERVED)),
    Graph("A decode step", "s", quantiles("vllm:inter_token_latency_seconds", only=SERVED)),
    Graph("First token, as vLLM sees it", "s", quantiles("vllm:time_to_first_token_seconds", only=SERVED)),
    Graph(
        "Tokens generated",
        "short",
        [(per_second("vllm:generation_tokens_total", "model_name, instance", SERVED), "{{model_name}} {{instance}}")],
    ),
    Graph(
        "Tokens of prompts",
        "short",
        [(per_second("vllm:prompt_tokens_total", "model_name, instance", SERVED), "{{model_name}} {{instance}}")],
    ),
    Graph(
        "Answers by their end",
        "reqps",
        [(per_second("vllm:request_success_total", "finished_reason", SERVED), "{{finished_reason}}")],
    ),
    Graph(
        "GPU memory",
        "percentunit",
        [("DCGM_FI_DEV_FB_USED / (DCGM_FI_DEV_FB_USED + DCGM_FI_DEV_FB_FREE)", "{{Hostname}} {{gpu}}")],
    ),
    Graph("GPU busy", "percent", [("DCGM_FI_DEV_GPU_UTIL", "{{Hostname}} {{gpu}}")]),
)


def board(title: str, uid: str, graphs: Sequence[Graph], models: str) -> dashboard.Dashboard:
    """A dashboard with three panels a row."""
    built = (
        dashboard.Dashboard(title)
        .uid(uid)
        .tags(["sluice"])
        .refresh("30s")
        .time("now-1h", "now")
        .with_variable(dashboard.DatasourceVariable("source").type("prometheus").label("Prometheus"))
        .with_variable(
            dashboard.QueryVariable("model")
            .label("Model")
            .datasource(SOURCE)
            .query(models)
            .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
            .multi(multi=True)
            .include_all(include_all=True)
            .all_value(".*")
        )
    )
    for graph in graphs:
        panel = timeseries.Panel().title(graph.title).description(graph.says).unit(graph.unit).min(0).span(8).height(8)
        panel.datasource(SOURCE).fill_opacity(8).line_width(1)
        panel.legend(common.VizLegendOptions().show_legend(show_legend=True).placement(LegendPlacement.BOTTOM))
        panel.tooltip(common.VizTooltipOptions().mode(TooltipDisplayMode.MULTI))
        for name, (expression, legend) in zip(ascii_uppercase, graph.queries, strict=False):
            panel.with_target(prometheus.Dataquery().expr(expression).legend_format(legend).ref_id(name).range())
        built.with_panel(panel)
    return built


def written() -> dict[str, str]:
    """File names and their contents."""
    boards = {
        "traffic.json": board(
            "Sluice: traffic and latency", "sluice-traffic", TRAFFIC, "label_values(sluice_in_flight, model)"
        ),
        "engine.json": board(
            "Sluice: engines and KV cache",
            "sluice-engine",
            ENGINE,
            "label_values(vllm:num_requests_running, model_name)",
        ),
    }
    return {name: JSONEncoder(sort_keys=True, indent=1).encode(each.build()) + "\n" for name, each in boards.items()}


if __name__ == "__main__":
    for name, text in written().items():
        Path(__file__).with_name(name).write_text(text, "utf-8")
