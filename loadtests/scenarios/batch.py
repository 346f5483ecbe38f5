"""A flood: no pause between one answer and the next question, so users are requests in flight."""

from __future__ import annotations

import random

import gevent
from locust import constant, task

from loadtests.speaking import Caller
from loadtests.texts import question


class Batch(Caller):
    """Jobs that work through a list."""

    scenario = "batch"
    weight = 2
    wait_time = constant(0)

    @task
    def item(self) -> None:
        """Take the next item of the list; a server that is full is asked again a little later."""
        if self.ask([{"role": "user", "content": question(random.Random())}]) is None:
            gevent.sleep(0.2)
