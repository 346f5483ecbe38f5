"""The text filters of one channel as one: order, hold-back, and every edit told in the original text's positions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from time import perf_counter
from typing import Any

import structlog

from gateway.errors import Failure, FilterUnavailable
from gateway.record import Record, Run
from gateway.sdk import Blocked, Edit, Reading, TextFilter

log = structlog.get_logger()

NO_EDITS: Sequence[Edit] = ()
UNCHECKED = "A content check could not be completed; please try again."

Check = tuple[Any, str, Callable[[Reading], bool], bool]
"""A link, its name, and how its plugin tells that a text is clean."""

Span = tuple[int, int, bool]
"""Where a code point came from: start and end in the original text, and whether it was edited."""


class Stage:
    """One plugin's filter in a channel, and how many code points of its input it has accounted for."""

    __slots__ = ("consumed", "feed", "finish", "is_clean", "name", "run", "spans")

    def __init__(self, name: str, text_filter: TextFilter, run: Run) -> None:
        self.name, self.run = name, run
        self.feed, self.finish = text_filter.feed, text_filter.finish
        #: Says of a whole text that the filter would do nothing in it, where the filter can say so.
        self.is_clean: Callable[[str], bool] | None = getattr(text_filter, "is_clean", None)
        self.consumed = 0
        self.spans: list[Span] = []  # of the input not yet accounted for; kept from the channel's first edit on

    def account(self, shown: str, edits: Sequence[Edit]) -> list[Span]:
        """Take from the pending input what became of ``shown``; return the span of each of its code points."""
        spans: list[Span] = []
        taken = 0
        for start, end, text in edits:
            first, last = start - self.consumed, end - self.consumed
            spans += self.spans[taken:first]
            covered = self.spans[first:last]
            at = covered[0][0] if covered else (self.spans[first - 1][1] if first else 0)
            spans += [(at, covered[-1][1] if covered else at, True)] * len(text)
            taken = last
        rest = len(shown) - len(spans)
        spans += self.spans[taken : taken + rest]
        del self.spans[: taken + rest]
        self.consumed += taken + rest
        return spans


