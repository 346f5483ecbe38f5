"""Every metric, declared once: its name, labels, buckets and meaning. ``docs/metrics.md`` is made from this."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from gateway import errors


class Kind(StrEnum):
    """How a metric moves, in Prometheus's words."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric. ``limit``: its series beyond this many are counted under the labels ``other``.

    ``across`` says what several workers' gauges make together: their ``sum``, or the ``max`` of those that set it.
    """

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    across: str = "sum"
    limit: int = 1000


#: What an answer takes: milliseconds for a refusal, minutes for a long stream.
REQUEST_BUCKETS = (0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 60, 120, 300, 600, 1800)
#: Prefill: tens of milliseconds on a warm cache, a minute behind a long queue.
TTFT_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2.5, 5, 10, 20, 40, 60, 120)
#: Decode: 5 ms a token on a fast card, 200 on a CPU; a second or more is a stall.
GAP_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1, 2.5, 5, 10, 30)
#: Our own work is microseconds, the engine's is seconds: one row of buckets for both.
PHASE_BUCKETS = (1e-5, 2.5e-5, 1e-4, 2.5e-4, 1e-3, 2.5e-3, 0.01, 0.025, 0.1, 0.25, 1, 2.5, 10, 30, 120, 600)
PLUGIN_BUCKETS = (1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.1, 0.5, 2.5)
LAG_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5)

_COUNTER, _GAUGE, _HISTOGRAM = Kind.COUNTER, Kind.GAUGE, Kind.HISTOGRAM

REQUESTS = Metric(
    "sluice_requests_total",
    _COUNTER,
    "Requests that have ended, by what became of them. Probes and scrapes are not counted.",
    ("route", "model", "outcome"),
    limit=5000,
)
REQUEST_SECONDS = Metric(
    "sluice_request_seconds",
    _HISTOGRAM,
    "Time from a request's first line to the last byte of its answer.",
    ("route", "model"),
    REQUEST_BUCKETS,
)
IN_FLIGHT = Metric("sluice_in_flight", _GAUGE, "Requests that are being answered.", ("model",))
QUEUE_DEPTH = Metric("sluice_queue_depth", _GAUGE, "Requests that wait for a free place.", ("model",))
TOKENS = Metric("sluice_tokens_total", _COUNTER, "Tokens, as the engine counted them.", ("model", "kind"))
KEY_TOKENS = Metric(
    "sluice_key_tokens_total",
    _COUNTER,
    "The same by key, as it was charged: of a stream that was aborted the prompt and what had been generated.",
    ("key", "model", "kind"),
    limit=5000,
)
RESERVED = Metric(
    "sluice_reserved_tokens", _GAUGE, "KV tokens that are reserved for requests at a model's engines.", ("model",)
)
CAPACITY = Metric(
    "sluice_capacity_tokens", _GAUGE, "KV tokens that may be reserved; 0 where the engines do not say.", ("model",)
)
TTFT = Metric(
    "sluice_ttft_seconds", _HISTOGRAM, "Streams: time until the first text went to the caller.", (), TTFT_BUCKETS
)
CHUNK_GAP = Metric(
    "sluice_chunk_gap_seconds", _HISTOGRAM, "Streams: time between two pieces of an answer.", (), GAP_BUCKETS
)
PHASE_SECONDS = Metric(
    "sluice_phase_seconds", _HISTOGRAM, "Time that each phase of a request took.", ("phase",), PHASE_BUCKETS
)
ENGINE_FIRST = Metric(
    "sluice_engine_first_seconds",
    _HISTOGRAM,
    "Time until an engine began to answer (not streamed: until it had), by what it has to do for each token.",
    ("sampling", "stream"),
    PHASE_BUCKETS,
)
PLUGIN_RUNS = Metric(
    "sluice_plugin_runs_total",
    _COUNTER,
    "Exchanges a plugin took part in, by how it fared: ran, skipped, failed, timed_out.",
    ("plugin", "outcome"),
)
PLUGIN_SECONDS = Metric(
    "sluice_plugin_seconds", _HISTOGRAM, "Time that a plugin took of an exchange.", ("plugin",), PLUGIN_BUCKETS
)
BLOCKS = Metric(
    "sluice_blocks_total",
    _COUNTER,
    "Requests and answers that a plugin blocked.",
    ("plugin", "direction", "tag"),
)
HITS = Metric(
    "sluice_rule_hits_total",
    _COUNTER,
    "Rules that fired, by what they do; in shadow mode by what they would have done.",
    ("plugin", "direction", "action", "tag", "mode"),
)
RELOADS = Metric(
    "sluice_config_reloads_total",
    _COUNTER,
    "Attempts to put a changed configuration into force: ok or refused.",
    ("outcome",),
)
CONFIG_VERSION = Metric(
    "sluice_config_version", _GAUGE, "How often a configuration has been put into force.", across="max"
)
LIST_ENTRIES = Metric(
    "sluice_word_list_entries",
    _GAUGE,
    "Entries of each word list in force.",
    ("plugin", "list"),
    across="max",
)
LIST_VERSION = Metric(
    "sluice_word_list_version",
    _GAUGE,
    "The version of each word list, the digits of log and audit as a number: equal content, equal number.",
    ("plugin", "list"),
    across="max",
)
ENGINE_UP = Metric(
    "sluice_engine_up", _GAUGE, "1 where an engine is in use, 0 where it is held ill.", ("engine",), across="max"
)
ENGINE_IN_FLIGHT = Metric(
    "sluice_engine_in_flight", _GAUGE, "Requests at an engine now, as of the last half second.", ("engine",)
)
MIRROR_REQUESTS = Metric(
    "sluice_mirror_requests_total",
    _COUNTER,
    "Copies that a mirror got, and the requests they were made of (side: copy, original), by what became of them.",
    ("engine", "side", "outcome"),
)
MIRROR_SECONDS = Metric("sluice_mirror_seconds_total", _COUNTER, "Time that these took.", ("engine", "side"))
MIRROR_TOKENS = Metric("sluice_mirror_tokens_total", _COUNTER, "Tokens of their answers.", ("engine", "side"))
LIMITS_AWAY = Metric(
    "sluice_limits_redis_away",
    _GAUGE,
    "1 while Redis is away and a process goes on with its share of the limits, 0 while all count there.",
    across="max",
)
LOG_LINES_DROPPED = Metric(
    "sluice_log_lines_dropped_total", _COUNTER, "Log lines lost because nobody read them fast enough."
)
LOOP_LAG = Metric(
    "sluice_event_loop_lag_seconds",
    _HISTOGRAM,
    "How late the event loop wakes up; more than a few milliseconds make every stream stutter.",
    (),
    LAG_BUCKETS,
)
BUILD_INFO = Metric("sluice_build_info", _GAUGE, "Always 1; the label names the version.", ("version",), across="max")

CATALOGUE = (
    *(REQUESTS, REQUEST_SECONDS, IN_FLIGHT, QUEUE_DEPTH, TOKENS, TTFT, CHUNK_GAP, PHASE_SECONDS, ENGINE_FIRST),
    *(KEY_TOKENS, RESERVED, CAPACITY, LIMITS_AWAY),
    *(PLUGIN_RUNS, PLUGIN_SECONDS, BLOCKS, HITS, RELOADS, CONFIG_VERSION, ENGINE_UP, ENGINE_IN_FLIGHT),
    *(MIRROR_REQUESTS, MIRROR_SECONDS, MIRROR_TOKENS),
    *(LIST_ENTRIES, LIST_VERSION),
    *(LOG_LINES_DROPPED, LOOP_LAG, BUILD_INFO),
)

#: Of each worker's process, with the label ``worker``; made at the scrape.
PROCESS = (
    Metric("process_resident_memory_bytes", _GAUGE, "Memory that is resident.", ("worker",)),
    Metric("process_cpu_seconds_total", _COUNTER, "User and system CPU time.", ("worker",)),
    Metric("process_open_fds", _GAUGE, "Open file descriptors.", ("worker",)),
    Metric("process_start_time_seconds", _GAUGE, "When the process started, in seconds since 1970.", ("worker",)),
)

#: The routes that a label may name; everything else is ``other``.
ROUTES = (
    *("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses", "/v1/messages"),
    *("/v1/responses/{id}", "/v1/responses/{id}/cancel"),
    *("/v1/messages/count_tokens", "/v1/rerank", "/v1/score", "/v1/models", "/tokenize", "/detokenize"),
    *("/livez", "/readyz", "/health", "/metrics", "/version", "/openapi.json", "/docs"),
)
PHASES = (
    "auth",
    "tokenize",
    "queue",
    "chain_request",
    "connect",
    "first_token",
    "decode",
    "chain_answer",
    "client_write",
)
#: What a request asks of the engine's sampling, and each with an answer that is whole or streamed.
SAMPLINGS = ("plain", "logprobs", "structured")
OTHER = "other"
NONE = "none"


def _codes(failure: type[errors.Failure]) -> set[str]:
    return {str(failure.code)}.union(*map(_codes, failure.__subclasses__()))


#: ``shutdown``: still running when ``drain_s`` had passed. ``engine_refused``: the engine's own verdict on the request.
OUTCOMES = frozenset({"ok", "client_left", "engine_refused", "shutdown"} | _codes(errors.Failure))


def describe() -> str:
    """Write ``docs/metrics.md``."""
    lines = [
        "# Metrics",
        "",
        "`GET /metrics`, in Prometheus's text format; open unless `server.metrics: operator`. With several workers",
        "every scrape shows the sum over all of them, whichever worker answers. This page is made from",
        "`gateway/telemetry/catalogue.py`: `python -m gateway.telemetry.catalogue > docs/metrics.md`.",
        "",
        "Every label is bounded: a model, route, plugin or outcome that is not known counts as `other`, and a request",
        "that names no model as `none`. The probes (`/livez`, `/readyz`, `/health`, `/metrics`) are not counted.",
        "",
        "| metric | kind | labels | meaning |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| `{metric.name}` | {metric.kind} | {', '.join(f'`{label}`' for label in metric.labels)} | {metric.help} |"
        for metric in (*CATALOGUE, *PROCESS)
    ]
    lines += ["", "## Label values", ""]
    lines += [
        f"- `outcome` of a request: {_listed(sorted(OUTCOMES))}, `{OTHER}`. A failure counts under its error code.",
        f"- `route`: {_listed(ROUTES)}, `{OTHER}`; of `/v1/models/{{id}}` it is `/v1/models`.",
        f"- `phase`: {_listed(PHASES)}.",
        f"- `sampling`: {_listed(SAMPLINGS)} (JSON, a choice, a grammar). `stream`: `yes`, `no`.",
        "- `kind` of tokens: `prompt`, `completion`.",
        f"- `direction`: `request`, `answer`. `tag`: what the word list says, `{NONE}` without one.",
        "- `mode`: `enforce`, `shadow`. `worker`: the worker's number, from 0.",
        "",
        "## Buckets, in seconds",
        "",
    ]
    lines += [
        f"- `{metric.name}`: {', '.join(format(bound, 'g') for bound in metric.buckets)}"
        for metric in CATALOGUE
        if metric.buckets
    ]
    return "\n".join(lines) + "\n"


def _listed(values: tuple[str, ...] | list[str]) -> str:
    return ", ".join(f"`{value}`" for value in values)


if __name__ == "__main__":
    print(describe(), end="")  # noqa: T201 - that is what the module is run for
