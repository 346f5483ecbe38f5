"""What has to fit together in the rendered chart: times, selectors, ports, names, and the configuration itself."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.chart import EVERYTHING, PROFILES, Rendered, containers, profile, render, values
from tests.harness import SLUICE

ALL = [*PROFILES, EVERYTHING]


def gateway_of(rendered: Rendered) -> dict[str, Any]:
    found: dict[str, Any] = rendered.one("Deployment", "demo-sluice")
    return found


def configuration(rendered: Rendered) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(rendered.one("Secret", "demo-sluice-config")["stringData"]["sluice.yaml"])
    return found


def engines(rendered: Rendered) -> Iterator[tuple[str, dict[str, Any]]]:
    """The engines' pods that answer, with the name of their Service."""
    for each in rendered.of("StatefulSet"):
        yield each["spec"]["serviceName"], each["spec"]["template"]
    for each in rendered.of("LeaderWorkerSet"):
        yield each["metadata"]["name"].removesuffix("-g"), each["spec"]["leaderWorkerTemplate"]["leaderTemplate"]


def pre_stop(pod: dict[str, Any]) -> int:
    command = containers(pod)[0]["lifecycle"]["preStop"]["exec"]["command"]
    assert command[0] == "sleep"
    return int(command[1])


def flag(pod: dict[str, Any], name: str) -> str | None:
    found = [each.split("=", 1)[1] for each in containers(pod)[0]["args"] if each.startswith(f"--{name}=")]
    return found[-1] if found else None


