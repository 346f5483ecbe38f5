"""How many tokens a request will take, learnt from what others of the same key took.

Callers name the most that an answer may have, and mostly name far too much; who reserves that leaves the engine half
empty. So the gate reserves what answers came to: for each model and key the mean and the mean deviation, moving, as TCP
does for its round trips (Jacobson, "Congestion Avoidance and Control", 1988): mean + 2 deviations covers about nine of
ten. Until something is known the most is taken.

It is learnt in the order in which requests came in, not in which they ended: of those that begin together the
short ones end first, and who learns from them alone promises room that there is not, just when a flood begins.
"""

from __future__ import annotations

from collections import deque

_NEWEST = 0.0625
_DEVIATIONS = 2.0
#: JSON of an English chat has about four bytes a token; the rest is learnt.
_TOKENS_A_BYTE = 0.25
#: One that still runs when so many that came after it have ended, and half of all, is taken for long, not waited for.
_BEHIND = 32
#: A caller's own names make no memory: so many keys are told apart.
_KEYS = 10_000


class Moving:
    """Mean and mean deviation of what came lately."""

    __slots__ = ("deviation", "mean")

    def __init__(self, first: float) -> None:
        self.mean, self.deviation = first, first / 2

    def add(self, value: float) -> None:
        """Count one more."""
        off = value - self.mean
        self.mean += off * _NEWEST
        self.deviation += (abs(off) - self.deviation) * _NEWEST

    @property
    def high(self) -> float:
        """What few will exceed."""
        return self.mean + _DEVIATIONS * self.deviation


class _Learnt:
    """What the requests of a key came to: prompt tokens a byte, tokens an answer, and the share of the most."""

    __slots__ = ("density", "output", "share")

    def __init__(self) -> None:
        self.density: Moving | None = None
        self.output: Moving | None = None
        self.share: Moving | None = None

    def take(self, seen: Running) -> None:
        """Learn from a request."""
        if seen.size:
            density = seen.prompt / seen.size
            if self.density is None:
                self.density = Moving(density)
                self.density.deviation = 0.0
            else:
                self.density.add(density)
        if seen.most:
            each, share = seen.output / seen.choices, min(1.0, seen.output / seen.most)
            if self.output is None or self.share is None:
                self.output, self.share = Moving(each), Moving(share)
            else:
                self.output.add(each)
                self.share.add(share)


class Running:
    """One request that has been let in, and in the end what it took."""

    __slots__ = ("choices", "known", "most", "output", "over", "prompt", "size")

    def __init__(self, size: int, most: int, choices: int) -> None:
        self.size, self.most, self.choices = size, most, choices
        self.prompt = self.output = 0
        self.over = self.known = False


class _Line:
    """The requests of one key in the order in which they were let in, from the first that still runs."""

    __slots__ = ("ended", "longest", "requests")

    def __init__(self) -> None:
        self.requests: deque[Running] = deque()
        self.ended = 0  # of those in it
        self.longest = 0  # answer of those that ended

    def next(self) -> Running | None:
        """Take the first one out if it has ended, or if it takes too long to be waited for."""
        requests = self.requests
        if not requests:
            return None
        first = requests[0]
        if first.over:
            self.ended -= 1
        elif self.ended > _BEHIND and 2 * self.ended > len(requests):
            first.known = True  # it has run longer than all these, and will run on
            first.prompt, first.output = int(first.size * _TOKENS_A_BYTE), min(first.most, 2 * self.longest)
        else:
            return None
        requests.popleft()
        if not requests:
            self.longest = 0
        return first


class Estimate:
    """The estimates of one model, by key."""

    __slots__ = ("_keys", "_lines", "window")

    def __init__(self) -> None:
        self.window: int | None = None  # the engine's, in tokens: a request cannot take more for a choice
        self._keys: dict[str | None, _Learnt] = {}
        self._lines: dict[str | None, _Line] = {}

    def prompt(self, key: str | None, size: int) -> int:
        """Return the tokens of a request of ``size`` bytes."""
        learnt = self._keys.get(key)
        return int(size * (_TOKENS_A_BYTE if learnt is None or learnt.density is None else learnt.density.high)) + 1

    def likely(self, key: str | None, size: int) -> int:
        """Return what the prompt of a request of ``size`` bytes most likely came to: for a count that nobody made."""
        learnt = self._keys.get(key)
        return int(size * (_TOKENS_A_BYTE if learnt is None or learnt.density is None else learnt.density.mean)) + 1

    def tokens(self, key: str | None, size: int, most: int, choices: int = 1) -> int:
        """Return what to reserve: prompt and answers of a request of ``size`` bytes, ``most`` tokens over all choices.

        The prompt's blocks are shared by the choices, as vLLM shares them.
        """
        learnt = self._keys.get(key)
        if learnt is not None and learnt.output is not None and learnt.share is not None:
            # Answers cut off at a small limit say nothing of a large one but that they fill it: hence the share.
            most = min(most, int(max(learnt.output.high * choices, learnt.share.high * most)) + 1)
        whole = self.prompt(key, size) + most
        return whole if self.window is None else min(whole, self.window * choices)

    def begin(self, key: str | None, size: int, most: int, choices: int = 1) -> Running:
        """Say that a request has been let in; ``end`` says that it is over."""
        line = self._lines.get(key)
        if line is None:
            if len(self._lines) >= _KEYS:
                self._keys.clear()
                self._lines.clear()
            line = self._lines[key] = _Line()
        running = Running(size, most, choices)
        line.requests.append(running)
        return running

    def end(self, key: str | None, running: Running, prompt: int = 0, output: int = 0) -> None:
        """It is over; ``prompt`` and ``output`` are the engine's own figures where it was answered to its end."""
        if running.known:  # and was not waited for
            return
        running.over = True
        if prompt:
            running.known, running.prompt, running.output = True, prompt, output
        line = self._lines.get(key)
        if line is None:
            return
        line.ended += 1
        line.longest = max(line.longest, output)
        while (seen := line.next()) is not None:
            if seen.known:
                self._learnt(key).take(seen)

    def _learnt(self, key: str | None) -> _Learnt:
        learnt = self._keys.get(key)
        if learnt is None:
            learnt = self._keys[key] = _Learnt()
        return learnt
