"""The shape of the configuration: a model for each section, its attributes the keys, with defaults and meanings."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    IPvAnyNetwork,
    PrivateAttr,
    SecretStr,
    ValidationInfo,
    model_validator,
)

from gateway.settings.addresses import a_redis, an_engine
from gateway.settings.faults import Source

#: The name of a model that stands for whatever its engine serves: the caller's name is passed on.
ANY_MODEL = "*"

_OF_REDIS = re.compile(r"db=\d+|ssl_(ca_certs|certfile|keyfile)=.+|ssl_cert_reqs=(required|none)")
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


class Section(BaseModel):
    """A part of the configuration: unknown keys are refused, nothing changes, no message shows what was put in."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _an_empty_key_is_the_default(cls, data: Any) -> Any:
        """``keys:`` with nothing but comments below it is YAML's null; people mean that there are none."""
        if not isinstance(data, dict):
            return data
        has_default = {name for name, each in cls.model_fields.items() if type(None) not in get_args(each.annotation)}
        return {name: value for name, value in data.items() if value is not None or name not in has_default}


def _a_name(text: str) -> str:
    if not text or not text.isprintable() or text != text.strip() or len(text) > 200:
        raise ValueError("has to be 1 to 200 printable characters without spaces around them")
    if "://" in text:
        raise ValueError("has to be a name, not an address: logs and metrics show it")
    return text


def _a_sha256(text: str) -> str:
    digest = text.lower()
    if len(digest) != 64 or digest.strip("0123456789abcdef"):
        raise ValueError("has to be 64 hexadecimal digits, the SHA-256 of the key: sluice keys new makes one")
    if digest == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855":
        raise ValueError("is the SHA-256 of an empty key: sluice keys new makes a good one")
    return digest


def _beside_the_configuration(path: Path, info: ValidationInfo) -> Path:
    return Path((info.context or {}).get("base", ".")) / path


def _a_bearer(key: SecretStr | None) -> SecretStr | None:
    if key is not None and not re.fullmatch(r"[!-~]([ -~]*[!-~])?", key.get_secret_value()):
        raise ValueError("has to be plain characters; one that comes from a file may have its line end with it")
    return key


def _a_language(tag: str) -> str:
    if not re.fullmatch(r"[a-z]{2,8}(-[a-z0-9]{1,8})*", tag.lower()):
        raise ValueError("has to be a language, as in Accept-Language: en, zh, zh-hant")
    return tag.lower()


def _words(value: Any) -> Any:
    """A flag's value may be written as a number."""
    numbers = isinstance(value, list)
    return [str(each) if isinstance(each, int | float) else each for each in value] if numbers else value


def _none_if_empty(value: Any) -> Any:
    return None if value == "" else value  # ${VLLM_API_KEY:-} of a variable that is not set


Name = Annotated[str, AfterValidator(_a_name)]
Language = Annotated[str, AfterValidator(_a_language)]
Words = Annotated[str, Field(min_length=1, max_length=1000)]
Seconds = Annotated[float, Field(gt=0, le=86400 * 7)]
Count = Annotated[int, Field(ge=1)]
BesideConfiguration = Annotated[Path, AfterValidator(_beside_the_configuration)]
Secret = Annotated[SecretStr | None, BeforeValidator(_none_if_empty)]
Bearer = Annotated[Secret, AfterValidator(_a_bearer)]
Dialect = Literal["vllm", "sglang", "llama.cpp", "ollama", "tgi", "transformers", "gateway", "openai"]


