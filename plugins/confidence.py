"""Says how sure a model was of its answer, from the probabilities of the tokens it chose."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from math import exp, fsum
from typing import Any, Literal, NamedTuple

from pydantic import Field

from gateway.sdk import Answer, Exchange, Hit, Options, Plugin, Refused

_CHAT = "/v1/chat/completions"
_COMPLETIONS = "/v1/completions"
_RESPONSES = "/v1/responses"
_TOLD = "message.output_text.logprobs"
_TAG = "low_confidence"
_TOP = 3  # alternatives that a margin needs
_FLOOR = -9999.0  # vLLM's own, for tokens that cannot come
_UNTOLD = 700.0  # exp of more is no number that JSON readers have to know
_UNSURE = 3  # spans told in detail

Metric = Literal["margin", "mean_probability"]


class ConfidenceOptions(Options):
    """What is measured, and what follows from it."""

    metric: Metric = Field(
        default="margin", description="how far the first token was ahead of its rivals, or the mean of all tokens"
    )
    detail: bool = Field(default=False, description="add both metrics, perplexity and the least certain spans")
    threshold: float | None = Field(default=None, ge=0, le=1, description="an answer below it is of low confidence")
    below: Literal["tag", "fallback"] = Field(
        default="tag", description="tag it low_confidence, or fail with that code so that fallback answers"
    )


class Measured(NamedTuple):
    """One choice in numbers; None where there is nothing to measure. Never NaN."""

    margin: float | None = None
    mean_probability: float | None = None
    perplexity: float | None = None
    least_certain: Sequence[dict[str, Any]] = ()


class _Tokens(NamedTuple):
    texts: list[str]
    logprobs: list[float]
    first: list[float]  # log probabilities of the first token's alternatives


class Confidence(Plugin):
    """Reports how sure the model was: a number from 0 to 1, or null."""

    Options = ConfidenceOptions
    options: ConfidenceOptions

    def on_request(self, exchange: Exchange) -> None:
        """Ask for log probabilities; the caller sees those that it asked for."""
        request = exchange.request
        if exchange.route == _CHAT:
            wanted, fewest = _asked_by_chat(request), self._alternatives()
        elif exchange.route == _COMPLETIONS and not request.get("echo"):  # of an echo the prompt would be measured
            wanted, fewest = _asked_by_completion(request), self._alternatives()
        elif exchange.route == _RESPONSES:
            wanted, fewest = _asked_by_response(request), self._alternatives()
        else:
            return  # /v1/messages knows no log probabilities
        if wanted is None:
            return
        exchange.state[self.name] = True
        if wanted < fewest:
            request |= _WANTED[exchange.route](request, fewest)
            exchange.show_logprobs = wanted
        if self.options.below == "fallback" and self.options.threshold is not None:
            exchange.needs_whole_answer = True

    def _alternatives(self) -> int:
        return _TOP if self.options.metric == "margin" or self.options.detail else 0

    def on_answer(self, exchange: Exchange, answer: Answer) -> None:
        """Measure every choice. Raises Refused where too low a confidence is to be answered otherwise."""
        if self.name not in exchange.state:
            return
        measured = [measure(choice) for choice in answer.choices()]
        numbers = [getattr(each, self.options.metric) for each in measured]
        exchange.extra["confidence"] = _one_or_all(numbers)
        if self.options.detail:
            exchange.extra["confidence_detail"] = _one_or_all([each._asdict() for each in measured])
        threshold = self.options.threshold
        if threshold is None or all(number is None or number >= threshold for number in numbers):
            return
        exchange.tag(_TAG)
        exchange.hit(Hit(self.name, _TAG, self.options.below, "answer", _TAG))
        if self.options.below == "fallback" and not answer.shown:
            message = "The model was not sure enough of its answer."
            raise Refused(message, status=502, code=_TAG, error_type="server_error")


def measure(choice: dict[str, Any]) -> Measured:
    """Measure one choice by its log probabilities, of chat's form or of completions'."""
    tokens = _tokens(choice.get("logprobs"))
    if not tokens.logprobs:
        return Measured()
    probabilities = [exp(each) for each in tokens.logprobs]
    surprise = -fsum(tokens.logprobs) / len(tokens.logprobs)
    return Measured(
        margin(tokens.first),
        round(fsum(probabilities) / len(probabilities), 4),
        round(exp(surprise), 4) if surprise < _UNTOLD else None,
        _least_certain(tokens.texts, probabilities),
    )


def margin(logprobs: Iterable[float]) -> float | None:
    """Return (p1 - p2) / (p1 - p3) of the three likeliest, from 0 to 1. A rival that is missing has no probability."""
    first, second, third, *_ = [*sorted(map(exp, logprobs), reverse=True), 0.0, 0.0, 0.0]
    if first == 0:
        return None
    return round(min(1.0, max(0.0, (first - second) / (first - third))), 4) if first > third else 0.0


def _least_certain(texts: Sequence[str], probabilities: Sequence[float]) -> list[dict[str, Any]]:
    """Return the least likely tokens, neighbours as one span, in order; positions are code points of the answer."""
    ends = list(accumulate(map(len, texts)))
    spans: list[dict[str, Any]] = []
    last = None
    for at in sorted(sorted(range(len(texts)), key=probabilities.__getitem__)[:_UNSURE]):
        probability = round(probabilities[at], 4)
        if last is not None and at == last + 1:
            span = spans[-1]
            span |= {"end": ends[at], "text": span["text"] + texts[at]}
            span["probability"] = min(span["probability"], probability)
        else:
            start = ends[at] - len(texts[at])
            spans.append({"start": start, "end": ends[at], "text": texts[at], "probability": probability})
        last = at
    return spans


def _tokens(logprobs: Any) -> _Tokens:
    """Read what either route tells of its tokens; entries without a number are left out."""
    if not isinstance(logprobs, dict):
        return _Tokens([], [], [])
    if "tokens" in logprobs:
        tops = logprobs.get("top_logprobs") or [None]
        pairs = zip(logprobs.get("tokens") or (), logprobs.get("token_logprobs") or (), strict=False)
        first = list((tops[0] or {}).values())
    else:
        entries = logprobs.get("content") or []
        pairs = zip(*([entry.get(name) for entry in entries] for name in ("token", "logprob")), strict=True)
        first = [each.get("logprob") for entry in entries[:1] for each in entry.get("top_logprobs") or ()]
    known = [(str(text), value) for text, number in pairs if (value := _number(number)) is not None]
    rivals = [value for number in first if (value := _number(number)) is not None]
    return _Tokens([text for text, _ in known], [value for _, value in known], rivals)


def _number(value: Any) -> float | None:
    """Return a log probability between the floor and 0; None for what is none, NaN among it."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:  # noqa: PLR0124 - only NaN is not itself
        return None
    return float(min(0.0, max(_FLOOR, value)))


