"""The plugin: what a request asks for, its answer's checks, and the second try."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from time import monotonic
from typing import Any, ClassVar, Literal

import msgspec
from pydantic import Field

from gateway.sdk import Answer, Exchange, Failure, Hit, Options, Plugin, Refused
from plugins.json_answer.asking import again
from plugins.json_answer.forms import ROUTES, calls_nothing, form_of, hold, tools_of
from plugins.json_answer.review import Verdict, concerns, is_cut, judge, length
from plugins.json_answer.schema import Checker, Plan, content_checker, decoded, tool_checkers

_LONG = 32_768  # code points; more are looked at in a thread
_TAG = "invalid_json"
#: What a response and a message say, and how they ended.
_SAID = ("content", "incomplete_details", "output", "status", "stop_reason", "stop_sequence")
_SERVER_ERROR = "server_error"


class JsonAnswerOptions(Options):
    """What is done with an answer that is not the JSON it should be."""

    repair: bool = Field(default=True, description="take it out of fences and prose, and mend what is safe to mend")
    retries: int = Field(default=1, ge=0, le=5, description="how often the model is asked again, with what was wrong")
    retry_s: float = Field(default=60, gt=0, description="seconds for all second tries of one request together")
    retry_tokens: int = Field(default=4096, gt=0, description="answer tokens for all second tries together")
    fallback: Any = Field(default=None, description="JSON that takes the place of an answer that stays invalid")
    invalid: Literal["pass", "error"] = Field(
        default="pass", description="without a fallback: pass it on and say so, or fail with invalid_json (502)"
    )
    json_schema: dict[str, Any] | None = Field(
        default=None, alias="schema", description="a JSON Schema for requests that bring no response_format"
    )
    streams: Literal["flow", "buffer"] = Field(
        default="flow",
        description="where the engine holds the answer to the schema: let a stream's text flow, or wait for the whole",
    )
    tools: bool = Field(default=True, description="check the arguments of tool calls against the tool's parameters")


class JsonAnswer(Plugin):
    """Checks that answers are the JSON asked for; mends them, asks again, or says that they are not."""

    Options = JsonAnswerOptions
    options: JsonAnswerOptions
    timeout_s: ClassVar[float] = 330.0  # the options bound what the second tries may take

    def __init__(self, options: JsonAnswerOptions) -> None:
        super().__init__(options)
        self._own = _compiled(options.json_schema)
        self._fallback = _written(options.fallback, self._own)

    def on_request(self, exchange: Exchange) -> None:
        """Refuse a schema that is none; ask the engine to hold the answer to the plugin's own."""
        plan = self._plan(exchange)
        if plan is None:
            return
        exchange.state[self.name] = plan
        request = exchange.request
        held = form_of(exchange.route, request).said is not None
        if plan.content is not None and not held and not plan.tools:
            hold(exchange.route, request, self.options.json_schema)
            held = True
        if plan.content is not None and exchange.stream and (not held or self.options.streams == "buffer"):
            exchange.needs_whole_answer = True

    def _plan(self, exchange: Exchange) -> Plan | None:
        if exchange.route not in ROUTES:
            return None
        request = exchange.request
        form = form_of(exchange.route, request)
        content = content_checker(*form)
        if self._own is not None and form.said is None and not _constrained(request):
            content = self._own
        checked = self.options.tools and not calls_nothing(request)
        tools = tool_checkers(tools_of(exchange.route, request)) if checked else {}
        return Plan(content, tools) if content is not None or tools else None

    def on_answer(self, exchange: Exchange, answer: Answer) -> Awaitable[None] | None:
        """Check every choice; nothing waits where all are valid."""
        plan = exchange.state.get(self.name) or self._plan(exchange)
        if plan is None:
            return None
        choices = [choice for choice in answer.choices() if concerns(choice, plan)]
        if not choices:
            return None
        repair = self.options.repair and not answer.shown
        if sum(length(choice, plan) for choice in choices) > _LONG:
            return self._in_thread(exchange, answer, plan, choices)
        return self._concluded(exchange, answer, plan, choices, [judge(each, plan, repair=repair) for each in choices])

    async def _in_thread(self, exchange: Exchange, answer: Answer, plan: Plan, choices: list[dict[str, Any]]) -> None:
        repair = self.options.repair and not answer.shown

        def judged() -> list[Verdict]:
            return [judge(each, plan, repair=repair) for each in choices]

        waiting = self._concluded(exchange, answer, plan, choices, await asyncio.to_thread(judged))
        if waiting is not None:
            await waiting

    def _concluded(
        self, exchange: Exchange, answer: Answer, plan: Plan, choices: list[dict[str, Any]], verdicts: list[Verdict]
    ) -> Awaitable[None] | None:
        for choice, verdict in zip(choices, verdicts, strict=True):
            self._leave(exchange, choice, verdict, 1)
        if all(verdict.fault is None for verdict in verdicts) or answer.shown or not self.options.retries:
            self._tell(exchange, answer, plan, choices, verdicts)
            return None
        return self._ask_again(exchange, answer, plan, choices, verdicts)

    async def _ask_again(
        self, exchange: Exchange, answer: Answer, plan: Plan, choices: list[dict[str, Any]], verdicts: list[Verdict]
    ) -> None:
        budget = _Budget(self.options.retry_s, self.options.retry_tokens)
        for choice, verdict in zip(choices, verdicts, strict=True):
            if verdict.fault is not None and not is_cut(choice):
                await self._second_try(exchange, answer, plan, choice, verdict, budget)
        self._tell(exchange, answer, plan, choices, verdicts)

    async def _second_try(
        self,
        exchange: Exchange,
        answer: Answer,
        plan: Plan,
        choice: dict[str, Any],
        verdict: Verdict,
        budget: _Budget,
    ) -> None:
        """Ask until an answer is valid, within the budget; an answer that is no better is not taken."""
        last, fault = choice, verdict.fault or ""
        for _ in range(self.options.retries):
            seconds, tokens = budget.left()
            request = again(exchange.route, exchange.request, last, fault, tokens) if min(seconds, tokens) > 0 else None
            if request is None:
                return
            try:
                async with asyncio.timeout(seconds):
                    answered = await exchange.ask(request)
            except (TimeoutError, Failure):
                return  # the first answer is still the best there is
            verdict.attempts += 1
            budget.spend(_add_usage(answer.body, answered))
            choices = Answer(exchange.route, answered).choices()
            if not choices or is_cut(choices[0]):
                return
            last = choices[0]
            judged = judge(last, plan, repair=self.options.repair)
            self._leave(exchange, last, judged, verdict.attempts)
            fault = judged.fault or ""
            if judged.fault is None and concerns(last, plan):
                verdict.fault, verdict.repaired = None, judged.repaired
                choice |= {**last, "index": choice.get("index", 0)}
                if "choices" not in answer.body:  # one answer, whose parts may be others
                    answer.body |= {field: answered[field] for field in _SAID if field in answered}
                return

    def _leave(self, exchange: Exchange, choice: dict[str, Any], verdict: Verdict, attempt: int) -> None:
        """Leave what was unfit as evidence: an audit log that writes texts writes it too."""
        for place, text, fault in verdict.unfit:
            facts = {"fault": fault, "attempt": attempt, "finish_reason": choice.get("finish_reason")}
            where = f"choices[{choice.get('index', 0)}].{place}"
            exchange.state.setdefault("evidence", []).append(
                {"plugin": self.name, "where": where, "text": text, **facts}
            )

    def _tell(
        self, exchange: Exchange, answer: Answer, plan: Plan, choices: list[dict[str, Any]], verdicts: list[Verdict]
    ) -> None:
        said: dict[str, Any] = Verdict(
            next((verdict.fault for verdict in verdicts if verdict.fault is not None), None),
            any(verdict.repaired for verdict in verdicts),
            max(verdict.attempts for verdict in verdicts),
        ).told()
        if len(verdicts) > 1:
            said["choices"] = [verdict.told() for verdict in verdicts]
        exchange.extra["json"] = said
        if said["valid"]:
            self._put(answer, choices)
            return
        exchange.tag(_TAG)
        exchange.hit(Hit(self.name, _TAG, "tag", "answer", _TAG))
        if answer.shown:
            return
        if self._fallback is not None and plan.content is not None:
            for choice, verdict in zip(choices, verdicts, strict=True):
                if verdict.fault is not None:
                    _replace(choice, self._fallback)
            self._put(answer, choices)
            exchange.extra["fallback"] = {"reason": _TAG}
        elif self.options.invalid == "error":
            raise Refused(
                "The model's answer was not the JSON asked for.", status=502, code=_TAG, error_type=_SERVER_ERROR
            )

    @staticmethod
    def _put(answer: Answer, choices: list[dict[str, Any]]) -> None:
        for choice in choices if not answer.shown else ():
            answer.put(choice)


