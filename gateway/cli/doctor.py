"""The command that looks for what is wrong before anything starts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gateway.cli.command import CHECKOUT, WRONG, Commands, shipped, warned

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from gateway.engine.doctor import Finding


def add(commands: Commands) -> None:
    """Declare doctor."""
    said = commands.add("doctor", doctor, "Look for what is wrong with machine, software and model before it starts.")
    said.add_argument("model", metavar="MODEL", nargs="?", help="a model's folder (default: the configuration's)")
    said.add_argument("--json", action="store_true", help="for machines")


def doctor(arguments: argparse.Namespace) -> int:
    """Print one line for each finding; the exit code is 2 where one is wrong."""
    found = []
    for finding in _findings(arguments):
        found.append(finding)
        if not arguments.json:
            print(finding.line(), flush=True)
    if arguments.json:
        import msgspec

        print(msgspec.json.format(msgspec.json.encode(found)).decode())
    return WRONG if any(finding.level == "wrong" for finding in found) else 0


def _findings(arguments: argparse.Namespace) -> Iterator[Finding]:
    from gateway.engine.doctor import Finding, look_at_host, look_at_model, look_at_software
    from gateway.engine.install import python_of
    from gateway.engine.prepare import DEFAULT, is_directory
    from gateway.settings import Embedded, environment, load

    environ = environment()
    file = arguments.config or Path(environ.get("SLUICE_CONFIG") or shipped())
    settings = warned(load(file, dict(environ), {}, Embedded("http://127.0.0.1:1", "unknown")))
    home = CHECKOUT if (CHECKOUT / "Makefile").exists() else Path.cwd()
    models = home / ".cache/models"
    yield from look_at_host(environ, settings.server.port, models)
    yield from look_at_software(python_of(home / ".engine-venv"), environ)
    said = arguments.model or settings.engine.model
    if said and not is_directory(said):
        yield Finding(
            "model", "odd", f"{said} is a hub's name: it is looked at when it is here", "sluice up fetches it"
        )
        return
    folder = Path(said).expanduser() if said else models / DEFAULT
    if said or folder.exists():
        yield from look_at_model(folder)
