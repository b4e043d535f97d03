"""How often a token or an address may ask; counted in each process for itself."""

from __future__ import annotations

import ipaddress
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
    """The bytes of uploads in memory, of all requests together; one user has at most half."""

    def __init__(self, most: int) -> None:
        self._most, self._bytes = most, 0
        self._users: dict[int | None, int] = {}
        self._lock = threading.Lock()

    @contextmanager
    def opened(self, caller: Caller, expected: int) -> Iterator[Buffer]:
        """Count the bytes of one request until its end.

        Those that are expected are counted at once, so that a request which has begun can end.
        """
        buffer = Buffer(self, caller.user_id)
        try:
            buffer.grow(expected)
            yield buffer
        finally:
            self.add(buffer.user, -buffer.bytes)

    def add(self, user: int | None, count: int) -> None:
        with self._lock:
            total, own = self._bytes + count, self._users.get(user, 0) + count
            if count > 0 and (total > self._most or own > self._most // 2):
                raise Refused(
                    503, "too many uploads at once", hint="try again", headers={"Retry-After": "5"}
                )
            self._bytes, self._users[user] = total, own
            if not own:
                del self._users[user]


class Buffer:
    """The bytes of one request."""

    def __init__(self, buffers: Buffers, user: int | None) -> None:
        self._buffers, self.user, self.bytes = buffers, user, 0

    def grow(self, size: int) -> None:
        """Count up to this size."""
        more = size - self.bytes
        if more > 0:
            self._buffers.add(self.user, more)
            self.bytes = size


class Limiter:
    """The limits of all callers."""

    def __init__(self, limits: Limits) -> None:
        self._tokens = Buckets(limits.requests)
        self._anonymous = Buckets(limits.anonymous)
        self._guesses = Buckets(limits.logins)

    def check_token(self, caller: Caller) -> None:
        _check(self._tokens.take(caller.token_id))

    def check_anonymous(self, origin: str) -> None:
        _check(self._anonymous.take(_network(origin)))

    def many_guesses(self, origin: str) -> bool:
        """Whether an address has sent many wrong tokens."""
        return self._guesses.take(_network(origin), 0) > 0

    def check_guess(self, origin: str) -> None:
        """Count a wrong token; refuse an address that has sent many."""
        _check(self._guesses.take(_network(origin)))


def _network(origin: str) -> str:
    """Return the address, or its network: one client has 2^64 addresses of IPv6."""
    if ":" not in origin:
        return origin
    try:
        address = ipaddress.IPv6Address(origin.partition("%")[0])
    except ValueError:
        return origin
    return str(address.ipv4_mapped or ipaddress.IPv6Network((address, 64), strict=False))


def _check(wait: float) -> None:
    if wait > 0:
        seconds = max(1, round(wait + 0.5))
        raise Refused(
            429,
            "too many requests",
            hint=f"try again in {seconds} s",
            headers={"Retry-After": str(seconds)},
        )
