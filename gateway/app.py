"""Builds every part from the settings and wires it; knows all the others."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import weakref
from collections.abc import AsyncGenerator, Collection, Iterable, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import structlog
from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp

from gateway import __version__, admin
from gateway.admission.allowance import Allowance
from gateway.admission.doors import Bounds, Doors, Store
from gateway.admission.gate import Policy
from gateway.admission.keys import Keyring, Principal
from gateway.errors import InternalError, NotFound
from gateway.live import Live, Model, Timeouts
from gateway.middleware.access_log import AccessLog
from gateway.middleware.auth import Auth
from gateway.middleware.body import Body
from gateway.middleware.request_id import RequestId
from gateway.middleware.shaped import Shaped
from gateway.middleware.traced import Traced
from gateway.ops import Lifecycle, Ops
from gateway.pipeline import Chain
from gateway.protocol.openai import Ceilings
from gateway.protocol.surface import POSTED, error_body
from gateway.registry import chain_of, read_tokenizers
from gateway.reload import Watch
from gateway.routes import Routes
from gateway.settings import ConfigurationError, EngineEntry, Key, Settings
from gateway.settings import Model as ModelEntry
from gateway.settings.checks import leads_here
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.output import Output
from gateway.telemetry.table import Table
from gateway.upstream.engine import Engine
from gateway.upstream.fleet import Fleet
from gateway.upstream.health import Health
from gateway.upstream.mirror import Mirrors
from gateway.upstream.place import Place
from gateway.upstream.roster import Roster, Serving
from gateway.upstream.want import Preference
from gateway.wording import Wording

if TYPE_CHECKING:  # 20 MB that a gateway without a tokenizer of its own has no use for
    from gateway.engine.tokenizer import Tokenizer

log = structlog.get_logger()

#: A chain that was replaced is stopped when its last exchange must have ended.
RETIRED_S = 5.0
RETIRED_MOST_S = 60.0


class Gateway:
    """The running gateway: the version of the configuration in force, and what outlives versions.

    Engines, limits and loads are kept by name over a reload, so that nothing in flight loses its place.
    """

    def __init__(
        self,
        settings: Settings,
        metrics: Metrics,
        chain: Chain,
        tokenizers: Mapping[Path, Tokenizer],
        *,
        guard: bool,
        orders: Path | None = None,
    ) -> None:
        self.metrics = metrics
        self._tokenizers = tokenizers
        self._guard = guard  # one worker's comparison of prompts is enough
        self._comparing: set[asyncio.Task[None]] = set()
        self._settings = settings
        self._began = int(datetime.now(UTC).timestamp())
        self.roster = Roster(
            self._engines_moved,
            self._count_engine,
            mirrors=Mirrors(metrics),
            orders=orders,
            leads_here=partial(leads_here, port=settings.server.port),
        )
        self.doors = Doors(metrics, workers=settings.server.workers, store=_shared(settings, metrics))
        self._retiring: dict[asyncio.Task[None], Chain] = {}
        self.health = Health(self._engine_changed)
        self.watch = Watch(self.reload)
        self.live = self._built(settings, chain, version=1)

    def current(self) -> Live:
        """Return the version in force."""
        return self.live

    def usable(self) -> Mapping[str, Mapping[str, bool]]:
        """Say of each model which of its engines can be used now."""
        models = {model.name: model for model in self.live.models.values()}
        now = asyncio.get_running_loop().time()
        return {
            name: {each.name: each.usable(now) for each in model.engines if not each.mirror}
            for name, model in models.items()
        }

    async def run(self) -> None:
        """Start the plugins and what runs beside the requests. Raises whatever a plugin raises at its start."""
        self.watch.follow(files_of(self._settings, self.live.chain, self._tokenizers.values()))
        await self.live.chain.start()

    async def reload(self) -> None:
        """Read the configuration again: checked first, swapped at once; the last good one stays if it is wrong."""
        try:
            settings = await asyncio.to_thread(self._settings.reread)
            links = await asyncio.to_thread(chain_of, settings)
            read = await asyncio.to_thread(read_tokenizers, settings.models, settings.source, self._tokenizers)
        except ConfigurationError as fault:
            self.watch.follow(files_of(self._settings, self.live.chain, self._tokenizers.values()) | set(fault.files))
            self.metrics.reload("refused", self.live.version)
            log.error("reload_refused", faults=str(fault).splitlines(), config_version=self.live.version)
            return
        chain = Chain(links, wording_of(settings))
        try:
            await chain.start()
        except Exception as fault:  # noqa: BLE001 - a plugin may raise anything; the running chain stays
            self.metrics.reload("refused", self.live.version)
            log.error("reload_refused", faults=[type(fault).__name__], config_version=self.live.version)
            return
        before = self.live
        self._settings = settings
        known, self._tokenizers = self._tokenizers, read
        self.live = self._built(settings, chain, version=before.version + 1)
        self.watch.follow(files_of(settings, chain, read.values()))
        self.metrics.reload("ok", self.live.version)
        log.info("reloaded", config_version=self.live.version)
        for engine in {each for model in self.live.models.values() for each in model.engines if each.up}:
            self._compare_prompts(engine, [each for each in read.values() if each not in known.values()])
        retiring = asyncio.get_running_loop().create_task(
            self._retire(weakref.ref(before), before.chain, before.timeouts.total)
        )
        self._retiring[retiring] = before.chain
        retiring.add_done_callback(lambda done: self._retiring.pop(done, None))

    async def _retire(self, before: weakref.ref[Live], chain: Chain, longest_s: float) -> None:
        """Stop the old chain when nothing can be using it any more: its exchanges hold the version they began with.

        Under steady load somebody is always in flight, so waiting for nobody would keep every version for half an hour.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + longest_s
        pause_s = RETIRED_S
        while before() is not None and self.doors.in_use() and loop.time() < deadline:
            await asyncio.sleep(pause_s)  # an event would cost every request something, for what happens once a day
            gc.collect()  # exchanges that broke off may be circles, and a collection of its own accord is seldom here
            pause_s = min(2 * pause_s, RETIRED_MOST_S)
        await chain.stop()

    async def stop(self) -> None:
        """Stop the plugins and close what is open to engines."""
        for task, chain in tuple(self._retiring.items()):
            task.cancel()
            await chain.stop()
        for comparing in tuple(self._comparing):
            comparing.cancel()
        await self.live.chain.stop()
        await self.roster.close()

    def _engines_moved(self) -> None:
        """Others serve than before: look after them, and after no others."""
        self.metrics.engines({engine.name for engine in self.roster.engines})
        self.health.follow(self.roster.engines, self.roster.care)

    def _count_engine(self, engine: Engine) -> None:
        self.metrics.engine_in_flight(engine.name, engine.in_flight)

    def _engine_changed(self, engine: Engine, up: bool) -> None:
        self.metrics.engine_up(engine.name, up)
        if up:
            log.info("engine_up", engine=engine.name)
            self._compare_prompts(engine, self._tokenizers.values())
        else:
            log.warning("engine_down", engine=engine.name, trouble=engine.trouble)

    def _compare_prompts(self, engine: Engine, tokenizers: Collection[Tokenizer]) -> None:
        """See, beside the requests, whether an engine makes the prompts that its model's own files make."""
        if not self._guard or not tokenizers:
            return
        from gateway.engine.guard import look  # noqa: PLC0415 - only where there are such files

        for model in {each.name: each for each in self.live.models.values()}.values():
            tokenizer = model.tokenizer if engine in model.engines else None
            if tokenizer is not None and tokenizer in tokenizers:
                task = asyncio.get_running_loop().create_task(look(tokenizer, engine, model.name))
                self._comparing.add(task)
                task.add_done_callback(self._comparing.discard)

    def _built(self, settings: Settings, chain: Chain, *, version: int) -> Live:
        models: dict[str, Model] = {}
        fleets = self.roster.serve({entry.name: _serving(entry, settings) for entry in settings.models})
        for entry in settings.models:
            model = self._model(entry, fleets[entry.name])
            models |= dict.fromkeys((entry.name, *entry.aliases), model)
        self.metrics.known(
            models={model.name for model in models.values()},
            plugins={link.name for link in chain.links},
            keys={key.name for key in settings.keys},
        )
        self.metrics.config_version(version)
        self.metrics.lists(chain.lists)
        for (plugin, name), (_, entries, digits) in chain.lists.items():
            log.info("list", plugin=plugin, list=name, entries=entries, version=digits, config_version=version)
        self._engines_moved()
        self.doors.follow({entry.name: (_bounds(entry), models[entry.name].engines) for entry in settings.models})
        times = settings.timeouts
        server = settings.server
        return Live(
            version=version,
            models=models,
            keys=Keyring([self._principal(key) for key in settings.keys]),
            chain=chain,
            timeouts=Timeouts(times.connect_s, times.first_token_s, times.idle_s, times.total_s),
            heartbeat_s=server.heartbeat_s,
            media_hosts=frozenset(host.lower() for host in server.media_hosts),
            max_body_bytes=server.max_body_bytes,
            lists={f"{plugin}/{name}": listing.version for (plugin, name), listing in chain.lists.items()},
        )

    def _model(self, entry: ModelEntry, engines: Fleet) -> Model:
        return Model(
            name=entry.name,
            engines=engines,
            ceilings=Ceilings(entry.max_output_tokens, entry.max_choices, entry.max_prompts),
            isolate_prefix_cache=entry.isolate_prefix_cache,
            sampling=entry.sampling.model_dump(exclude_none=True),
            tokenizer=self._tokenizers[entry.tokenizer] if entry.tokenizer else None,
            created=self._began,
            door=self.doors.door(entry.name),
        )

    def _principal(self, key: Key) -> Principal:
        allowed = Allowance(key.rpm, key.tpm, key.max_in_flight, key.tokens_per_day, key.tokens_per_month)
        limits = self.doors.limits(key.name, allowed)
        models = None if key.models is None else frozenset(key.models)
        return Principal(key.name, key.sha256, key.role, models, limits, key.priority, key.share, key.batch)