@pytest.mark.parametrize("name", ALL)
def test_sluice_check_takes_the_rendered_configuration(name: str, tmp_path: Path) -> None:
    rendered = profile(name)
    (tmp_path / "words").mkdir()
    for path in ("block.txt", "politics.txt"):
        (tmp_path / "words" / path).write_text("forbiddenzebra\n")
    (tmp_path / "sluice.yaml").write_text(rendered.one("Secret", "demo-sluice-config")["stringData"]["sluice.yaml"])
    environ = {"VLLM_API_KEY": "x", "REDIS_URL": "redis://10.0.0.1:6379/0", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [SLUICE, "check", "-c", "sluice.yaml"], cwd=tmp_path, capture_output=True, text=True, check=False, env=environ
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", ALL)
def test_a_rollout_lets_every_stream_end(name: str) -> None:
    rendered = profile(name)
    config = configuration(rendered)
    gateway = gateway_of(rendered)["spec"]["template"]
    total = config["timeouts"]["total_s"]
    assert config["server"]["drain_s"] == total
    assert pre_stop(gateway) >= 10, "the time in which a load balancer notices"
    assert gateway["spec"]["terminationGracePeriodSeconds"] > pre_stop(gateway) + config["server"]["drain_s"]
    strategy = gateway_of(rendered)["spec"]["strategy"]["rollingUpdate"]
    assert (strategy["maxUnavailable"], strategy["maxSurge"]) == (0, 1)
    for _, engine in engines(rendered):
        shutdown = int(flag(engine, "shutdown-timeout") or 0)
        assert shutdown >= total, "vLLM's default aborts what runs at once"
        assert pre_stop(engine) >= 15, "gateways resolve the name again in that time"
        assert engine["spec"]["terminationGracePeriodSeconds"] > pre_stop(engine) + shutdown


def test_the_grace_periods_follow_the_longest_request() -> None:
    given = {**values("one-gpu"), "config": {"timeouts": {"total_s": 90}}, "gateway": {"preStopSeconds": 20}}
    rendered = render(given)
    assert gateway_of(rendered)["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] == 20 + 90 + 15
    assert configuration(rendered)["server"]["drain_s"] == 90


@pytest.mark.parametrize("name", ALL)
def test_services_find_their_pods_and_the_right_ports(name: str) -> None:
    rendered = profile(name)
    pods = dict(rendered.pods())
    for service in rendered.of("Service"):
        wanted = dict(service["spec"]["selector"])
        for port in service["spec"]["ports"]:
            index = wanted.pop("leaderworkerset.sigs.k8s.io/worker-index", None)
            assert index in {None, "0"}  # what the controller labels leaders with
            found = [pod for pod in pods.values() if wanted.items() <= pod["metadata"]["labels"].items()]
            assert found, service["metadata"]["name"]
            names = {each["name"] for pod in found for c in containers(pod) for each in c.get("ports", [])}
            assert port["targetPort"] in names


@pytest.mark.parametrize("name", ALL)
def test_selectors_never_meet_another_components_pods(name: str) -> None:
    rendered = profile(name)
    for each in rendered.objects:
        selector = each.get("spec", {}).get("selector") or each.get("spec", {}).get("podSelector")
        if not isinstance(selector, dict) or "matchLabels" not in selector:
            continue
        wanted = selector["matchLabels"].items()
        found = {
            pod["metadata"]["labels"]["app.kubernetes.io/component"]
            for _, pod in rendered.pods()
            if wanted <= pod["metadata"]["labels"].items()
        }
        assert len(found) == 1 or each["metadata"]["name"].endswith("-engines"), each["metadata"]["name"]


@pytest.mark.parametrize("name", ALL)
def test_the_configuration_names_exactly_the_engines_that_run(name: str) -> None:
    rendered = profile(name)
    services = {each["metadata"]["name"]: each for each in rendered.of("Service")}
    running = dict(engines(rendered))
    told = {}
    for model in configuration(rendered)["models"]:
        for engine in model["engines"]:
            if match := re.fullmatch(r"http://([^.]+)\.prod\.svc:8000", engine["url"]):
                told[match[1]] = model["name"]
                assert engine["served_model"] == model["name"]
    assert set(told) == set(running)
    for service, model in told.items():
        assert services[service]["spec"]["clusterIP"] == "None", "the gateway chooses, not the Service"
        assert flag(running[service], "served-model-name") == model


@pytest.mark.parametrize("name", ALL)
def test_probes_ask_what_they_should(name: str) -> None:
    rendered = profile(name)
    (gateway,) = containers(gateway_of(rendered)["spec"]["template"])
    assert gateway["livenessProbe"]["httpGet"]["path"] == "/livez"
    assert gateway["readinessProbe"]["httpGet"]["path"] == "/readyz"
    for _, pod in engines(rendered):
        (engine,) = containers(pod)
        startup = engine["startupProbe"]
        assert startup["failureThreshold"] * startup["periodSeconds"] >= 30 * 60
        assert {engine[probe]["httpGet"]["path"] for probe in ("startupProbe", "livenessProbe", "readinessProbe")} == {
            "/health"
        }
    for _, pod in rendered.pods():
        for container in containers(pod):
            names = {each["name"] for each in container.get("ports", [])}
            probes = [container[key] for key in container if key.endswith("Probe")]
            asked = {each[how]["port"] for each in probes for how in ("httpGet", "tcpSocket") if how in each}
            assert asked <= names


@pytest.mark.parametrize("name", ALL)
def test_gpus_and_parallelism_agree(name: str) -> None:
    for _, pod in engines(profile(name)):
        (engine,) = containers(pod)
        gpus = engine["resources"].get("limits", {}).get("nvidia.com/gpu", 0)
        assert engine["resources"]["requests"].get("nvidia.com/gpu", 0) == gpus
        assert int(flag(pod, "tensor-parallel-size") or 0) == max(gpus, 1)
        (shm,) = [each for each in pod["spec"]["volumes"] if each["name"] == "shm"]
        assert shm["emptyDir"]["medium"] == "Memory"
        assert shm["emptyDir"]["sizeLimit"]
        assert {"name": "shm", "mountPath": "/dev/shm"} in engine["volumeMounts"]


def test_a_model_over_two_nodes_has_one_leader_that_answers() -> None:
    rendered = profile("two-node-70b")
    (group,) = rendered.of("LeaderWorkerSet")
    leader, worker = (
        dict(rendered.pods())[f"LeaderWorkerSet/{group['metadata']['name']}/{role}"] for role in ("leader", "worker")
    )
    assert flag(leader, "pipeline-parallel-size") == "2" == str(group["spec"]["leaderWorkerTemplate"]["size"])
    for pod in (leader, worker):
        assert flag(pod, "nnodes") == "$(LWS_GROUP_SIZE)"
        assert flag(pod, "node-rank") == "$(LWS_WORKER_INDEX)"
        assert flag(pod, "master-addr") == "$(LWS_LEADER_ADDRESS)"
    assert "--headless" in containers(worker)[0]["args"]
    assert "--headless" not in containers(leader)[0]["args"]
    assert "ports" not in containers(worker)[0]
    names = {each["metadata"]["name"] for each in rendered.of("Service")}
    assert group["metadata"]["name"] not in names, "the controller makes a Service of that name, for the ranks"
    service = rendered.one("Service", "demo-sluice-llama-70b-v1")
    assert service["spec"]["selector"]["leaderworkerset.sigs.k8s.io/worker-index"] == "0"


@pytest.mark.parametrize("name", ALL)
def test_what_changes_while_running_is_mounted_as_a_directory(name: str) -> None:
    spec = gateway_of(profile(name))["spec"]["template"]["spec"]
    (config,) = [each for each in spec["volumes"] if each["name"] == "config"]
    (mount,) = [each for each in containers({"spec": spec})[0]["volumeMounts"] if each["name"] == "config"]
    assert "subPath" not in mount, "files that are mounted alone never change"
    paths = [
        item["path"] for source in config["projected"]["sources"] for each in source.values() for item in each["items"]
    ]
    assert len(paths) == len(set(paths))
    assert "sluice.yaml" in paths
    lists = [
        path for entry in configuration(profile(name))["chain"] for path in entry.get("options", {}).get("lists", [])
    ]
    assert set(lists) <= set(paths)
    (container,) = containers({"spec": spec})
    assert container["args"] == ["serve", "-c", f"{mount['mountPath']}/sluice.yaml"]


def test_reloaded_settings_restart_no_gateway_and_the_others_do() -> None:
    def pod(**config: Any) -> Any:
        rendered = render({**values("one-gpu"), **config})
        return gateway_of(rendered)["spec"]["template"]

    plain = pod()
    keys = [{"name": "b", "sha256": "e" * 64}]
    assert pod(keys=keys, words={"files": {"block.txt": "赌博\n"}}) == plain
    assert pod(config={"server": {"heartbeat_s": 5}}) != plain


def test_a_new_chart_version_loads_no_model_anew(tmp_path: Path) -> None:
    """Labels of an engine's pods hold no version: with one, every upgrade would restart every engine."""
    for name in PROFILES:
        for _, pod in engines(profile(name)):
            assert not {"helm.sh/chart", "app.kubernetes.io/version"} & set(pod["metadata"]["labels"])


@pytest.mark.parametrize("name", ALL)
def test_the_ingress_lets_streams_and_large_bodies_through(name: str) -> None:
    """K8-03: what is rendered."""
    rendered = profile(name)
    config = configuration(rendered)
    for ingress in rendered.of("Ingress"):
        said = {
            key.removeprefix("nginx.ingress.kubernetes.io/"): value
            for key, value in ingress["metadata"]["annotations"].items()
        }
        assert said["proxy-buffering"] == said["proxy-request-buffering"] == "off"
        assert int(said["proxy-read-timeout"]) >= max(config["timeouts"]["idle_s"], config["timeouts"]["first_token_s"])
        megabytes = int(said["proxy-body-size"].removesuffix("m"))
        assert megabytes << 20 > config["server"]["max_body_bytes"], "so that the 413 is ours"
        for rule in ingress["spec"]["rules"]:
            backend = rule["http"]["paths"][0]["backend"]["service"]
            service = rendered.one("Service", backend["name"])
            assert backend["port"]["name"] in {port["name"] for port in service["spec"]["ports"]}
    for route in rendered.of("HTTPRoute"):
        (rule,) = route["spec"]["rules"]
        assert int(rule["timeouts"]["request"].removesuffix("s")) >= config["timeouts"]["total_s"]
        (backend,) = rule["backendRefs"]
        assert backend["port"] in {port["port"] for port in rendered.one("Service", backend["name"])["spec"]["ports"]}


@pytest.mark.parametrize("name", ALL)
def test_what_scales_is_there_and_has_no_count_of_its_own(name: str) -> None:
    rendered = profile(name)
    for scaler in [*rendered.of("ScaledObject"), *rendered.of("HorizontalPodAutoscaler")]:
        target = scaler["spec"]["scaleTargetRef"]
        found = rendered.one(target["kind"], target["name"])
        assert found["apiVersion"] == target["apiVersion"]
        assert "replicas" not in found["spec"], "an upgrade would undo what the scaler did"


@pytest.mark.parametrize("name", ALL)
def test_only_gateways_and_prometheus_reach_engines(name: str) -> None:
    rendered = profile(name)
    policies = {each["metadata"]["name"]: each["spec"] for each in rendered.of("NetworkPolicy")}
    for service, pod in engines(rendered):
        policy = policies[service]
        assert policy["podSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
        allowed = [peer for rule in policy["ingress"] for peer in rule["from"]]
        components = {
            peer["podSelector"]["matchLabels"]["app.kubernetes.io/component"]
            for peer in allowed
            if "podSelector" in peer
        }
        assert components <= {"gateway", pod["metadata"]["labels"]["app.kubernetes.io/component"]}
        others = [peer for peer in allowed if "podSelector" not in peer]
        assert all(
            peer["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": "monitoring"} for peer in others
        )


def test_the_test_pod_runs_python_that_compiles() -> None:
    script = profile("one-gpu").one("ConfigMap", "demo-sluice-test")["data"]["stream.py"]
    compile(script, "stream.py", "exec")
    assert (
        shlex.join(containers(profile("one-gpu").one("Pod", "demo-sluice-test"))[0]["command"])
        == "python /test/stream.py"
    )


def test_what_scales_looks_at_its_own_pods_alone() -> None:
    """Not at a version whose name begins alike, nor at another release in the namespace."""
    scales: dict[str, Any] = {"model": "m", "autoscaling": {"enabled": True}}
    engines = [{"name": name, **scales} for name in ("v1", "v1-b")]
    engines.append({"name": "v2", "nodes": 2, **scales})
    given = {**values("four-gpu"), "models": [{"name": "q", "engines": engines}]}
    rendered = render(given)
    pods = {
        "demo-sluice": "demo-sluice-5d8f9c7b6d-x2x4z",
        "demo-sluice-q-v1": "demo-sluice-q-v1-0",
        "demo-sluice-q-v1-b": "demo-sluice-q-v1-b-0",
        "demo-sluice-q-v2": "demo-sluice-q-v2-g-0",
    }
    others = ["demo-sluice-2-5d8f9c7b6d-x2x4z", "demo-sluice-b-sluice-5d8f9c7b6d-x2x4z", "b-sluice-5d8f9c7b6d-x2x4z"]
    for scaler in rendered.of("ScaledObject"):
        for trigger in scaler["spec"]["triggers"]:
            query = trigger["metadata"]["query"]
            own = pods[scaler["metadata"]["name"] if "vllm:" in query else "demo-sluice"]
            assert 'namespace="prod"' in query
            patterns = set(re.findall('pod=~"([^"]*)"', query))
            seen = [pod for pod in [*pods.values(), *others] if all(re.fullmatch(each, pod) for each in patterns)]
            assert patterns
            assert seen == [own]
