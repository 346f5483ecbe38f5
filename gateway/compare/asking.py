"""Asks both targets, side by side and in turn, and notes what came and when."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import msgspec

from gateway.compare.cases import Case
from gateway.compare.targets import Target
from gateway.protocol.sse import Splitter
from gateway.upstream.client import Broken, Headers, Origin, Pool, fetch, request_head

CHAT = "/v1/chat/completions"
_JUDGED = (
    "You judge an answer to a question by one criterion.\n\nQuestion:\n{question}\n\nAnswer:\n{answer}\n\n"
    "Criterion: {criterion}\n\nDoes the answer meet the criterion? Reply with one word, yes or no."
)


@dataclass(frozen=True, slots=True)
class Heard:
    """One answer: what it says, what is wrong with it (nothing: it is right), times in seconds, tokens."""

    text: str
    wrong: tuple[str, ...]
    seconds: float
    first_s: float | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0
    failed: bool = False  # there is no answer


class _Stream:
    """A sink that takes a stream apart as it comes."""

    def __init__(self) -> None:
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.status, self.body = 0, b""
        self.texts: list[str] = []
        self.usage: dict[str, Any] = {}
        self.error = ""
        self.closed = False  # the kept connection had been closed for idleness: the request was not seen
        self.first: float | None = None
        self._frames = Splitter()

    def on_head(self, status: int, headers: Headers) -> None:  # noqa: ARG002 - a sink's signature
        """Note the status."""
        self.status = status

    def on_data(self, data: bytes) -> None:
        """Take the next events, or the next piece of a refusal."""
        if self.status != 200:
            self.body += data[: 2**16]
            return
        for frame in self._frames.feed(data):
            for line in frame.splitlines():
                if line.startswith(b"data:") and (raw := line[5:].strip()) != b"[DONE]":
                    self._event(raw)

    def _event(self, raw: bytes) -> None:
        try:
            event = msgspec.json.decode(raw)
            if "error" in event:
                self.error = _message(event)
                return
            if isinstance(usage := event.get("usage"), dict):
                self.usage = usage
            text = "".join(each.get("delta", {}).get("content") or "" for each in event.get("choices", []))
        except (msgspec.MsgspecError, AttributeError, TypeError):
            self.error = "an event that is none of a chat"
            return
        if text and self.first is None:
            self.first = perf_counter()
        self.texts.append(text)

    def on_end(self) -> None:
        """The answer is whole."""
        if not self.over.done():
            self.over.set_result(None)

    def on_failure(self, failure: Broken) -> None:
        """It will not come."""
        self.error = str(failure) or failure.kind
        self.closed = failure.reused and not failure.answer_begun
        self.on_end()


class Side:
    """One target, its connections, and its judge."""

    def __init__(self, target: Target, timeout_s: float) -> None:
        self.target = target
        self._pool = Pool(Origin.parse(target.url))
        self._timeout_s = timeout_s
        key = [(b"authorization", f"Bearer {target.key}".encode())] if target.key else []
        more = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in target.headers]
        self._headers: Headers = [(b"content-type", b"application/json"), *key, *more]

    async def ask(self, request: dict[str, Any]) -> tuple[_Stream, float, float]:
        """Send one request and wait for all of its answer; return it, when it was sent, and how long it took."""
        asked = await self._ask(request)
        return await self._ask(request) if asked[0].closed else asked

    async def _ask(self, request: dict[str, Any]) -> tuple[_Stream, float, float]:
        body = msgspec.json.encode(self.target.body(request))
        stream = _Stream()
        began = perf_counter()
        try:
            async with asyncio.timeout(self._timeout_s):
                connection = self._pool.idle() or await self._pool.connect()
                try:
                    head = request_head("POST", CHAT, self._pool.origin, self._headers, len(body))
                    connection.send(head, body, stream)
                    await stream.over
                finally:
                    connection.cancel()
        except TimeoutError:
            stream.error = f"no answer within {self._timeout_s:g} s"
        except Broken as fault:
            stream.error = str(fault) or fault.kind
        if stream.status != 200 and not stream.error:
            stream.error = f"{stream.status}: {_message(_decoded(stream.body))}"
        return stream, began, perf_counter() - began

    async def answer(self, case: Case, judge: Side | None) -> Heard:
        """Answer a case, and hold it to its checks."""
        stream, began, seconds = await self.ask(case.request)
        text = "".join(stream.texts)
        if stream.error:
            return Heard(text, (stream.error,), seconds, failed=True)
        wrong = [f"{name}: {said}" for name, check in case.checks if (said := check(text))]
        if judge is not None:
            try:
                wrong += [said for criterion in case.criteria if (said := await judge.judged(case, text, criterion))]
            except ValueError as fault:  # neither right nor wrong: a judge that is away must not make both alike
                return Heard(text, (*wrong, str(fault)), seconds, failed=True)
        used = stream.usage
        first = None if stream.first is None else stream.first - began
        prompt, completion = _count(used.get("prompt_tokens")), _count(used.get("completion_tokens"))
        return Heard(text, tuple(wrong), seconds, first, prompt, completion)

    async def judged(self, case: Case, answer: str, criterion: str) -> str:
        """Ask a model whether an answer meets a criterion; return what is wrong, or nothing.

        Raises ValueError where it does not say.
        """
        question = str(case.request["messages"][-1].get("content"))
        content = _JUDGED.format(question=question, answer=answer, criterion=criterion)
        asked = {"messages": [{"role": "user", "content": content}], "temperature": 0, "max_tokens": 8}
        stream, _, _ = await self.ask(asked)
        said = "".join(stream.texts).strip().lower()
        if stream.error or not said.startswith(("yes", "no")):
            raise ValueError(f"judge: {stream.error or f'says neither yes nor no: {said!r}'}")
        return "" if said.startswith("yes") else f"judge: {criterion}: {said!r}"

    async def only_model(self) -> str:
        """Return the model it serves, where the target names none. Raises ValueError."""
        if self.target.model:
            return self.target.model
        try:
            answer = await fetch(self._pool, "GET", "/v1/models", headers=self._headers)
            names = [each["id"] for each in _decoded(answer.body)["data"]]
        except (Broken, TimeoutError, KeyError, TypeError) as fault:
            raise ValueError(f"{self.target.label}: {str(fault) or 'no answer'}") from None
        if len(names) != 1:
            raise ValueError(f"{self.target.label}: say which model, {self.target.url}#NAME: {', '.join(names)}")
        return str(names[0])

    async def close(self) -> None:
        """Close its connections."""
        await self._pool.close()


async def run(
    sides: tuple[Side, Side], cases: Sequence[Case], judge: Side | None, *, repeats: int, at_once: int
) -> tuple[dict[str, list[Heard]], dict[str, list[Heard]]]:
    """Ask each case ``repeats`` times of both, ``at_once`` at a time, first the one and then the other in front.

    What disturbs one disturbs the other, then. One answer of each that is not counted comes first: it may compile.
    """
    for side in sides:
        await side.ask({**cases[0].request, "max_tokens": 1})
    heard: tuple[dict[str, list[Heard]], dict[str, list[Heard]]] = ({}, {})
    places = asyncio.Semaphore(at_once)

    async def one(at: int, case: Case) -> None:
        async with places:
            heard[at].setdefault(case.name, []).append(await sides[at].answer(case, judge))

    turns = [(turn, case) for turn in range(repeats) for case in cases]
    async with asyncio.TaskGroup() as group:
        for number, (_, case) in enumerate(turns):
            for at in (0, 1) if number % 2 == 0 else (1, 0):
                group.create_task(one(at, case))
    return heard


def _count(told: Any) -> int:
    return told if isinstance(told, int) else 0


def _decoded(raw: bytes) -> Any:
    try:
        return msgspec.json.decode(raw)
    except msgspec.MsgspecError:
        return None


def _message(told: Any) -> str:
    match told:
        case {"error": {"message": str(message)}} | {"error": str(message)} | {"detail": str(message)}:
            return message.splitlines()[0][:200] if message else "an error"
        case _:
            return "no answer of OpenAI's form"
