"""All PromQL that we ship, and what each query asks for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import promql_parser
import yaml

from tests.deploy.chart import EVERYTHING, ROOT, profile

PROMETHEUS = ROOT / "deploy" / "prometheus"
GRAFANA = ROOT / "deploy" / "grafana"

#: What Prometheus and the monitors add to every series.
ADDED = frozenset({"instance", "job", "namespace", "pod", "le"})

#: Of NVIDIA's exporter; no card is here to scrape one from.
DCGM: dict[str, frozenset[str]] = dict.fromkeys(
    ("DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_FREE", "DCGM_FI_DEV_GPU_UTIL"), frozenset({"gpu", "UUID", "Hostname"})
)


@dataclass(frozen=True, slots=True)
class Query:
    """One query and where it stands."""

    where: str
    text: str


@dataclass(frozen=True, slots=True)
class Asked:
    """One metric in a query: its labels that are compared or grouped by, and the values they are compared with."""

    metric: str
    labels: frozenset[str]
    values: tuple[tuple[str, str], ...]


def rules(file: str) -> list[dict[str, Any]]:
    """Read all rules of one file."""
    groups = yaml.safe_load((PROMETHEUS / file).read_text("utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def shipped() -> Iterator[Query]:
    """Every query of rules, dashboards and scalers."""
    for file in ("targets.yaml", "sluice.rules.yaml"):
        for rule in rules(file):
            yield Query(rule.get("alert") or rule["record"], rule["expr"])
    for board in ("traffic.json", "engine.json"):
        for panel in json.loads((GRAFANA / board).read_text("utf-8"))["panels"]:
            for target in panel["targets"]:
                text = target["expr"].replace("$__rate_interval", "5m").replace("$model", ".*")
                yield Query(f"{board}: {panel['title']}", text)
    for scaler in profile(EVERYTHING).of("ScaledObject"):
        for trigger in scaler["spec"]["triggers"]:
            yield Query(f"{scaler['metadata']['name']}: {trigger['name']}", trigger["metadata"]["query"])


def asked(query: str) -> Iterator[Asked]:
    """What a query asks for. Raises ``ValueError`` where it is no PromQL."""
    yield from _asked(promql_parser.parse(query), frozenset())


def _asked(node: Any, grouped: frozenset[str]) -> Iterator[Asked]:
    if isinstance(node, promql_parser.VectorSelector):
        matchers = node.matchers.matchers
        values = tuple((each.name, each.value) for each in matchers)
        yield Asked(node.name or "", grouped | {each.name for each in matchers}, values)
    modifier = getattr(node, "modifier", None)
    if isinstance(node, promql_parser.AggregateExpr) and modifier is not None:
        grouped = frozenset(modifier.labels)
    for name in ("lhs", "rhs", "expr", "vector_selector", "args"):
        below = getattr(node, name, None)
        for each in below if isinstance(below, list) else [below] if below is not None else []:
            yield from _asked(each, grouped)
