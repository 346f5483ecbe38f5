"""The plugin: its options, and what its shape needs of the engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field, field_validator

from gateway.sdk import Exchange, Options, Plugin
from plugins.envelope.profiles import MESSAGES, PROFILES, Profile
from plugins.envelope.shape import Shape


class EnvelopeOptions(Options):
    """Which shape, and how failures are told in it."""

    profile: str | Profile = Field(
        default="openai", description="`openai`, `code_data`, `result_meta`, or a mapping of one's own"
    )
    always_200: bool = Field(default=False, description="failures come with HTTP status 200 too")
    codes: Mapping[str | int, int | str] = Field(
        default={}, description="error code or status: the `$code` that is told; the status if not said"
    )
    statuses: Mapping[str | int, Annotated[int, Field(ge=200, le=599)]] = Field(
        default={}, description="error code or status: the HTTP status that is sent"
    )
    messages: Mapping[str | int, str] = Field(
        default={}, description="error code or status: the `$message` that is told"
    )
    tokens: int = Field(
        default=10, ge=0, le=100, description="first tokens told; the engine is asked for logprobs. 0: none"
    )

    @field_validator("profile")
    @classmethod
    def _is_known(cls, profile: str | Profile) -> str | Profile:
        if isinstance(profile, str) and profile not in PROFILES:
            raise ValueError(f"no profile {profile!r} comes with the plugin, only {', '.join(PROFILES)}")
        return profile


class Envelope(Plugin):
    """Answers in a business system's own shape, for the keys of its entry and under /b/<profile>/v1/…."""

    Options = EnvelopeOptions
    options: EnvelopeOptions
    shape: Shape

    def __init__(self, options: EnvelopeOptions) -> None:
        super().__init__(options)
        profile = PROFILES[options.profile] if isinstance(options.profile, str) else options.profile
        self.shape = Shape(
            profile,
            codes=options.codes,
            statuses=options.statuses,
            messages=options.messages,
            preset=MESSAGES.get(profile.name, {}),
            always_200=options.always_200,
            tokens=options.tokens,
        )
        self.idle = () if self.shape.tells_tokens else ("on_request",)

    def on_request(self, exchange: Exchange) -> None:
        """Ask the engine for the tokens of its answer, where they are told."""
        if exchange.shape is not self.shape:
            return
        if exchange.show_logprobs == -1:  # another plugin asks for them too, and would take them out again
            exchange.show_logprobs = 0
        if exchange.route == "/v1/chat/completions":
            exchange.request["logprobs"] = True
        elif exchange.route == "/v1/completions" and exchange.request.get("logprobs") is None:
            exchange.request["logprobs"] = 0
