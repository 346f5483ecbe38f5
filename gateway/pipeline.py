"""Runs the chain: order, selectors, failure policy, deadlines, shadow mode, timing."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter
from typing import Any, NamedTuple

import structlog

from gateway.channel import UNCHECKED, ChannelFilter, ShadowFilter, SkippableFilter, Stage
from gateway.errors import Failure, FilterUnavailable, Refused
from gateway.protocol.alternatives import KIND as ALTERNATIVE
from gateway.record import Run
from gateway.sdk import Answer, Channel, Exchange, Plugin, Reply, Shape
from gateway.wording import Wording

log = structlog.get_logger()

FEW_SECONDS = 5.0
PLAIN = Wording()


@dataclass(frozen=True, slots=True)
class Link:
    """One entry of the configured chain. ``timeout_s`` bounds each of its hooks that waits; None selects everything."""

    name: str
    plugin: Plugin
    on_error: str = "refuse"  # or "skip"; "tell": at the end, when nothing can be refused any more
    timeout_s: float = FEW_SECONDS
    shadow: bool = False
    models: frozenset[str] | None = None
    keys: frozenset[str] | None = None

    def applies(self, exchange: Exchange) -> bool:
        """Does this entry look at this exchange at all?"""
        return (self.models is None or exchange.model in self.models) and (
            self.keys is None or exchange.key in self.keys
        )

    def has(self, hook: str) -> bool:
        """Does the plugin implement this hook, and has it something to do there? One that has not costs nothing."""
        return hook not in self.plugin.idle and getattr(type(self.plugin), hook, None) is not getattr(Plugin, hook)


class Step(NamedTuple):
    """One hook of one link, bound. ``always``: for every exchange, and for real."""

    link: Link
    name: str
    call: Callable[..., Any]
    always: bool


class Chain:
    """The ordered plugins of one configuration: requests pass from first to last, answers from last to first.

    Hooks are called in place; only one that has to wait makes the caller of the chain wait: each method returns None
    where nothing had to, else something to await.
    """

    def __init__(self, links: Sequence[Link], wording: Wording = PLAIN) -> None:
        self.links, self._wording = tuple(links), wording
        inward, outward = self.links, self.links[::-1]
        self._request = self._steps(inward, "on_request")
        self._filters = self._steps(outward, "text_filter")
        self._answer = self._steps(outward, "on_answer")
        self._failure = self._steps(outward, "on_failure")
        told = [replace(link, on_error="tell") for link in outward]  # nothing that fails keeps the others from it
        self._complete = self._steps(told, "on_complete")
        self._selects = not all(step.always for step in self._filters)
        #: Where every plugin with a filter can tell that a whole text is clean.
        checks = self._steps(outward, "is_clean")
        self._checks = checks if [step.link for step in checks] == [step.link for step in self._filters] else ()
        #: What may tell an exchange in a form of its own.
        self.shapes = tuple((link, link.plugin.shape) for link in self.links if link.plugin.shape and not link.shadow)
        #: What the plugins go by, by the names of plugin and list.
        self.lists = {(link.name, listing.name): listing for link in self.links for listing in link.plugin.lists}
        self._whole = tuple(link for link in self.links if link.plugin.needs_whole_answer and not link.shadow)

    @staticmethod
    def _steps(links: Iterable[Link], hook: str) -> tuple[Step, ...]:
        return tuple(
            Step(link, link.name, getattr(link.plugin, hook), link.models is link.keys is None and not link.shadow)
            for link in links
            if link.has(hook)
        )

    async def start(self) -> None:
        """Start every plugin, in order; whatever was started is stopped again if one fails.

        Raises whatever the plugin raised.
        """
        for link in self.links:
            try:
                waiting = link.plugin.start()
                if waiting is not None:
                    await waiting
            except BaseException:
                await self.stop()
                raise

    async def stop(self) -> None:
        """Stop every plugin, last first; a failing one does not keep the others from it."""
        for link in reversed(self.links):
            try:
                waiting = link.plugin.stop()
                if waiting is not None:
                    await waiting
            except Exception as fault:  # noqa: BLE001 - a plugin may raise anything, the others still have to stop
                log.warning("plugin_stop_failed", plugin=link.name, fault=type(fault).__name__)

    def needs_whole_answer(self, exchange: Exchange) -> bool:
        """Must the caller wait until a plugin has seen the whole answer?"""
        return exchange.needs_whole_answer or (
            bool(self._whole) and any(link.applies(exchange) for link in self._whole)
        )

    def watches_answers(self, exchange: Exchange) -> bool:
        """Does any plugin want the answer put together again at its end?"""
        return bool(self._answer) and any(step.link.applies(exchange) for step in self._answer)

    def shape(self, name: str | None, key: str | None, model: str | None = None) -> Shape | None:
        """Return the shape named in the path, or the one that the key has on /v1; None: OpenAI's.

        An entry with ``keys`` or ``models`` is for those alone, as far as they are known yet.
        """
        for link, shape in self.shapes:
            mine = link.keys is not None and key in link.keys
            if model is not None and link.models is not None and model not in link.models:
                continue
            if mine if name is None else name == shape.name and (mine or link.keys is None):
                return shape
        return None

    def blocks_requests(self, exchange: Exchange) -> bool:
        """Is there a filter on requests that blocks? Then text must not come in as token ids."""
        return any(
            getattr(step.link.plugin, "blocks_requests", False) and not step.link.shadow and step.link.applies(exchange)
            for step in self._request
        )

    def on_request(self, exchange: Exchange) -> Awaitable[None] | None:
        """Let every plugin see the request; the first reply ends the walk. Raises Failure."""
        return self._run(self._request, exchange)

    def on_answer(self, exchange: Exchange, answer: Answer) -> Awaitable[None] | None:
        """Let every plugin see the whole answer. Raises Failure."""
        return self._run(self._answer, exchange, answer)

    async def on_failure(self, exchange: Exchange, failure: Failure) -> Reply | None:
        """Ask the plugins for an answer instead of the failure; the outermost has the last word."""
        reply: Reply | None = None
        for step in self._failure:
            if not step.link.applies(exchange) or step.link.shadow:
                continue
            try:
                async with asyncio.timeout(step.link.timeout_s):
                    result = step.call(exchange, failure)
                    reply = (await result if isinstance(result, Awaitable) else result) or reply
            except Exception as fault:  # noqa: BLE001 - the failure itself is still to be told
                self._failed(step.link, exchange, fault, 0.0)
        return reply

    def on_complete(self, exchange: Exchange) -> Awaitable[None] | None:
        """Tell every plugin that the exchange is over. Raises nothing."""
        return self._run(self._complete, exchange)

    def _run(self, steps: tuple[Step, ...], exchange: Exchange, *more: Any) -> Awaitable[None] | None:
        runs = exchange.record.runs
        began = perf_counter()  # each hook's end is the beginning of the next
        for step in steps:
            link, name, call, always = step
            if not always:
                if not link.applies(exchange):
                    continue
                if link.shadow:
                    return self._shadowed(steps[steps.index(step) :], exchange, *more)
            try:
                waiting = call(exchange, *more)
            except Exception as fault:  # noqa: BLE001 - a plugin may raise anything
                self._fault(link, exchange, fault, perf_counter() - began)
                began = perf_counter()
                continue
            if waiting is not None:
                return self._awaited(waiting, began, steps[steps.index(step) :], exchange, *more)
            now = perf_counter()
            run = runs.get(name)
            if run is None:
                runs[name] = Run("ran", now - began)
            else:
                run.seconds += now - began
            began = now
            if exchange.reply is not None and not more and link.on_error != "tell":  # a request's way ends there
                return None
        return None

    async def _awaited(
        self, waiting: Awaitable[None], began: float, steps: tuple[Step, ...], exchange: Exchange, *more: Any
    ) -> None:
        link = steps[0].link
        try:
            async with asyncio.timeout(link.timeout_s):
                await waiting
        except Exception as fault:  # noqa: BLE001 - a plugin may raise anything
            self._fault(link, exchange, fault, perf_counter() - began)
        else:
            self._ran(link, exchange, perf_counter() - began)
        if exchange.reply is None or more or link.on_error == "tell":
            rest = self._run(steps[1:], exchange, *more)
            if rest is not None:
                await rest

    async def _shadowed(self, steps: tuple[Step, ...], exchange: Exchange, *more: Any) -> None:
        """Run one link on a copy: what it would have done is recorded as hits, nothing else of it stays."""
        step = steps[0]
        twin = shadow_of(exchange)
        began = perf_counter()
        try:
            async with asyncio.timeout(step.link.timeout_s):
                waiting = step.call(twin, *copy.deepcopy(more))
                if waiting is not None:
                    await waiting
        except Refused:
            self._ran(step.link, exchange, perf_counter() - began)
        except Exception as fault:  # noqa: BLE001 - a plugin may raise anything
            self._failed(step.link, exchange, fault, perf_counter() - began)
        else:
            self._ran(step.link, exchange, perf_counter() - began)
        exchange.record.hits += [hit._replace(shadow=True) for hit in twin.record.hits]
        rest = self._run(steps[1:], exchange, *more)
        if rest is not None:
            await rest

    @staticmethod
    def _ran(link: Link, exchange: Exchange, seconds: float, outcome: str = "ran") -> None:
        run = exchange.record.runs.get(link.name)
        if run is None:
            exchange.record.runs[link.name] = Run(outcome, seconds)
            return
        run.seconds += seconds
        if outcome != "ran":
            run.outcome = outcome

    def _failed(self, link: Link, exchange: Exchange, fault: Exception, seconds: float) -> None:
        outcome = "timed_out" if isinstance(fault, TimeoutError) else "failed"
        self._ran(link, exchange, seconds, outcome)
        log.warning(
            "plugin_failed",
            plugin=link.name,
            outcome=outcome,
            fault=type(fault).__name__,
            request_id=exchange.id,
            on_error=link.on_error,
        )

    def _fault(self, link: Link, exchange: Exchange, fault: Exception, seconds: float) -> None:
        """Apply the link's policy to what its hook raised: a refusal goes on, anything else by ``on_error``."""
        if isinstance(fault, Failure) and link.on_error != "tell":
            self._ran(link, exchange, seconds)
            exchange.record.plugin = link.name
            exchange.record.rule = getattr(fault, "rule", None)
            if fault.code == "content_filter":
                wanted, tag = exchange.headers.get("accept-language"), getattr(fault, "tag", None)
                said = self._wording.say(fault.message, tag=tag, accept=wanted, key=exchange.key)
                fault.message, exchange.record.worded = said
            raise fault
        self._failed(link, exchange, fault, seconds)
        if link.on_error == "refuse":
            exchange.record.plugin = link.name
            raise FilterUnavailable(UNCHECKED) from fault

    def filter_for(self, exchange: Exchange, channel: Channel) -> ChannelFilter | None:
        """Return the text filters of one channel as one, innermost first; None where no plugin has any."""
        steps, checks = self._filters, self._checks
        if channel.kind == ALTERNATIVE:
            exchange, channel = _aside(exchange), channel._replace(kind="content")
        if self._selects:
            steps, checks = (tuple(step for step in each if step.link.applies(exchange)) for each in (steps, checks))
        if not steps:
            return None
        return ChannelFilter(partial(self._stages, steps, exchange, channel), exchange.record, checks)

    def _stages(self, steps: tuple[Step, ...], exchange: Exchange, channel: Channel) -> Iterator[Stage]:
        """Make the filters of a channel that has text. Raises FilterUnavailable."""
        runs = exchange.record.runs
        for link, name, call, _ in steps:
            seen_by = shadow_of(exchange) if link.shadow else exchange
            try:
                made = call(seen_by, channel)
            except Exception as fault:  # noqa: BLE001 - a plugin may raise anything
                self._fault(link, exchange, fault, 0.0)
                continue
            if made is None:
                continue
            if link.shadow:
                made = ShadowFilter(name, made, seen_by.record, exchange.record)
            elif link.on_error == "skip":
                made = SkippableFilter(name, made, exchange.record)
            yield Stage(name, made, runs.get(name) or runs.setdefault(name, Run()))


def _aside(exchange: Exchange) -> Exchange:
    """Return an exchange of which nothing is noted: for what a model has not said."""
    record = replace(exchange.record, hits=[], tags=[], runs={})
    aside = Exchange(record, exchange.body, exchange.headers, exchange.host)
    aside.state = dict(exchange.state)
    return aside


def shadow_of(exchange: Exchange) -> Exchange:
    """Copy an exchange so that a plugin in shadow mode may do with it what it likes."""
    record = replace(exchange.record, hits=[], tags=list(exchange.record.tags), runs={}, phases={})
    return Exchange(record, copy.deepcopy(exchange.request), exchange.headers, exchange.host)
