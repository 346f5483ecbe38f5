"""No cross-talk: every caller has a canary of its own, and it never turns up in another's answer."""

from __future__ import annotations

import asyncio
import random
import re
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from tests.fakes.connection import Received
from tests.fakes.forms import COMPLETIONS
from tests.fakes.script import RESET, Piece, Reply, cut, delayed, says
from tests.fakes.vllm import FakeVLLM
from tests.harness import CHAT, TEAM, Gateway, authorization
from tests.system.conftest import FRAGILE

CANARY = re.compile(r"canary-[0-9a-f]{12}")


@dataclass
class Storm:
    """Callers at random: streamed or whole, patient or leaving, over re-used connections."""

    seed: int
    models: list[str]
    chances: random.Random = field(init=False)
    finished: int = 0
    strangers: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.chances = random.Random(self.seed)

    def body(self, canary: str) -> tuple[str, dict[str, Any]]:
        stream, name = self.chances.random() < 0.6, self.chances.choice(self.models)
        prompt = f"Say {canary} again: {canary}"
        if self.chances.random() < 0.3:
            return COMPLETIONS, {"model": name, "prompt": prompt, "stream": stream, "max_tokens": 12}
        messages = [{"role": "user", "content": prompt}]
        return CHAT, {"model": name, "messages": messages, "stream": stream, "max_tokens": 12}

    async def ask(self, client: httpx.AsyncClient) -> None:
        canary = f"canary-{self.chances.getrandbits(48):012x}"
        path, body = self.body(canary)
        leaves_after = self.chances.choice([None, None, None, 0.0, 0.005, 0.02, 0.05])
        seen = bytearray()
        try:
            async with asyncio.timeout(leaves_after):
                await self.listen(client, path, body, seen)
            self.finished += 1
        except (TimeoutError, httpx.TransportError):
            pass
        self.strangers += [found for found in CANARY.findall(seen.decode(errors="replace")) if found != canary]

    async def listen(self, client: httpx.AsyncClient, path: str, body: dict[str, Any], seen: bytearray) -> None:
        async with client.stream("POST", path, json=body, headers=authorization(TEAM)) as answer:
            seen += str(answer.headers).encode()
            async for piece in answer.aiter_raw():
                seen += piece

    async def rage(self, gateway: Gateway, callers: int, requests: int) -> None:
        limits = httpx.Limits(max_connections=callers, max_keepalive_connections=callers)
        async with httpx.AsyncClient(base_url=gateway.url, limits=limits, timeout=60) as client:
            turns = asyncio.Semaphore(callers)

            async def one() -> None:
                async with turns:
                    await self.ask(client)

            async with asyncio.TaskGroup() as group:
                for _ in range(requests):
                    group.create_task(one())


def parrot(seed: int) -> Any:
    """Say the prompt back in small pieces; now and then late, cut to bytes, or reset in the middle."""
    chances = random.Random(seed)

    def script(received: Received) -> Reply:
        text = str(received.body.get("prompt") or received.body["messages"][0]["content"])
        pieces: list[Piece] = []
        for start in range(0, len(text), 7):
            pieces += [text[start : start + 7], chances.choice([0.0, 0.0, 0.002, 0.01])]
        fate = chances.random()
        if fate < 0.04:
            return says(*pieces[: chances.randrange(len(pieces))], RESET)(received)
        if fate < 0.1:
            return cut(says(*pieces), 11)(received)
        return (delayed(says(*pieces), 0.02) if fate < 0.2 else says(*pieces))(received)

    return script


@pytest.mark.parametrize("seed", [1, 2])
async def test_no_canary_is_ever_in_another_callers_answer(fake: FakeVLLM, gateway: Gateway, seed: int) -> None:
    fake.always(parrot(seed))
    storm = Storm(seed, FRAGILE)
    await storm.rage(gateway, callers=24, requests=500)
    assert storm.strangers == []
    assert storm.finished > 200
    await asyncio.to_thread(gateway.wait_metric, "sluice_in_flight", 0)
    for received in fake.requests():
        own = CANARY.findall(received.raw.decode())
        assert len(set(own)) == 1  # the requests did not mix either
    assert not CANARY.search("\n".join(gateway.log))
