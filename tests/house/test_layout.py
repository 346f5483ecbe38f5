"""The tests mirror the source, and nothing grows past what a reader holds in the head."""

from __future__ import annotations

import ast
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

#: Modules that have no test file of their own, and why. An entry that is no longer needed fails too.
TESTED_ELSEWHERE: dict[str, str] = {
    "gateway/__main__.py": "two lines: python -m gateway is sluice, which tests/gateway/test_cli.py runs",
    "gateway/accounting.py": "what a relay notes: tests/gateway/test_relay.py and tests/system read it",
    "gateway/answering.py": "the second half of the data path: tests/gateway/test_relay.py and tests/system play both",
    "gateway/app.py": "wires the parts; every test of tests/system starts it",
    "gateway/attempt.py": "a relay's one try at an engine: tests/gateway/test_relay.py and tests/system play it",
    "gateway/cli/command.py": "what the commands share; tests/gateway/test_cli.py runs them all",
    "gateway/cli/compare.py": "tests/system/test_compare.py compares over sockets",
    "gateway/cli/engines.py": "tests/system/test_rollout.py runs them against a gateway",
    "gateway/cli/keys.py": "tests/gateway/test_cli.py makes keys",
    "gateway/cli/running.py": "tests/gateway/test_cli.py and tests/system start what it starts",
    "gateway/cli/why.py": "tests/system/test_why.py runs it against gateways with ten faults",
    "gateway/cli/words.py": "tests/gateway/test_cli.py asks about words",
    "gateway/engine/failure.py": "an exception without behaviour",
    "gateway/engine/make_smollm2.py": "runs in the engine's environment; tests/system serves its model",
    "gateway/host.py": "what plugins ask for: tests/system/test_answer_plugins.py asks over sockets",
    "gateway/letter.py": "what a relay sends: tests/system/test_responses.py reads it at the engine",
    "gateway/live.py": "values without behaviour",
    "gateway/protocol/answer.py": "what whole answers share: test_surface.py asks it of each route",
    "gateway/protocol/editing.py": "what editors share: the tests of all three play it",
    "gateway/record.py": "values without behaviour; every test of relay, metrics and log reads them",
    "gateway/stored.py": "tests/system/test_responses.py asks for kept responses over sockets",
    "gateway/why/finding.py": "a value without behaviour",
    "gateway/routes.py": "a few lines a route; tests/system/test_models.py and test_paths_and_headers.py ask them all",
}

LONGEST_FILE = 400
LONGEST_FUNCTION = 60
LONGEST_SDK = 200


def committed(*patterns: str) -> list[Path]:
    listing = subprocess.run(["git", "ls-files", "-z", *patterns], cwd=ROOT, check=True, capture_output=True, text=True)
    return [ROOT / name for name in listing.stdout.split("\0") if name and (ROOT / name).is_file()]


def has_code(module: Path) -> bool:
    return any(
        isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        for node in ast.parse(module.read_text("utf-8")).body
    )


def homes(module: Path) -> list[Path]:
    """Where a module's tests may stand: a package's beside the package's folder or inside it."""
    inside = module.relative_to(ROOT)
    if module.name != "__init__.py":
        return [ROOT / "tests" / inside.parent / f"test_{inside.stem}.py"]
    package = inside.parent
    name = f"test_{package.name}.py"
    return [ROOT / "tests" / package.parent / name, ROOT / "tests" / package / name]


def modules() -> list[Path]:
    found = committed("gateway/**.py", "plugins/**.py")
    return [module for module in found if module.name != "__init__.py" or has_code(module)]


def test_every_module_has_its_test_file() -> None:
    missing = {
        str(module.relative_to(ROOT)) for module in modules() if not any(home.exists() for home in homes(module))
    }
    assert sorted(missing - set(TESTED_ELSEWHERE)) == []
    assert sorted(set(TESTED_ELSEWHERE) - missing) == [], "exceptions that are no longer needed"


def test_every_test_file_has_its_module() -> None:
    """test_sse.py and test_sse_laws.py are both of gateway/protocol/sse.py."""
    expected = [
        home.with_suffix("") for module in committed("gateway/**.py", "plugins/**.py") for home in homes(module)
    ]
    strays = [
        str(test.relative_to(ROOT))
        for test in committed("tests/gateway/*test_*.py", "tests/plugins/*test_*.py")
        if not any(f"{test.with_suffix('')}_".startswith(f"{home}_") for home in expected)
    ]
    assert strays == []


@pytest.mark.parametrize("module", committed("**.py"), ids=lambda path: str(path.relative_to(ROOT)))
def test_no_file_and_no_function_is_too_long(module: Path) -> None:
    source = module.read_text("utf-8")
    limit = LONGEST_SDK if module == ROOT / "gateway" / "sdk.py" else LONGEST_FILE
    lines = source.count("\n")
    assert lines <= limit, "is there a second noun inside?"
    long = [
        f"{node.name}, line {node.lineno}: {node.end_lineno - node.lineno + 1} lines"
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno is not None
        and node.end_lineno - node.lineno >= LONGEST_FUNCTION
    ]
    assert long == []
