"""The commands for word lists as an operator runs them, on the lists that are shipped."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.harness import ROOT, SLUICE

CONFIG = """\
models: [{name: m, aliases: [nick], engines: [{url: "http://127.0.0.1:8100"}]}]
chain:
  - plugin: sensitive_words
    options:
      lists: [LISTS/block.txt, {path: LISTS/soft.yaml, action: tag, tag: soft}, {path: own.txt, directions: [answer]}]
"""


def sluice(*words: str | Path, folder: Path) -> tuple[int, str, str]:
    """Run the command; return its exit code and what it printed."""
    done = subprocess.run([SLUICE, *words], cwd=folder, capture_output=True, text=True, check=False, timeout=60)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "sluice.yaml").write_text(CONFIG.replace("LISTS", str(ROOT / "words")), "utf-8")
    (tmp_path / "own.txt").write_text("赌博\n", "utf-8")
    return tmp_path


def test_a_text_is_explained_on_the_shipped_lists(folder: Path) -> None:
    text = "网络Ｄ、赌\u200b博 Project Nightjar 反赌博"
    code, out, _ = sluice("words", "test", text, "-c", "sluice.yaml", folder=folder)
    assert code == 0
    lines = out.splitlines()
    assert [line.partition(": ")[2].partition(": ")[0] for line in lines][:2] == ["block.txt:5", "own.txt:1"]
    assert "skipped '\\u200b' (invisible)" in lines[0]
    assert "in the answer only" in lines[1]
    assert "soft.yaml:8: replace (soft): 'Project Nightjar'" in out
    asked = ("words", "test", text, "-c", "sluice.yaml", "--direction", "request", "--model", "nick", "--json")
    code, out, _ = sluice(*asked, folder=folder)
    told = json.loads(out)
    assert {hit["rule"] for hit in told["hits"]} == {"block.txt:5", "soft.yaml:8"}
    assert [each["list"] for each in told["lists"]] == ["block.txt", "soft.yaml", "own.txt"]
    assert all(hit["text"] == text[hit["start"] : hit["end"]] for hit in told["hits"])


def test_a_clean_text_fires_nothing(folder: Path) -> None:
    assert sluice("words", "test", "天气很好", "-c", "sluice.yaml", folder=folder) == (0, "no rule fires\n", "")


def test_the_shipped_lists_pass_the_check_and_a_wrong_one_does_not(folder: Path) -> None:
    shipped = sorted([*(ROOT / "words").glob("*.txt"), *(ROOT / "words").glob("*.yaml")])
    code, out, err = sluice("words", "compile", "--strict", *shipped, folder=folder)
    assert (code, err) == (0, "")
    assert [line.partition(" entries")[0].rpartition("/")[2] for line in out.splitlines()] == [
        "block.txt: 14",
        "soft.yaml: 7",
    ]
    (folder / "own.txt").write_text("赌博\n赌\u200b博\n的\nx\thide\n", "utf-8")
    code, out, _ = sluice("words", "compile", "own.txt", folder=folder)
    assert code == 2
    assert out.splitlines()[:3] == [
        "own.txt: line 4: the action must be one of block, mask, replace, tag, allow, not 'hide'",
        "own.txt: line 2: the same as own.txt:1",
        "own.txt: line 3: one very common character: will match nearly everything",
    ]
    (folder / "own.txt").write_text("赌博\n赌\u200b博\n", "utf-8")
    assert sluice("words", "compile", "own.txt", folder=folder)[0] == 0
    code, out, _ = sluice("words", "compile", "own.txt", "--strict", "--json", folder=folder)
    assert (code, [each["kind"] for each in json.loads(out)["findings"]]) == (2, ["duplicate"])


def test_the_lists_of_a_configuration_are_checked_together(folder: Path) -> None:
    code, out, _ = sluice("words", "compile", "-c", "sluice.yaml", "--strict", folder=folder)
    assert code == 2
    assert out.splitlines()[0].endswith("own.txt: line 1: the same as block.txt:5, which has another action or tag")


def test_check_names_every_fault_of_every_list(folder: Path) -> None:
    (folder / "own.txt").write_text("ok\nx\thide\ny\tmask\ta\tb\n", "utf-8")
    code, _, err = sluice("check", "-c", "sluice.yaml", folder=folder)
    assert code == 2
    assert [line.partition("own.txt: ")[2].partition(":")[0] for line in err.splitlines()] == ["line 2", "line 3"]
