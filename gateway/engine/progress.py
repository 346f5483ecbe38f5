"""What the engine is doing while nobody can use it yet, told honestly: phases its own log shows, and the time."""

from __future__ import annotations

import asyncio
import re
import time
from typing import NoReturn, TextIO

#: What a line of vLLM's log (or of a script's) says about where we are, first match counts. What it captures is shown.
_PHASES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), phase)
    for pattern, phase in (
        (r"Fetching \d+ files:\s+(\d+%)", "fetching the model"),
        (r"non-default args", "reading the model's configuration"),
        (r"Initializing a V1 LLM engine", "starting the engine's processes"),
        (r"Starting to load model", "loading the weights"),
        (r"checkpoint shards:\s+(\d+%)", "loading the weights"),
        (r"Loading weights took", "weights loaded, planning memory"),
        (r"Dynamo bytecode transform|[Cc]ompiling a graph", "compiling the model"),
        (r"KV cache size: ([\d,]+ tokens)", "preparing the KV cache"),
        (r"Capturing CUDA graphs[^:]*:\s+(\d+%)", "capturing CUDA graphs"),
        (r"Starting vLLM server", "opening the API"),
    )
)
#: Without a terminal to draw on, a line again after so many seconds in one phase: silence looks like death.
_EVERY_S = 15.0


class Progress:
    """Tells one state after the other: on a terminal in one line that keeps time, else a line a phase."""

    def __init__(self, stream: TextIO, *, prefix: str = "engine: ") -> None:
        self.stream = stream
        self._prefix = prefix
        self._drawn = False
        self._begin()

    def _begin(self) -> None:
        self.current: str | None = None
        self._detail = ""
        self._started = time.monotonic()
        self._told = 0.0

    def phase(self, text: str, detail: str = "") -> None:
        """A phase has begun, or got on a little (``detail``)."""
        new = text != self.current
        if new or (detail != self._detail and self.stream.isatty()):
            self.current, self._detail = text, detail
            self._show()

    def log_line(self, line: str) -> None:
        """Learn from a line of the log."""
        for pattern, phase in _PHASES:
            if found := pattern.search(line):
                self.phase(phase, "".join(found.groups()))
                return

    async def keep_time(self) -> NoReturn:
        """Tell the time of the phase we are in, until cancelled."""
        while True:
            await asyncio.sleep(0.5)
            self.tick()

    def tick(self) -> None:
        """Time has passed; call about once a second while waiting."""
        if self.current is not None and (self.stream.isatty() or time.monotonic() - self._told >= _EVERY_S):
            self._show()

    def say(self, text: str) -> None:
        """Tell something that stays on the screen, and begin anew: the next phase counts its time from here."""
        if self._drawn:
            self.stream.write("\r\x1b[K")
            self._drawn = False
        self._write(f"{self._prefix}{text}\n")
        self._begin()

    def elapsed(self) -> float:
        """Seconds since the first phase, or since something was last said."""
        return time.monotonic() - self._started

    def _show(self) -> None:
        self._told = time.monotonic()
        detail = f" ({self._detail})" if self._detail else ""
        text = f"{self._prefix}{self.current}{detail} … {self.elapsed():.0f} s"
        self._drawn = self.stream.isatty()
        self._write(f"\r\x1b[K{text}" if self._drawn else f"{text}\n")

    def _write(self, text: str) -> None:
        self.stream.write(text)
        self.stream.flush()
