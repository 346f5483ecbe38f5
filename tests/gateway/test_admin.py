"""The operator's routes: for operators alone, and every failure in the form of all others."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from gateway.admin import ENDPOINTS, Engines, router
from gateway.admission.keys import ANYONE, Keyring, Principal
from gateway.live import Live
from gateway.pipeline import Chain, Link
from gateway.sdk import Listing, Plugin
from gateway.upstream.place import Place
from gateway.upstream.roster import Roster, Serving

TEST = "/admin/words/test"
OPERATOR = Principal("ops", "0", role="operator")


class Words(Plugin):
    lists = (Listing("a.txt", 1, "00ff"),)

    def explain(
        self, text: str, *, key: str | None = None, model: str | None = None, direction: str | None = None
    ) -> list[dict[str, Any]]:
        return [{"said": f"{text} fires", "key": key, "model": model, "direction": direction}] if "bad" in text else []


class Administered:
    """The routes in an application, with what the middleware puts into the scope set by hand."""

    def __init__(self, *plugins: Plugin, principal: Principal | None = OPERATOR) -> None:
        self.principal = principal
        model: Any = SimpleNamespace(name="m")
        keys = Keyring([OPERATOR, Principal("team-a", "1")])
        chain = Chain([Link("words", plugin) for plugin in plugins])
        self.live = Live(version=7, models={"m": model, "alias": model}, keys=keys, chain=chain)
        self.app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
        self.app.include_router(router(ENDPOINTS))

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = (await receive())["body"]
        scope |= {"sluice.principal": self.principal, "sluice.live": self.live, "sluice.body": body}
        await self.app(scope, receive, send)

    async def ask(self, body: Any, path: str = TEST) -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(self), base_url="http://sluice") as client:
            return await client.post(path, content=body if isinstance(body, bytes) else json.dumps(body))


@pytest.mark.parametrize("path", [TEST, f"{TEST}/"])
async def test_an_operator_hears_what_fires_and_in_which_version(path: str) -> None:
    answer = await Administered(Words(None)).ask({"text": "bad", "model": "alias", "key": "team-a"}, path)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    assert answer.json() == {
        "hits": [
            {
                "plugin": "words",
                "mode": "enforce",
                "said": "bad fires",
                "key": "team-a",
                "model": "m",
                "direction": None,
            }
        ],
        "lists": [{"plugin": "words", "list": "a.txt", "entries": 1, "version": "00ff"}],
        "config_version": 7,
    }
    assert (await Administered(Words(None)).ask({"text": "good"})).json()["hits"] == []


@pytest.mark.parametrize(
    ("principal", "status", "code"),
    [
        (None, 401, "invalid_api_key"),
        (Principal("team-a", "1"), 403, "model_not_allowed"),
        (ANYONE, 403, "model_not_allowed"),
    ],
)
async def test_nobody_else_hears_anything(principal: Principal | None, status: int, code: str) -> None:
    answer = await Administered(Words(None), principal=principal).ask({"text": "bad"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
    assert "fires" not in answer.text


@pytest.mark.parametrize(
    ("body", "param", "said"),
    [
        (b"{", None, "The body cannot be used"),
        (b"\xff\xfe", None, "The body cannot be used"),
        ({}, None, "missing required field `text`"),
        ({"text": 3}, "text", "Expected `str`, got `int`"),
        ({"text": "x", "direction": "both"}, "direction", "Invalid enum value 'both'"),
        ({"text": "x", "txet": "x"}, None, "unknown field `txet`"),
        ({"text": "x", "key": "team-b"}, "key", "There is no key of this name."),
        ({"text": "x", "model": "n"}, "model", "There is no model of this name."),
        ([], None, "Expected `object`, got `array`"),
    ],
)
async def test_a_body_that_cannot_be_used_is_refused_naming_the_field(body: Any, param: str | None, said: str) -> None:
    answer = await Administered(Words(None)).ask(body)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (400, "invalid_request", param)
    assert said in error["message"]


async def test_a_chain_without_words_says_so() -> None:
    answer = await Administered(Plugin(None)).ask({"text": "x"})
    assert (answer.status_code, "sensitive_words" in answer.json()["error"]["message"]) == (400, True)


ENGINES = "/admin/engines"
PLACE = Place("blue", "http://10.0.0.1:8000")


class Run:
    """The routes of engines, in an application."""

    def __init__(self) -> None:
        self.roster = Roster(lambda: None, leads_here=lambda url: url == "http://127.0.0.1:8080")
        self.fleet = self.roster.serve({"m": Serving([PLACE])})["m"]
        self.administered = Administered()
        self.administered.app.include_router(router(Engines(self.roster, lambda: {"blue": 7}).endpoints()))

    async def ask(self, body: Any, path: str = ENGINES) -> httpx.Response:
        return await self.administered.ask(body, path)

    async def list(self) -> list[dict[str, Any]]:
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(self.administered), base_url="http://sluice"
        ) as client:
            rows: list[dict[str, Any]] = (await client.get(ENGINES)).json()["engines"]
            return rows


async def test_engines_are_told_with_what_all_workers_have_at_them() -> None:
    (row,) = await Run().list()
    assert (row["name"], row["model"], row["weight"], row["in_flight"], row["state"]) == ("blue", "m", 1, 7, "unknown")


async def test_an_order_is_carried_out_and_the_answer_shows_it() -> None:
    run = Run()
    answer = await run.ask({"model": "m", "name": "green", "url": "http://10.0.0.2:8000"})
    assert [row["name"] for row in answer.json()["engines"]] == ["blue", "green"]
    answer = await run.ask({"name": "green", "weight": 3}, f"{ENGINES}/order")
    assert answer.json()["engines"][1]["weight"] == 3
    assert (await run.ask({"name": "blue", "draining": True}, f"{ENGINES}/order")).status_code == 200
    assert [(engine.weight, engine.draining) for engine in run.fleet] == [(1, True), (3, False)]
    await run.ask({"name": "blue", "removed": True}, f"{ENGINES}/order")
    assert [engine.name for engine in run.fleet] == ["green"]


@pytest.mark.parametrize(
    ("path", "body", "param", "said"),
    [
        (f"{ENGINES}/order", {"name": "red", "weight": 1}, "name", "There is no engine 'red'."),
        (f"{ENGINES}/order", {"name": "blue"}, None, "An order changes weight, draining or removed."),
        (f"{ENGINES}/order", {"name": "blue", "weight": -1}, "weight", "Expected `float` >= 0.0"),
        (ENGINES, {"model": "n", "name": "x", "url": "http://h"}, "model", "There is no model 'n'."),
        (ENGINES, {"model": "m", "name": "blue", "url": "http://h"}, None, "There is an engine 'blue' already."),
        (ENGINES, {"model": "m", "name": "x", "url": "http://127.0.0.1:8080"}, None, "is Sluice itself"),
        (ENGINES, {"model": "m", "name": "x", "url": "h:1"}, None, "An engine's URL is"),
        (ENGINES, {"model": "m", "name": "x\n", "url": "http://h"}, "name", "A name is printable characters"),
        (ENGINES, {"model": "m", "name": "http://x", "url": "http://h"}, "name", "A name is printable characters"),
    ],
)
async def test_an_order_that_cannot_be_is_refused_in_one_sentence(path: str, body: Any, param: str, said: str) -> None:
    answer = await Run().ask(body, path)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (400, "invalid_request", param)
    assert said in error["message"]
