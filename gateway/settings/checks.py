"""What no single field can know: names that clash or lead nowhere, doors left open."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterator, Sequence
from urllib.parse import urlsplit

from gateway.settings.faults import Where, did_you_mean
from gateway.settings.models import ANY_MODEL, Settings

Fault = tuple[Where, str]


def faults(settings: Settings) -> list[Fault]:
    """Return every fault that shows only when the sections are seen together."""
    return [fault for check in (_clashes, _strays, _doors, _files, _loops) for fault in check(settings)]


def _twice(named: Sequence[tuple[Where, str]], mend: str) -> Iterator[Fault]:
    seen: dict[str, Where] = {}
    for where, name in named:
        if name in seen:
            yield where, f"{name!r} is already taken: {mend}"
        seen.setdefault(name, where)


def _clashes(settings: Settings) -> Iterator[Fault]:
    models: list[tuple[Where, str]] = []
    engines: list[tuple[Where, str]] = []
    for index, model in enumerate(settings.models):
        models.append((("models", index, "name"), model.name))
        models += ((("models", index, "aliases", i), alias) for i, alias in enumerate(model.aliases))
        engines += ((("models", index, "engines", i, "name"), engine.name) for i, engine in enumerate(model.engines))
        if model.name == ANY_MODEL and (len(settings.models) > 1 or model.aliases):
            yield (
                ("models", index, "name"),
                'the model "*" takes every name: it has to be the only one, without aliases',
            )
    yield from _twice(models, "a model's name or alias leads to one model")
    yield from _twice(engines, "each engine needs a name of its own")
    keys = list(enumerate(settings.keys))
    yield from _twice([(("keys", i, "name"), key.name) for i, key in keys], "each key needs a name of its own")
    first = {key.sha256: key.name for _, key in reversed(keys)}
    for index, key in keys:
        if first[key.sha256] != key.name:
            yield ("keys", index, "sha256"), f"is the same key as {first[key.sha256]!r}: sluice keys new makes another"


def _strays(settings: Settings) -> Iterator[Fault]:
    models = {name for model in settings.models for name in (model.name, *model.aliases)}
    keys = {key.name for key in settings.keys}
    named: list[tuple[Where, list[str] | None, str, set[str]]] = []
    for index, key in enumerate(settings.keys):
        named.append((("keys", index, "models"), key.models, "model", models))
    for index, model in enumerate(settings.models):
        for i, engine in enumerate(model.engines):
            named.append((("models", index, "engines", i, "keys"), engine.keys or None, "key", keys))
    for index, entry in enumerate(settings.chain):
        named.append((("chain", index, "models"), entry.models, "model", models))
        named.append((("chain", index, "keys"), entry.keys, "key", keys))
    for where, names, kind, known in named:
        for i, name in enumerate(names or ()):
            if (fault := stray(kind, name, known)) is not None:
                yield (*where, i), fault
        if names == []:
            yield where, f"names no {kind}: leave it out for all of them"


def stray(kind: str, name: str, known: Collection[str]) -> str | None:
    """Return what is wrong with a model's or a key's name in the configuration.

    Beside the model "*" another name would match nothing, and a filter for it would let all pass.
    """
    if name in known:
        return None
    if kind == "model" and ANY_MODEL in known:
        return f'the model "*" is all there is: leave {name!r} out, or list it as a model'
    return f"there is no {kind} {name!r}; {did_you_mean(name, known)}"


def _doors(settings: Settings) -> Iterator[Fault]:
    host = settings.server.host
    if not settings.keys and not _loopback(host):
        mend = "add a key (sluice keys new --name NAME), or listen on 127.0.0.1"
        yield ("server", "host"), f"{host} without keys would be open to everyone: {mend}"
    if settings.server.metrics == "operator" and not any(key.role == "operator" for key in settings.keys):
        yield ("server", "metrics"), "operator needs a key with role: operator"


def left_open(settings: Settings, bound: str) -> Iterator[Fault]:
    """Return the fault of a configuration that takes the keys from a gateway which others can reach."""
    if not settings.keys and not _loopback(bound):
        mend = "put one back, or start it anew to listen on 127.0.0.1"
        yield ("keys",), f"without keys the gateway, which listens on {bound}, would be open to everyone: {mend}"


def _files(settings: Settings) -> Iterator[Fault]:
    for index, model in enumerate(settings.models):
        if model.tokenizer is not None and not (model.tokenizer / "tokenizer.json").is_file():
            yield ("models", index, "tokenizer"), f"there is no tokenizer.json in {model.tokenizer}"


def _loops(settings: Settings) -> Iterator[Fault]:
    own = settings.server.port
    for index, model in enumerate(settings.models):
        for i, engine in enumerate(model.engines):
            if leads_here(engine.url, own):
                yield ("models", index, "engines", i, "url"), f"is Sluice itself, which listens on port {own}"


def leads_here(url: str, port: int) -> bool:
    """Return True where an engine would be the gateway itself, which listens on this port."""
    parts = urlsplit(url)
    return bool(port) and parts.scheme == "http" and parts.port == port and _loopback(parts.hostname or "")


def _loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
