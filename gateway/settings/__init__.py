"""The only reader of environment and configuration file: load() checks both and returns one Settings."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from gateway.settings import checks
from gateway.settings.document import Document
from gateway.settings.faults import ConfigurationError, Source, Where, did_you_mean, explain, truths
from gateway.settings.models import (
    ANY_MODEL,
    ChainEntry,
    EngineEntry,
    EngineSettings,
    Key,
    LimitsSettings,
    Model,
    Server,
    Settings,
    Timeouts,
)

__all__ = [
    "ANY_MODEL",
    "ENVIRONMENT",
    "ChainEntry",
    "ConfigurationError",
    "Embedded",
    "EngineEntry",
    "EngineSettings",
    "Key",
    "LimitsSettings",
    "Model",
    "Server",
    "Settings",
    "Source",
    "Timeouts",
    "environment",
    "load",
]

PREFIX = "SLUICE_SERVER__"

#: Every variable that is read, but for those of ``server`` and those that the file itself names.
ENVIRONMENT = {
    "SLUICE_CONFIG": "The configuration file, where no -c is given.",
    "SLUICE_ENGINE_URL": "The address of a running engine, where no models are configured.",
    "SLUICE_URL": "The gateway that sluice engines talks to, where no --url is given.",
    "SLUICE_KEY": "The operator's key for it, where no --key is given.",
}


def environment() -> Mapping[str, str]:
    """Return the process's environment; nothing else in the gateway reads it."""
    return os.environ  # noqa: TID251 - this is the place


@dataclass(frozen=True, slots=True)
class Embedded:
    """The engine that sluice up runs: it takes the place of the first model's engines.

    ``model`` is what callers name it; None leaves that to the file, or to the engine where the file has no models.
    """

    url: str
    served_model: str
    api_key: str | None = None
    model: str | None = None
    tokenizer: Path | None = None  # the folder that the engine serves from, where it has one of its own


def load(
    file: Path | None,
    environ: Mapping[str, str],
    server: Mapping[str, Any] | None = None,
    embedded: Embedded | None = None,
    bound: str | None = None,
) -> Settings:
    """Read the configuration: ``file``, else SLUICE_CONFIG, else the model at SLUICE_ENGINE_URL; check it as a whole.

    ``server`` overrides scalars of that section (command-line options), as SLUICE_SERVER__… in ``environ`` do. What is
    returned can be read again in the same way: ``settings.reread()``; ``bound`` is the address that is listened on by
    then, whatever the file says now.

    Raises:
        ConfigurationError: with one line for each fault.

    """
    if file is None and environ.get("SLUICE_CONFIG"):
        file = Path(environ["SLUICE_CONFIG"])
    document = Document(_text(file), environ) if file else Document("", environ)
    data, origins, warnings = _overridden(document.data, environ, server or {})
    if embedded is not None:
        data = {**data, "models": _served_by(embedded, data.get("models"))}
    elif not data.get("models") and (url := environ.get("SLUICE_ENGINE_URL")):
        data = {**data, "models": [{"name": ANY_MODEL, "engines": [{"url": url}]}]}
        origins["models", 0, "engines", 0, "url"] = "SLUICE_ENGINE_URL"
    source = Source(str(file) if file else "sluice", document.lines, origins)
    faults = list(document.faults)
    if not faults and not data.get("models"):
        place = "add a model to it" if file else "name a file with -c or SLUICE_CONFIG"
        faults.append((("models",), f"no model is configured: {place}, or set SLUICE_ENGINE_URL to a running engine"))
    settings = _checked(data, file, faults)
    if settings is not None and bound is not None:
        faults += checks.left_open(settings, bound)
    if settings is None or faults:
        raise ConfigurationError(source.faults(faults))
    again = partial(load, file, environ, server, embedded, bound or settings.server.host)
    return settings.of(file, source, warnings, again)


