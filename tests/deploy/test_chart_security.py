"""Kubernetes's own restricted standard, and a few rules of ours, on every pod of every profile."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from tests.deploy.chart import EVERYTHING, PROFILES, containers, profile, render, values

ALL = [*PROFILES, EVERYTHING]

#: NVIDIA's exporter opens the driver's devices as root; it has no capabilities and cannot write.
ROOT_IS_NEEDED = {"DaemonSet/demo-sluice-dcgm"}


@pytest.mark.parametrize("name", ALL)
def test_pods_meet_the_restricted_standard(name: str) -> None:
    for made_by, pod in profile(name).pods():
        spec = pod["spec"]
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        allowed = {"configMap", "secret", "projected", "emptyDir", "persistentVolumeClaim", "ephemeral"}
        assert all(set(volume) - {"name"} <= allowed for volume in spec["volumes"])
        for container in containers(pod):
            security: dict[str, Any] = container["securityContext"]
            assert security["allowPrivilegeEscalation"] is False
            assert security["capabilities"] == {"drop": ["ALL"]}
            assert "privileged" not in security
            assert all("hostPort" not in port for port in container.get("ports", []))
        if made_by not in ROOT_IS_NEEDED:
            assert spec["securityContext"]["runAsNonRoot"] is True
            assert spec["securityContext"]["runAsUser"] > 10000


@pytest.mark.parametrize("name", ALL)
def test_pods_hold_no_more_than_they_need(name: str) -> None:
    for _, pod in profile(name).pods():
        assert pod["spec"]["automountServiceAccountToken"] is False
        assert pod["spec"]["enableServiceLinks"] is False
        for container in containers(pod):
            assert container["securityContext"]["readOnlyRootFilesystem"] is True
            assert {"cpu", "memory"} <= set(container["resources"]["requests"])
            assert container["imagePullPolicy"] in {"IfNotPresent", "Always"}
            for variable in container.get("env", []):
                secret = any(word in variable["name"] for word in ("KEY", "TOKEN", "PASSWORD", "REDIS_URL"))
                assert not secret or "secretKeyRef" in variable.get("valueFrom", {})


@pytest.mark.parametrize("hosts", [[], ["pictures.example", "films.example"]])
def test_an_engine_fetches_media_from_listed_hosts_only_and_follows_no_redirect(hosts: list[str]) -> None:
    """SE-05: the gateway refuses them first; vLLM takes an empty list for "all", so none is a name nobody has."""
    given = {**values(EVERYTHING), "config": {"server": {"media_hosts": hosts}}}
    engines = [
        container for _, pod in render(given).pods() for container in containers(pod) if container["name"] == "vllm"
    ]
    assert engines
    for container in engines:
        after = container["args"][container["args"].index("--allowed-media-domains") + 1 :]
        assert list(itertools.takewhile(lambda each: not each.startswith("-"), after)) == (hosts or ["none.invalid"])
        assert {"name": "VLLM_MEDIA_URL_ALLOW_REDIRECTS", "value": "0"} in container["env"]


@pytest.mark.parametrize("name", ALL)
def test_nothing_of_ours_may_speak_to_the_api_server(name: str) -> None:
    kinds = {each["kind"] for each in profile(name).objects}
    assert not kinds & {"Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"}
    assert all(each["automountServiceAccountToken"] is False for each in profile(name).of("ServiceAccount"))


@pytest.mark.parametrize("name", ALL)
def test_no_key_stands_in_what_everybody_may_read(name: str) -> None:
    for each in profile(name).of("ConfigMap"):
        assert "sha256" not in str(each.get("data", {}))


@pytest.mark.parametrize("name", ALL)
def test_every_pod_has_a_network_policy(name: str) -> None:
    policies = [each["spec"]["podSelector"]["matchLabels"] for each in profile(name).of("NetworkPolicy")]
    for made_by, pod in profile(name).pods():
        if made_by.startswith(("Pod/", "DaemonSet/")):
            continue  # the test's pod listens to nothing; the exporter has metrics alone
        assert any(labels.items() <= pod["metadata"]["labels"].items() for labels in policies), made_by
