"""Deletion on a hub while others publish: the real code under schedules and crashes."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from dlv.canonical import hash_bytes
from dlv.dataclass import dataclass
from dlv.errors import Conflict
from dlv.hub.history import successor
from dlv.hub.records import decode_ref, object_key
from dlv.hub.server import collecting, objects, repositories, tables
from dlv.hub.server.database import HubDatabase
from dlv.hub.server.refusal import Refused
from dlv.hub.stores.interface import MissingObject
from tests.hub.server.filling import Version
from tests.hub.server.site import Site
from tests.hub.stores import MemoryStore
from tests.hub.test_deletion import Actor, Killed

PACKS = [b"pack %d" % number for number in range(3)]


@dataclass(frozen=True)
class Stepped(HubDatabase):
    """A database whose transactions begin when the schedule says so."""

    before: Callable[[], None]

    def reading(self) -> Any:
        self.before()
        return super().reading()

    def writing(self) -> Any:
        self.before()
        return super().writing()


class World:
    """One repository, and actors whose requests and transactions come one at a time."""

    def __init__(self, site: Site, seed: int) -> None:
        self.random, self.site, self.hub = random.Random(seed), site, site.hub
        self.actors: list[Actor] = []
        self.deleted = self.published = self.refused = 0
        self.database = self.hub.database
        name = f"r{seed}"
        self.place = site.repository(f"ada/{name}", "private", "ada")
        self.caller = site.caller("ada")
        self.store = MemoryStore()
        self.store._step = self._before  # type: ignore[method-assign]
        delete = self.store._delete

        def checked(key: str) -> None:
            self._before()
            assert key not in self.needed(), f"{key} is needed and was deleted"
            self.deleted += key in self.store.objects
            self.store._step = lambda: None  # type: ignore[method-assign]
            delete(key)
            self.store._step = self._before  # type: ignore[method-assign]

        self.store._delete = checked  # type: ignore[method-assign]
        self.hub.store_of = lambda _: self.store  # type: ignore
        self.hub.database = Stepped(self.database.engine, self._before)

    def _before(self) -> None:
        for actor in self.actors:
            if actor.thread is threading.current_thread():
                actor.stop()

    def needed(self) -> set[str]:
        """Return the keys that rows promise to be there, as of now."""
        need, table = tables.need.c, tables.object_.c
        with self.database.reading() as connection:
            rows = list(
                connection.execute(
                    sa.select(need.kind, need.hash).where(need.repository_id == self.place.id)
                )
            )
            rows += connection.execute(
                sa.select(table.kind, table.hash).where(
                    table.repository_id == self.place.id, ~table.deleting
                )
            ).all()
        return {object_key(row.kind, row.hash) for row in rows}

    def publish(self) -> None:
        """Send a version with a pack that others may also need, and publish it."""
        version = Version.of("net", f"{self.random.getrandbits(40)}", self.random.choice(PACKS))
        for _ in range(3):
            try:
                self.site.store(self.place, "ada", version)
                ref = self.site.ref(self.place, "net", version)
                repositories.publish(
                    self.hub, self.caller, self.place, "net", ref.seq, ref.encode()
                )
            except (Refused, Conflict, MissingObject):
                self.refused += 1
            else:
                self.published += 1
                return

    def retire(self) -> None:
        with self.database.reading() as connection:
            records = repositories.records_of(connection, self.place.id, "net", 0, 1000)
        chain = [decode_ref(record, "net") for record in records]
        gone = {ref.number for ref in chain if ref.kind == "retire"}
        live = [ref for ref in chain if ref.kind == "publish" and ref.number not in gone]
        if live:
            old = live[0]
            ref = successor(
                chain, "retire", name="net", number=old.number, manifest=old.manifest,
                locator=old.locator, author="Ada <ada@example.org>",
            )  # fmt: skip
            try:
                repositories.publish(
                    self.hub, self.caller, self.place, "net", ref.seq, ref.encode()
                )
            except Refused:
                self.refused += 1

    def gc(self) -> None:
        try:
            collecting.collect(self.hub, self.caller, self.place, timedelta(), dry_run=False)
        except Refused:
            self.refused += 1

    def run(self, steps: int) -> None:
        work = [self.publish, self.gc, self.retire]
        try:
            for _ in range(steps):
                alive = [actor for actor in self.actors if actor.alive]
                if len(alive) < 4 and self.random.random() < 0.2:
                    self.actors.append(Actor(self.random.choices(work, [4, 4, 2])[0]))
                    continue
                if not alive:
                    continue
                # One often goes on for some time, while the others wait where they are.
                actor = self.random.choice(alive)
                actor.killed = self.random.random() < 0.01
                for _ in range(self.random.choice([1, 1, 3, 12])):
                    if actor.alive:
                        actor.step()
                if actor.error is not None:
                    raise actor.error
        finally:
            for actor in self.actors:
                while actor.alive:
                    actor.killed = True
                    actor.step()
        self.actors.clear()
        self.check()

    def check(self) -> None:
        """What rows promise is there, after crashes too; the next run finishes the rest."""
        missing = [key for key in self.needed() if key not in self.store.objects]
        assert missing == []
        assert self.site.counters() == self.site.sums()
        self.gc()
        table = tables.object_.c
        with self.database.reading() as connection:
            left = connection.execute(
                sa.select(table.hash).where(table.repository_id == self.place.id, table.deleting)
            ).all()
        assert left == []
        assert self.site.counters() == self.site.sums()


def _many(site: Site, seeds: range, steps: int = 150) -> tuple[int, int]:
    deleted = published = 0
    database = site.hub.database
    for seed in seeds:
        world = World(site, seed)
        try:
            world.run(steps)
        finally:
            site.hub.database = database
        deleted, published = deleted + world.deleted, published + world.published
    return deleted, published


@pytest.fixture
def site(tmp_path: Path, hub_database_url: str) -> Iterator[Site]:
    made = Site(tmp_path, hub_database_url)
    made.user("ada")
    yield made
    made.close()


def test_gc_model_of_a_hub(site: Site) -> None:
    """Nothing that a row promises is ever deleted, and both get their work done."""
    deleted, published = _many(site, range(6))
    assert deleted > 5
    assert published > 5


@pytest.mark.slow
def test_gc_model_of_a_hub_in_many_schedules(site: Site) -> None:
    deleted, published = _many(site, range(1000, 1600))
    assert deleted > 500
    assert published > 500


@pytest.mark.slow
def test_the_model_notices_two_deletions_at_once(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the lock, the slower of two deletes what was sent again."""
    monkeypatch.setattr(objects, "alone", lambda *_: nullcontext(lambda: None))
    with pytest.raises(AssertionError, match="is needed and was deleted"):
        _many(site, range(5000, 5300))


