"""Callers who leave in mid-stream, and callers who read slowly: nobody else may notice them."""

from __future__ import annotations

import random

from locust import between, task

from loadtests.speaking import Caller, Manners
from loadtests.texts import question


class Leavers(Caller):
    """Leave after a few tokens, as people do who have read enough; their time counts as "left"."""

    scenario = "leavers"
    weight = 1
    wait_time = between(0.5, 2)

    @task
    def turn(self) -> None:
        """Ask, and go before the end."""
        rng = random.Random()
        self.ask([{"role": "user", "content": question(rng)}], Manners(leaves_after=rng.randint(1, 8)))


class SlowReaders(Caller):
    """Take a rest after every line."""

    scenario = "slow_readers"
    weight = 1
    wait_time = between(0.5, 2)

    @task
    def turn(self) -> None:
        """Ask, and read at leisure."""
        self.ask([{"role": "user", "content": question(random.Random())}], Manners(rest_s=self.options.rest))
