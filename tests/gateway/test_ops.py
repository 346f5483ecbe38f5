from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from gateway.ops import Lifecycle, Ops


class Operated:
    """The routes in an application, with what they ask set by hand."""

    def __init__(self, **options: Any) -> None:
        self.lifecycle = Lifecycle()
        self.usable: dict[str, dict[str, bool]] = {"m": {"m-0": True, "m-1": False}}
        self.principal: Any = None
        ops = Ops(self.lifecycle, lambda: self.usable, lambda: b"sluice_x 1\n", "1.2.3", **options)
        self.app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
        self.app.include_router(ops.router())

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        scope["sluice.principal"] = self.principal
        await self.app(scope, receive, send)

    async def get(self, path: str, method: str = "GET") -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(self), base_url="http://sluice") as client:
            return await client.request(method, path)


async def test_alive_is_who_answers_whatever_the_engines_do() -> None:
    operated = Operated()
    operated.usable = {}
    operated.lifecycle.draining = True
    answer = await operated.get("/livez")
    assert (answer.status_code, answer.json()) == (200, {"status": "alive"})


@pytest.mark.parametrize("path", ["/readyz", "/health"])
async def test_ready_tells_of_each_model(path: str) -> None:
    operated = Operated()
    operated.usable["n"] = {"n-0": False}
    answer = await operated.get(path)
    assert answer.status_code == 200
    assert answer.json() == {
        "status": "ready",
        "models": {
            "m": {"ready": True, "engines": {"m-0": True, "m-1": False}},
            "n": {"ready": False, "engines": {"n-0": False}},
        },
        "limits": "in memory",
    }


async def test_without_a_usable_engine_it_is_not_ready() -> None:
    operated = Operated()
    operated.usable = {"m": {"m-0": False}}
    answer = await operated.get("/readyz")
    assert (answer.status_code, answer.json()["status"]) == (503, "no_usable_engine")
    assert int(answer.headers["retry-after"]) > 0


async def test_while_draining_it_is_not_ready() -> None:
    operated = Operated()
    operated.lifecycle.draining = True
    answer = await operated.get("/readyz")
    assert (answer.status_code, answer.json()["status"]) == (503, "draining")


async def test_who_asks_regularly_is_noticed() -> None:
    operated = Operated()
    await operated.get("/readyz")
    await operated.get("/readyz")
    assert not operated.lifecycle.watched()
    operated.lifecycle.draining = True
    await operated.get("/readyz")
    assert not operated.lifecycle.watched()
    operated.lifecycle.draining = False
    await operated.get("/readyz")
    assert operated.lifecycle.watched()


async def test_metrics_are_prometheus_text_and_open() -> None:
    answer = await Operated().get("/metrics")
    assert (answer.status_code, answer.text) == (200, "sluice_x 1\n")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"


async def test_metrics_for_operators_ask_for_an_operator_s_key() -> None:
    operated = Operated(operators_only=True)
    answer = await operated.get("/metrics")
    assert (answer.status_code, answer.json()["error"]["code"]) == (401, "invalid_api_key")
    operated.principal = SimpleNamespace(operator=False)
    answer = await operated.get("/metrics")
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "model_not_allowed")
    operated.principal = SimpleNamespace(operator=True)
    assert (await operated.get("/metrics")).status_code == 200


async def test_the_version_is_told() -> None:
    assert (await Operated().get("/version")).json() == {"version": "1.2.3"}


async def test_the_description_is_served_to_machines_and_people() -> None:
    operated = Operated()
    document = (await operated.get("/openapi.json")).json()
    assert document["info"]["version"] == "1.2.3"
    page = await operated.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    assert "/v1/chat/completions" in page.text


async def test_the_description_can_be_switched_off() -> None:
    operated = Operated(docs=False)
    assert (await operated.get("/openapi.json")).status_code == 404
    assert (await operated.get("/docs")).status_code == 404
    assert (await operated.get("/version")).status_code == 200


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/health", "/metrics", "/version", "/openapi.json", "/docs"])
async def test_a_slash_at_the_end_changes_nothing_and_head_works(path: str) -> None:
    operated = Operated()
    assert (await operated.get(path + "/")).content == (await operated.get(path)).content
    assert (await operated.get(path, "HEAD")).status_code == 200
