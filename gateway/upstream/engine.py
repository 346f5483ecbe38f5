"""One engine: who it is, what a request to it begins with, and how it fares."""

from __future__ import annotations

import itertools
import re
import zlib
from collections.abc import Mapping
from typing import Any, Final

from gateway.upstream.client import Pool
from gateway.upstream.figures import Figures
from gateway.upstream.origin import head_start, header_lines
from gateway.upstream.want import Preference, Want

#: An engine that failed is passed over for this long, doubled with each further failure; never longer than the last.
#: With the probes' interval on top it is back within 30 s of its recovery.
BACK_OFF_S: Final = 2.0
LONGEST_S: Final = 20.0
#: After so long without a failure the next one is a first one again.
FORGIVEN_S: Final = 60.0
#: So many failures in a row are told as "down"; fewer only move requests elsewhere.
OUT: Final = 3
#: One that has no room now may have some soon.
BUSY_S: Final = 1.0
#: Of its weight, what an engine that has just joined gets; the rest comes evenly within ``slow_start_s``.
FIRST_SHARE: Final = 0.1
#: From this use of its KV cache on an engine counts as fuller than its requests say, up to twice at the end.
FULL: Final = 0.8

#: The caller's headers that an engine may see, beside the request id; vLLM reads them for its traces.
_TRACE = (b"traceparent", b"tracestate")
_is_plain = re.compile(rb"[!-~](?:[ -~]{0,510}[!-~])?").fullmatch
_is_id = re.compile(r"[!-~]{1,512}").fullmatch

_turns = itertools.count(1)


