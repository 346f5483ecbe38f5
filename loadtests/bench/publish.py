#!/usr/bin/env python3
"""From the JSON of compare.py to the table and the plots in the documentation.

    publish.py build/bench.json docs        writes docs/images/bench-*.{svg,png}, and the table into docs/performance.md

The table replaces what stands between the two comments ``bench:begin`` and ``bench:end``.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt

TITLES = {
    "whole": "a whole answer of 64 tokens",
    "burst": "a stream of 64 chunks, as fast as possible",
    "stream": "a streamed chunk, 10 ms a token",
    "pace": "a streamed chunk, 256 streams, 50 ms a token",
    "prompt": "an 8 KB Chinese prompt",
}


def cell(value: float | None, digits: int = 1) -> str:
    return "–" if value is None else f"{value:,.{digits}f}"


def markdown(found: dict[str, Any]) -> str:
    """One row for each gateway: what a request and a chunk cost, and how that compares."""
    scenarios = list(found["scenarios"])
    base = "vllm-router" if "vllm-router" in found["cpu_ratio_to"] else None
    head = ["", *(f"{TITLES.get(name, name)}, µs" for name in scenarios), "idle, MB", "an open stream, KB", "start, s"]
    rows = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for name, one in found["gateways"].items():
        if one["failed"] or name == "direct":
            continue
        cells = []
        for scenario in scenarios:
            cost = one["median"].get(scenario, {}).get("cpu_us")
            against = found["cpu_ratio_to"][base][name].get(scenario) if base else None
            cells.append(cell(cost) + (f" (×{against:.2f})" if against else ""))
        memory = cell((one["rss_idle"] or 0) / 2**20, 0), cell((one["rss_per_stream"] or 0) / 1024)
        rows.append(f"| {name} {one['version']} | {' | '.join([*cells, *memory, cell(one['start_s'], 2)])} |")
    said = (
        f"{found['settings']['rounds']} interleaved rounds on {found['machine']['cores']} cores, {found['when'][:10]}"
    )
    plots = [f"![CPU time for {TITLES.get(name, name)}](images/bench-{name}.svg)" for name in scenarios]
    told = f"µs of CPU of the whole process tree; in brackets the ratio to {base}. {said}."
    return "\n".join([*rows, "", told, "", *plots])


def plot(found: dict[str, Any], scenario: str, folder: Path) -> None:
    """One bar for each gateway, on a logarithmic axis: some cost fifty times what others do."""
    costs = {
        name: one["median"][scenario]["cpu_us"]
        for name, one in found["gateways"].items()
        if not one["failed"] and one["median"].get(scenario, {}).get("cpu_us")
    }
    figure, axis = plt.subplots(figsize=(7, 0.5 * len(costs) + 1.2))
    names = sorted(costs, key=costs.__getitem__, reverse=True)
    colours = ["#1b7f79" if name.startswith("sluice") else "#9aa5b1" for name in names]
    bars = axis.barh(names, [costs[name] for name in names], color=colours)
    axis.bar_label(bars, fmt="{:,.0f} µs", padding=4)
    axis.set_xscale("log")
    axis.set_xlim(right=max(costs.values()) * 4)
    axis.set_title(f"CPU time for {TITLES.get(scenario, scenario)}", loc="left", fontsize=11)
    axis.spines[["top", "right"]].set_visible(False)
    for kind in ("svg", "png"):
        figure.savefig(
            folder / f"bench-{scenario}.{kind}",
            bbox_inches="tight",
            dpi=150,
            metadata={"Date": None} if kind == "svg" else {},
        )
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description="writes table and plots of compare.py's JSON into the documentation")
    parser.add_argument("json", type=Path)
    parser.add_argument("docs", type=Path, nargs="?", default=Path("docs"))
    args = parser.parse_args()
    found = json.loads(args.json.read_text())
    folder = args.docs / "images"
    folder.mkdir(exist_ok=True)
    for scenario in found["scenarios"]:
        plot(found, scenario, folder)
    page = args.docs / "performance.md"
    text = page.read_text(encoding="utf-8")
    marked = re.compile(r"(<!-- bench:begin -->\n).*?(<!-- bench:end -->)", re.DOTALL)
    if not marked.search(text):
        raise SystemExit(f"{page}: no <!-- bench:begin --> and <!-- bench:end -->")
    page.write_text(marked.sub(lambda found_: f"{found_[1]}{markdown(found)}\n{found_[2]}", text), encoding="utf-8")


if __name__ == "__main__":
    main()