def _served_by(embedded: Embedded, models: Any) -> list[Any]:
    first, *others = models if isinstance(models, list) and models else [{}]
    first = first if isinstance(first, dict) else {}
    engine = {"url": embedded.url, "served_model": embedded.served_model, "api_key": embedded.api_key}
    name = embedded.model or first.get("name", embedded.served_model)
    its = {} if embedded.tokenizer is None else {"tokenizer": str(embedded.tokenizer)}
    if embedded.model is not None:  # another model than the file's, whose tokenizer is none for it
        first = {key: value for key, value in first.items() if key != "tokenizer"}
    return [{**its, **first, "name": name, "engines": [engine]}, *others]


def _checked(data: dict[str, Any], file: Path | None, faults: list[tuple[Where, str]]) -> Settings | None:
    if any(where in {(), ("models",)} for where, _ in faults):
        return None  # what follows from it would only hide it
    told = {where for where, _ in faults}
    settings = None
    try:
        settings = Settings.model_validate(data, context={"base": file.parent if file else Path()})
        found = [*truths(settings, data), *checks.faults(settings)]
    except ValidationError as error:
        found = explain(error, Settings, data)
    faults += [fault for fault in found if fault[0] not in told]
    return None if faults or settings is None else _with_real_names(settings)


def _with_real_names(settings: Settings) -> Settings:
    """Put each model's name where a key or a chain entry has one of its aliases."""
    real = {alias: model.name for model in settings.models for alias in model.aliases}

    def renamed(sections: list[Any]) -> list[Any]:
        return [
            each if each.models is None else each.model_copy(update={"models": [real.get(m, m) for m in each.models]})
            for each in sections
        ]

    return settings.model_copy(update={"keys": renamed(settings.keys), "chain": renamed(settings.chain)})


def _text(file: Path) -> str:
    if file.exists() and not file.is_file() and not file.is_dir():
        raise ConfigurationError([f"{file}: is not a file: a pipe or a device cannot be read again"])
    try:
        raw = file.read_bytes()
    except IsADirectoryError:
        raise ConfigurationError([f"{file}: is a folder: name the file in it"]) from None
    except OSError as error:
        raise ConfigurationError([f"{file}: cannot be read: {error.strerror}"]) from None
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ConfigurationError([f"{file}:{line}: is not UTF-8: save it as UTF-8"]) from None


def _overridden(
    data: dict[str, Any], environ: Mapping[str, str], options: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[Where, str], list[str]]:
    """Lay the environment's and the command line's values over the file's section ``server``."""
    scalars = {PREFIX + name.upper(): name for name in server_scalars()}
    values: dict[str, Any] = {}
    origins: dict[Where, str] = {}
    ignored = []
    for variable, value in environ.items():
        if variable in scalars and value:
            values[scalars[variable]] = value
            origins["server", scalars[variable]] = variable
        elif variable.startswith("SLUICE_") and variable not in ENVIRONMENT and variable not in scalars:
            ignored.append(variable)
    for name, value in options.items():
        values[name] = value
        origins["server", name] = f"--{name}"
    server = data.get("server")
    if values and (server is None or isinstance(server, dict)):
        data = {**data, "server": {**(server or {}), **values}}
    return data, origins, _warnings(ignored, scalars)


def _warnings(ignored: list[str], scalars: Mapping[str, str]) -> list[str]:
    typos = [name for name in ignored if name.startswith(PREFIX)]
    lines = [f"{name}: ignored: it is no scalar of server; {did_you_mean(name, scalars)}" for name in typos]
    others = sorted(set(ignored) - set(typos))
    if others:
        lines.append(f"{', '.join(others)}: ignored: of the section server alone, {PREFIX}PORT and the like are read")
    return lines


def server_scalars() -> list[str]:
    """Return the keys of ``server`` that the environment can set."""
    return [name for name, field in Server.model_fields.items() if "list" not in str(field.annotation)]
