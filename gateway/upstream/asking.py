"""A whole answer from some engine, for what the gateway itself or a plugin wants to know."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from gateway.errors import EngineError, EngineTimeout, Failure, NoEngineAvailable
from gateway.protocol import body as bodies
from gateway.protocol import failures
from gateway.protocol.dialects import fitted
from gateway.protocol.stream import BROKE_OFF, NONSENSE
from gateway.upstream.client import Broken, whole
from gateway.upstream.engine import Engine
from gateway.upstream.fleet import Fleet
from gateway.upstream.want import ANY

_LIMIT = 64 * 2**20


async def ask(
    engines: Fleet,
    path: str,
    body: dict[str, Any],
    model: str,
    request_id: str,
    timeout_s: float,
    sampling: Mapping[str, float] = MappingProxyType({}),
) -> dict[str, Any]:
    """Post ``body`` to the best engine, and to the next while none has begun to answer; return the answer's object.

    ``model`` is the name for engines that have none of their own; ``sampling`` fills in what is left open. Raises
    ``Failure``.
    """
    loop = asyncio.get_running_loop()
    tried: set[Engine] = set()
    failure: Failure = NoEngineAvailable("No engine can take the request now; try again soon.", retry_after=2)
    engine, again = None, False
    engines.budget.asked(loop.time())
    try:
        async with asyncio.timeout(timeout_s):
            while (engine := engines.choose(tried, loop.time())) is not None:
                if again and not engines.again(engine, loop.time(), busy=isinstance(failure, failures.Busy)):
                    break
                tried.add(engine)
                try:
                    named = {**body, "model": engine.served_model or model}
                    return await _ask_one(engine, path, fitted(engine.dialect, path, named, sampling), request_id)
                except failures.Busy as busy:
                    engine.busy(loop.time())
                    failure, again = busy, True
                except Broken as broken:
                    engine.failed(loop.time())
                    if broken.kind != "refused":
                        failure, again = EngineError(BROKE_OFF if broken.kind == "broke_off" else NONSENSE), True
                    if broken.answer_begun:
                        break
    except TimeoutError:
        if engine is not None:
            engine.failed(loop.time())
        raise EngineTimeout("The model did not answer in time.") from None
    raise failure


async def _ask_one(engine: Engine, path: str, body: dict[str, Any], request_id: str) -> dict[str, Any]:
    raw = bodies.encode(body)
    engine.begin(ANY)
    try:
        answer = await whole(engine.pool, engine.head(path, request_id, len(raw), {}), raw, limit=_LIMIT)
    finally:
        engine.end(ANY)
    if answer.status != 200:
        retry_after = dict(answer.headers).get(b"retry-after", b"").decode("latin-1")
        failure = failures.from_engine(answer.status, answer.body, retry_after or None)
        if answer.status >= 500 and not isinstance(failure, failures.Busy):
            engine.failed(asyncio.get_running_loop().time())
        raise failure
    engine.answered()
    try:
        return bodies.decode(answer.body)
    except Failure:
        raise EngineError(NONSENSE) from None
