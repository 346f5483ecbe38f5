"""Long inputs: one long system prompt that all share, and documents that are another for each question."""

from __future__ import annotations

import random

from locust import between, task

from loadtests.speaking import Caller
from loadtests.texts import document, question


class SharedPrompt(Caller):
    """Assistants with a long system prompt, the same for all: what prefix caching is for."""

    scenario = "shared_prompt"
    weight = 3
    wait_time = between(0.5, 2)

    @task
    def turn(self) -> None:
        """Ask below the shared prompt."""
        prompt = document(random.Random(1), self.options.long_characters)
        self.ask([{"role": "system", "content": prompt}, {"role": "user", "content": question(random.Random())}])


class Rag(Caller):
    """Questions about documents that nobody has asked about before: long prefill, short answer."""

    scenario = "rag"
    weight = 2
    wait_time = between(1, 3)

    @task
    def turn(self) -> None:
        """Ask about a new document."""
        rng = random.Random()
        asked = f"{document(rng, self.options.long_characters)}\n\n{question(rng)}"
        self.ask([{"role": "user", "content": asked}], max_tokens=min(32, self.options.max_tokens))
