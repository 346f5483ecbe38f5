"""Named sets of sampling parameters, which a caller picks by name, and ceilings for what callers ask for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

import structlog
from pydantic import Field

from gateway.sdk import Exchange, KeyName, ModelName, Options, Plugin, Refused

_log = structlog.get_logger()

_CHAT = "/v1/chat/completions"
_COMPLETIONS = "/v1/completions"
_RESPONSES = "/v1/responses"
_MESSAGES = "/v1/messages"
_ROUTES = (_CHAT, _COMPLETIONS, _RESPONSES, _MESSAGES)
#: What other routes call it, and how they say it; what they have no field for is left out.
_OTHERWISE: Mapping[str, Mapping[str, str]] = {
    _RESPONSES: {name: name for name in ("temperature", "top_p", "top_k", "min_p", "frequency_penalty")}
    | {name: name for name in ("presence_penalty", "repetition_penalty", "seed", "stop")}
    | {"max_tokens": "max_output_tokens", "reasoning_effort": "reasoning"},
    _MESSAGES: {name: name for name in ("temperature", "top_p", "top_k", "max_tokens")} | {"stop": "stop_sequences"},
}
#: The fields that say how many alternatives are told.
_LISTED: Mapping[str, tuple[str, ...]] = {
    _CHAT: ("top_logprobs", "prompt_logprobs"),
    _COMPLETIONS: ("logprobs", "prompt_logprobs"),
    _RESPONSES: ("top_logprobs",),
    _MESSAGES: (),
}
_LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
#: Above it models begin to avoid words that the sentence needs, names and digits first.
_HIGH_PENALTY = 1.3


class Preset(Options):
    """Sampling parameters. How many answers come, and in which form, stays the caller's business."""

    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, gt=0, le=1)
    top_k: int | None = Field(default=None, ge=-1)
    min_p: float | None = Field(default=None, ge=0, le=1)
    frequency_penalty: float | None = Field(default=None, ge=-2, le=2)
    presence_penalty: float | None = Field(default=None, ge=-2, le=2)
    repetition_penalty: float | None = Field(default=None, gt=0)
    max_tokens: int | None = Field(default=None, ge=1)
    min_tokens: int | None = Field(default=None, ge=0)
    seed: int | None = None
    stop: str | tuple[str, ...] | None = None
    use_beam_search: bool | None = None
    length_penalty: float | None = None
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high"] | None = None


#: One for each usual use; a preset of the same name in the options takes its place.
SHIPPED: Mapping[str, Preset] = {
    "customer_service": Preset(temperature=0.3),
    "factual": Preset(temperature=0.2),
    "creative": Preset(temperature=0.95, top_p=0.9, max_tokens=1024),
    "code": Preset(temperature=0.2, repetition_penalty=1.2),
    "chat": Preset(temperature=0.7, top_p=0.9, repetition_penalty=1.1, max_tokens=512),
    "deterministic": Preset(temperature=0, seed=0),
}


class Ceilings(Options):
    """The most that a request may ask for; more is lowered, and a tag says so."""

    max_tokens: int | None = Field(default=None, ge=1)
    n: int | None = Field(default=None, ge=1)
    top_logprobs: int | None = Field(default=None, ge=0)
    best_of: int | None = Field(default=None, ge=1)


class PresetsOptions(Options):
    """Which presets there are, and whose they are."""

    presets: dict[str, Preset] = Field(default={}, description="further presets by name, or others for shipped names")
    default: str | None = Field(default=None, description="the preset of requests that nothing else gives one")
    keys: dict[KeyName, str] = Field(default={}, description="the preset of each key (by name)")
    models: dict[ModelName, str] = Field(default={}, description="the preset of each model")
    ceilings: Ceilings = Field(
        default=Ceilings(), description="the most that is let through: max_tokens, n, top_logprobs, best_of"
    )


