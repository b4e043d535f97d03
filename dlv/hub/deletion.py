"""Delete objects of a remote while others publish to it, without a lock that both could take.

Each party writes its own flag, and only then reads the flag of the other. The second of the two
always sees the flag of the first.

- A publisher writes a lease, then checks whether a deletion is running. If so, it waits. Only after
  that does it determine what the remote has.
- A deletion writes `gc/<seq>.closing`, then reads the leases. If there are any, it deletes nothing.
  Otherwise it determines what the refs need, deletes the rest, and writes `gc/<seq>.done`.

`closing` is written once, so only one process deletes at a time. No other process continues its
work, because by then the set of needed objects may have changed. A lease expires after PATIENCE;
both parties stop well before that. Objects are listed by one run and deleted by a later one, so
that an interrupted publish can be continued and a running pull can finish.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import re
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import field

from dlv.canonical import timestamp
from dlv.dataclass import dataclass
from dlv.errors import Conflict, RemoteError
from dlv.hub.stores.interface import MissingObject, Store

LEASES, LISTS = "leases/", "gc/"
_KEY = re.compile(r"gc/([0-9]{20})\.(json|closing|done)\Z")
KINDS = ("packs/", "manifests/", "locators/", "facts/")
FORMAT = "dlv/gc/1"
MOST_LIST = 1 << 30
PATIENCE = 7 * 86400.0  # seconds, by the clock of the store, after which a party counts as dead
LONGEST = 5 * 86400.0  # seconds, by its own clock, after which a party gives up
WAIT = 30.0  # seconds that a publisher waits for a deletion to end

Clock = Callable[[], float]


def _elapsed() -> float:
    """Return seconds of a clock that cannot be set and that runs while the machine sleeps."""
    boot = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boot is None else time.clock_gettime(boot)


class Lease:
    """The flag of a publisher. While it exists, nothing is deleted."""

    def __init__(self, store: Store, elapsed: Clock = _elapsed) -> None:
        self._store, self._elapsed = store, elapsed
        self._key = f"{LEASES}{os.urandom(16).hex()}.json"
        self._since = elapsed()

    def check(self) -> None:
        """Refuse to continue with a lease that is about to expire."""
        if self._elapsed() - self._since > LONGEST:
            raise Conflict("publishing took too long", hint="dlv publish")

    def open(self) -> None:
        self._since = self._elapsed()
        self._store.put(self._key, json.dumps({"time": timestamp()}).encode())

    def close(self) -> None:
        with contextlib.suppress(RemoteError):  # it expires
            self._store.delete(self._key)

    def is_blocked(self) -> bool:
        """Return whether a deletion is running. Ask only after the lease was written."""
        return bool(_closing(self._store.keys(LISTS)))


@contextmanager
def leased(store: Store) -> Iterator[Lease]:
    """Hold a lease; first wait for a running deletion to end."""
    lease = Lease(store)
    lease.open()
    try:
        end = time.monotonic() + WAIT
        while lease.is_blocked():
            if time.monotonic() > end:
                raise Conflict(
                    f"objects are being deleted at {store.url}",
                    hint="try again later; if that process has died: dlv remote gc NAME --abandon",
                )
            time.sleep(1)
        yield lease
    finally:
        lease.close()


def _numbers(keys: Collection[str], ending: str) -> set[int]:
    """Return the numbers of the lists that have an object with this ending."""
    matches = (_KEY.match(key) for key in keys)
    return {int(match[1]) for match in matches if match and match[2] == ending}


def _closing(keys: Collection[str]) -> list[int]:
    """Return the numbers of the lists whose objects are being deleted."""
    return sorted(_numbers(keys, "closing") - _numbers(keys, "done"))


@dataclass
class Collected:
    """What a run did.

    `listed` objects can be deleted from the time `until` on. `leases`: number of publishers because
    of which nothing was deleted.
    """

    deleted: list[str] = field(default_factory=list)
    listed: list[str] = field(default_factory=list)
    until: str | None = None
    leases: int = 0
    bytes: int = 0


def collect(
    store: Store,
    reachable: Callable[[], Collection[str]],
    grace: datetime.timedelta,
    *,
    abandon: bool = False,
    dry_run: bool = False,
    elapsed: Clock = _elapsed,
) -> Collected:
    """Delete objects listed at least `grace` ago that are still unreachable; list the others.

    `abandon`: the user vouches that the process whose deletion is not done has died.
    """
    keys = store.keys(LISTS)
    now = _store_time(store)
    for seq in _closing(keys):
        begun = store.modified(f"{LISTS}{seq:020}.closing")
        if not abandon and begun is not None and now - begun < PATIENCE:
            raise Conflict(
                f"another process is deleting at {store.url}",
                hint="if it has died: dlv remote gc NAME --abandon",
            )
        if not dry_run:
            store.put(f"{LISTS}{seq:020}.done", b"{}")
    last = max(_numbers(keys, "json"), default=0)
    closed = last in _numbers(keys, "done")
    since = _read(store, last, now) if last else {}
    outcome = Collected()
    due = {key for key, moment in since.items() if now - moment >= grace.total_seconds()}
    if due and not dry_run and not closed:
        _delete(store, last, due, reachable, elapsed, outcome)
        closed = True
    live = set(reachable())
    dead = [key for kind in KINDS for key in store.keys(kind) if key not in live]
    waiting = {key: min(since.get(key, now), now) for key in dead}
    outcome.listed = sorted(waiting)
    if waiting:
        first = min(waiting.values()) + grace.total_seconds()
        outcome.until = timestamp(datetime.datetime.fromtimestamp(first, datetime.UTC))
        outcome.bytes = sum(store.size(key) or 0 for key in waiting)
        if not dry_run and (closed or waiting.keys() != since.keys()):
            data = json.dumps({"format": FORMAT, "since": waiting}).encode()
            store.create(f"{LISTS}{last + 1:020}.json", data)
    return outcome


def _delete(
    store: Store,
    seq: int,
    due: Collection[str],
    reachable: Callable[[], Collection[str]],
    elapsed: Clock,
    outcome: Collected,
) -> None:
    begun = elapsed()
    if not store.create(f"{LISTS}{seq:020}.closing", os.urandom(16).hex().encode()):
        raise Conflict(f"another process is deleting at {store.url}", hint="try again later")
    leases = [key for key in store.keys(LEASES) if _is_alive(store, key)]
    outcome.leases = len(leases)
    if not leases:
        live = set(reachable())
        for key in sorted(due):
            if key not in live:
                if elapsed() - begun > LONGEST:
                    raise Conflict("deleting took too long", hint="dlv remote gc NAME")
                store.delete(key)
                outcome.deleted.append(key)
    store.put(f"{LISTS}{seq:020}.done", json.dumps({"deleted": len(outcome.deleted)}).encode())


def _is_alive(store: Store, lease: str) -> bool:
    begun = store.modified(lease)
    return begun is not None and _store_time(store) - begun < PATIENCE


def _store_time(store: Store) -> float:
    """Return the time by the clock of the store, which all parties use."""
    key = f"{LISTS}clock"
    store.put(key, os.urandom(8))
    now = store.modified(key)
    if now is None:
        raise RemoteError(f"{store.url} does not return what was just written")
    return now


def _read(store: Store, seq: int, now: float) -> dict[str, float]:
    """Return the listed objects, and since when they are listed."""
    try:
        record = json.loads(store.get(f"{LISTS}{seq:020}.json", most=MOST_LIST))
        since = record["since"] if record["format"] == FORMAT else {}
        return {
            key: float(moment)
            for key, moment in since.items()
            if key.startswith(KINDS) and float(moment) <= now
        }
    except (MissingObject, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}