class Server(Section):
    """The gateway's own socket and what it takes from callers."""

    host: Annotated[str, Field(min_length=1)] = Field(
        "0.0.0.0",  # noqa: S104 - without keys it is 127.0.0.1 (Settings), and another host is refused (checks)
        description="Address to listen on, `::` for IPv4 too; without keys 127.0.0.1, and nothing else is accepted.",
    )
    port: int = Field(8080, ge=0, le=65535, description="Port to listen on; 0 takes a free one.")
    workers: Count = Field(1, le=256, description="Processes that serve.")
    max_body_bytes: Count = Field(10_485_760, description="Longest request body, counted unpacked.")
    media_hosts: list[Name] = Field([], description="Hosts that media URLs may name; data URLs always pass.")
    metrics: Literal["open", "operator"] = Field("open", description="Who may read /metrics: all, or operator keys.")
    docs: bool = Field(True, description="Serve /docs and /openapi.json.")
    traces: Annotated[str, Field(pattern="^https?://")] | None = Field(
        None, description="Collector for OpenTelemetry's traces, over HTTP: http://host:4318; needs the extra otel."
    )
    heartbeat_s: Seconds = Field(15, description="Silence after which a stream gets a comment to stay alive.")
    drain_s: float = Field(120, ge=0, le=86400, description="How long running answers may take to end on SIGTERM.")
    trusted_proxies: list[IPvAnyNetwork] = Field(
        [], description="Addresses or networks of proxies whose X-Forwarded-For is believed."
    )


class Timeouts(Section):
    """How long an engine may take, in seconds."""

    connect_s: Seconds = Field(3, description="To connect to an engine.")
    first_token_s: Seconds = Field(120, description="Until the first event of a stream.")
    idle_s: Seconds = Field(60, description="Between two events of a stream.")
    total_s: Seconds = Field(1800, description="For a whole exchange.")


class Queue(Section):
    """Who waits where a model has no room, and for how long."""

    length: int = Field(256, ge=0, description="Requests that may wait; 0: none, who finds no room gets 429 at once.")
    max_wait_s: Seconds = Field(10, description="Who has waited so long goes first, every second place at most.")
    timeout_s: Seconds = Field(30, description="Longest wait; then 429 queue_full.")
    batch_share: float = Field(0.8, gt=0, le=1, description="Of a model's room, what batch requests may hold.")
    kv_headroom: float = Field(0.2, ge=0, lt=1, description="Of the engines' KV cache, what is never reserved.")


class EngineEntry(Section):
    """One vLLM, or whatever speaks its protocol."""

    name: Name = Field("", description="What logs and metrics show; by default the model's name and a number.")
    url: Annotated[str, AfterValidator(an_engine)] = Field(
        description="http://host:port, https://host:port or unix:/path."
    )
    weight: float = Field(1, ge=0, le=1_000_000, description="Share of the requests; 0 takes none.")
    served_model: Name | None = Field(None, description="The model's name at this engine; by default ours.")
    api_key: Bearer = Field(None, description="Bearer key that the engine asks for.")
    dialect: Dialect = Field("vllm", description="What it is: decides which fields it gets and under which names.")
    keys: list[Name] = Field([], description="Keys whose requests go to it first; the others by weight.")
    headers: dict[str, str] = Field({}, description="Requests with one of these headers and its value go to it first.")
    priority: int | None = Field(None, description="Keys of this priority or a lower number go to it first.")
    mirror: float = Field(0, ge=0, le=1, description="It gets copies of this part of the requests, and nothing else.")
    each_address: bool | None = Field(
        None, description="Every address of its name is an engine; by default where the URL is http://."
    )

    @model_validator(mode="after")
    def _headers_are_spelled_as_on_the_wire(self) -> Self:
        for name, value in self.headers.items():
            if not _HEADER.fullmatch(name) or not value.isprintable() or not value.isascii():
                raise ValueError("headers has to map header names to values of plain characters")
        return self

    scheduling: Literal["fcfs", "priority"] = Field(
        "fcfs", description="The engine's own order (vLLM's --scheduling-policy); priority: it is told each request's."
    )


class Sampling(Section):
    """Sampling that every engine and route gets alike; null leaves it to the engine. A request's own values win."""

    temperature: float | None = Field(None, ge=0, le=2, description="0 takes the likeliest token.")
    top_p: float | None = Field(None, gt=0, le=1, description="Of the likeliest tokens so much probability.")
    top_k: int | None = Field(None, ge=-1, description="So many of the likeliest tokens; -1 or 0: all.")
    min_p: float | None = Field(None, ge=0, le=1, description="Tokens at least this part as likely as the likeliest.")
    presence_penalty: float | None = Field(None, ge=-2, le=2, description="Against tokens that have occurred.")
    frequency_penalty: float | None = Field(None, ge=-2, le=2, description="The same, by how often.")
    repetition_penalty: float | None = Field(None, gt=0, le=2, description="The same, by division; 1: none.")