class ChannelFilter:
    """A text filter made of several, innermost first. It sets ``blocked`` where the channel has to end.

    While no filter has edited anything, positions are what they were and only counts are kept. From the first edit on
    each code point between the stages carries the span of the original text that it stands for.
    """

    __slots__ = ("_checks", "_made", "_make", "blocked", "blocker", "fed", "record", "told", "traced")

    def __init__(self, make: Callable[[], Iterable[Stage]], record: Record, checks: Sequence[Check] = ()) -> None:
        self._make, self._checks = make, checks
        self._made: tuple[Stage, ...] | None = None
        self.record = record
        self.blocked: Blocked | None = None
        self.blocker = ""
        self.fed = self.told = 0  # code points that came in; and those shown or edited away
        self.traced = False

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The filters, made when the first text comes: a whole one that is clean needs none.

        Raises FilterUnavailable.
        """
        if self._made is None:
            self._made = tuple(self._make())
        return self._made

    def feed(self, text: str) -> tuple[str, Sequence[Edit]]:
        """Take the next piece; return what may be shown and the edits in it.

        Raises FilterUnavailable when a filter that fails closed has failed.
        """
        if self.traced or self.blocked is not None:
            return self._through(text)
        self.fed += len(text)
        began = perf_counter()
        for stage in self._made or self.stages:
            try:
                shown, edits = stage.feed(text)
            except Exception as fault:  # noqa: BLE001 - a plugin may raise anything
                return self._stopped(self.stages.index(stage), fault)
            if edits:
                return self._begin_to_trace(self.stages.index(stage), shown, edits)
            stage.consumed += len(shown)
            text = shown
            now = perf_counter()
            stage.run.seconds += now - began
            began = now
            if not text:
                return "", NO_EDITS
        self.told += len(text)
        return text, NO_EDITS

    def whole(self, text: str) -> tuple[str, Sequence[Edit]]:
        """Take a text that is all there is: ``feed``, ``finish``, and neither where all can tell that it is clean."""
        if self._checks and self._is_clean(text):
            self.fed = self.told = len(text)
            return text, NO_EDITS
        self._spare(text)
        shown, edits = self.feed(text)
        if self.blocked is not None:
            return shown, edits
        tail, more = self.finish()
        return shown + tail, [*edits, *more]

    def _spare(self, text: str) -> None:
        """Leave out the first filters that have nothing to do in a whole text; the next one sees it as they would."""
        began, spared = perf_counter(), 0
        for stage in self.stages:
            try:
                if stage.is_clean is None or not stage.is_clean(text):
                    break
            except Exception:  # noqa: BLE001 - one that cannot tell is fed, and then its failure counts
                break
            now = perf_counter()
            stage.run.seconds += now - began
            began, spared = now, spared + 1
        self._made = self.stages[spared:]

    def _is_clean(self, text: str) -> bool:
        reading = Reading(text)
        began = perf_counter()
        for _, name, is_clean, _ in self._checks:
            try:
                if not is_clean(reading):
                    return False
            except Exception:  # noqa: BLE001 - a plugin that cannot tell is asked for its filter, whose failure counts
                return False
            now = perf_counter()
            self.record.ran(name, now - began)
            began = now
        return True

    def finish(self) -> tuple[str, Sequence[Edit]]:
        """The channel's text has ended: return what was held back."""
        if self.blocked is not None:
            return "", NO_EDITS
        return self._through("", end=True)

    def _through(self, text: str, *, end: bool = False) -> tuple[str, Sequence[Edit]]:
        if self.blocked is not None:
            return "", NO_EDITS
        spans = [(at, at + 1, False) for at in range(self.fed, self.fed + len(text))] if self.traced else []
        self.fed += len(text)
        return self._from(0, text, spans, end=end)

    def _from(self, first: int, text: str, spans: list[Span], *, end: bool) -> tuple[str, Sequence[Edit]]:
        """Send text on through the stages from ``first`` on; at the end of the channel finish each."""
        for index in range(first, len(self.stages)):
            stage = self.stages[index]
            stage.spans += spans
            try:
                shown, edits = stage.feed(text) if text else ("", NO_EDITS)
                if end:
                    more, later = stage.finish()
                    shown, edits = shown + more, [*edits, *later]
            except Exception as fault:  # noqa: BLE001 - a plugin may raise anything
                return self._stopped(index, fault)
            if edits and not self.traced:
                return self._begin_to_trace(index, shown, edits, end=end)
            if self.traced:
                spans = stage.account(shown, edits)
            else:
                stage.consumed += len(shown)
            text = shown
        return text, self._tell(text, spans, end=end)

    def _begin_to_trace(
        self, index: int, shown: str, edits: Sequence[Edit], *, end: bool = False
    ) -> tuple[str, Sequence[Edit]]:
        """The first edit of the channel came from stage ``index``: give all that is pending its span, and go on."""
        self.traced = True
        came_in = self.fed
        for position, stage in enumerate(self.stages):
            stage.spans = [(at, at + 1, False) for at in range(stage.consumed, came_in)]
            came_in = stage.consumed
            if position == index:
                spans = stage.account(shown, edits)
        return self._from(index + 1, shown, spans, end=end)

    def _tell(self, text: str, spans: list[Span], *, end: bool) -> Sequence[Edit]:
        """Turn the spans of what is shown now into edits of the original text; a gap between spans was deleted."""
        if not self.traced:
            self.told += len(text)
            return NO_EDITS
        edits: list[Edit] = []
        position = 0
        while position < len(spans):
            span = start, stop, edited = spans[position]
            if start > self.told:
                edits.append(Edit(self.told, start, ""))
            after = position + 1
            if edited:
                while after < len(spans) and spans[after] == span:
                    after += 1
                edits.append(Edit(max(start, self.told), stop, text[position:after]))
            self.told = stop
            position = after
        if end and self.blocked is None and self.told < self.fed:
            edits.append(Edit(self.told, self.fed, ""))
            self.told = self.fed
        return edits

    def _stopped(self, index: int, fault: Exception) -> tuple[str, Sequence[Edit]]:
        """Stage ``index`` blocked: what it cleared goes on through the others, which then end. Else it failed."""
        stage = self.stages[index]
        if not isinstance(fault, Blocked):
            raise failed(stage.name, fault, self.record) from fault
        self.blocked, self.blocker = fault, stage.name
        self.record.plugin, self.record.rule = stage.name, fault.rule
        if fault.edits and not self.traced:
            return self._begin_to_trace(index, fault.shown, fault.edits, end=True)
        spans = stage.account(fault.shown, fault.edits) if self.traced else []
        return self._from(index + 1, fault.shown, spans, end=True)


