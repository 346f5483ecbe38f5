"""sluice doctor: one line a finding, the exit code, JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.cli import main
from gateway.engine import doctor
from gateway.engine.doctor import Finding

Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Importing vLLM takes ten seconds; tests/gateway/engine/doctor/test_software.py looks at that."""

    def software(*_: object) -> Iterator[Finding]:
        yield Finding("Python", "fine", "3.11.7")

    monkeypatch.setattr(doctor, "look_at_software", software)
    monkeypatch.setenv("SLUICE_SERVER__PORT", "0")
    monkeypatch.delenv("SLUICE_CONFIG", raising=False)


def test_a_folder_that_is_no_model_is_told_and_the_exit_code_says_so(tmp_path: Path, capsys: Captured) -> None:
    assert main(["doctor", str(tmp_path)]) == 2
    told = capsys.readouterr().out.splitlines()
    assert any(line.startswith("wrong  model: ") and "config.json is missing" in line for line in told)
    assert all(line.startswith(("fine ", "odd ", "wrong ")) for line in told)


def test_a_hubs_name_is_not_looked_at_yet(capsys: Captured) -> None:
    assert main(["doctor", "org/model", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told[-1]["level"] == "odd"
    assert "org/model" in told[-1]["told"]
