"""`gc --restore` that breaks off: nothing is lost by it, nor by a gc before it goes on."""

from __future__ import annotations

import contextlib
import datetime
import errno
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dlv.canonical as canonical
import dlv.disk.durable as durable
import dlv.repository.quarantine as quarantine
import dlv.upkeep.check as check
import dlv.upkeep.collect as collect
import dlv.upkeep.restoring as restoring
import dlv.versions.remove as remove
from dlv.disk.durable import Failpoints
from dlv.errors import StorageError
from dlv.metadata import dump, facts, versions
from dlv.repository.handle import Repository
from dlv.upkeep.collect import Collected, Request

AUTHOR = "Ada"
NOW = datetime.timedelta(0)


@contextlib.contextmanager
def silent(what: str, total: int) -> Iterator[Any]:
    class Silent:
        def advance(self, count: int) -> None: ...

    yield Silent()


def gc(repository: Repository, grace: datetime.timedelta) -> Collected:
    planned = collect.plan(repository, Request(grace, author=AUTHOR))
    done = collect.collect(repository, Request(grace, author=AUTHOR), progress=silent)
    assert planned.interrupted == done.interrupted
    assert check.check(repository).faults == []
    return done


@pytest.fixture
def taken(
    tmp_path: Path, commit_model: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A repository where gc has put net@1 and net@3 into one quarantine."""
    root = tmp_path / "taken"
    root.mkdir()
    with Repository.init(root)[0] as repository:
        for seed in range(1, 5):
            held = {
                200: {f"w{seed}": np.random.default_rng(seed).normal(size=(100, 90)).astype("f4")}
            }
            commit_model(repository, "net", held, files={"train.py": f"{seed}\n"})
        remove.remove(repository, ["net@1", "net@3"], AUTHOR)
        moment = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=20)
        monkeypatch.setattr(canonical, "_fixed_clock", [moment])
        assert len(gc(repository, datetime.timedelta(days=14)).kept) == 1
        assert set(states(repository)) == {"net@2", "net@4"}
    return root


def states(repository: Repository) -> dict[str, str]:
    found = versions.all_versions(repository.database, ("live", "removed", "undone", "recovered"))
    return {version.label: version.state for version in found}


class Stops(Failpoints):
    """A call that fails, and if told to all that come after it: as if the process were killed."""

    def __init__(self, at: int | None, *, dead: bool = False) -> None:
        self.count, self.at, self.dead = 0, at, dead

    def hit(self, _: str) -> None:
        self.count += 1
        if self.at is not None and (self.count == self.at or (self.dead and self.count > self.at)):
            raise OSError(errno.EIO, os.strerror(errno.EIO))


def calls(taken: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many calls of the durable module a restore makes."""
    root = taken.with_name("counted")
    shutil.copytree(taken, root, symlinks=True)
    counting = Stops(None)
    with Repository.find(root) as repository, monkeypatch.context() as patched:
        (place,) = quarantine.places(repository)
        patched.setattr(durable, "failpoints", counting)
        restoring.restore(repository, place.id, AUTHOR)
    return counting.count


def broken_off(taken: Path, at: int, monkeypatch: pytest.MonkeyPatch, *, dead: bool) -> None:
    """Stopped at a call; then fsck, gc, and the same command again."""
    root = taken.with_name(f"broken-{at}-{dead}")
    shutil.copytree(taken, root, symlinks=True)
    with Repository.find(root) as repository:
        (place,) = quarantine.places(repository)
        with monkeypatch.context() as patched:
            patched.setattr(durable, "failpoints", Stops(at, dead=dead))
            with contextlib.suppress(StorageError):
                restoring.restore(repository, place.id, AUTHOR)
        repository.close()
        assert check.check(repository).faults == [], at
        started = quarantine.restoring(repository) is not None
        # With a mark all comes back, and without one nothing has gone anywhere.
        done = gc(repository, NOW if started else datetime.timedelta(days=14))
        assert (done.restored is not None) == started
        again = restoring.restore(repository, place.id, AUTHOR)
        assert again.id == place.id
        assert states(repository) == {
            "net@1": "removed",
            "net@2": "live",
            "net@3": "removed",
            "net@4": "live",
        }, at
        said = [row.summary for row in facts.operations(repository.database)]
        assert said.count(f"{place.id} restored") == 1
        assert quarantine.places(repository) == []
        assert not (repository.path / quarantine.MARK).exists()
        before = dump.content(repository.database)
        assert check.rebuild(repository).faults == []
        assert dump.content(repository.database) == before
    shutil.rmtree(root)


@pytest.mark.parametrize("dead", [False, True])
def test_some_calls_fail(taken: Path, monkeypatch: pytest.MonkeyPatch, *, dead: bool) -> None:
    count = calls(taken, monkeypatch)
    for at in range(1 + 3 * dead, count + 1, count // 6):
        broken_off(taken, at, monkeypatch, dead=dead)


@pytest.mark.slow
@pytest.mark.parametrize("dead", [False, True])
def test_each_call_fails(taken: Path, monkeypatch: pytest.MonkeyPatch, *, dead: bool) -> None:
    for at in range(1, calls(taken, monkeypatch) + 1):
        broken_off(taken, at, monkeypatch, dead=dead)


def test_what_was_marked_is_not_believed_before_its_end(taken: Path) -> None:
    """A rebuild in the midst of it: the versions are still taken, and then they come back."""
    with Repository.find(taken) as repository:
        (place,) = quarantine.places(repository)
        undoing = [
            restoring._undo(repository.database, digest, AUTHOR)
            for digest in restoring._taking(repository, place)
        ]
        assert len(undoing) == 2
        waiting = quarantine.mark(repository, place, undoing)
        assert quarantine.restoring(repository) == waiting
        quarantine.move_out(repository, place)
        for fact in undoing:
            repository.write_fact(fact)
        assert check.rebuild(repository).faults == []
        assert set(states(repository)) == {"net@2", "net@4"}
        restoring.restore(repository, place.id, AUTHOR)
        assert set(states(repository)) == {"net@1", "net@2", "net@3", "net@4"}


@pytest.mark.parametrize("content", [b"", b"[]", b'{"quarantine": "x", "facts": ["{}"]}'])
def test_a_mark_that_cannot_be_read_stops_nothing(taken: Path, content: bytes) -> None:
    with Repository.find(taken) as repository:
        (repository.path / quarantine.MARK).write_bytes(content)
        (place,) = quarantine.places(repository)
        assert check.check(repository).faults == []
        done = restoring.restore(repository, place.id, AUTHOR)
        assert set(done.versions) == {"net@1", "net@3"}
        assert not (repository.path / quarantine.MARK).exists()


def test_what_a_killed_restore_left_in_tmp_goes(taken: Path) -> None:
    with Repository.find(taken) as repository:
        (repository.tmp / "half.json").write_bytes(b"{")
        (place,) = quarantine.places(repository)
        restoring.restore(repository, place.id, AUTHOR)
        assert list(repository.tmp.iterdir()) == []