class Presets(Plugin):
    """Fills in sampling parameters by the name of a preset, and lowers what is over a ceiling."""

    Options = PresetsOptions
    options: PresetsOptions

    def __init__(self, options: PresetsOptions) -> None:
        super().__init__(options)
        presets = {**SHIPPED, **options.presets}
        self._presets = {name: preset.model_dump(exclude_none=True) for name, preset in presets.items()}
        for place, name in _named(options):
            if name not in presets:
                raise ValueError(f"{place}: there is no preset {name!r}; there are {', '.join(presets)}")
        for name, preset in options.presets.items():
            _warn(name, preset)

    def on_request(self, exchange: Exchange) -> None:
        """Fill in what the caller has left open; then lower what is too high. Raises Refused."""
        if exchange.route not in _ROUTES:
            return
        request = exchange.request
        name = self._name(exchange, request)
        if name is not None:
            self._fill(exchange, request, self._presets[name])
            exchange.extra["preset"] = name
        for field in _lower(request, self.options.ceilings, exchange.route):
            if field not in exchange.filled:
                exchange.tag(f"{'max_tokens' if field in _LIMITS else field}_clamped")

    def _name(self, exchange: Exchange, request: Mapping[str, Any]) -> str | None:
        """Return the preset's name: the caller's choice, else the key's, the model's, the default."""
        ours = request.get("sluice")
        if ours is not None and not isinstance(ours, dict):
            raise Refused("sluice must be an object.", param="sluice")
        chosen = ours.get("preset") if ours else None
        if chosen is None:
            options = self.options
            return options.keys.get(exchange.key or "") or options.models.get(exchange.model) or options.default
        if not isinstance(chosen, str) or chosen not in self._presets:
            known = ", ".join(self._presets)
            raise Refused(f"There is no such preset; there are {known}.", param="sluice.preset")
        return chosen

    @staticmethod
    def _fill(exchange: Exchange, request: dict[str, Any], preset: Mapping[str, Any]) -> None:
        names = _OTHERWISE.get(exchange.route)
        if names is not None:
            preset = {names[field]: _said(names[field], value) for field, value in preset.items() if field in names}
        own = {field for field, value in request.items() if value is not None and field not in exchange.filled}
        if "max_completion_tokens" in own:
            own.add("max_tokens")
        for field, value in preset.items():
            if field in own:
                continue
            if field in exchange.filled and exchange.route != _COMPLETIONS:  # the model's ceiling, for want of a wish
                value = min(value, request[field])  # noqa: PLW2901 - the preset's, as far as it may be had
            request[field] = list(value) if isinstance(value, tuple) else value


def _said(field: str, value: Any) -> Any:
    """Return a preset's value as a route's own field has it."""
    if field == "reasoning":
        return {"effort": value}
    return [value] if field == "stop_sequences" and isinstance(value, str) else value


def _named(options: PresetsOptions) -> Iterator[tuple[str, str]]:
    """Go through every preset that the options refer to, with the place."""
    if options.default is not None:
        yield "default", options.default
    for place, names in (("keys", options.keys), ("models", options.models)):
        yield from ((f"{place}.{whose}", name) for whose, name in names.items())


def _warn(name: str, preset: Preset) -> None:
    """Write to the log what will be regretted."""
    if (penalty := preset.repetition_penalty) is not None and penalty > _HIGH_PENALTY:
        said = f"preset {name}: repetition_penalty {penalty} is over {_HIGH_PENALTY}: answers lose words they need"
        _log.warning("preset", said=said)
    if preset.use_beam_search:
        said = f"preset {name}: beams cost several times the work, do not stream, and give duller texts than sampling"
        _log.warning("preset", said=said)


def _lower(request: dict[str, Any], ceilings: Ceilings, route: str) -> Iterator[str]:
    """Lower what is over a ceiling; yield the field for each. What is no number is the engine's to refuse."""
    if (most := ceilings.max_tokens) is not None:
        if route in (_CHAT, _RESPONSES) and all(request.get(field) is None for field in _LIMITS):
            field = "max_output_tokens" if route == _RESPONSES else "max_tokens"
            request[field] = most  # an engine's own default may be all of its window
        for field in _LIMITS:
            if _cap(request, field, most):
                yield field
    if _cap(request, "n", ceilings.n):
        yield "n"
    if _cap(request, "best_of", ceilings.best_of):
        yield "best_of"
        if _cap(request, "n", request["best_of"]):  # an engine takes no more answers than it may choose from
            yield "n"
    if sum(_cap(request, field, ceilings.top_logprobs, all_of_them=-1) for field in _LISTED[route]):
        yield "top_logprobs"


def _cap(request: dict[str, Any], field: str, ceiling: int | None, *, all_of_them: int | None = None) -> bool:
    value = request.get(field)
    if ceiling is None or isinstance(value, bool) or not isinstance(value, int | float):
        return False
    if value <= ceiling and value != all_of_them:
        return False
    request[field] = ceiling
    return True
