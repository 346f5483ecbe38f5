"""The chart of helm/sluice: each profile is rendered by Helm's library and held against Kubernetes's schemas."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import helm_python
import jsonschema_rs
import kubernetes_validate  # type: ignore[import-untyped] # it has no stubs
import pytest
import yaml

from tests.deploy.chart import CHART, EVERYTHING, PROFILES, containers, profile, render, values

KUBERNETES = ("1.29", "1.32", "1.35")
CUSTOM = yaml.safe_load((Path(__file__).parent / "custom_resources.yaml").read_text("utf-8"))
ONE: dict[str, Any] = {"name": "m", "engines": [{"name": "v1", "model": "org/m"}]}
KEY = {"name": "a", "sha256": "f" * 64}


OPERATOR: dict[str, Any] = {"config": {"server": {"metrics": "operator"}}}


def engine(model: str = "m", **more: Any) -> dict[str, Any]:
    return {"name": model, "engines": [{"name": "v1", "model": "org/m", **more}]}


def fault(given: dict[str, Any], release: str = "demo") -> str:
    with pytest.raises(helm_python.HelmError) as refused:
        render(given, name=release)
    return str(refused.value)


def test_helm_finds_no_fault() -> None:
    found = helm_python.lint(str(CHART), strict=True)
    assert [each for each in found["messages"] if each["severity"] > 1] == []
    assert found["errors"] == []


def test_the_profiles_are_the_ones_that_the_guide_names() -> None:
    assert PROFILES == ["canary", "four-gpu", "laptop", "one-gpu", "two-node-70b"]


@pytest.mark.parametrize("name", [*PROFILES, EVERYTHING])
@pytest.mark.parametrize("version", KUBERNETES)
def test_every_object_is_what_kubernetes_takes(name: str, version: str) -> None:
    for each in profile(name).objects:
        kind = f"{each['apiVersion']}/{each['kind']}"
        if kind in CUSTOM:
            assert set(each) <= {"apiVersion", "kind", "metadata", "spec"}
            jsonschema_rs.validate(CUSTOM[kind], each["spec"])
        else:
            kubernetes_validate.validate(each, version, strict=True)
    for made_by, pod in profile(name).pods():
        if made_by.startswith("LeaderWorkerSet"):
            template = {"metadata": {"name": "x", **pod["metadata"]}, "spec": pod["spec"]}
            kubernetes_validate.validate({"apiVersion": "v1", "kind": "Pod", **template}, version, strict=True)


@pytest.mark.parametrize("name", [*PROFILES, EVERYTHING])
def test_no_name_is_too_long_or_there_twice(name: str) -> None:
    seen = [(each["kind"], each["metadata"]["name"]) for each in profile(name).objects]
    assert len(seen) == len(set(seen))
    longest = {**ONE, "name": "meta-llama/Llama-3.3-70B-Instruct-of-quite-some-length"}
    longest["engines"] = [{"name": "v1-candidate", "model": "m"}, {"name": "v2-candidate", "model": "m", "nodes": 2}]
    rendered = render({"keys": [KEY], "models": [longest]}, name="a-release-with-a-name-that-goes-on-and-on-and-on-53")
    for each in rendered.objects:
        limit = 52 if each["kind"] in {"StatefulSet", "LeaderWorkerSet"} else 63
        assert len(each["metadata"]["name"]) <= limit, "a StatefulSet's revision label adds eleven characters"
    labels = [value for _, pod in rendered.pods() for value in pod["metadata"]["labels"].values()]
    assert max(map(len, labels)) <= 63


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"gatway": {}}, "gatway"),
        ({"gateway": {"replica": 2}}, "replica"),
        ({"config": {"timeouts": {"total": 5}}}, "total"),
        ({"models": [{**ONE, "engine": []}]}, "engine"),
        ({"models": [{"name": "m", "engines": [{"name": "v1", "model": "x", "gpus": 2}]}]}, "gpus"),
        ({"models": [{"name": "m", "engines": [{"name": "V 1", "model": "x"}]}]}, "name"),
        ({"keys": [{"name": "a", "sha256": "secret"}]}, "sha256"),
        ({"autoscaling": {"mode": "hpa"}}, "mode"),
        ({"monitoring": {"dcgmExporter": {"image": {"digest": "latest"}}}}, "digest"),
        ({"nameOverride": "My App"}, "nameOverride"),
        ({"fullnameOverride": "My_App"}, "fullnameOverride"),
        ({"gateway": {"podDisruptionBudget": {"maxUnavailable": "lots"}}}, "maxUnavailable"),
        ({"gateway": {"podDisruptionBudget": {"maxUnavailable": -1}}}, "maxUnavailable"),
        ({"service": {"port": 99999}}, "service/port"),
        ({"engineDefaults": {"shmSize": "..Gi"}}, "shmSize"),
        ({"engineDefaults": {"resources": {"requests": {"memory": "1.2.3Gi"}}}}, "memory"),
        ({"engineDefaults": {"cache": {"existingClaim": "My Claim"}}}, "existingClaim"),
        ({"ingress": {"hosts": ["https://llm.example.com"]}}, "hosts"),
        ({"words": {"files": {"..": "x"}}}, "invalid propertyName '..'"),
        ({"monitoring": {"interval": "often"}}, "interval"),
        ({"monitoring": {"targets": {"availability": 99.5}}}, "availability"),
        ({"autoscaling": {"engine": {"cooldownSeconds": 7200}}}, "cooldownSeconds"),
    ],
)
def test_a_typo_is_refused_where_it_stands(given: dict[str, Any], told: str) -> None:
    assert told in fault({"keys": [KEY], "models": [ONE], **given})


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"models": []}, "models: name at least one model"),
        ({"keys": []}, "keys: at least one key"),
        ({"models": [{"name": "m"}]}, "m has neither engines nor external"),
        ({"models": [engine("a b"), engine("a-b")]}, "two engines make the name demo-sluice-a-b-v1"),
        (
            {"models": [{"name": "m", "engines": [ONE["engines"][0] | {"nodes": 2}, {"name": "v1-g", "model": "x"}]}]},
            "two engines make the name demo-sluice-m-v1-g",
        ),
        ({"models": [{"name": "m", "engines": [{**ONE["engines"][0], "tensorParallelSize": 4}]}]}, "over 4 devices"),
        ({"models": [{"name": "m", "engines": [{**ONE["engines"][0], "autoscaling": {"enabled": True}}]}]}, "keda"),
        (
            {
                "models": [
                    {"name": "m", "engines": [{**ONE["engines"][0], "nodes": 2, "cache": {"existingClaim": "c"}}]}
                ]
            },
            "has to be ReadWriteMany",
        ),
        ({"redis": {"enabled": True, "externalUrlSecret": {"name": "x"}}}, "either enabled or externalUrlSecret"),
        ({"keys": [KEY, KEY]}, "keys: two are called a"),
        ({"models": [ONE, {**ONE, "engines": [{"name": "v2", "model": "x"}]}]}, "models: two are called m"),
        ({"models": [ONE, {"name": "n", "aliases": ["m"], "engines": ONE["engines"]}]}, "models: two are called m"),
        ({"models": [engine(replicas=2, cache={"existingClaim": "c"})]}, "has to be ReadWriteMany"),
        (
            {"autoscaling": {"mode": "keda"}, "models": [engine(autoscaling={"enabled": True, "min": 5, "max": 2})]},
            "engine v1: autoscaling.min 5 is over its max 2",
        ),
        ({"models": [engine(podLabels={"sluice/role": "x"})]}, "sluice/role is the chart's own"),
        (
            {"gateway": {"podLabels": {"app.kubernetes.io/instance": "x"}}},
            "gateway.podLabels: app.kubernetes.io/instance",
        ),
        ({"monitoring": {"labels": {"app.kubernetes.io/name": "x"}}}, "monitoring.labels: app.kubernetes.io/name"),
        (
            {"autoscaling": {"mode": "keda", "gateway": {"min": 5, "max": 2}}},
            "autoscaling.gateway: min 5 is over max 2",
        ),
        ({"autoscaling": {"mode": "cpu", "gateway": {"min": 5, "max": 2}}}, "autoscaling.gateway: min 5 is over max 2"),
        (
            {"autoscaling": {"mode": "cpu"}, "gateway": {"resources": {"requests": {"cpu": None}}}},
            "a share of gateway.resources.requests.cpu",
        ),
        (OPERATOR | {"monitoring": {"serviceMonitor": True}}, "monitoring.keySecret names the Secret"),
        (OPERATOR | {"autoscaling": {"mode": "keda"}}, "monitoring.keySecret names the Secret"),
        ({"ingress": {"enabled": True}}, "ingress.hosts: at least one host"),
        ({"httpRoute": {"enabled": True}}, "httpRoute.parentRefs: the Gateway"),
        ({"words": {"existing": [{"name": "more", "keys": ["block.txt"]}]}}, "two lists would be words/block.txt"),
        ({"words": {"files": {"block.txt": None}}}, "words/block.txt is neither in words.files nor in words.existing"),
        ({"config": {"extra": {"server": {"port": 9000}}}}, "config.extra: server has a value of its own"),
        ({"config": {"timeouts": {"total_s": None}}}, "config.timeouts.total_s: has to be there"),
    ],
)
def test_what_cannot_work_is_told_when_it_is_rendered(given: dict[str, Any], told: str) -> None:
    assert told in fault({"keys": [KEY], "models": [ONE], **given})


@pytest.mark.parametrize("release", ["1demo", "my.demo"])
def test_a_release_whose_name_makes_no_service_is_told_the_mend(release: str) -> None:
    assert "fullnameOverride: " in fault({"keys": [KEY], "models": [ONE]}, release)
    assert render({"keys": [KEY], "models": [ONE], "fullnameOverride": "llm"}, name=release).one("Service", "llm")


def test_metrics_of_operators_alone_are_scraped_with_a_key() -> None:
    given = {"keys": [KEY], "models": [ONE], **OPERATOR, "autoscaling": {"mode": "keda"}}
    rendered = render({**given, "monitoring": {"serviceMonitor": True, "keySecret": {"name": "ops", "key": "k"}}})
    spec = rendered.one("ServiceMonitor", "demo-sluice")["spec"]
    jsonschema_rs.validate(CUSTOM["monitoring.coreos.com/v1/ServiceMonitor"], spec)
    assert spec["endpoints"][0]["authorization"] == {"credentials": {"name": "ops", "key": "k"}}


@pytest.mark.parametrize(
    ("total", "said", "whole"),
    [(1800, "1800s", 1800), (0.5, "1s", 1), (90.2, "91s", 91), (99999, "99999s", 99999), (200000, "55h33m20s", 200000)],
)
def test_how_long_things_may_take_is_a_duration_and_never_shorter(total: float, said: str, whole: int) -> None:
    timeouts = {"total_s": total, "idle_s": 0.5, "first_token_s": 0.5, "connect_s": 0.1}
    route = {"enabled": True, "parentRefs": [{"name": "public"}]}
    rendered = render({"keys": [KEY], "models": [ONE], "config": {"timeouts": timeouts}, "httpRoute": route})
    (rule,) = rendered.one("HTTPRoute", "demo-sluice")["spec"]["rules"]
    assert rule["timeouts"] == {"request": said, "backendRequest": said}
    assert re.fullmatch("([0-9]{1,5}(h|m|s|ms)){1,4}", said)  # the Gateway API's own pattern
    pod = rendered.one("Deployment", "demo-sluice")["spec"]["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] == 15 + whole + 15
    args = containers(rendered.one("StatefulSet", "demo-sluice-m-v1")["spec"]["template"])[0]["args"]
    assert f"--shutdown-timeout={whole}" in args


@pytest.mark.parametrize("name", ["a: b # c", "no", "{x}", "模型", '"'])
def test_whatever_a_model_is_called_its_engine_is_told_so(name: str) -> None:
    rendered = render({"keys": [KEY], "models": [{**ONE, "name": name}]})
    (made,) = rendered.of("StatefulSet")
    assert f"--served-model-name={name}" in containers(made["spec"]["template"])[0]["args"]


def test_values_are_short_and_all_of_them_are_in_the_schema() -> None:
    text = (CHART / "values.yaml").read_text("utf-8")
    assert text.count("\n") <= 300
    assert len(re.findall("#", text)) > 80, "values explain themselves"
    render({"keys": [KEY], "models": [ONE], **values("one-gpu")})


def test_a_typo_in_what_the_gateway_itself_reads_is_refused_too() -> None:
    assert "rmp" in fault({"models": [ONE], "keys": [{**KEY, "rmp": 5}]})
    assert "max_in_fligt" in fault({"keys": [KEY], "models": [{**ONE, "options": {"max_in_fligt": 5}}]})
    assert "lease" in fault({"keys": [KEY], "models": [ONE], "config": {"limits": {"lease": 5}}})
    assert "drain_s" in fault({"keys": [KEY], "models": [ONE], "config": {"server": {"drain_s": 5}}}), (
        "the chart sets it"
    )


def test_another_configuration_secret_needs_no_models_and_no_keys() -> None:
    rendered = render({"config": {"existingSecret": "mine"}})
    assert rendered.of("Secret") == []
    (config,) = [
        each
        for each in rendered.one("Deployment", "demo-sluice")["spec"]["template"]["spec"]["volumes"]
        if "projected" in each
    ]
    assert config["projected"]["sources"][0]["secret"]["name"] == "mine"


def test_images_can_be_pinned_by_digest() -> None:
    digest = f"sha256:{'a' * 64}"
    rendered = render({"keys": [KEY], "models": [ONE], "gateway": {"image": {"digest": digest}}})
    gateway = rendered.one("Deployment", "demo-sluice")["spec"]["template"]
    assert containers(gateway)[0]["image"] == f"sluice/gateway@{digest}"


def test_no_image_floats() -> None:
    images = [
        container["image"] for name in PROFILES for _, pod in profile(name).pods() for container in containers(pod)
    ]
    assert all(re.search(r":[^:/]*\d", image) for image in images)
