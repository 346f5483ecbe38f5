"""From entry points to a chain: what is found, in which order, and how each fault is told."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from gateway.registry import build_chain, catalogue, chain_of, installed
from gateway.settings import ChainEntry, ConfigurationError, Settings, Source, load

Install = Callable[..., None]

GOOD = """
from pathlib import Path
from typing import Literal
from pydantic import Field
from gateway.sdk import ConfigPath, Exchange, Options, Plugin

class Loud(Plugin):
    '''Says it louder.'''

    class Options(Options):
        times: int = Field(1, ge=1, description="How often.")
        mark: Literal["!", "?"] = "!"
        file: ConfigPath | None = None

    def __init__(self, options):
        super().__init__(options)
        if options.file:
            self.files = [options.file]
            self.words = options.file.read_text()
            if "\\n\\n" in self.words:
                raise ValueError(f"{options.file}:2: the line is empty\\n{options.file}:9: so is this one")

    def on_request(self, exchange: Exchange) -> None: ...
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Install a package of one module, as pip would: importlib.metadata finds it by its dist-info."""
    modules = []

    def _install(module: str, code: str, version: str = "1.0", **entries: str) -> None:
        folder = tmp_path / "site"
        info = folder / f"{module}-{version}.dist-info"
        info.mkdir(parents=True)
        (folder / f"{module}.py").write_text(dedent(code))
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: {version}\n")
        lines = "".join(f"{name} = {module}:{value}\n" for name, value in entries.items())
        (info / "entry_points.txt").write_text(f"[sluice.plugins]\n{lines}")
        monkeypatch.syspath_prepend(str(folder))

        modules.append(module)

    yield _install
    for module in modules:
        sys.modules.pop(module, None)


def entries(*chain: dict[str, Any]) -> list[ChainEntry]:
    return [ChainEntry.model_validate(entry) for entry in chain]


def faults(*chain: dict[str, Any], base: Path = Path(), lines: dict[Any, int] | None = None) -> tuple[str, ...]:
    with pytest.raises(ConfigurationError) as caught:
        build_chain(entries(*chain), base, Source("sluice.yaml", lines or {}))
    return caught.value.lines


def test_the_chain_has_the_configured_order_and_policies(install: Install) -> None:
    install("sl_loud", GOOD, loud="Loud")
    links = build_chain(
        entries(
            {"plugin": "loud", "options": {"times": 3}},
            {"plugin": "loud", "mode": "shadow", "on_error": "skip", "timeout_s": 2, "models": ["m"], "keys": ["k"]},
        ),
        Path(),
    )
    first, second = links
    assert (first.name, first.plugin.options.times, first.on_error, first.timeout_s) == ("loud", 3, "refuse", 5)
    assert (first.shadow, first.models, first.keys) == (False, None, None)
    assert (second.name, second.plugin.name, second.plugin.options.times) == ("loud-2", "loud-2", 1)
    assert (second.shadow, second.on_error, second.timeout_s) == (True, "skip", 2)
    assert (second.models, second.keys) == (frozenset({"m"}), frozenset({"k"}))


def test_installed_is_not_enabled(install: Install) -> None:
    install("sl_loud", GOOD, loud="Loud")
    assert "loud" in installed()
    assert build_chain([], Path()) == []


def test_relative_paths_start_beside_the_configuration(install: Install, tmp_path: Path) -> None:
    install("sl_loud", GOOD, loud="Loud")
    (tmp_path / "words.txt").write_text("a\n")
    (link,) = build_chain(entries({"plugin": "loud", "options": {"file": "words.txt"}}), tmp_path)
    assert list(link.plugin.files) == [tmp_path / "words.txt"]


def test_every_option_at_fault_is_told_with_its_place(install: Install) -> None:
    install("sl_loud", GOOD, loud="Loud")
    chain: list[dict[str, Any]] = [
        {"plugin": "loud"},
        {"plugin": "loud", "options": {"tims": 2, "times": 0, "mark": "."}},
    ]
    assert faults(*chain, lines={("chain", 1, "options"): 7, ("chain", 1, "options", "tims"): 8}) == (
        "sluice.yaml:7: chain[1].options.times: has to be greater than or equal to 1",
        "sluice.yaml:7: chain[1].options.mark: has to be '!' or '?'",
        "sluice.yaml:8: chain[1].options.tims: unknown key; did you mean 'times'?",
    )


def test_an_option_that_is_a_number_takes_one_from_the_environment_and_no_truth(install: Install) -> None:
    install("sl_loud", GOOD, loud="Loud")
    assert build_chain(entries({"plugin": "loud", "options": {"times": "2"}}), Path())
    assert faults({"plugin": "loud", "options": {"times": True}}) == (
        "sluice.yaml: chain[0].options.times: has to be a number",
    )


def test_an_unknown_plugin_brings_the_nearest_and_what_is_installed(install: Install) -> None:
    install("sl_loud", GOOD, loud="Loud")
    near, far = faults({"plugin": "lond"}, {"plugin": "zzz"})
    assert near.startswith(
        "sluice.yaml: chain[0].plugin: no plugin 'lond' is installed; did you mean 'loud'?; installed: "
    )
    assert "loud" in far.partition("; installed: ")[2]


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("import no_such_module", "cannot be imported: ModuleNotFoundError: No module named 'no_such_module'"),
        ("raise RuntimeError('a\\nb')", "cannot be imported: RuntimeError: a b"),
        ("", "cannot be imported: AttributeError: "),
        ("class Loud: ...", "sl_bad:Loud has to be a class made of gateway.sdk.Plugin"),
        ("def Loud(options): ...", "sl_bad:Loud has to be a class made of gateway.sdk.Plugin"),
        (
            "from gateway.sdk import Plugin\nclass Loud(Plugin):\n    class Options: ...",
            "its Options have to be a class made of gateway.sdk.Options",
        ),
    ],
)
def test_a_plugin_that_cannot_be_used_is_named_with_its_package(install: Install, code: str, told: str) -> None:
    install("sl_bad", code, loud="Loud")
    (line,) = faults({"plugin": "loud"})
    assert line.startswith("sluice.yaml: chain[0].plugin: 'loud' of sl_bad 1.0")
    assert told in line


def test_two_packages_with_one_name_are_told_when_it_is_used(install: Install) -> None:
    install("sl_one", GOOD, loud="Loud")
    install("sl_two", GOOD, loud="Loud")
    (line,) = faults({"plugin": "loud"})
    assert line.endswith("sl_one 1.0 and sl_two 1.0 both have a plugin 'loud': uninstall one")


@pytest.mark.parametrize(
    ("raised", "told"),
    [
        ("ValueError('words.txt:3: an empty entry')", "loud: words.txt:3: an empty entry"),
        ("FileNotFoundError(2, 'No such file or directory', 'w.txt')", "loud: w.txt: No such file or directory"),
        ("KeyError('x')", "loud: cannot be made: KeyError: 'x'"),
    ],
)
def test_what_a_plugin_says_of_its_options_is_one_line(install: Install, raised: str, told: str) -> None:
    code = f"from gateway.sdk import Plugin\nclass Loud(Plugin):\n    def __init__(self, _):\n        raise {raised}\n"
    install("sl_raises", code, loud="Loud")
    assert faults({"plugin": "loud"}) == (f"sluice.yaml: chain[0].options: {told}",)


def test_a_plugin_may_tell_several_faults_a_line_each(install: Install, tmp_path: Path) -> None:
    install("sl_loud", GOOD, loud="Loud")
    (tmp_path / "w.txt").write_text("a\n\n")
    with pytest.raises(ConfigurationError) as caught:
        build_chain(entries({"plugin": "loud", "options": {"file": "w.txt"}}), tmp_path, Source("sluice.yaml"))
    first, second = caught.value.lines
    assert caught.value.files == {tmp_path / "w.txt"}, "a change of this file may mend it"
    assert first == f"sluice.yaml: chain[0].options: loud: {tmp_path}/w.txt:2: the line is empty"
    assert second == f"sluice.yaml: chain[0].options: loud: {tmp_path}/w.txt:9: so is this one"


def test_the_catalogue_tells_hooks_and_options_and_what_is_broken(install: Install) -> None:
    install("sl_loud", GOOD, loud="Loud")
    install("sl_broken", "import no_such_module", broken="X")
    described = {each.name: each for each in catalogue()}
    loud = described["loud"]
    assert (loud.package, loud.summary, loud.hooks) == ("sl_loud 1.0", "Says it louder.", ("on_request",))
    assert loud.options[0] == ("times", "integer", "1", "How often.")
    assert loud.options[1] == ("mark", "! or ?", '"!"', "")
    assert "no_such_module" in str(described["broken"].fault)


NAMES = """
models:
  - {name: m, aliases: [gpt], engines: [{url: "http://127.0.0.1:8100"}]}