def _serving(entry: ModelEntry, settings: Settings) -> Serving:
    return Serving(
        [_place(engine, settings.timeouts.connect_s) for engine in entry.engines],
        keeps_prefixes=entry.keep_prefixes,
        slow_start_s=entry.slow_start_s,
        warm_up=entry.warm_up,
        warm_after_idle_s=entry.warm_after_idle_s,
        stalled_after_s=entry.stalled_after_s,
    )


def _place(entry: EngineEntry, connect_s: float) -> Place:
    headers = {name.lower().encode(): value.encode() for name, value in entry.headers.items()}
    chosen = bool(entry.keys or headers or entry.priority is not None)
    return Place(
        entry.name,
        entry.url,
        served_model=entry.served_model,
        api_key=entry.api_key.get_secret_value() if entry.api_key else None,
        weight=entry.weight,
        connect_s=connect_s,
        preference=Preference(frozenset(entry.keys), headers, entry.priority) if chosen else None,
        mirror=entry.mirror,
        dialect=entry.dialect,
        each_address=entry.each_address,
    )


def _shared(settings: Settings, metrics: Metrics) -> Store | None:
    """Return where limits are shared. Raises ConfigurationError."""
    limits = settings.limits
    if limits.redis is None:
        return None
    try:
        from gateway.admission.shared import SharedStore  # noqa: PLC0415 - only where it is installed and used
    except ModuleNotFoundError:
        raise ConfigurationError(["limits.redis: needs a client: pip install 'sluice-gateway[redis]'"]) from None
    return SharedStore(
        limits.redis.get_secret_value(),
        timeout_s=limits.timeout_s,
        lease_s=limits.lease_s,
        replicas=limits.replicas,
        changed=metrics.limits_shared,
    )