class Model(Section):
    """A model that callers can name, and the engines that serve it."""

    name: Name = Field(description='What callers put into "model"; "*", alone, is whatever the engine serves.')
    aliases: list[Name] = Field([], description="Other names for it.")
    engines: Annotated[list[EngineEntry], Field(min_length=1)] = Field(description="Who serves it.")
    tokenizer: BesideConfiguration | None = Field(
        None, description="Folder with tokenizer.json, for exact counts; else the engine's /tokenize is asked."
    )
    max_output_tokens: Count | None = Field(
        1024, description="Default and ceiling of max_tokens; null leaves both to the engine."
    )
    max_in_flight: Count = Field(64, description="Requests at its engines at one time.")
    queue: Queue = Field(default_factory=Queue, description="Where the others wait.")
    max_choices: Count = Field(8, description="Ceiling of n.")
    max_prompts: Count = Field(64, description="Ceiling of a list of prompts.")
    isolate_prefix_cache: bool = Field(False, description="Give each key a prefix cache of its own (cache_salt).")
    keep_prefixes: bool = Field(True, description="Send prompts that begin alike to the same engine while it has room.")
    sampling: Sampling = Field(default_factory=Sampling, description="What requests get that say nothing of it.")
    warm_up: bool = Field(True, description="An engine that comes up answers one request of ours before any other.")
    warm_after_idle_s: Seconds | None = Field(None, description="Warm an engine again that had no request for so long.")
    slow_start_s: float = Field(
        20, ge=0, le=3600, description="An engine that comes up gets its whole share after this."
    )
    stalled_after_s: Seconds = Field(30, description="An engine with requests and no token for so long is passed over.")

    @model_validator(mode="before")
    @classmethod
    def _name_the_engines(cls, data: Any) -> Any:
        if not (isinstance(data, dict) and isinstance(data.get("name"), str) and isinstance(data.get("engines"), list)):
            return data
        anything = data["name"] == ANY_MODEL
        engines = [
            {
                "name": f"{'engine' if anything else data['name']}-{index}",
                "served_model": None if anything else data["name"],
                **{key: value for key, value in engine.items() if value is not None},
            }
            if isinstance(engine, dict)
            else engine
            for index, engine in enumerate(data["engines"])
        ]
        return {**data, "engines": engines}


class Key(Section):
    """Who may call, and how much."""

    name: Name = Field(description="What logs and metrics show.")
    sha256: Annotated[str, AfterValidator(_a_sha256)] = Field(
        repr=False, description="SHA-256 of the key, in hexadecimal; sluice keys new prints it."
    )
    role: Literal["user", "operator"] = Field(
        "user", description="An operator may also call /admin/… and read /metrics where server.metrics says so."
    )
    models: list[Name] | None = Field(None, description="Models it may call; all, if not given.")
    rpm: Count | None = Field(None, description="Requests a minute.")
    tpm: Count | None = Field(None, description="Tokens a minute, prompt and answer together.")
    max_in_flight: Count | None = Field(None, description="Requests at one time; over it 429 at once.")
    tokens_per_day: Count | None = Field(None, description="Tokens a day (UTC), prompt and answer together.")
    tokens_per_month: Count | None = Field(None, description="Tokens a month (UTC).")
    priority: int = Field(0, ge=-100, le=100, description="Who goes first in a model's queue: the lower, as in vLLM.")
    share: float = Field(1, gt=0, le=1000, description="Weight of its turns in a queue; 2 gets twice as much.")
    batch: bool = Field(False, description="Its requests come after all interactive ones.")
    language: Language | None = Field(None, description="Of messages to it, where it asks for none: en, zh-hant …")


class LimitsSettings(Section):
    """Where the limits of keys are counted."""

    redis: Annotated[Secret, AfterValidator(a_redis)] = Field(
        None, description="redis://[:password@]host:port/0, rediss:// or unix://: exact over all gateways and workers."
    )
    replicas: Count | None = Field(
        None, description="While Redis is away each process grants one part of so many; null: of as many as there were."
    )
    timeout_s: Seconds = Field(0.25, description="Redis is away when it does not answer in this time.")
    lease_s: Seconds = Field(15, description="What a killed gateway held comes back after this time.")


