"""What is shipped: a wheel with both packages, the default configuration, its word lists and the plugins' names."""

from __future__ import annotations

import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from gateway.sdk import Plugin
from tests.house.test_layout import ROOT, committed

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
PLUGINS = PROJECT["project"]["entry-points"]["sluice.plugins"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    folder = tmp_path_factory.mktemp("wheel")
    build = "import sys; from hatchling.build import build_wheel; build_wheel(sys.argv[1])"
    subprocess.run([sys.executable, "-c", build, str(folder)], cwd=ROOT, check=True, capture_output=True)
    return zipfile.ZipFile(next(folder.glob("*.whl")))


def test_the_wheel_holds_both_packages_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    names = set(wheel.namelist())
    sources = {str(path.relative_to(ROOT)) for path in committed("gateway/*", "plugins/*")}
    assert sources <= names
    assert {name.split("/")[0] for name in names} == {"gateway", "plugins", f"sluice_gateway-{version()}.dist-info"}


def test_the_wheel_holds_the_default_configuration_and_its_word_lists(wheel: zipfile.ZipFile) -> None:
    assert wheel.read("gateway/shipped/sluice.yaml") == (ROOT / "sluice.yaml").read_bytes()
    for path in committed("words/*"):
        assert wheel.read(f"gateway/shipped/{path.relative_to(ROOT)}") == path.read_bytes()


def test_the_wheel_says_that_it_is_typed_and_under_which_licence(wheel: zipfile.ZipFile) -> None:
    assert "gateway/py.typed" in wheel.namelist()
    metadata = wheel.read(f"sluice_gateway-{version()}.dist-info/METADATA").decode()
    assert "License-Expression: Apache-2.0" in metadata


@pytest.mark.parametrize("name", PLUGINS)
def test_a_declared_plugin_is_installed_and_is_one(name: str) -> None:
    (found,) = entry_points(group="sluice.plugins", name=name)
    plugin = found.load()
    assert issubclass(plugin, Plugin)
    assert plugin.__doc__


def test_every_plugin_of_ours_is_declared() -> None:
    packages = {path.stem for path in (ROOT / "plugins").iterdir() if not path.name.startswith("_")}
    assert packages == set(PLUGINS)


def version() -> str:
    return (ROOT / "gateway" / "__init__.py").read_text("utf-8").split('"')[-2]


def test_every_pin_is_a_name_and_a_version() -> None:
    pins = [line for line in (ROOT / "constraints.txt").read_text("utf-8").splitlines() if not line.startswith("#")]
    assert all(len(pin.split("==")) == 2 and not Path(pin).exists() for pin in pins)
