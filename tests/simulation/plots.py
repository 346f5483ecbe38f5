"""Draws the scenes for docs/admission.md, and says in numbers what they show.

python -m tests.simulation.plots [--full] FOLDER
"""

from __future__ import annotations

import argparse
import dataclasses
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from statistics import quantiles
from time import process_time

import matplotlib as mpl
from matplotlib import pyplot as plt

from tests.simulation.scenes import BATCH, DEATH, FAIR, FULL_KV_TOKENS
from tests.simulation.world import Asked, Scene, Told, World

#: The calm time and the flood meet here, in every picture.
GREY = {"color": "0.6", "linestyle": ":"}


def by_second(asked: list[Asked], value: Callable[[Asked], float]) -> dict[str, dict[int, list[float]]]:
    """Collect a value of all who were let in, by caller and by the second in which that was."""
    found: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for each in asked:
        if each.wait >= 0:
            found[each.caller.key][int(each.came + each.wait)].append(value(each))
    return found


def draw(scene: Scene, told: Told, file: Path) -> None:
    """Draw tokens, waits and how full the engines are, one below the other."""
    figure, (tokens, waits, engines) = plt.subplots(3, 1, figsize=(8, 8), sharex=True)
    for key, seconds in by_second(told.asked, lambda each: each.reserved).items():
        tokens.plot(list(seconds), [sum(values) / 1e3 for values in seconds.values()], label=key)
    tokens.set_ylabel("let in, thousand tokens/s")
    for key, seconds in by_second(told.asked, lambda each: each.wait).items():
        high = [quantiles([*values, values[-1]], n=20)[-1] for values in seconds.values()]
        waits.plot(list(seconds), high, label=key)
    waits.axhline(scene.policy.max_wait_s, **GREY)
    waits.set_ylabel("wait, p95, s")
    engines.plot(list(told.reserved), list(told.reserved.values()), label="reserved, of what may be")
    engines.plot(list(told.fullest), list(told.fullest.values()), label="fullest engine's KV cache")
    engines.set_ylabel("part")
    engines.set_xlabel("s")
    engines.set_ylim(0, 1.2)
    for axes in (tokens, waits, engines):
        axes.axvline(scene.dies[0] if scene.dies else scene.phases[0], **GREY)
        axes.legend(loc="upper left", fontsize="small")
    figure.tight_layout()
    figure.savefig(file, metadata={"Date": None})
    plt.close(figure)


def main() -> None:
    """Play, draw, and print."""
    parser = argparse.ArgumentParser(description="draw the scenes")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--full", action="store_true", help="all 50,000 requests a second: minutes, and gigabytes")
    given = parser.parse_args()
    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "sluice"
    given.folder.mkdir(parents=True, exist_ok=True)
    for name, scene in (("fair", FAIR), ("batch", BATCH), ("death", DEATH)):
        played = dataclasses.replace(scene, engines=200, kv_tokens=FULL_KV_TOKENS) if given.full else scene
        began = process_time()
        told = World(played).play()
        draw(played, told, given.folder / f"admission-{name}.svg")
        flood = [each for each in told.asked if each.came >= played.phases[0]]
        print(
            f"{name}: {played.engines} engines, {len(flood) / played.phases[1]:,.0f} requests/s in the flood, "
            f"{told.refused:,} refused, fullest engine {max(told.fullest.values()):.0%}, "
            f"{process_time() - began:.0f} s of CPU"
        )
        for key, seconds in by_second(flood, lambda each: each.wait).items():
            waits = [wait for values in seconds.values() for wait in values]
            print(
                f"  {key}: {len(waits):,} let in, wait p95 {quantiles(waits, n=20)[-1]:.2f} s, most {max(waits):.2f} s"
            )


if __name__ == "__main__":
    main()