class _Budget:
    """What the second tries of one request may take together: seconds and tokens."""

    def __init__(self, seconds: float, tokens: int) -> None:
        self._until, self._tokens = monotonic() + seconds, tokens

    def left(self) -> tuple[float, int]:
        return self._until - monotonic(), self._tokens

    def spend(self, tokens: int) -> None:
        self._tokens -= tokens


def _compiled(schema: dict[str, Any] | None) -> Checker | None:
    if schema is None:
        return None
    try:
        return Checker(schema)
    except ValueError as error:
        raise ValueError(f"schema is not a JSON Schema that can be used: {error}") from None


def _written(fallback: Any, own: Checker | None) -> str | None:
    """Return the fallback as JSON text; a string is taken for that text. Raises ValueError."""
    if fallback is None:
        return None
    text = fallback if isinstance(fallback, str) else msgspec.json.encode(fallback).decode()
    try:
        decoded(text)
    except ValueError:
        raise ValueError("fallback is not JSON: write an object, or JSON text in quotes") from None
    if own is not None and (fault := own.fault(text)) is not None:
        raise ValueError(f"fallback does not fit schema: {fault}")
    return text


def _constrained(request: dict[str, Any]) -> bool:
    """Does the caller hold the answer to something else? Then that counts."""
    return bool(request.get("structured_outputs")) or any(name.startswith("guided_") for name in request)


def _add_usage(body: dict[str, Any], answered: dict[str, Any]) -> int:
    """Add what a second try took to the answer's usage; return its answer tokens."""
    used, total = answered.get("usage"), body.get("usage")
    if not isinstance(used, dict):
        return 0
    if isinstance(total, dict):
        for name in ("prompt_tokens", "completion_tokens", "input_tokens", "output_tokens", "total_tokens"):
            if name in used or name in total:
                total[name] = (total.get(name) or 0) + (used.get(name) or 0)
    return int(used.get("completion_tokens") or used.get("output_tokens") or 0)


def _replace(choice: dict[str, Any], text: str) -> None:
    """Put the fallback in the place of a choice's content."""
    message = choice.get("message")
    if isinstance(message, dict):
        message.pop("tool_calls", None)
        message["content"] = text
    else:
        choice["text"] = text
    choice["finish_reason"], choice["logprobs"] = "stop", None