def _asked_by_chat(request: dict[str, Any]) -> int | None:
    """Return how many alternatives the caller wants, -1 for no log probabilities; None: the engine will refuse it."""
    wanted, top = request.get("logprobs"), request.get("top_logprobs")
    if not (wanted is None or isinstance(wanted, bool)) or not (top is None or _is_count(top)):
        return None
    return (top or 0) if wanted else -1


def _asked_by_completion(request: dict[str, Any]) -> int | None:
    wanted = request.get("logprobs")
    if wanted is None:
        return -1
    return wanted if _is_count(wanted) else None


def _asked_by_response(request: dict[str, Any]) -> int | None:
    include, top = request.get("include"), request.get("top_logprobs")
    if not (include is None or isinstance(include, list)) or not (top is None or _is_count(top)):
        return None
    return (top or 0) if _TOLD in (include or ()) else -1


#: The fields with which each route asks for so many alternatives.
_WANTED: Mapping[str, Callable[[dict[str, Any], int], dict[str, Any]]] = {
    _CHAT: lambda _, fewest: {"logprobs": True, "top_logprobs": fewest},
    _COMPLETIONS: lambda _, fewest: {"logprobs": fewest},
    _RESPONSES: lambda request, fewest: {
        "include": [*(each for each in request.get("include") or () if each != _TOLD), _TOLD],
        "top_logprobs": fewest,
    },
}


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _one_or_all(each: list[Any]) -> Any:
    return each[0] if len(each) == 1 else each
