"""From entry points to plugin classes, and from the configured chain to instances in its order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import ValidationError

from gateway.pipeline import Link
from gateway.sdk import Options, Plugin
from gateway.settings import ChainEntry, ConfigurationError, Model, Settings
from gateway.settings.checks import stray
from gateway.settings.description import Option, options
from gateway.settings.faults import Source, Where, did_you_mean, explain, truths

if TYPE_CHECKING:  # 20 MB that a gateway without a tokenizer of its own has no use for
    from gateway.engine.tokenizer import Tokenizer

GROUP = "sluice.plugins"
HOOKS = ("start", "stop", "on_request", "text_filter", "on_answer", "on_failure", "on_complete")


class Fault(Exception):
    """One plugin cannot be used."""


class Described(NamedTuple):
    """What sluice plugins shows of a plugin. ``fault`` says why it cannot be used; then there is nothing else."""

    name: str
    package: str
    summary: str = ""
    hooks: tuple[str, ...] = ()
    options: tuple[Option, ...] = ()
    fault: str | None = None


def installed() -> dict[str, list[EntryPoint]]:
    """Return what is registered under each name; more than one is a clash, which counts only when it is used."""
    found: dict[str, list[EntryPoint]] = {}
    for entry in sorted(entry_points(group=GROUP)):
        found.setdefault(entry.name, []).append(entry)
    return found


def plugin_class(name: str) -> type[Plugin]:
    """Return an installed plugin's class. Raises Fault."""
    available = installed()
    return _load(name, available.get(name, ()), available)


def catalogue() -> list[Described]:
    """Describe every installed plugin."""
    described = []
    for name, entries in installed().items():
        package = ", ".join(_package(entry) for entry in entries)
        try:
            plugin = _load(name, entries)
        except Fault as fault:
            described.append(Described(name, package, fault=str(fault)))
        else:
            summary = (plugin.__doc__ or "").strip().partition("\n")[0]
            hooks = tuple(hook for hook in HOOKS if getattr(plugin, hook) is not getattr(Plugin, hook))
            described.append(Described(name, package, summary, hooks, tuple(options(plugin.Options))))
    return described


def chain_of(settings: Settings) -> list[Link]:
    """Make the plugins of a configuration, as ``build_chain`` does. Raises ConfigurationError."""
    tokenizers = dict.fromkeys(model.tokenizer for model in settings.models if model.tokenizer)
    models = {name: model.name for model in settings.models for name in (model.name, *model.aliases)}
    keys = {key.name: key.name for key in settings.keys}
    names = {"model": partial(_named, "model", models), "key": partial(_named, "key", keys)}
    return build_chain(settings.chain, settings.base, settings.source, [*tokenizers], names)


def _named(kind: str, known: Mapping[str, str], name: str) -> str:
    """Return the model or key that a plugin's option names. Raises ValueError."""
    if (fault := stray(kind, name, known)) is not None:
        raise ValueError(fault)
    return known[name]


def build_chain(
    entries: Sequence[ChainEntry],
    base: Path,
    source: Source | None = None,
    tokenizers: Sequence[Path] = (),
    names: Mapping[str, Callable[[str], str]] | None = None,
) -> list[Link]:
    """Make the configured plugins, in order. It reads files and compiles lists: call it off the event loop.

    ``base`` is the folder that relative paths in options start from, ``source`` where the entries stand, ``tokenizers``
    the folders of the models' own, ``names`` what says whose a name is that options give as a model's or a key's.

    Raises:
        ConfigurationError: with one line for each fault of each plugin, and the files that their options name.

    """
    available = installed()
    context = {"base": base, "tokenizers": tuple(tokenizers), **(names or {})}
    used: Counter[str] = Counter()
    links: list[Link] = []
    faults: list[tuple[Where, str]] = []
    files: set[Path] = set()
    for index, entry in enumerate(entries):
        at: Where = ("chain", index)
        used[entry.plugin] += 1
        times = used[entry.plugin]
        try:
            plugin = _load(entry.plugin, available.get(entry.plugin, ()), available)
        except Fault as fault:
            faults.append(((*at, "plugin"), str(fault)))
            continue
        try:
            values = plugin.Options.model_validate(entry.options, context=context)
        except ValidationError as error:
            faults += explain(error, plugin.Options, entry.options, (*at, "options"))
            continue
        faults += truths(values, entry.options, (*at, "options"))
        files.update(_paths(values.model_dump()))
        try:
            made = _make(plugin, values)
        except Fault as fault:
            faults += [((*at, "options"), f"{entry.plugin}: {line}") for line in str(fault).splitlines()]
            continue
        links.append(_link(entry, made, entry.plugin if times == 1 else f"{entry.plugin}-{times}"))
    if faults:
        raise ConfigurationError((source or Source()).faults(faults), files)
    return links