def _bounds(entry: ModelEntry) -> Bounds:
    queue = entry.queue
    policy = Policy(queue.length, queue.max_wait_s, queue.timeout_s, queue.batch_share)
    told = any(engine.scheduling == "priority" for engine in entry.engines)
    return Bounds(entry.max_in_flight, queue.kv_headroom, policy, told)


def wording_of(settings: Settings) -> Wording:
    """Return what blocked callers read."""
    said = settings.messages
    languages = {key.name: key.language for key in settings.keys if key.language is not None}
    return Wording(said.blocked, said.tags, languages, said.language)


def files_of(settings: Settings, chain: Chain, tokenizers: Iterable[Tokenizer]) -> set[Path]:
    """Return every file whose change is a reload."""
    files = {file for link in chain.links for file in link.plugin.files}
    files |= {file for tokenizer in tokenizers for file in tokenizer.files}
    return files | ({settings.file} if settings.file else set())


def create_app(
    settings: Settings, lifecycle: Lifecycle, output: Output, metrics_dir: Path | None = None, worker: int = 0
) -> ASGIApp:
    """Build the application of one worker. Raises ConfigurationError."""
    chain = Chain(chain_of(settings), wording_of(settings))
    table = Table(metrics_dir / f"worker-{worker}" if metrics_dir else None)
    metrics = Metrics(table, version=__version__)
    tokenizers = read_tokenizers(settings.models, settings.source)
    orders = metrics_dir / "orders.json" if metrics_dir else None
    gateway = Gateway(settings, metrics, chain, tokenizers, guard=worker == 0, orders=orders)
    lifecycle.reload = gateway.watch.poke
    ops = Ops(
        lifecycle,
        gateway.usable,
        metrics.render,
        __version__,
        operators_only=settings.server.metrics == "operator",
        docs=settings.server.docs,
        limits=gateway.doors.kept,
    )
    app: ASGIApp = Routes(metrics, shell(ops, gateway, metrics))
    app = Auth(Body(app), gateway.current)
    app = _traced(AccessLog(app, metrics, output), settings.server.traces)
    app = RequestId(app, settings.server.trusted_proxies)
    return Shaped(app, gateway.current, in_place=frozenset(POSTED))


