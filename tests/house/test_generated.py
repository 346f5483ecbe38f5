"""What is generated is fresh, and what is written by hand leaves nothing out."""

from __future__ import annotations

import argparse
import importlib.util
import re
from collections.abc import Iterator
from types import ModuleType

import pytest
import yaml

from gateway.cli import _parser
from gateway.settings import load
from gateway.settings.description import options
from tests.house.test_layout import ROOT


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_generated_files_are_fresh(generate: ModuleType) -> None:
    assert sorted(generate.stale()) == [], "run: python docs/generate.py"


def test_a_part_needs_its_place(generate: ModuleType) -> None:
    page = "a\n<!-- generated: x -->\nold\n<!-- end -->\nb\n"
    assert generate.with_part(page, "x", "new") == "a\n<!-- generated: x -->\n\nnew\n\n<!-- end -->\nb\n"
    with pytest.raises(ValueError, match="generated: y"):
        generate.with_part(page, "y", "new")


def test_the_shipped_configuration_is_valid_and_open_to_this_machine_only() -> None:
    settings = load(ROOT / "sluice.yaml", {})
    assert (settings.server.host, settings.server.port, settings.keys) == ("127.0.0.1", 8080, [])
    assert (settings.models[0].name, settings.models[0].aliases) == ("smollm2", ["gpt-4o-mini"])
    assert [entry.plugin for entry in settings.chain] == ["normalize", "clean_text", "sensitive_words"]


def test_the_shipped_configuration_shows_every_setting_with_its_default(generate: ModuleType) -> None:
    text = re.sub(r"^( *)# ?(?=\s*[-\w]+:|\s+- )", r"\1", (ROOT / "sluice.yaml").read_text("utf-8"), flags=re.MULTILINE)
    for name, model in generate.SECTIONS.items():
        for option in options(model):
            assert re.search(rf"\b{option.name}:", text), f"{name}.{option.name}"
            if name in {"server", "timeouts", "engine"} and option.name != "host":
                (shown,) = re.findall(rf"^ +{option.name}: (.*?)(?: +#.*| or .*)?$", text, re.MULTILINE)[-1:]
                assert yaml.safe_load(shown) == yaml.safe_load(option.default), option.name


def commands(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Every command that does something."""
    groups = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not groups:
        yield parser
    for group in groups:
        listed = {action.dest for action in group._choices_actions}  # not what serve starts by itself
        for name in listed:
            yield from commands(group.choices[name])


def test_every_command_and_option_is_documented() -> None:
    page = (ROOT / "docs" / "cli.md").read_text("utf-8")
    for command in commands(_parser()):
        assert f"## `{command.prog}`" in page or f"| `{command.prog}` |" in page, command.prog
        for action in command._actions:
            for option in action.option_strings:
                assert option in {"-h", "--help"} or option in page, f"{command.prog} {option}"
