"""A plugin from outside is found by its entry point alone, and the page that builds it tells the truth."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.test_layout import ROOT

STRANGER = ROOT / "tests" / "stranger"
PAGE = (ROOT / "docs" / "writing-plugins.md").read_text("utf-8")
BLOCKS = re.findall(r"^```(?:python|toml|yaml)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
#: Blocks whose first line names a file, and all others of Python.
FILES = {name: text for block in BLOCKS for name, text in re.findall(r"\A# (\S+\.\w+)\n(.*)\Z", block, re.DOTALL)}
SNIPPETS = [block for block in BLOCKS if block.startswith("import ")]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder into which the stranger's package was installed."""
    target = tmp_path_factory.mktemp("site")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", "--no-deps"]
    subprocess.run([*pip, "--no-build-isolation", "--target", str(target), str(STRANGER)], check=True)
    return target


def run(site: Path, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "PYTHONPATH": str(site)}
    command = [sys.executable, "-m", *words]
    return subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize("name", ["pyproject.toml", "sluice_brand.py"])
def test_the_page_builds_the_very_package(name: str) -> None:
    assert FILES[name] == (STRANGER / name).read_text("utf-8")


def test_it_is_found_by_its_entry_point(site: Path, tmp_path: Path) -> None:
    done = run(site, tmp_path, "gateway", "plugins")
    assert "brand (sluice-brand 1.0): Says your product's name where a model says its own.\n" in done.stdout
    assert "  ours: text (required) The name to say.\n" in done.stdout


def test_the_chain_of_the_page_is_checked_and_its_faults_are_told(site: Path, tmp_path: Path) -> None:
    (tmp_path / "sluice.yaml").write_text(FILES["sluice.yaml"])
    done = run(site, tmp_path, "gateway", "check", "-c", "sluice.yaml")
    assert (done.returncode, done.stdout) == (0, "sluice.yaml: fine: 1 model, 1 engine, 0 keys; chain: brand\n"), done
    (tmp_path / "sluice.yaml").write_text(FILES["sluice.yaml"].replace("ours:", "our:"))
    done = run(site, tmp_path, "gateway", "check", "-c", "sluice.yaml")
    assert done.returncode == 2
    assert done.stderr == (
        "sluice.yaml:6: chain[0].options.ours: is missing\n"
        "sluice.yaml:6: chain[0].options.our: unknown key; did you mean 'ours'?\n"
    )


def test_its_own_tests_pass(site: Path, tmp_path: Path) -> None:
    (tmp_path / "test_sluice_brand.py").write_text(FILES["test_sluice_brand.py"])
    done = run(site, tmp_path, "pytest", "-q", "-p", "no:cacheprovider", "test_sluice_brand.py")
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("snippet", SNIPPETS)
def test_every_other_block_of_the_page_runs(snippet: str, tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", snippet], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