def read_tokenizers(
    models: Sequence[Model], source: Source | None = None, known: Mapping[Path, Tokenizer] | None = None
) -> dict[Path, Tokenizer]:
    """Read the tokenizer folders that models name, but for those known whose files are as they were.

    Call it off the event loop. Raises ConfigurationError, with one line for each fault.
    """
    named = {model.tokenizer: index for index, model in reversed([*enumerate(models)]) if model.tokenizer}
    if not named:
        return {}
    from gateway.engine.tokenizer import Tokenizer, files_of, stamp  # noqa: PLC0415 - see above

    read: dict[Path, Tokenizer] = {}
    faults: list[tuple[Where, str]] = []
    for folder, index in named.items():
        before = (known or {}).get(folder)
        try:
            read[folder] = before if before and before.stamp == stamp(folder) else Tokenizer(folder)
        except ValueError as fault:
            faults.append((("models", index, "tokenizer"), str(fault)))
    if faults:
        raise ConfigurationError(
            (source or Source()).faults(faults), {file for each in named for file in files_of(each)}
        )
    return read


def _paths(value: Any) -> Iterator[Path]:
    """Find every path in options."""
    if isinstance(value, Path):
        yield value
    elif isinstance(value, Mapping | list | tuple):
        for each in value.values() if isinstance(value, Mapping) else value:
            yield from _paths(each)


def _load(name: str, entries: Sequence[EntryPoint], available: dict[str, Any] | None = None) -> type[Plugin]:
    if not entries:
        names = sorted(available or ())
        suggestion = did_you_mean(name, names) if names else ""
        listed = f"; installed: {', '.join(names)}" if suggestion.endswith("?") else ""
        raise Fault(f"no plugin {name!r} is installed; {suggestion.replace('known here', 'installed')}{listed}")
    if len(entries) > 1:
        raise Fault(f"{' and '.join(map(_package, entries))} both have a plugin {name!r}: uninstall one")
    (entry,) = entries
    try:
        plugin = entry.load()
    except Exception as error:  # a stranger's module may raise anything
        raise Fault(f"{name!r} of {_package(entry)} cannot be imported: {_told(error)}") from error
    if not (isinstance(plugin, type) and issubclass(plugin, Plugin)):
        raise Fault(f"{name!r} of {_package(entry)}: {entry.value} has to be a class made of gateway.sdk.Plugin")
    own: Any = plugin.Options
    if not (isinstance(own, type) and issubclass(own, Options)):
        raise Fault(f"{name!r} of {_package(entry)}: its Options have to be a class made of gateway.sdk.Options")
    return plugin


def _make(plugin: type[Plugin], values: Options) -> Plugin:
    try:
        return plugin(values)
    except OSError as error:
        raise Fault(f"{error.filename}: {error.strerror}" if error.filename else _told(error)) from error
    except ValidationError as error:
        raise Fault(_told(error)) from error
    except ValueError as error:
        raise Fault(str(error) or "ValueError") from error
    except Exception as error:  # a stranger's class may raise anything
        raise Fault(f"cannot be made: {_told(error)}") from error


def _link(entry: ChainEntry, plugin: Plugin, name: str) -> Link:
    plugin.name = name
    return Link(
        name,
        plugin,
        on_error=entry.on_error,
        timeout_s=entry.timeout_s if "timeout_s" in entry.model_fields_set else plugin.timeout_s,
        shadow=entry.mode == "shadow",
        models=None if entry.models is None else frozenset(entry.models),
        keys=None if entry.keys is None else frozenset(entry.keys),
    )


def _told(error: Exception) -> str:
    """Return what an exception says, on one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def _package(entry: EntryPoint) -> str:
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist else entry.value
