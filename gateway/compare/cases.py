"""The cases: a YAML file's requests, and what their answers are held to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from gateway.compare.checks import CHECKS, JUDGE, Check

SHIPPED = Path(__file__).parent / "cases"
#: What a case says of itself; everything else in it is a field of the request.
_OWN = frozenset({"name", "system", "user", "checks"})
#: Beside the case's own fields; answers that are compared had better be steady.
_USUAL: Mapping[str, Any] = {"temperature": 0, "max_tokens": 256}


@dataclass(frozen=True, slots=True)
class Case:
    """A request without its model, the checks, and criteria for a judge."""

    name: str
    request: dict[str, Any]
    checks: tuple[tuple[str, Check], ...]
    criteria: tuple[str, ...]


def read(path: Path) -> list[Case]:
    """Read a file's cases. Raises ValueError with one line that names the file and the case, OSError without a file."""
    try:
        told = yaml.safe_load(path.read_text("utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as fault:
        raise ValueError(f"{path}: {' '.join(str(fault).split())}") from None
    if not isinstance(told, dict) or not isinstance(told.get("cases"), list) or not told["cases"]:
        raise ValueError(f"{path}: has to have cases: a list of them")
    usual = told.get("defaults") or {}
    if not isinstance(usual, dict) or (odd := set(told) - {"cases", "defaults"}):
        raise ValueError(f"{path}: has cases and defaults, and nothing else{f': {sorted(odd)}' if usual else ''}")
    cases = []
    for at, each in enumerate(told["cases"], 1):
        try:
            cases.append(_case(each, usual, f"case {at}"))
        except ValueError as fault:
            name = each.get("name", at) if isinstance(each, dict) else at
            raise ValueError(f"{path}: case {name}: {fault}") from None
    names = [case.name for case in cases]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"{path}: several cases are called {', '.join(sorted(twice))}")
    return cases


def _case(told: Any, usual: dict[str, Any], unnamed: str) -> Case:
    if not isinstance(told, dict):
        raise ValueError("has to be a mapping")  # noqa: TRY004 - of a file, told with its place
    fields = {**_USUAL, **usual, **{name: value for name, value in told.items() if name not in _OWN}}
    if "messages" not in fields:
        if not isinstance(told.get("user"), str):
            raise ValueError("needs user: a text, or messages")
        system = [{"role": "system", "content": told["system"]}] if told.get("system") else []
        fields["messages"] = [*system, {"role": "user", "content": told["user"]}]
    for reserved in ("model", "stream", "n"):
        if reserved in fields:
            raise ValueError(f"{reserved} is not the case's to say")
    checks, criteria = [], []
    for check in _listed(told.get("checks")):
        (name, wanted), *more = check.items() if isinstance(check, dict) else [("", None)]
        if more or not name:
            raise ValueError("each check is one name with its value, - contains: Paris")
        if name == JUDGE:
            criteria.append(str(wanted))
        elif name in CHECKS:
            checks.append((name, CHECKS[name](wanted)))
        else:
            raise ValueError(f"no check {name!r}: {', '.join([*CHECKS, JUDGE])}")
    return Case(str(told.get("name", unnamed)), fields, tuple(checks), tuple(criteria))


def _listed(told: Any) -> list[Any]:
    if not isinstance(told, list) or not told:
        raise ValueError("needs checks: a list of at least one")
    return told
