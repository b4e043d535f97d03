"""Deleting on a remote while others publish: the real protocol under schedules of a model."""

from __future__ import annotations

import datetime
import random
import threading
from collections.abc import Callable
from typing import Any

import pytest

import dlv.hub.deletion as deletion
from dlv.errors import Conflict
from dlv.hub.deletion import Lease, collect
from tests.hub.stores import MemoryStore

DAY = 86400.0
PACKS = [f"packs/{i}" for i in range(4)]


class Killed(BaseException):
    """The process was killed."""


class Actor:
    """A process: it stops before each request until the schedule lets it go on."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._go, self._stopped = threading.Semaphore(0), threading.Semaphore(0)
        self.alive, self.killed, self._work = True, False, work
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()
        self._stopped.acquire()

    def _run(self) -> None:
        try:
            self.stop()
            self._work()
        except (Killed, Conflict):
            pass
        except BaseException as error:
            self.error = error
        self.alive = False
        self._stopped.release()

    def stop(self) -> None:
        self._stopped.release()
        self._go.acquire()
        if self.killed:
            raise Killed

    def step(self) -> None:
        self._go.release()
        self._stopped.acquire()


class World:
    """A store, its clock, and actors whose requests happen one at a time in a random order."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now = 1000 * DAY
        self.store = MemoryStore()
        self.store.clock = lambda: self.now
        self.actors: list[Actor] = []
        self.deleted = self.published = 0
        self.store._step = self._before_request  # type: ignore[method-assign]
        delete = self.store._delete

        def checked(key: str) -> None:
            self._before_request()
            if key.startswith("packs/"):
                assert key not in self.reachable(), f"{key} is needed and was deleted"
                self.deleted += key in self.store.objects
            self.store._step = lambda: None  # type: ignore[method-assign]
            delete(key)
            self.store._step = self._before_request  # type: ignore[method-assign]

        self.store._delete = checked  # type: ignore[method-assign]

    def _before_request(self) -> None:
        mine = [actor for actor in self.actors if actor.thread is threading.current_thread()]
        if mine:
            mine[0].stop()

    def elapsed(self) -> float:
        return self.now

    def reachable(self) -> set[str]:
        """What the refs need, as one look at the store."""
        lines = [data for key, data in self.store.objects.items() if key.startswith("refs/")]
        gone = {line[1:] for line in lines if line.startswith(b"-")}
        return {f"packs/{i}" for line in lines if line not in gone for i in line.decode()}

    def mark(self) -> set[str]:
        """The same by requests, between which others do something."""
        refs = {key: self.store.get(key, most=99) for key in self.store.keys("refs/")}
        gone = {line[1:] for line in refs.values() if line.startswith(b"-")}
        return {f"packs/{i}" for line in refs.values() if line not in gone for i in line.decode()}

    def publish(self) -> None:
        """The steps of `dlv publish`, with packs that others may also need."""
        lease = Lease(self.store, self.elapsed)
        lease.open()
        for _ in range(3):
            if not lease.is_blocked():
                break
        else:
            lease.close()
            return
        wanted = self.random.sample(range(4), 2)
        for i in wanted:
            if self.store.size(f"packs/{i}") is None:
                self.store.put(f"packs/{i}", b"x")
        if all(self.store.size(f"packs/{i}") is not None for i in wanted):
            lease.check()
            name = f"refs/{self.random.getrandbits(40):x}"
            self.store.create(name, "".join(map(str, wanted)).encode())
            self.published += 1
        lease.close()

    def retire(self) -> None:
        for key in self.store.keys("refs/"):
            line = self.store.get(key, most=99)
            if not line.startswith(b"-"):
                self.store.create(f"{key}-gone", b"-" + line)
                return

    def gc(self) -> None:
        grace = datetime.timedelta(days=self.random.choice([0, 0, 1]))
        abandon = False  # an operator may only say so of a dead process
        collect(self.store, self.mark, grace, abandon=abandon, elapsed=self.elapsed)

    def run(self, steps: int = 160) -> None:
        for key in PACKS[:3]:
            self.store.objects[key] = b"x"
        work = [self.publish, self.gc, self.retire]
        try:
            for _ in range(steps):
                alive = [actor for actor in self.actors if actor.alive]
                if len(alive) < 3 and self.random.random() < 0.15:
                    kind = self.random.choices(work, [3, 5, 1])[0]
                    self.actors.append(Actor(kind))
                    continue
                if not alive:
                    continue
                actor = self.random.choice(alive)
                actor.killed = self.random.random() < 0.01
                if self.random.random() < 0.1:
                    self.now += self.random.choice([0.01, 0.5, 1.0]) * DAY
                actor.step()
                if actor.error is not None:
                    raise actor.error
        finally:
            for actor in self.actors:
                while actor.alive:
                    actor.killed = True
                    actor.step()


def _many(seeds: range) -> tuple[int, int]:
    deleted = published = 0
    for seed in seeds:
        world = World(seed)
        world.run()
        deleted, published = deleted + world.deleted, published + world.published
    return deleted, published


@pytest.mark.parametrize("part", range(4))
def test_gc_model(part: int) -> None:
    """Nothing that a version needs is ever deleted, and both get their work done."""
    deleted, published = _many(range(part * 100, part * 100 + 100))
    assert deleted > 30
    assert published > 30


@pytest.mark.slow
def test_gc_model_in_ten_thousand_schedules() -> None:
    deleted, published = _many(range(1000, 11_000))
    assert deleted > 3000
    assert published > 3000


@pytest.mark.parametrize("fault", ["gc reads no leases", "publisher does not wait", "old marks"])
def test_the_model_notices_what_is_wrong(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if fault == "gc reads no leases":
        monkeypatch.setattr(deletion, "_is_alive", lambda *_: False)
    elif fault == "publisher does not wait":
        monkeypatch.setattr(Lease, "is_blocked", lambda _: False)
    else:
        whole = deletion.collect

        def early(store: Any, mark: Callable[[], set[str]], *rest: Any, **more: Any) -> Any:
            seen = mark()
            return whole(store, lambda: seen, *rest, **more)

        monkeypatch.setitem(globals(), "collect", early)
    with pytest.raises(AssertionError, match="is needed and was deleted"):
        _many(range(20_000, 24_000))


def test_strange_keys_are_left_alone() -> None:
    store = MemoryStore()
    for key in ("gc/x.json", "gc/1.closing", "gc/-5.done", "gc/00000000000000000001.json.json"):
        store.objects[key] = b"x"
    assert not Lease(store).is_blocked()
    assert collect(store, set, datetime.timedelta()).listed == []


def test_a_dry_run_gives_nothing_up() -> None:
    store = MemoryStore({f"gc/{1:020}.closing": b"x"})
    collect(store, set, datetime.timedelta(), abandon=True, dry_run=True)
    assert Lease(store).is_blocked()
