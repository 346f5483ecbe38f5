"""Rendering the chart by Helm's own library, and finding one's way in what comes out."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import helm_python
import yaml

ROOT = Path(__file__).parents[2]
CHART = ROOT / "helm" / "sluice"
PROFILES = sorted(path.stem for path in (CHART / "examples").glob("*.yaml"))

#: Everything that a profile can switch on, in one: what no shipped profile shows is looked at too.
EVERYTHING = "everything"
_EVERYTHING: dict[str, Any] = {
    "ingress": {"enabled": True, "hosts": ["a.example.com", "b.example.com"]},
    "httpRoute": {"enabled": True, "parentRefs": [{"name": "public"}]},
    "engineApiKeySecret": {"name": "engine-key"},
    "redis": {"externalUrlSecret": {"name": "redis-url"}, "enabled": False},
    "words": {"existing": [{"name": "more-words", "keys": ["politics.txt"]}]},
    "test": {"apiKeySecret": {"name": "test-key"}},
    "imagePullSecrets": [{"name": "registry"}],
    "networkPolicy": {"gatewayFrom": [{"namespaceSelector": {"matchLabels": {"a": "b"}}}]},
    "monitoring": {"rules": True, "podMonitor": True, "serviceMonitor": True, "dcgmExporter": {"enabled": True}},
}


@dataclass(frozen=True, slots=True)
class Rendered:
    """The objects of one release."""

    objects: tuple[dict[str, Any], ...]

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [each for each in self.objects if each["kind"] == kind]

    def one(self, kind: str, name: str) -> dict[str, Any]:
        (found,) = [each for each in self.of(kind) if each["metadata"]["name"] == name]
        return found

    def pods(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Every pod that would run, with the name of what makes it: metadata and spec."""
        for each in self.objects:
            name = f"{each['kind']}/{each['metadata']['name']}"
            if each["kind"] == "Pod":
                yield name, each
            elif each["kind"] == "LeaderWorkerSet":
                group = each["spec"]["leaderWorkerTemplate"]
                yield f"{name}/leader", group["leaderTemplate"]
                yield f"{name}/worker", group["workerTemplate"]
            elif "template" in each.get("spec", {}):
                yield name, each["spec"]["template"]


def values(profile: str) -> dict[str, Any]:
    """Read a profile of helm/sluice/examples."""
    if profile == EVERYTHING:
        return {**values("four-gpu"), **_EVERYTHING}
    found: dict[str, Any] = yaml.safe_load((CHART / "examples" / f"{profile}.yaml").read_text("utf-8"))
    return found


def render(given: Mapping[str, Any], *, name: str = "demo", namespace: str = "prod") -> Rendered:
    """Render with Helm's library; raises its errors."""
    with helm_python.Chart.load(str(CHART)) as chart:
        texts = chart.render(dict(given), name=name, namespace=namespace)
    documents = [
        each
        for path, text in sorted(texts.items())
        if path.endswith(".yaml")
        for each in yaml.safe_load_all(text)
        if each
    ]
    return Rendered(tuple(documents))


@functools.cache
def profile(name: str) -> Rendered:
    """Render one profile, once."""
    return render(values(name))


def containers(pod: Mapping[str, Any]) -> Sequence[dict[str, Any]]:
    """All containers of a pod, those that come first too."""
    spec = pod["spec"]
    return [*spec.get("initContainers", []), *spec["containers"]]
