"""People who talk: a question, time to read and think, the next question with the whole conversation before it."""

from __future__ import annotations

import random

from locust import between, task

from loadtests.speaking import Caller
from loadtests.texts import question

TURNS = 4


class Chat(Caller):
    """A conversation of four turns, then a new one."""

    scenario = "chat"
    weight = 10
    wait_time = between(1, 5)

    def on_start(self) -> None:
        """Begin with nothing said."""
        super().on_start()
        self.rng = random.Random()
        self.said: list[dict[str, str]] = []

    @task
    def turn(self) -> None:
        """Ask, and remember what was answered."""
        self.said.append({"role": "user", "content": question(self.rng)})
        answer = self.ask(self.said)
        if answer is None or len(self.said) >= 2 * TURNS - 1:
            self.said = []
        else:
            self.said.append({"role": "assistant", "content": "".join(answer.text)})