class EngineSettings(Section):
    """The vLLM that sluice up starts; sluice serve does not look at it."""

    model: Annotated[str, Field(min_length=1)] | None = Field(
        None, description="A folder or a hub's name; null is SmolLM2-135M-Instruct, made ready on first use."
    )
    tensor_parallel: Count | Literal["auto"] = Field("auto", description="Over how many devices one model is split.")
    max_model_len: Count | None = Field(None, description="Longest prompt and answer together, in tokens.")
    gpu_memory_utilization: float = Field(0.9, gt=0, le=1, description="Share of a GPU's memory that vLLM takes.")
    args: Annotated[list[str], BeforeValidator(_words)] = Field([], description="Any other flags for vLLM.")


class ChainEntry(Section):
    """One plugin in the chain: requests pass top to bottom, answers bottom to top."""

    plugin: Name = Field(description="Its name; sluice plugins lists what is installed.")
    options: dict[str, Any] = Field({}, repr=False, description="The plugin's own options.")
    on_error: Literal["refuse", "skip"] = Field(
        "refuse", description="When the plugin itself fails: refuse the exchange, or go on without it."
    )
    timeout_s: Seconds = Field(5, description="Longest time for one of its asynchronous hooks.")
    mode: Literal["enforce", "shadow"] = Field(
        "enforce", description="shadow runs it and records what it would have done, and changes nothing."
    )
    models: list[Name] | None = Field(None, description="Only for these models; for all, if not given.")
    keys: list[Name] | None = Field(None, description="Only for these keys; for all, if not given.")


class Messages(Section):
    """What a caller reads whose request was blocked: by language, and where you like by the tag of the rule."""

    language: Language = Field("en", description="Where neither Accept-Language nor the key asks for one that is here.")
    blocked: dict[Language, Words] = Field({}, description="Language to text; there are texts for en and zh.")
    tags: dict[str, dict[Language, Words]] = Field({}, description="Tag to language to text, before the general one.")


class Settings(Section):
    """The whole configuration."""

    server: Server = Field(default_factory=Server)
    timeouts: Timeouts = Field(default_factory=Timeouts)
    models: Annotated[list[Model], Field(min_length=1)]
    keys: list[Key] = Field([])
    limits: LimitsSettings = Field(default_factory=LimitsSettings)
    engine: EngineSettings = Field(default_factory=EngineSettings)
    chain: list[ChainEntry] = Field([])
    messages: Messages = Field(default_factory=Messages)

    _file: Path | None = PrivateAttr(default=None)
    _source: Source = PrivateAttr(default_factory=Source)
    _warnings: tuple[str, ...] = PrivateAttr(default=())
    _again: Callable[[], Settings] | None = PrivateAttr(default=None)

    @model_validator(mode="before")
    @classmethod
    def _loopback_unless_there_are_keys(cls, data: Any) -> Any:
        if not isinstance(data, dict) or data.get("keys"):
            return data
        server = data.get("server") or {}
        if not isinstance(server, dict) or server.get("host") is not None:
            return data
        return {**data, "server": {**server, "host": "127.0.0.1"}}

    def of(self, file: Path | None, source: Source, warnings: Sequence[str], again: Callable[[], Settings]) -> Self:
        """Say where this was read from, and how it is read again. For whoever has read it."""
        self._file, self._source, self._warnings, self._again = file, source, tuple(warnings), again
        return self

    def reread(self) -> Settings:
        """Read file, environment and command line again. Raises ConfigurationError."""
        return self._again() if self._again else self

    @property
    def file(self) -> Path | None:
        """The file it was read from."""
        return self._file

    @property
    def base(self) -> Path:
        """The folder that relative paths start from."""
        return self._file.parent if self._file else Path()

    @property
    def source(self) -> Source:
        """Where each value stands, for whoever finds a fault later."""
        return self._source

    @property
    def warnings(self) -> tuple[str, ...]:
        """What was ignored, in one line each."""
        return self._warnings