keys: [{name: team, sha256: "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"}]
"""
#: Every option of ours that names a model or a key, with a name in it.
NAMING: list[tuple[str, str, Callable[[str], dict[str, Any]]]] = [
    ("fallback", "model", lambda name: {"model": name}),
    ("length", "model", lambda name: {"embeddings": name}),
    ("presets", "model", lambda name: {"models": {name: "chat"}}),
    ("presets", "key", lambda name: {"keys": {name: "chat"}}),
    ("sensitive_words", "model", lambda name: {"lists": [{"path": "w.txt", "models": [name]}]}),
    ("sensitive_words", "key", lambda name: {"lists": [{"path": "w.txt", "keys": [name]}]}),
]


def configured(folder: Path, plugin: str, options: Any) -> Settings:
    (folder / "w.txt").write_text("zebra\n")
    chain = json.dumps([{"plugin": plugin, "options": options}])
    (folder / "sluice.yaml").write_text(f"{NAMES}chain: {chain}\n")
    return load(folder / "sluice.yaml", {})


@pytest.mark.parametrize(("plugin", "kind", "options"), NAMING)
def test_a_model_or_key_that_options_name_has_to_be_there(
    tmp_path: Path, plugin: str, kind: str, options: Callable[[str], dict[str, Any]]
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        chain_of(configured(tmp_path, plugin, options("nope")))
    (line,) = caught.value.lines
    assert f"chain[0].options.{next(iter(options('nope')))}" in line
    assert f"there is no {kind} 'nope'; known here: " in line
    assert chain_of(configured(tmp_path, plugin, options("m" if kind == "model" else "team")))


def test_an_alias_in_options_is_its_models_name(tmp_path: Path) -> None:
    (link,) = chain_of(configured(tmp_path, "presets", {"models": {"gpt": "chat"}}))
    assert link.plugin.options.models == {"m": "chat"}


def test_options_of_ours_that_sound_like_names_are_known_as_such() -> None:
    ours = [each for each in catalogue() if each.package.startswith("sluice-gateway")]
    found = {(each.name, option.name) for each in ours for option in each.options}
    sounding = {each for each in found if each[1] in {"model", "models", "key", "keys", "embeddings"}}
    assert sounding <= {(plugin, next(iter(options("x")))) for plugin, _, options in NAMING}, "add it to NAMING"


def test_where_one_model_takes_every_name_no_option_can_name_one(tmp_path: Path) -> None:
    (tmp_path / "sluice.yaml").write_text(
        'models: [{name: "*", engines: [{url: "http://127.0.0.1:8100"}]}]\n'
        "chain: [{plugin: fallback, options: {model: other}}]\n"
    )
    with pytest.raises(ConfigurationError, match="leave 'other' out, or list it as a model"):
        chain_of(load(tmp_path / "sluice.yaml", {}))