def _traced(app: ASGIApp, collector: str | None) -> ASGIApp:
    """Put traces around an application, if they are wanted. Raises ConfigurationError."""
    if collector is None:
        return app
    try:
        from gateway.telemetry.traces import Traces  # noqa: PLC0415 - only where it is installed and used
    except ModuleNotFoundError:
        raise ConfigurationError(["server.traces: needs OpenTelemetry: pip install 'sluice-gateway[otel]'"]) from None
    return Traced(app, Traces(collector, __version__))


def shell(ops: Ops, gateway: Gateway, metrics: Metrics) -> FastAPI:
    """Return the FastAPI application for all that is not the data path: operator's routes, life and death, 404."""

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
        await gateway.run()
        async with asyncio.TaskGroup() as group:
            beside = (
                gateway.watch.run(),
                gateway.health.run(),
                gateway.roster.run(),
                gateway.doors.run(),
                metrics.watch_loop(),
            )
            tasks = [group.create_task(each) for each in beside]
            try:
                yield
            finally:
                for task in tasks:
                    task.cancel()
        await gateway.stop()

    app = FastAPI(lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    app.include_router(ops.router())
    engines = admin.Engines(gateway.roster, metrics.engines_in_flight)
    app.include_router(admin.router({**admin.ENDPOINTS, **engines.endpoints()}))

    @app.exception_handler(HTTPException)
    async def not_found(request: Request, _: Exception) -> Response:
        path = request.url.path
        failure = NotFound(f"There is no {request.method} {path[:200]} here.")
        return JSONResponse(error_body(path, failure), failure.status)

    @app.exception_handler(Exception)
    async def bug(_: Request, __: Exception) -> Response:
        """Answer in our form; the exception goes on to the access log, which tells of it."""
        failure = InternalError("The gateway failed; its log says more under this request id.")
        return JSONResponse(failure.body(), failure.status)

    return app