class ShadowFilter:
    """Runs a filter for the record only: the text goes by untouched, whatever the filter does."""

    __slots__ = ("filter", "name", "record", "source")

    def __init__(self, name: str, text_filter: TextFilter, source: Record, record: Record) -> None:
        self.name, self.source, self.record = name, source, record
        self.filter: TextFilter | None = text_filter
        source.hits = []

    def feed(self, text: str) -> tuple[str, Sequence[Edit]]:
        """Show the filter the text and let the text go."""
        self._try(text)
        return text, NO_EDITS

    def finish(self) -> tuple[str, Sequence[Edit]]:
        """Nothing was held."""
        self._try(None)
        return "", NO_EDITS

    def _try(self, text: str | None) -> None:
        if self.filter is None:
            return
        try:
            self.filter.finish() if text is None else self.filter.feed(text)
        except Blocked:
            self.filter = None  # it has had its say
        except Exception as fault:  # noqa: BLE001 - a plugin may raise anything
            failed(self.name, fault, self.record)
            self.filter = None  # a broken one is not asked again
        self.record.hits += [hit._replace(shadow=True) for hit in self.source.hits]
        self.source.hits.clear()


class SkippableFilter:
    """A filter that fails open: once it has failed, what it held and all that follows goes by unfiltered."""

    __slots__ = ("broken", "filter", "name", "pending", "record")

    def __init__(self, name: str, text_filter: TextFilter, record: Record) -> None:
        self.name, self.filter, self.record = name, text_filter, record
        self.pending = ""
        self.broken = False

    def feed(self, text: str) -> tuple[str, Sequence[Edit]]:
        """Take the next piece."""
        return self._try(text, end=False)

    def finish(self) -> tuple[str, Sequence[Edit]]:
        """Return what was held."""
        return self._try("", end=True)

    def _try(self, text: str, *, end: bool) -> tuple[str, Sequence[Edit]]:
        self.pending += text
        if not self.broken:
            try:
                shown, edits = self.filter.finish() if end else self.filter.feed(text)
            except Blocked:
                raise
            except Exception as fault:  # noqa: BLE001 - a plugin may raise anything
                failed(self.name, fault, self.record)
                self.broken = True
            else:
                grown = sum(len(edit.text) - (edit.end - edit.start) for edit in edits)
                self.pending = self.pending[len(shown) - grown :]
                return shown, edits
        shown, self.pending = self.pending, ""
        return shown, NO_EDITS


def failed(name: str, fault: Exception, record: Record) -> Failure:
    """Record that a plugin failed, and return the failure with which a fail-closed one ends the exchange."""
    record.runs.setdefault(name, Run()).outcome = "failed"
    record.plugin = name
    kind = type(fault).__name__
    log.warning("plugin_failed", plugin=name, outcome="failed", fault=kind, request_id=record.request_id)
    return fault if isinstance(fault, Failure) else FilterUnavailable(UNCHECKED)