class Engine:
    """Identity and live state of one engine. Times are those of ``loop.time()``, in seconds, and are passed in.

    ``up`` is what the probes say (None: not asked yet), ``failures`` what requests met in a row. ``served_model`` is
    the model's name at the engine; None: the one the client used. ``work`` is what our requests to it may still take,
    in tokens, as estimated when they were sent.
    """

    __slots__ = (
        *("_api_key", "_ramp_from", "_starts", "_usual", "cards", "dialect", "draining", "failed_at", "failures"),
        *("foreign", "in_flight", "max_model_len", "mirror", "name", "pool", "preference", "pressure", "seed"),
        *("served_model", "shunned_until", "slow_start_s", "stalled", "streams", "trouble", "turn", "up", "used_at"),
        *("warm", "weight", "work", "figures", "kv_tokens"),
    )

    def __init__(
        self,
        name: str,
        pool: Pool,
        *,
        served_model: str | None = None,
        api_key: str | None = None,
        weight: float = 1.0,
        warm: bool = True,
    ) -> None:
        self.name = name
        self.pool = pool
        self.served_model = served_model
        self.weight = weight
        self.preference: Preference | None = None
        self.mirror = 0.0
        self.dialect = "vllm"
        self.slow_start_s = 0.0
        self.draining = False
        self.in_flight = self.streams = self.work = self.turn = 0
        self.seed = zlib.crc32(name.encode()) * 0x9E3779B97F4A7C15
        self.up: bool | None = None
        self.warm = warm  # False: it has to answer a request of ours before it gets a caller's
        self.stalled = False
        self.trouble = ""  # the last one, for the log
        self.failures = 0
        self.failed_at = self.shunned_until = self.used_at = 0.0
        self.cards: tuple[dict[str, Any], ...] = ()
        self.max_model_len: int | None = None
        self.figures: Figures | None = None
        self.kv_tokens: int | None = (
            None  # that its KV cache holds, as it last said: a busy one may not answer for once
        )
        self.foreign = 0.0
        self.pressure = 1.0
        self._usual = 0.0
        self._ramp_from = 0.0
        self._api_key = api_key
        self._starts: dict[str, bytes] = {}

    def __repr__(self) -> str:
        return f"Engine({self.name!r})"

    # ---- requests ----

    def key_header(self) -> list[tuple[bytes, bytes]]:
        """Return the header with which the engine knows us, if it asks for one."""
        return [(b"authorization", b"Bearer " + self._api_key.encode())] if self._api_key else []

    def head(self, path: str, request_id: str, length: int, headers: Mapping[bytes, bytes]) -> bytes:
        """Return the head of a POST of ``length`` bytes of JSON.

        Of ``headers``, the caller's (names in lower case), only trace context goes along, and only if it is plain.
        Raises ``ValueError`` for a path or request id that cannot be sent.
        """
        start = self._starts.get(path)
        if start is None:
            fields = [(b"content-type", b"application/json"), *self.key_header()]
            start = self._starts[path] = head_start("POST", path, self.pool.origin, fields) + b"x-request-id: "
        if not _is_id(request_id):
            raise ValueError("not a header field: the request id")
        more = b""
        if b"traceparent" in headers:
            traces = [(name, headers.get(name, b"")) for name in _TRACE]
            more = header_lines([(name, value) for name, value in traces if _is_plain(value)])
        return b"%b%b\r\n%bcontent-length: %d\r\n\r\n" % (start, request_id.encode(), more, length)

    def begin(self, want: Want) -> None:
        """A request goes to it."""
        self.in_flight += 1
        self.work += want.work
        self.streams += want.stream
        self._usual += (want.work - self._usual) / 16
        self.turn = next(_turns)

    def end(self, want: Want) -> None:
        """The request is over, however it ended; ``want`` as at its beginning."""
        self.in_flight -= 1
        self.work -= want.work
        self.streams -= want.stream

    # ---- how it fares ----

    def answered(self) -> None:
        """It has begun to answer a request: whatever was wrong is over."""
        self.failures = 0
        self.shunned_until = 0.0

    def failed(self, now: float) -> None:
        """No connection, a 5xx, a broken or a stalled answer: the engine's own fault, never a 4xx."""
        if now - self.failed_at > FORGIVEN_S:
            self.failures = 0
        if now >= self.shunned_until or not self.failures:  # what fails while it is passed over began before
            self.failures += 1
            self.shunned_until = now + min(BACK_OFF_S * 2 ** (self.failures - 1), LONGEST_S)
        self.failed_at = now

    def busy(self, now: float) -> None:
        """429 or 503: it is well, but has no room."""
        self.shunned_until = max(self.shunned_until, now + BUSY_S)

    def fit(self, now: float) -> bool:
        """Should a request go to it if there is a choice? One that has failed is first tried with a single one."""
        return (
            self.warm and not self.stalled and now >= self.shunned_until and (not self.failures or not self.in_flight)
        )

    def available(self, now: float) -> bool:
        """Tell what readiness and metrics show: up, warm, at work, and not failing one request after another."""
        well = self.up is True and self.warm and not self.stalled
        return well and (self.failures < OUT or now >= self.shunned_until)

    def usable(self, now: float) -> bool:
        """Say whether anybody's requests go to it now."""
        taken = self.weight > 0 or self.preference is not None
        return taken and not self.draining and not self.mirror and self.available(now)

    def probed(self, *, up: bool, trouble: str = "") -> bool:
        """Note what a probe found; True when the engine has just come up."""
        risen = up and self.up is not True
        self.up = up
        self.trouble = trouble or self.trouble
        if risen:
            self.answered()
        return risen

    # ---- how much it gets ----

    def joins(self, now: float) -> None:
        """It is warm, and gets its first requests: slowly, for its caches are empty."""
        self.warm = True
        self._ramp_from = now

    def share(self, now: float) -> float:
        """Return which part of its weight it gets by now."""
        age = now - self._ramp_from
        return 1.0 if age >= self.slow_start_s else max(FIRST_SHARE, age / self.slow_start_s)

    def load(self, want: Want, now: float) -> float:
        """Estimate the work before and with a request, in tokens: our own, what others have sent, how full it is."""
        return (self.work + self.foreign + want.work) * self.pressure / self.share(now)

    def told(self, figures: Figures | None) -> None:
        """Take what the engine says of itself; None: nothing, from now on."""
        self.figures = figures
        if figures is None:
            self.foreign, self.pressure = 0.0, 1.0
            return
        self.kv_tokens = figures.kv_tokens if figures.kv_tokens is not None else self.kv_tokens
        self.foreign = max(0.0, figures.running + figures.waiting - self.in_flight) * max(1.0, self._usual)
        self.pressure = 1.0 + max(0.0, figures.kv_used - FULL) / (1.0 - FULL)
