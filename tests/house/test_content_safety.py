"""The promises of the page on content safety are tests that exist, and both languages promise the same."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.house.test_layout import ROOT

ENGLISH, CHINESE = (ROOT / "docs" / name for name in ("content-safety.md", "content-safety.zh-CN.md"))
_promise = re.compile(r"\[(test_\w+)\]\(\.\./(tests/[\w/]+\.py)\)")


def promises(page: Path) -> list[tuple[str, str]]:
    return _promise.findall(page.read_text("utf-8"))


def names_in(path: Path) -> set[str]:
    found = ast.walk(ast.parse(path.read_text("utf-8")))
    return {node.name for node in found if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


@pytest.mark.parametrize(("name", "path"), promises(ENGLISH))
def test_every_promise_is_a_test(name: str, path: str) -> None:
    assert name in names_in(ROOT / path)


def test_every_row_of_the_tables_has_its_test() -> None:
    for page in (ENGLISH, CHINESE):
        rows = [line for line in page.read_text("utf-8").splitlines() if line.startswith("| ")]
        heads = [row for row in rows if not _promise.search(row)]
        assert len(heads) == 2, "the heads of both tables"


def test_both_languages_promise_the_same() -> None:
    assert promises(ENGLISH) == promises(CHINESE)
    headings = [re.findall(r"^(#+) ", page.read_text("utf-8"), re.MULTILINE) for page in (ENGLISH, CHINESE)]
    assert headings[0] == headings[1]
    blocks = [re.findall(r"```(\w+)\n", page.read_text("utf-8")) for page in (ENGLISH, CHINESE)]
    assert blocks[0] == blocks[1]
    commands = [
        set(re.findall(r"`(sluice [^`]+)`", page.read_text("utf-8").replace("\n", " "))) for page in (ENGLISH, CHINESE)
    ]
    assert commands[0] == commands[1]
