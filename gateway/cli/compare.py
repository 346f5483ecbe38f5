"""The command that lets two targets answer the same cases, before the second takes the first's place."""

from __future__ import annotations

from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.cli.command import COULD_NOT_START, Commands, Stopped
from gateway.cli.engines import URL

if TYPE_CHECKING:
    import argparse

    from gateway.compare.cases import Case
    from gateway.compare.report import Report
    from gateway.compare.targets import Target
    from gateway.compare.verdict import Limits

#: The second is not good enough.
WORSE = 1


def add(commands: Commands) -> None:
    """Declare compare."""
    said = commands.add(
        "compare", compare, "Let two targets answer the same cases; exit code 1 if B is worse.", config=False
    )
    target = "URL[#model] or a model's name; then ,preset=NAME ,key=KEY ,header=NAME:VALUE ,price=IN/OUT"
    said.add_argument("a", metavar="A", help=target)
    said.add_argument("b", metavar="B", help="the same of what is to take its place")
    said.add_argument(
        "--cases", metavar="FILE", type=Path, action="append", help="YAML, any number (default: those that ship)"
    )
    said.add_argument("--url", help=f"the gateway of bare names; else SLUICE_URL, else {URL}")
    said.add_argument("--key", help="the key of both; else SLUICE_KEY")
    said.add_argument(
        "--judge", metavar="TARGET", help="a model for the checks of that name; without one they are left out"
    )
    said.add_argument("--repeats", metavar="N", type=int, default=1, help="how often each case is asked (default: 1)")
    said.add_argument("--concurrency", metavar="N", type=int, default=4, help="requests at once (default: 4)")
    said.add_argument("--timeout", metavar="S", type=float, default=120.0, help="for each answer (default: 120)")
    said.add_argument("--max-drop", metavar="P", default="0%", help="task success may fall by so much (default: 0%%)")
    said.add_argument("--max-slower", metavar="P", help="quantiles of latency may rise by so much (default: any)")
    said.add_argument("--max-changed", metavar="P", help="so many answers may be others (default: any)")
    said.add_argument("--max-dearer", metavar="P", help="the cost may rise by so much (default: any)")
    said.add_argument("--same-prompts", action="store_true", help="prompts have to come to the same numbers of tokens")
    said.add_argument("--html", metavar="FILE", type=Path, help="write a page with all answers")
    said.add_argument("--json", action="store_true", help="as JSON")


def compare(arguments: argparse.Namespace) -> int:
    """Compare, tell, and return 1 where the second is not good enough."""
    import asyncio

    try:
        cases, targets, judge = _read(arguments)
        limits = _limits(arguments)
        report = asyncio.run(_run(arguments, cases, targets, judge, limits))
        if arguments.html:
            arguments.html.write_text(report.page(), "utf-8", "backslashreplace")
    except ValueError as fault:
        raise Stopped([f"sluice compare: {fault}"]) from None
    except OSError as fault:
        raise Stopped([f"sluice compare: {fault.filename}: {fault.strerror}"]) from None
    if arguments.json:
        import json

        print(json.dumps(report.value(), ensure_ascii=False, indent=2))
    else:
        print("\n".join(report.lines()))
    if not any(side.answers - side.failed for side in report.sides):
        raise Stopped([f"sluice compare: neither answers: {_first_reason(report)}"], COULD_NOT_START)
    return WORSE if report.faults else 0


def _read(arguments: argparse.Namespace) -> tuple[list[Case], tuple[Target, Target], Target | None]:
    from gateway.compare import cases as files
    from gateway.compare.targets import parse
    from gateway.settings import environment

    environ = environment()
    url, key = arguments.url or environ.get("SLUICE_URL") or URL, arguments.key or environ.get("SLUICE_KEY")
    for name in ("repeats", "concurrency", "timeout"):
        if not getattr(arguments, name) > 0:
            raise ValueError(f"--{name} has to be more than 0")
    targets = parse(arguments.a, url, key), parse(arguments.b, url, key)
    if arguments.max_dearer is not None and not all(target.price for target in targets):
        raise ValueError("--max-dearer: both targets need a price=IN/OUT")
    judge = parse(arguments.judge, url, key) if arguments.judge is not None else None
    cases = [case for file in arguments.cases or sorted(files.SHIPPED.glob("*.yaml")) for case in files.read(file)]
    if len({case.name for case in cases}) < len(cases):
        raise ValueError("--cases: two files have cases of one name")
    return cases, targets, judge


def _limits(arguments: argparse.Namespace) -> Limits:
    from gateway.compare.verdict import Limits

    return Limits(
        drop=_share("--max-drop", arguments.max_drop),
        slower=_share("--max-slower", arguments.max_slower),
        changed=_share("--max-changed", arguments.max_changed),
        dearer=_share("--max-dearer", arguments.max_dearer),
        same_prompts=arguments.same_prompts,
    )


def _share(option: str, said: str | None) -> float | None:
    """Read ``2%`` or ``0.02``."""
    if said is None:
        return None
    try:
        share = float(said.removesuffix("%")) / (100 if said.endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 <= share < inf:
        raise ValueError(f"{option} {said}: has to be a share, 2% or 0.02")
    return share


async def _run(
    arguments: argparse.Namespace,
    cases: list[Case],
    targets: tuple[Target, Target],
    judge: Target | None,
    limits: Limits,
) -> Report:
    from dataclasses import replace

    from gateway.compare.asking import Side, run
    from gateway.compare.report import made

    named = []
    for target in (*targets, *([judge] if judge else [])):
        finder = Side(target, arguments.timeout)
        named.append(replace(target, model=await finder.only_model()))
        await finder.close()
    sides = Side(named[0], arguments.timeout), Side(named[1], arguments.timeout)
    judging = Side(named[2], arguments.timeout) if judge else None
    heard = await run(sides, cases, judging, repeats=arguments.repeats, at_once=arguments.concurrency)
    for side in (*sides, *([judging] if judging else [])):
        await side.close()
    return made(targets, heard, limits)


def _first_reason(report: Report) -> str:
    return next((each.wrong[0] for side in report.answers for said in side.values() for each in said if each.wrong), "")
