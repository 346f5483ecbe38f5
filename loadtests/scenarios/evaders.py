"""Callers who try to bring listed words past the filter; it has to stop them at every try."""

from __future__ import annotations

import random

from locust import between, task

from loadtests.speaking import Caller
from loadtests.texts import disguised, question


class Evaders(Caller):
    """Say words of ``--blocked-words`` in disguise. An answer that is no block is a failure named "passed"."""

    scenario = "evaders"
    weight = 1
    wait_time = between(0.5, 2)

    @task
    def turn(self) -> None:
        """Ask with a listed word somewhere in the text."""
        rng = random.Random()
        word = disguised(rng, rng.choice(self.options.blocked_words.split(",")))
        answer = self.ask([{"role": "user", "content": f"{question(rng)} {word} {question(rng)}"}])
        if answer is not None and answer.finish != "content_filter":
            self._fire("passed", 0.0, "passed")
