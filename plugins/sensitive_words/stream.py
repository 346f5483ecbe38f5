"""The filter of one channel: holds text back only while an entry may have begun at its end.

What a piece of clean text does is remembered: the pieces of a stream are a tokenizer's tokens, and the same ones come
again and again. So the states (what is held, what stands before it) grow into a small automaton over tokens, and clean
text costs one look into a dictionary, however many entries there are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from gateway.sdk import Blocked, Edit
from plugins.sensitive_words.alone import begins_alone
from plugins.sensitive_words.cover import Cover, covers
from plugins.sensitive_words.matcher import Found, Matcher, Scan
from plugins.sensitive_words.skeleton import TABLE
from plugins.sensitive_words.wordlist import ANYONE, Asker

_REMEMBERED = 24_576  # states and moves; then everything is forgotten at once
_PIECE = 24  # code points of a piece, or held, that are worth remembering
_INVISIBLE = 1024  # held beyond the longest entry: only invisible characters can do that

NO_EDITS: tuple[Edit, ...] = ()

Report = Callable[[Found], None]
"""Told of every entry found, with positions in the channel."""


class State:
    """What is held, what stands before it, and where the pieces seen so far lead: what they show (None: themselves).

    ``tails`` are the folded beginnings of entries in what is held: with a piece that continues none of them, the
    piece does what it does after ``released``, where nothing is held. None: not known yet, or not so simple.
    """

    __slots__ = ("before", "held", "moves", "released", "tails")

    def __init__(self, held: str, before: str) -> None:
        self.held, self.before = held, before
        self.moves: dict[str, tuple[str | None, State]] = {}
        self.tails: Sequence[str] | None = None
        self.released: State | None = None


class States:
    """The states that the streams of one matcher share."""

    def __init__(self, matcher: Matcher) -> None:
        self.matcher = matcher
        self._states: dict[tuple[str, str], State] = {}
        self._moves = 0

    def at(self, held: str, before: str) -> State:
        """Return the shared state."""
        state = self._states.get((held, before))
        if state is None:
            state = State(held, before)
            if len(held) <= _PIECE:
                if len(self._states) + self._moves >= _REMEMBERED:
                    self._forget()
                self._states[held, before] = state
        return state

    def _forget(self) -> None:
        self._states.clear()  # streams that are under way keep theirs until they end
        self._moves = 0

    def after_release(self, state: State, text: str) -> State | None:
        """Return where a text is to be looked up if it makes an end of all that is held; None if it may not."""
        if state.released is None:
            if state.tails is not None or not 0 < len(state.held) <= _PIECE:
                return None
            known = self.matcher.unfinished(state.held, state.before)
            if known is None:
                state.tails = ()
                return None
            state.tails, before = known
            state.released = self.at("", before)
        first = TABLE[ord(text[0])]
        if (
            len(first) != 1
            or first in " -"
            or begins_alone(text)
            or any(self.matcher.begins(tail + first) for tail in state.tails or ())
        ):
            return None
        return state.released

    def remember(self, state: State, piece: str, move: tuple[str | None, State], room: int = 1) -> None:
        """Remember where a piece leads from a state; what is cheap to find again, only while there is more room."""
        if len(piece) > _PIECE or len(state.held) > _PIECE or len(move[1].held) > _PIECE:
            return
        if self._moves * room >= _REMEMBERED:
            if room > 1:
                return
            self._forget()
        self._moves += 1
        state.moves[piece] = move


class _Carried(NamedTuple):
    """What earlier entries mean for the text that is held: its beginning is covered, so much of it allowed."""

    cover: Cover | None = None
    allowed: int = 0


_CLEAN = _Carried()


class WordFilter:
    """Watches one channel for the entries of a matcher. Raises Blocked at the earliest blocking entry."""

    __slots__ = ("_asker", "_carried", "_fed", "_mask", "_report", "_state", "_states")

    def __init__(self, states: States, report: Report, *, asker: Asker = ANYONE, mask: str = "*") -> None:
        self._states, self._report, self._asker, self._mask = states, report, asker, mask
        self._state = states.at("", "")
        self._fed = 0
        self._carried = _CLEAN

    def feed(self, text: str) -> tuple[str, Sequence[Edit]]:
        """Return what may be shown now and the masks in it."""
        move = self._state.moves.get(text)
        if move is None:
            return self._step(text)
        self._fed += len(text)
        shown, self._state = move
        return (text if shown is None else shown), NO_EDITS

    def finish(self) -> tuple[str, Sequence[Edit]]:
        """Return what was held; an entry that waited for its boundary may still block."""
        held, carried = self._state.held, self._carried
        if not held:
            return "", NO_EDITS
        scan = self._states.matcher.scan(held, self._state.before, carried.allowed, asker=self._asker)
        return self._settle(held, scan)

    def _step(self, text: str) -> tuple[str, Sequence[Edit]]:
        state, carried, matcher = self._state, self._carried, self._states.matcher
        if carried is _CLEAN and text:
            released = self._states.after_release(state, text)
            move = None if released is None else self._move(released, text)
            if move is not None:
                self._fed += len(text)
                shown, self._state = move
                shown = state.held + (text if shown is None else shown)
                self._states.remember(state, text, (shown, self._state), room=8)
                return shown, NO_EDITS
        raw = state.held + text
        scan = matcher.scan(raw, state.before, carried.allowed, final=False, asker=self._asker)
        if len(raw) - scan.hold > matcher.longest + _INVISIBLE:
            raise Blocked("sensitive_words:held_too_long")
        self._fed += len(text)
        if not scan.quiet or carried is not _CLEAN:
            return self._settle(raw, scan)
        shown, self._state = self._remember(state, text, raw, scan)
        return (text if shown is None else shown), NO_EDITS

    def _move(self, state: State, text: str) -> tuple[str | None, State] | None:
        """Return what a piece does where nothing is held; None if an entry is in it."""
        move = state.moves.get(text)
        if move is None:
            scan = self._states.matcher.scan(text, state.before, final=False, asker=self._asker)
            move = self._remember(state, text, text, scan) if scan.quiet else None
        return move

    def _remember(self, state: State, text: str, raw: str, scan: Scan) -> tuple[str | None, State]:
        following = self._states.at(raw[scan.hold :], scan.before)
        shown = raw[: scan.hold]
        move = (None if shown == text else shown), following
        self._states.remember(state, text, move)
        return move

    def _settle(self, raw: str, scan: Scan) -> tuple[str, Sequence[Edit]]:
        """Act on what was found in ``raw``, the text not yet shown."""
        begun = [self._carried.cover] if self._carried.cover else []
        base = self._fed - len(raw)
        for index, found in enumerate(scan.found):
            rule = found.rule
            self._report(found._replace(start=base + found.start, end=base + found.end))
            if rule.action == "block":
                shown, edits = self._covered(raw[: found.start], base, covers(scan.found[:index], begun))
                raise Blocked(rule.id, tag=rule.tag, shown=shown, edits=edits)
        spans = covers(scan.found, begun)
        hold = scan.hold
        rest = None
        if spans and spans[-1].end > hold:
            _, end, text = spans[-1]
            rest = Cover(0, end - hold, text and "")  # a replacement is shown once, for all that it stands for
        self._carried = _Carried(rest, max(0, scan.allowed - hold))
        if any(self._carried):  # what is remembered holds for clean text only
            self._state = State(raw[hold:], scan.before)
        else:
            self._carried, self._state = _CLEAN, self._states.at(raw[hold:], scan.before)
        return self._covered(raw[:hold], base, spans)

    def _covered(self, shown: str, base: int, spans: Sequence[Cover]) -> tuple[str, Sequence[Edit]]:
        """Cover the spans of ``shown``, which is at ``base`` in the channel."""
        edits, parts, done = [], [], 0
        for start, reach, text in spans:
            end = min(reach, len(shown))
            if start >= end:
                break
            cover = self._mask * (end - start) if text is None else text
            edits.append(Edit(base + start, base + end, cover))
            parts += [shown[done:start], cover]
            done = end
        if not edits:
            return shown, NO_EDITS
        parts.append(shown[done:])
        return "".join(parts), edits
