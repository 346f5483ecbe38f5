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


def fault(given: dict[str, Any]) -> str:
    with pytest.raises(helm_python.HelmError) as refused:
        render(given)
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
        ({"models": [ONE, ONE]}, "two engines make the name demo-sluice-m-v1"),
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
    ],
)
def test_what_cannot_work_is_told_when_it_is_rendered(given: dict[str, Any], told: str) -> None:
    assert told in fault({"keys": [KEY], "models": [ONE], **given})


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
