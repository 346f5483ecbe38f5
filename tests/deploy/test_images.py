"""Dockerfiles, compose files and systemd units, each looked at by a tool of its own."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway.settings import load
from tests.deploy.chart import CHART, ROOT
from tests.deploy.queries import GRAFANA
from tests.tools import needs

DEPLOY = ROOT / "deploy"
BIN = Path(sys.executable).parent
DOCKERFILES = sorted(DEPLOY.glob("*Dockerfile"))


def ran(*command: str | Path, cwd: Path = ROOT) -> None:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def compose(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DEPLOY / name).read_text("utf-8"))
    return found


@pytest.mark.parametrize("file", DOCKERFILES, ids=lambda file: file.name)
def test_hadolint_finds_no_fault(file: Path) -> None:
    ran(BIN / "hadolint", "--failure-threshold", "style", file)


@pytest.mark.parametrize("file", DOCKERFILES, ids=lambda file: file.name)
def test_images_are_built_in_stages_run_as_nobody_and_take_their_base_as_an_argument(file: Path) -> None:
    lines = file.read_text("utf-8").splitlines()
    commands = [line for line in lines if re.match(r"[A-Z]+ ", line)]
    assert commands[0].startswith("ARG BASE=")
    assert [line for line in commands if line.startswith("FROM")] == ["FROM ${BASE} AS build", "FROM ${BASE}"]
    last = commands[commands.index("FROM ${BASE}") :]
    assert any(re.match(r"USER \d{5}:\d{5}$", line) for line in last)
    assert any(line.startswith("HEALTHCHECK") for line in last)
    assert any(line.startswith("LABEL org.opencontainers.image.") for line in last)
    made = [line for line in last if line.startswith(("RUN", "ADD"))]
    assert all("apt-get install -y --no-install-recommends" in line for line in made), "the rest is copied"


def test_the_context_of_a_build_is_only_what_is_copied() -> None:
    for file in DOCKERFILES:
        let_in = {line[1:] for line in Path(f"{file}.dockerignore").read_text("utf-8").splitlines() if line[:1] == "!"}
        copied = re.findall(r"^COPY (?!--from)(.*) \S+$", file.read_text("utf-8"), re.MULTILINE)
        assert {each for line in copied for each in line.split()} == let_in


@pytest.mark.parametrize("name", ["compose.yaml", "compose.gpu.yaml"])
def test_compose_files_meet_the_specification(name: str) -> None:
    ran(BIN / "check-jsonschema", "--builtin-schema", "vendor.compose-spec", DEPLOY / name)


def test_services_are_closed_in_and_only_loopback_is_published() -> None:
    for name, service in compose("compose.yaml")["services"].items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", [])), name
        assert re.search(r":[^:]*\d", service["image"]), "no image floats"
    assert "ports" not in compose("compose.yaml")["services"]["engine"]


def test_files_that_are_mounted_are_there() -> None:
    for service in compose("compose.yaml")["services"].values():
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert not source.startswith(".") or (DEPLOY / source).exists(), source


def test_the_composed_gateway_takes_its_configuration_and_its_engine_answers_to_it() -> None:
    settings = load(DEPLOY / "compose" / "sluice.yaml", {"KEY_SHA256": "a" * 64})
    services = compose("compose.yaml")["services"]
    (engine,) = settings.models[0].engines
    assert engine.url == "http://engine:8000"
    assert f"--served-model-name={engine.served_model}" in compose("compose.gpu.yaml")["services"]["engine"]["command"]
    assert f"--served-model-name={engine.served_model}" in (DEPLOY / "engine-cpu.Dockerfile").read_text("utf-8")
    assert int(services["gateway"]["stop_grace_period"].removesuffix("s")) > settings.server.drain_s


def test_prometheus_scrapes_services_that_there_are() -> None:
    services = {**compose("compose.yaml")["services"], **compose("compose.gpu.yaml")["services"]}
    config = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yaml").read_text("utf-8"))
    targets = [
        target for job in config["scrape_configs"] for each in job["static_configs"] for target in each["targets"]
    ]
    assert {target.split(":")[0] for target in targets} <= set(services)


def test_grafana_finds_its_source_and_the_dashboards() -> None:
    (source,) = yaml.safe_load((GRAFANA / "provisioning/datasources/prometheus.yaml").read_text("utf-8"))["datasources"]
    assert source["url"] == "http://prometheus:9090"
    (provider,) = yaml.safe_load((GRAFANA / "provisioning/dashboards/sluice.yaml").read_text("utf-8"))["providers"]
    assert f"./grafana:{provider['options']['path']}:ro" in compose("compose.yaml")["services"]["grafana"]["volumes"]


def test_versions_of_images_agree_everywhere() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8"))
    services = {**compose("compose.yaml")["services"], **compose("compose.gpu.yaml")["services"]}
    vllm = f"{values['engineDefaults']['image']['repository']}:{values['engineDefaults']['image']['tag']}"
    exporter = values["monitoring"]["dcgmExporter"]["image"]
    assert services["engine"]["image"] == vllm
    assert services["dcgm-exporter"]["image"] == f"{exporter['repository']}:{exporter['tag']}"
    assert services["redis"]["image"] == f"redis:{values['redis']['image']['tag']}"
    assert services["gateway"]["image"] == f"{values['gateway']['image']['repository']}:{chart['appVersion']}"
    assert f"ARG VERSION={chart['appVersion']}" in (DEPLOY / "Dockerfile").read_text("utf-8")


@needs("systemd-analyze")
@pytest.mark.parametrize("name", ["sluice.service", "vllm@.service"])
def test_systemd_takes_the_units(name: str, tmp_path: Path) -> None:
    text = (DEPLOY / "systemd" / name).read_text("utf-8")
    (tmp_path / name).write_text(re.sub(r"/opt/\w+/bin/\w+", "/bin/true", text))  # which are not installed here
    ran("systemd-analyze", "verify", "--man=no", tmp_path / name)


@needs("systemd-analyze")
def test_the_gateways_unit_is_closed_in(tmp_path: Path) -> None:
    (tmp_path / "sluice.service").write_text((DEPLOY / "systemd" / "sluice.service").read_text("utf-8"))
    ran("systemd-analyze", "security", "--offline=true", "--threshold=20", tmp_path / "sluice.service")


def test_units_wait_as_long_as_what_they_run_drains() -> None:
    unit = (DEPLOY / "systemd" / "sluice.service").read_text("utf-8")
    (stop,) = re.findall(r"^TimeoutStopSec=(\d+)$", unit, re.MULTILINE)
    assert int(stop) > load(ROOT / "sluice.yaml", {}).server.drain_s
    engine = (DEPLOY / "systemd" / "vllm@.service").read_text("utf-8")
    (stop,) = re.findall(r"^TimeoutStopSec=(\d+)$", engine, re.MULTILINE)
    (shutdown,) = re.findall(r"--shutdown-timeout=(\d+)", engine)
    assert int(stop) > int(shutdown) >= 120
