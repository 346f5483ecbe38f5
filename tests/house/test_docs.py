"""What the documentation says holds: links lead somewhere, commands exist, both languages say the same."""

from __future__ import annotations

import ast
import json
import re
import shlex
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

import gateway
from tests.house.test_layout import ROOT, committed

PAGES = [page for page in committed("*.md") if page.name != "LICENSE"]
READMES = [ROOT / "README.md", ROOT / "README.zh-CN.md"]


class Block(NamedTuple):
    language: str
    text: str


def blocks(page: Path) -> list[Block]:
    found = re.findall(r"^( *)```([\w-]*)\n(.*?)^\1```$", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    return [Block(language, text) for _, language, text in found]


def commands(page: Path) -> list[list[str]]:
    """Every shell command of a page, as words; comments and continued lines understood."""
    lines = "\n".join(block.text for block in blocks(page) if block.language in {"sh", "bash", "console"})
    joined = lines.replace("\\\n", " ")
    return [words for line in joined.splitlines() if (words := shlex.split(line, comments=True))]


def slug(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def anchors(page: Path) -> set[str]:
    text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    return {slug(heading.replace("`", "")) for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```$|`[^`\n]*`", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"https?:|mailto:", target):
            continue
        place, _, anchor = target.partition("#")
        other = (page.parent / place).resolve() if place else page
        if not other.exists() or (anchor and other.suffix == ".md" and anchor not in anchors(other)):
            broken.append(target)
    assert broken == []


def test_every_page_of_the_documentation_is_reached_from_its_index() -> None:
    index = (ROOT / "docs" / "index.md").read_text("utf-8")
    pages = [str(page.relative_to(ROOT / "docs")) for page in committed("docs/*.md") if page.name != "index.md"]
    runbooks = (ROOT / "docs" / "runbooks" / "README.md").read_text("utf-8")  # an index of its own
    index += re.sub(r"\]\((Sluice\w+\.md)\)", r"](runbooks/\1)", runbooks)
    assert [page for page in pages if f"]({page})" not in index] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_code_block_can_be_read_by_its_language(page: Path) -> None:
    for language, text in blocks(page):
        if language == "python":
            ast.parse(text)
        elif language == "json":
            json.loads(text)
        elif language == "yaml":
            list(yaml.safe_load_all(text))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_make_target_that_a_page_names_exists(page: Path) -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    named = {words[1] for words in commands(page) if words[0] == "make" and len(words) > 1 and words[1].isalpha()}
    named |= set(re.findall(r"`make ([a-z]+)", page.read_text("utf-8")))
    assert sorted(named - targets) == []


def test_both_readmes_have_the_same_commands() -> None:
    english, chinese = (commands(page) for page in READMES)
    assert english == chinese
    code = [[block for block in blocks(page) if block.language not in {"sh", "bash", "console"}] for page in READMES]
    assert code[0] == code[1]


def test_every_request_of_the_readme_goes_to_a_route_and_carries_json() -> None:
    requests = [words for words in commands(READMES[0]) if words[0] == "curl"]
    assert requests
    for words in requests:
        assert any(re.fullmatch(r"http://(localhost|127\.0\.0\.1):8080/\S+", word) for word in words), words
        for flag, value in pairwise(words):
            if flag in {"-d", "--data"}:
                json.loads(value)


def test_the_changelog_knows_this_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    assert re.search(rf"^## \[{re.escape(gateway.__version__)}\]", text, re.MULTILINE)
