"""How often a token or an address may ask; counted in each process for itself."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager

from dlv.hub.server.access import Caller
from dlv.hub.server.refusal import Refused
from dlv.hub.server.settings import Limits

KNOWN = 20_000  # callers that are remembered


class Buckets:
    """A bucket for each caller: it holds a minute's requests and fills again steadily."""

    def __init__(self, a_minute: int) -> None:
        self._size, self._rate = float(a_minute), a_minute / 60
        self._buckets: OrderedDict[object, tuple[float, float]] = OrderedDict()
        self._lock = threading.Lock()

    def take(self, caller: object, count: int = 1) -> float:
        """Take `count` requests of a caller; return seconds to wait if there is less than one."""
        now = time.monotonic()
        with self._lock:
            level, then = self._buckets.pop(caller, (self._size, now))
            level = min(self._size, level + (now - then) * self._rate)
            wait = 0.0 if level >= 1 else (1 - level) / self._rate
            self._buckets[caller] = (level if wait else level - count, now)
            while len(self._buckets) > KNOWN:
                self._buckets.popitem(last=False)
        return wait


class Buffers:
    """The bytes of uploads in memory, of all requests together."""

    def __init__(self, most: int) -> None:
        self._most, self._bytes = most, 0
        self._lock = threading.Lock()

    @contextmanager
    def opened(self) -> Iterator[Buffer]:
        """Count the bytes of one request until its end."""
        buffer = Buffer(self)
        try:
            yield buffer
        finally:
            self.add(-buffer.bytes)

    def add(self, count: int) -> None:
        with self._lock:
            if count > 0 and self._bytes + count > self._most:
                raise Refused(
                    503, "too many uploads at once", hint="try again", headers={"Retry-After": "5"}
                )
            self._bytes += count


class Buffer:
    """The bytes of one request."""

    def __init__(self, buffers: Buffers) -> None:
        self._buffers, self.bytes = buffers, 0

    def grow(self, count: int) -> None:
        self._buffers.add(count)
        self.bytes += count


class Limiter:
    """The limits of all callers."""

    def __init__(self, limits: Limits) -> None:
        self._tokens = Buckets(limits.requests)
        self._anonymous = Buckets(limits.anonymous)
        self._guesses = Buckets(limits.logins)

    def check_token(self, caller: Caller) -> None:
        _check(self._tokens.take(caller.token_id))

    def check_anonymous(self, origin: str) -> None:
        _check(self._anonymous.take(origin))

    def check_guesses(self, origin: str) -> None:
        """Refuse an address that has sent many wrong tokens."""
        _check(self._guesses.take(origin, 0))

    def note_guess(self, origin: str) -> None:
        self._guesses.take(origin)


def _check(wait: float) -> None:
    if wait > 0:
        seconds = max(1, round(wait + 0.5))
        raise Refused(
            429,
            "too many requests",
            hint=f"try again in {seconds} s",
            headers={"Retry-After": str(seconds)},
        )
