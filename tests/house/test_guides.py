"""The pages name commands and options that exist, and their arithmetic comes out as they say."""

from __future__ import annotations

import argparse
import contextlib
import io
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.cli import _parser
from tests.house.test_docs import PAGES, blocks, commands
from tests.house.test_layout import ROOT

DOCS = ROOT / "docs"
#: What each make target hands its ARGS to.
SCRIPTS = {"soak": "loadtests/soak.py", "bench": "loadtests/bench/compare.py"}


def spoken(page: Path) -> Iterator[list[str]]:
    """Every command in a block of shell, and every one in the running text between backticks."""
    yield from commands(page)
    text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    for said in re.findall(r"`((?:sluice|make) [^`]+)`", text):
        with contextlib.suppress(ValueError):  # half a command, with an open quotation mark
            yield shlex.split(said)


def options(parser: argparse.ArgumentParser) -> set[str]:
    return {option for action in parser._actions for option in action.option_strings}


def unknown(words: list[str], known: set[str]) -> list[str]:
    """Return the options among the words that nobody knows; what follows ``--`` is vLLM's."""
    ours = words[: words.index("--")] if "--" in words else words
    for sign in ("|", ">", "&&"):
        ours = ours[: ours.index(sign)] if sign in ours else ours
    return [word for word in ours if re.match(r"--?[a-zA-Z]", word) and word.partition("=")[0] not in known]


def sluice_faults(words: list[str]) -> list[str]:
    parser, rest = _parser(), words[1:]
    while groups := [each for each in parser._actions if isinstance(each, argparse._SubParsersAction)]:
        if not rest or rest[0].startswith("-"):
            break
        if rest[0] not in groups[0].choices:
            return [f"there is no {' '.join(words[:2])} {rest[0]}"]
        parser, rest = groups[0].choices[rest[0]], rest[1:]
    return [f"{parser.prog} {option}" for option in unknown(rest, options(parser))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_sluice_command_of_a_page_exists_with_its_options(page: Path) -> None:
    said = [words for words in spoken(page) if words and Path(words[0]).name == "sluice"]
    assert [fault for words in said if not words[1].isupper() for fault in sluice_faults(words)] == []


def test_a_command_that_is_none_is_found() -> None:
    assert sluice_faults(["sluice", "plan", "x", "--gpu", "H100", "--", "--odd"]) == []
    assert sluice_faults(["sluice", "plan", "x", "--gpux"]) == ["sluice plan --gpux"]
    assert sluice_faults(["sluice", "keys", "old"]) == ["there is no sluice keys old"]


@pytest.fixture(scope="module")
def of_load() -> set[str]:
    """Return Locust's options and ours; Locust in a process of its own, since importing it patches the library."""
    command = [str(Path(sys.executable).with_name("locust")), "--help"]
    told = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    return set(re.findall(r"(?<![\w-])--?[a-zA-Z][a-z-]*", told)) | declared("loadtests/locustfile.py")


def declared(script: str) -> set[str]:
    return set(re.findall(r'"(--?[a-z-]+)"', (ROOT / script).read_text("utf-8")))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_option_of_a_load_on_a_page_exists(page: Path, of_load: set[str]) -> None:
    for words in spoken(page):
        if words[0] == "make" and words[1] in {"load", *SCRIPTS}:
            known = declared(SCRIPTS[words[1]]) if words[1] in SCRIPTS else of_load
            handed = [shlex.split(word.removeprefix("ARGS=")) for word in words if word.startswith("ARGS=")]
            assert [unknown(each, known) for each in handed if unknown(each, known)] == []


def test_a_guide_names_scripts_and_their_options_as_they_are() -> None:
    (words,) = (words for words in commands(DOCS / "workflow.md") if any("direct.py" in word for word in words))
    assert unknown(words, declared(words[1])) == []


def test_the_worked_example_comes_out_as_the_page_says() -> None:
    page = DOCS / "capacity.md"
    (example,) = (block.text for block in blocks(page) if block.language == "python")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(example, str(page), "exec"), {})
    assert f"It prints `{printed.getvalue().strip()}`" in page.read_text("utf-8")
