"""One version of the configuration as objects: what an exchange sees from start to end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gateway.admission.entry import Door
from gateway.admission.keys import Keyring
from gateway.pipeline import Chain
from gateway.protocol.openai import Ceilings
from gateway.upstream.fleet import Fleet

if TYPE_CHECKING:  # 20 MB that a gateway without a tokenizer of its own has no use for
    from gateway.engine.tokenizer import Tokenizer

#: The model that stands for whatever its engine serves.
ANY_MODEL = "*"


@dataclass(frozen=True, slots=True)
class Model:
    """What clients put into "model", and where it runs."""

    name: str
    engines: Fleet
    ceilings: Ceilings
    isolate_prefix_cache: bool = False
    sampling: Mapping[str, float] = field(default_factory=dict)  # where a request says nothing
    tokenizer: Tokenizer | None = None  # its own files; without them the engine counts
    created: int = 0
    door: Door = field(default_factory=Door)


@dataclass(frozen=True, slots=True)
class Timeouts:
    """In seconds. ``first_token`` and ``idle`` are for streams; a whole answer has ``connect`` and ``total``."""

    connect: float = 3.0
    first_token: float = 120.0
    idle: float = 60.0
    total: float = 1800.0


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Live:
    """Everything a request needs to know of the configuration; swapped as a whole, and gone with its last request."""

    version: int
    models: Mapping[str, Model]  # by name and by alias
    keys: Keyring
    chain: Chain
    timeouts: Timeouts = Timeouts()
    heartbeat_s: float = 15.0
    media_hosts: frozenset[str] = frozenset()
    max_body_bytes: int = 10 * 1024 * 1024
    lists: Mapping[str, str] = field(default_factory=dict)
