"""Writes the generated parts of the documentation anew; ``--check`` only says which are stale.

    python docs/generate.py [--check]

A page's generated part stands between ``<!-- generated: NAME -->`` and ``<!-- end -->``; PARTS says who makes it. Whole
files are in FILES.
"""

# ruff: noqa: INP001, T201 - a script that says what it has written

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from gateway.registry import catalogue
from gateway.settings import ENVIRONMENT, PREFIX, models, server_scalars
from gateway.settings.description import Option, options

ROOT = Path(__file__).parents[1]

#: The sections of the configuration, as the reader meets them.
SECTIONS: dict[str, type[BaseModel]] = {
    "server": models.Server,
    "timeouts": models.Timeouts,
    "models[]": models.Model,
    "models[].engines[]": models.EngineEntry,
    "models[].queue": models.Queue,
    "keys[]": models.Key,
    "limits": models.LimitsSettings,
    "engine": models.EngineSettings,
    "chain[]": models.ChainEntry,
    "messages": models.Messages,
}


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Lay out a Markdown table."""
    columns = list(head)
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def options_table(found: Iterable[Option]) -> str:
    """Lay out options."""
    rows = [
        [
            f"`{each.name}`",
            each.kind,
            each.default if each.default == "required" else f"`{each.default}`",
            each.description,
        ]
        for each in found
    ]
    return table(("key", "value", "default", "meaning"), rows)


def settings() -> str:
    """Return every key of every section."""
    return "\n\n".join(f"### `{name}`\n\n{options_table(options(model))}" for name, model in SECTIONS.items())


def plugins() -> str:
    """Return the options of the plugins that come with the gateway."""
    parts = []
    for plugin in catalogue():
        if not plugin.package.startswith("sluice-gateway "):
            continue
        told = options_table(plugin.options) if plugin.options else "It has no options."
        parts.append(f"### `{plugin.name}`\n\n{plugin.fault or plugin.summary}\n\n{told}")
    return "\n\n".join(parts)


def plugin_options(name: str) -> str:
    """Return the options of one plugin, for its own page. Raises ValueError where no such plugin is installed."""
    for plugin in catalogue():
        if plugin.name == name:
            return options_table(plugin.options)
    raise ValueError(f"docs/plugins/{name}.md: no plugin {name!r} is installed")


def env_example() -> str:
    """Return every variable that is read, with its default."""
    lines = ["# Every variable that Sluice reads, with its default. Written by docs/generate.py.", ""]
    for name, meaning in ENVIRONMENT.items():
        lines += [f"# {meaning}", f"# {name}=", ""]
    described = {option.name: option for option in options(models.Server)}
    for name in server_scalars():
        default = described[name].default.strip('"')
        lines += [f"# {described[name].description}", f"# {PREFIX}{name.upper()}={default}", ""]
    return "\n".join(lines)


CHART_SCHEMA = "helm/sluice/values.schema.json"
#: Sections of the configuration that are values of the chart, and the keys that are the chart's own business.
CHART_VALUES: dict[type[BaseModel], frozenset[str]] = {
    models.Server: frozenset({"host", "port", "drain_s"}),
    models.Timeouts: frozenset(),
    models.Model: frozenset({"name", "aliases", "engines"}),
    models.EngineEntry: frozenset(),
    models.Key: frozenset(),
    models.ChainEntry: frozenset(),
    models.LimitsSettings: frozenset({"redis"}),
}


def chart_schema() -> str:
    """Return the schema of the chart's values; its definitions ``settings.…`` are the configuration's own."""
    schema = json.loads((ROOT / CHART_SCHEMA).read_text("utf-8"))
    wanted = [(model, "validation") for model in CHART_VALUES]
    found = models_json_schema(wanted, ref_template="#/$defs/settings.{model}")[1]["$defs"]
    for model, ours in CHART_VALUES.items():
        section = found[model.__name__]
        section["properties"] = {name: each for name, each in section["properties"].items() if name not in ours}
        section["required"] = [name for name in section.get("required", []) if name not in ours]
    others = {name: each for name, each in schema["$defs"].items() if not name.startswith("settings.")}
    schema["$defs"] = {**others, **{f"settings.{name}": found[name] for name in sorted(found)}}
    return json.dumps(schema, indent=1) + "\n"


#: page, name of the part -> what makes it
PARTS: dict[tuple[str, str], Callable[[], str]] = {
    ("docs/configuration.md", "settings"): settings,
    ("docs/configuration.md", "plugins"): plugins,
}
PARTS |= {
    (page.relative_to(ROOT).as_posix(), "options"): partial(plugin_options, page.stem)
    for page in sorted((ROOT / "docs/plugins").glob("*.md"))
    if "<!-- generated: options -->" in page.read_text("utf-8")
}
#: file -> what makes it
FILES: dict[str, Callable[[], str]] = {".env.example": env_example, CHART_SCHEMA: chart_schema}


def with_part(text: str, name: str, part: str) -> str:
    """Put a generated part into a page. Raises ValueError where the page has no place for it."""
    place = re.compile(rf"(?<=<!-- generated: {re.escape(name)} -->\n).*?(?=<!-- end -->)", re.DOTALL)
    if not place.search(text):
        raise ValueError(f"there is no <!-- generated: {name} --> … <!-- end -->")
    return place.sub(lambda _: f"\n{part}\n\n", text, count=1)


def generated() -> dict[str, str]:
    """Return each file that has something generated, as it should be."""
    texts = {file: make() for file, make in FILES.items()}
    for (page, name), make in PARTS.items():
        text = texts[page] if page in texts else (ROOT / page).read_text("utf-8")
        texts[page] = with_part(text, name, make())
    return texts


def stale() -> dict[str, str]:
    """Return the files that are not as they should be."""
    return {
        name: text
        for name, text in generated().items()
        if not (ROOT / name).exists() or (ROOT / name).read_text("utf-8") != text
    }


def main() -> int:
    """Write what is stale, or say that it is."""
    check = "--check" in sys.argv[1:]
    for name, text in stale().items():
        print(f"{name}: {'is stale: run python docs/generate.py' if check else 'written'}")
        if not check:
            (ROOT / name).write_text(text, "utf-8")
    return 1 if check and stale() else 0


if __name__ == "__main__":
    sys.exit(main())
