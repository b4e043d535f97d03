"""Notes of encodings that were tried: what they spare, what they take, what becomes of them."""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import numpy as np
import pytest

import dlv.archiving.tryouts as tryouts
import dlv.disk.locks as locks
import dlv.recovery.superseded as superseded
import dlv.upkeep.check as check
from dlv.archiving.archive import Archived, archive
from dlv.archiving.budgets import Policy
from dlv.archiving.planning import Room
from dlv.archiving.proposal import Bar, Request
from dlv.archiving.tryouts import Attempt
from dlv.canonical import WRITER
from dlv.errors import Conflict, Damaged, StorageError
from dlv.repository.handle import Repository

ANY = Policy(math.inf, math.inf, math.inf)


class Silent:
    def advance(self, count: int) -> None: ...


@contextlib.contextmanager
def silent(what: str, total: int) -> Iterator[Bar]:
    yield Silent()


@pytest.fixture
def repository(tmp_path: Path, commit_model: Callable[..., str]) -> Iterator[Repository]:
    """Three versions of two matrices, each near the one before."""
    made, _ = Repository.init(tmp_path)
    rng = np.random.default_rng(0)
    held = {"a": rng.normal(0, 0.05, (150, 200)), "b": rng.normal(0, 1, (120, 200))}
    for _ in range(3):
        commit_model(made, "net", {name: w.astype(np.float32) for name, w in held.items()})
        held = {name: w + rng.normal(0, 1e-5, w.shape) for name, w in held.items()}
    yield made
    made.close()


def run(repository: Repository, *, dry_run: bool = False, jobs: int = 1) -> Archived:
    request = Request((), policy=ANY, author="Ada", jobs=jobs, effort="high")
    return archive(repository, request, dry_run=dry_run, progress=silent)


def noted(repository: Repository) -> dict[str, int]:
    return {p.name: p.stat().st_size for p in repository.cache.iterdir()}


def test_a_second_archive_measures_nothing_again(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = run(repository)
    assert set(noted(repository)) == {"tryouts.jsonl", "whole-plan.json"}, "no bytes"

    def never(*_: object, **__: object) -> None:
        raise AssertionError("encoded again")

    def nothing(_: object, wanted: Collection[str]) -> Iterator[object]:
        assert not wanted, "read again"
        return iter(())

    monkeypatch.setattr("dlv.archiving.tryouts.Tryouts._encode", never)
    monkeypatch.setattr("dlv.weights.store.MatrixStore.together", nothing)
    again = run(repository)
    assert again.changed == 0
    assert again.after == first.after


def test_notes_do_not_grow_from_one_archive_to_the_next(repository: Repository) -> None:
    run(repository)
    size = noted(repository)
    run(repository)
    run(repository)
    assert noted(repository) == size


def test_the_bytes_of_encodings_have_their_bounds(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tryouts, "ROOM", 150_000)
    planned = run(repository, dry_run=True)
    assert 0 < noted(repository)["tryouts.bin"] <= 150_000
    done = run(repository)
    assert done.changed == planned.changed > 2
    assert check.check(repository).faults == []


def test_a_full_disk_gets_the_room_back(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = Attempt.copy, []

    def full(self: Attempt, descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) > 3:
            raise OSError(28, "no space")
        real(self, descriptor)

    monkeypatch.setattr(Attempt, "copy", full)
    with pytest.raises(StorageError) as caught:
        run(repository)
    assert caught.value.why == "the disk is full"
    assert noted(repository)["tryouts.bin"] == 0
    monkeypatch.undo()
    assert run(repository).changed > 2
    assert check.check(repository).faults == []


def test_what_is_noted_after_a_line_was_cut_off_is_found(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(repository, dry_run=True)
    notes = repository.cache / "tryouts.jsonl"
    notes.write_bytes(notes.read_bytes()[:-10])
    run(repository, dry_run=True)

    def never(*_: object, **__: object) -> None:
        raise AssertionError("encoded again")

    monkeypatch.setattr("dlv.archiving.tryouts.Tryouts._encode", never)
    run(repository, dry_run=True)


def test_notes_of_another_dlv_are_not_believed(repository: Repository) -> None:
    run(repository, dry_run=True)
    notes = repository.cache / "tryouts.jsonl"
    rows = [line for line in notes.read_bytes().splitlines() if b'"choice"' in line]
    for row in rows:
        assert WRITER.encode() in row


def test_the_plan_is_the_same_in_any_number_of_threads(repository: Repository) -> None:
    one = run(repository, dry_run=True)
    for path in repository.cache.iterdir():
        path.unlink()
    many = run(repository, dry_run=True, jobs=4)
    assert (one.after, one.changed, one.rows) == (many.after, many.changed, many.rows)


def test_room_for_threads() -> None:
    room, inside, most = Room(100), [0], [0]
    lock = threading.Lock()

    def work(size: int) -> None:
        with room.of(size):
            with lock:
                inside[0] += size
                most[0] = max(most[0], inside[0])
            with lock:
                inside[0] -= size

    threads = [threading.Thread(target=work, args=(size,)) for size in [60, 30, 250, 60, 10] * 9]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    assert most[0] <= 250


@pytest.mark.parametrize("spoil", ["missing", "cut", "bytes"])
def test_a_pack_that_is_damaged_is_named(repository: Repository, spoil: str) -> None:
    """Also where the notes spare its reading; nothing is switched, nothing goes."""
    run(repository, dry_run=True)
    there = {path: path.read_bytes() for path in repository.packs.glob("??/*.pack")}
    for path, data in there.items():
        if spoil == "missing":
            path.unlink()
        else:
            path.write_bytes(data[:-9] if spoil == "cut" else bytes(50_000) + data[50_000:])
        with pytest.raises(Damaged):
            run(repository)
        path.write_bytes(data)
        assert {p: p.read_bytes() for p in repository.packs.glob("??/*.pack")} == there
    run(repository)
    assert check.check(repository).faults == []


def test_one_archive_at_a_time(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "SECONDS", 0.1)
    other = Repository.find(repository.root)
    with other.alone("archive.lock"), pytest.raises(Conflict, match="another dlv archive"):
        run(repository)
    other.close()
    assert run(repository).changed > 2


def test_what_a_killed_archive_left_waits_for_who_reads(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one does not stand still until they are done, and loses sight of nothing."""
    monkeypatch.setattr(superseded, "PATIENCE", 0.1)

    class KilledError(Exception):
        pass

    def killed(*_: object) -> None:
        raise KilledError

    monkeypatch.setattr("dlv.archiving.reencode.switch", killed)
    with pytest.raises(KilledError):
        run(repository)
    monkeypatch.undo()
    monkeypatch.setattr(superseded, "PATIENCE", 0.1)
    left = set(superseded.intended(repository))
    assert left
    request = Request(("net@1",), policy=ANY, author="Ada")
    with Repository.find(repository.root) as other, other.writing():
        archive(repository, request, progress=silent)
        assert left <= set(superseded.intended(repository))
    run(repository)
    assert superseded.intended(repository) == []
    report = check.check(repository)
    assert (report.faults, report.dangling) == ([], [])
