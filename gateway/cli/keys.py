"""The commands for callers' keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.cli.command import Commands, Stopped

if TYPE_CHECKING:
    import argparse


def add(commands: Commands) -> None:
    """Declare keys new."""
    keys = commands.group("keys", "Keys for callers.")
    new = keys.add("new", keys_new, "Make a key: print it once, and its line for the configuration.", config=False)
    new.add_argument("--name", required=True, help="whose it is; logs and metrics show it")


def keys_new(arguments: argparse.Namespace) -> int:
    """Make a key."""
    import hashlib
    import json
    import secrets

    from pydantic import ValidationError

    from gateway.settings import Key

    key = f"sk-sluice-{secrets.token_urlsafe(32)}"
    digest = hashlib.sha256(key.encode()).hexdigest()
    try:
        Key(name=arguments.name, sha256=digest)
    except ValidationError as error:
        raise Stopped([f"sluice keys new: --name: {error.errors()[0]['ctx']['error']}"]) from None
    print(f"The key, shown this once:\n\n  {key}\n\nIts line under keys: in the configuration:\n")
    print(f'  - {{name: {json.dumps(arguments.name, ensure_ascii=False)}, sha256: "{digest}"}}')
    return 0
