"""What an engine says it serves, whatever it says."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.upstream.client import Pool
from gateway.upstream.engine import Engine
from gateway.upstream.models import read_models
from tests.gateway.upstream.playing import Caller, Serve

BASE = {"id": "smollm2", "object": "model", "root": "/m", "max_model_len": 2048}
LORA = {"id": "adapter", "object": "model", "parent": "smollm2", "max_model_len": 1024}


async def read(serve: Serve, body: bytes, status: int = 200, served: str | None = "smollm2") -> tuple[Engine, bytes]:
    asked = b""

    async def list_them(caller: Caller) -> None:
        nonlocal asked
        asked, _ = await caller.request()
        await caller.say(b"HTTP/1.1 %d X\r\ncontent-length: %d\r\n\r\n" % (status, len(body)), body)
        await caller.left()

    pool = Pool(await serve(list_them).tcp())
    engine = Engine("e0", pool, served_model=served, api_key="sk-engine")
    engine.cards, engine.max_model_len = ({"id": "old"},), 7
    await read_models(engine, 5)
    await pool.close()
    return engine, asked


async def test_cards_and_the_window_of_the_served_model_are_read(serve: Serve) -> None:
    engine, asked = await read(serve, json.dumps({"object": "list", "data": [LORA, BASE]}).encode())
    assert engine.cards == (LORA, BASE)
    assert engine.max_model_len == 2048
    assert asked.startswith(b"GET /v1/models HTTP/1.1\r\n")
    assert b"authorization: Bearer sk-engine\r\n" in asked


async def test_one_model_is_the_one_whatever_it_is_called(serve: Serve) -> None:
    engine, _ = await read(serve, json.dumps({"data": [BASE]}).encode(), served=None)
    assert engine.max_model_len == 2048
    engine, _ = await read(serve, json.dumps({"data": [BASE, LORA]}).encode(), served=None)
    assert engine.max_model_len is None


@pytest.mark.parametrize("length", [None, "2048", -1, 2.5, [], True])
async def test_a_window_that_is_no_number_is_none(serve: Serve, length: Any) -> None:
    engine, _ = await read(serve, json.dumps({"data": [{**BASE, "max_model_len": length}]}).encode())
    assert engine.max_model_len is None


@pytest.mark.parametrize(
    "body",
    [b"", b"no", b"[]", b'{"data": 1}', b'{"data": []}', b'{"data": [1, {"id": 2}]}', b"[" * 100_000, b" " * 2**21],
)
async def test_rubbish_leaves_what_is_known(serve: Serve, body: bytes) -> None:
    engine, _ = await read(serve, body)
    assert engine.cards == ({"id": "old"},)
    assert engine.max_model_len == 7


async def test_an_error_leaves_what_is_known(serve: Serve) -> None:
    engine, _ = await read(serve, json.dumps({"data": [BASE]}).encode(), status=401)
    assert engine.max_model_len == 7
