"""The operator's routes under /admin: each is a function in a table, and who may call them is asked in one place."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from fastapi import APIRouter, Request, Response
from starlette.responses import JSONResponse

from gateway.errors import Failure, InvalidKey, InvalidRequest, ModelNotAllowed
from gateway.explain import Question, able, explained, lists
from gateway.live import ANY_MODEL, Live
from gateway.upstream.roster import Roster

Endpoint = Callable[[Request], Awaitable[Mapping[str, Any]]]
"""Answers with a JSON object, or raises Failure. It finds the request's configuration and body in the scope."""

T = TypeVar("T")

_PLACE = re.compile(r"^(?P<what>.*?)(?: - at `\$\.?(?P<param>.*)`)?$", re.DOTALL)


class WordsTest(msgspec.Struct, forbid_unknown_fields=True):
    """The body of /admin/words/test: a text, and whose it is; null is whichever."""

    text: str
    key: str | None = None
    model: str | None = None
    direction: Literal["request", "answer"] | None = None


Weight = Annotated[float, msgspec.Meta(ge=0, le=1_000_000)]
Named = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]


class EngineOrder(msgspec.Struct, forbid_unknown_fields=True):
    """The body of /admin/engines/order: what is to be changed of an engine; null leaves it."""

    name: str
    weight: Weight | None = None
    draining: bool | None = None
    removed: bool | None = None


class EngineAdded(msgspec.Struct, forbid_unknown_fields=True):
    """The body of POST /admin/engines: a further engine of a model."""

    model: str
    name: Named
    url: str
    weight: Weight = 0.0


def router(endpoints: Mapping[tuple[str, str], Endpoint]) -> APIRouter:
    """Return the routes, by method and path, each with and without a slash at its end."""
    made = APIRouter()
    for (method, path), endpoint in endpoints.items():
        for spelled in (path, f"{path}/"):
            made.add_route(spelled, _for_operators(endpoint), methods=[method])
    return made


def _for_operators(endpoint: Endpoint) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        try:
            check_operator(request)
            told = await endpoint(request)
        except Failure as failure:
            return JSONResponse(failure.body(), failure.status)
        return Response(msgspec.json.encode(told), media_type="application/json")

    return answer


def check_operator(request: Request) -> None:
    """Let an operator's key pass, which the auth middleware has looked up. Raises InvalidKey or ModelNotAllowed."""
    principal = request.scope.get("sluice.principal")
    if principal is None:
        raise InvalidKey(f"{request.url.path[:200]} needs an operator's key.")
    if not principal.operator:
        raise ModelNotAllowed(f"{request.url.path[:200]} is for operators: keys with role: operator.")


def body_of(request: Request, kind: type[T]) -> T:
    """Read the request's body. Raises InvalidRequest, which names the field."""
    try:
        return msgspec.json.decode(request.scope["sluice.body"], type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:  # the former's child ValidationError too
        found = _PLACE.match(str(error))
        what, param = (found["what"], found["param"]) if found else ("not JSON", None)
        raise InvalidRequest(f"The body cannot be used: {what}.", param=param or None) from None


async def words_test(request: Request) -> Mapping[str, Any]:
    """Say which rules fire on a text, on which span, and through which fold; nothing is sent anywhere or kept."""
    live: Live = request.scope["sluice.live"]
    asked = body_of(request, WordsTest)
    if asked.key is not None and asked.key not in live.keys.names:
        raise InvalidRequest("There is no key of this name.", param="key")
    model = asked.model
    if model is not None and ANY_MODEL not in live.models:
        if model not in live.models:
            raise InvalidRequest("There is no model of this name.", param="model")
        model = live.models[model].name
    links = live.chain.links
    if not able(links):
        raise InvalidRequest("No plugin of the chain has words: add sensitive_words to it.")
    question = Question(asked.text, asked.key, model, asked.direction)
    hits = await asyncio.to_thread(explained, links, question)
    return {"hits": hits, "lists": list(lists(links)), "config_version": live.version}


ENDPOINTS: dict[tuple[str, str], Endpoint] = {("POST", "/admin/words/test"): words_test}


@dataclass(frozen=True, slots=True)
class Engines:
    """The engines of the running gateway; ``in_flight`` counts the requests at each over all workers."""

    roster: Roster
    in_flight: Callable[[], Mapping[str, int]]

    def endpoints(self) -> dict[tuple[str, str], Endpoint]:
        """Return the routes."""
        return {
            ("GET", "/admin/engines"): self.told,
            ("POST", "/admin/engines"): self.add,
            ("POST", "/admin/engines/order"): self.order,
        }

    async def told(self, _: Request) -> Mapping[str, Any]:
        """Describe every engine."""
        counted = await asyncio.to_thread(self.in_flight)
        rows = self.roster.told(asyncio.get_running_loop().time())
        return {"engines": [{**row, "in_flight": max(row["in_flight"], counted.get(row["name"], 0))} for row in rows]}

    async def order(self, request: Request) -> Mapping[str, Any]:
        """Change an engine's weight, drain or remove it."""
        asked = body_of(request, EngineOrder)
        changes = {name: value for name, value in msgspec.structs.asdict(asked).items() if value is not None}
        del changes["name"]
        if not changes:
            raise InvalidRequest("An order changes weight, draining or removed.")
        try:
            self.roster.order(asked.name, **changes)
        except LookupError as fault:
            raise InvalidRequest(_sentence(fault), param="name") from None
        return await self.told(request)

    async def add(self, request: Request) -> Mapping[str, Any]:
        """Add an engine that is in no configuration."""
        asked = body_of(request, EngineAdded)
        if not asked.name.isprintable() or asked.name != asked.name.strip() or "://" in asked.name:
            raise InvalidRequest("A name is printable characters without spaces around them, no address.", param="name")
        try:
            self.roster.add(asked.model, asked.name, asked.url, asked.weight)
        except LookupError as fault:
            raise InvalidRequest(_sentence(fault), param="model") from None
        except ValueError as fault:
            raise InvalidRequest(_sentence(fault)) from None
        return await self.told(request)


def _sentence(fault: Exception) -> str:
    """Write what an exception says as one of ours; a KeyError's own text would stand in quotation marks."""
    said = str(fault.args[0])
    return f"{said[:1].upper()}{said[1:]}."
