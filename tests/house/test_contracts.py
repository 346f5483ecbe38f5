"""The import contracts bite: each is shown a line that breaks it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.test_layout import ROOT

#: where, the line that is added there, and the contract that must object
VIOLATIONS = [
    ("gateway/errors.py", "import gateway.sdk", "imports point down the map of rooms"),
    ("gateway/utils.py", '"""A stray."""', "imports point down the map of rooms"),
    ("gateway/pipeline.py", "import plugins.normalize", "the gateway never imports a plugin"),
    ("plugins/normalize/__init__.py", "import gateway.errors", "a plugin imports gateway.sdk and third parties"),
    ("plugins/normalize/__init__.py", "import plugins.audit_log", "plugins do not know each other"),
    ("gateway/relay.py", "import gateway.settings", "settings stop at the composition root"),
    ("gateway/routes.py", "import httpx", "only upstream speaks to engines"),
    ("gateway/relay.py", "import httptools", "HTTP is parsed where engines are asked"),
    ("gateway/protocol/sse.py", "import starlette", "what thinks knows no web framework"),
]


@pytest.mark.parametrize(("where", "line", "contract"), VIOLATIONS, ids=[line for _, line, _ in VIOLATIONS])
def test_a_contract_objects_to(tmp_path: Path, where: str, line: str, contract: str) -> None:
    for name in ("gateway", "plugins"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    target = tmp_path / where
    if not target.exists() and target.name == "__init__.py":
        target = target.parent.with_suffix(".py")
    with target.open("a") as module:
        module.write(f"\n{line}\n")
    linter = [str(Path(sys.executable).with_name("lint-imports")), "--no-logo", "--no-cache"]
    done = subprocess.run(linter, cwd=tmp_path, capture_output=True, text=True, check=False)
    broken = [text for text in done.stdout.splitlines() if " BROKEN" in text]
    assert done.returncode == 1, done.stdout + done.stderr
    assert any(text.startswith(contract) for text in broken), done.stdout