def test_a_deletion_is_killed_at_every_step(tmp_path: Path) -> None:
    """The next run finishes it; a publisher who needs the objects does not wait for that."""
    site = Site(tmp_path, f"sqlite:///{tmp_path / 'hub.db'}")
    site.user("ada")
    for step in range(1, 40):
        world = World(site, step)
        version = Version.of("net", "m", PACKS[0])
        world.site.store(world.place, "ada", version)
        left = [step]

        def before(left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] == 0:
                raise Killed

        world._before = before  # type: ignore[method-assign]
        world.store._step = before  # type: ignore[method-assign]
        world.hub.database = Stepped(world.database.engine, before)
        finished = True
        try:
            world.gc()
        except Killed:
            finished = False
        world._before = lambda: None  # type: ignore[method-assign]
        world.store._step = world._before  # type: ignore[method-assign]
        world.hub.database = world.database
        assert all(key in world.store.objects for key in world.needed())
        if step % 2:
            world.publish()
            assert world.published == 1
        world.check()
        if finished:
            break
    assert finished
    assert step > 8
    site.close()


def test_leases_keep_objects(tmp_path: Path) -> None:
    """Nothing is marked while a lease is alive, but what was marked before is finished."""
    site = Site(tmp_path, f"sqlite:///{tmp_path / 'hub.db'}")
    site.user("ada")
    place, caller = site.repository("ada/r", "private", "ada"), site.caller("ada")
    version = Version.of("net", "m", PACKS[0])
    site.store(place, "ada", version)
    collecting.lease(site.hub, caller, place, "leaseleaselease")
    done = collecting.collect(site.hub, caller, place, timedelta(), dry_run=False)
    assert (done.deleted, done.leases, len(done.listed)) == ([], 1, 3)
    with site.hub.database.writing() as connection:
        own = tables.object_.c.hash == hash_bytes(PACKS[0])
        connection.execute(sa.update(tables.object_).where(own).values(deleting=True))
    done = collecting.collect(site.hub, caller, place, timedelta(), dry_run=False)
    assert len(done.deleted) == 1
    collecting.end_lease(site.hub, place, "leaseleaselease")
    dry = collecting.collect(site.hub, caller, place, timedelta(), dry_run=True)
    assert (dry.deleted, len(dry.listed)) == ([], 2)
    early = collecting.collect(site.hub, caller, place, timedelta(days=1), dry_run=False)
    assert (early.deleted, len(early.listed)) == ([], 2)
    assert len(collecting.collect(site.hub, caller, place, timedelta(), dry_run=False).deleted) == 2
    site.close()
