"""`gc`: takes what was hidden for long enough, keeps all that anything needs, and can be undone."""

from __future__ import annotations

import contextlib
import datetime
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dlv.disk.durable as durable
import dlv.disk.locks as locks
import dlv.repository.quarantine as quarantine
import dlv.repository.revisions as revisions
import dlv.repository.undo as undo
import dlv.upkeep.check as check
import dlv.upkeep.collect as collect
import dlv.upkeep.restoring as restoring
import dlv.versions.remove as remove
from dlv.errors import Conflict, Damaged, NotFound, StorageError, UnsafeInput
from dlv.metadata import dump, matrices, usage, versions
from dlv.repository.handle import Repository
from dlv.upkeep.collect import Collected, Request
from dlv.upkeep.retention import Best, Policy
from dlv.weights.store import MatrixStore

Make = Callable[..., str]
AUTHOR = "Ada"
NOW = datetime.timedelta(0)


class Silent:
    def advance(self, count: int) -> None: ...


@contextlib.contextmanager
def silent(what: str, total: int) -> Iterator[Silent]:
    yield Silent()


def gc(repository: Repository, grace: datetime.timedelta = NOW, **policy: Any) -> Collected:
    request = Request(grace, Policy(**policy), AUTHOR)
    planned = collect.plan(repository, request)
    done = collect.collect(repository, request, progress=silent)
    assert [h.version.id for h, _ in planned.due] == [h.version.id for h, _ in done.due]
    assert planned.choices == done.choices
    assert sound(repository)
    return done


def sound(repository: Repository) -> bool:
    """No fault, every live version readable, and a rebuild would give just this catalogue."""
    report = check.check(repository)
    assert report.faults == []
    with contextlib.closing(MatrixStore.of(repository)) as store:
        for version in versions.all_versions(repository.database):
            for snapshot in usage.held_snapshots(repository.database, [version.key]):
                if not snapshot.removed:
                    for _, _, name in snapshot.tensors:
                        store.matrix(name)
    return True


def rebuilt(repository: Repository) -> bool:
    before = dump.content(repository.database)
    assert check.rebuild(repository).faults == []
    repository.close()
    after = dump.content(repository.database)
    assert [name for name in before if before[name] != after[name]] == []
    return True


def weights(seed: int, *, near: bool = True) -> dict[str, Any]:
    common, own = np.random.default_rng(0 if near else seed), np.random.default_rng(seed)
    shapes = {"fc.weight": (10, 64), "embedding": (200, 90), "scale": (3,)}
    made = {
        name: (common.normal(0, 0.05, shape) + own.normal(0, 1e-5, shape)).astype("f4")
        for name, shape in shapes.items()
    }
    return made | {"same": np.arange(20_000, dtype="f4"), "none": np.zeros((0, 3), "f4")}


NODES = [
    {"name": "flat", "op": "RESHAPE", "attrs": {"kind": "flatten"}, "inputs": ["x"]},
    {
        "name": "fc",
        "op": "FULL",
        "attrs": {"out": 10, "bias": False},
        "inputs": ["flat"],
        "params": {"weight": "fc.weight"},
    },
]


@pytest.fixture
def four(tmp_path: Path, commit_model: Make) -> Iterator[Repository]:
    """net@1 .. net@4, each with a file, a curve and a checkpoint on the way."""
    with Repository.init(tmp_path)[0] as repository:
        for seed in range(1, 5):
            log = "step,loss\n" + "".join(f"{s},{1 / (s + seed)}\n" for s in range(1, 20))
            files = {"train.py": f"{seed}\n", "log.csv": log}
            held = {100: weights(seed + 10), 200: weights(seed)}
            commit_model(repository, "net", held, NODES, files=files)
        yield repository


def labels(repository: Repository, *states: str) -> set[str]:
    rows = versions.all_versions(repository.database, states or ("live", "recovered"))
    return {row.label for row in rows}


def everything(repository: Repository) -> set[str]:
    folders = ("packs", "manifests", "facts", "files.git")
    paths = [path for name in folders for path in (repository.path / name).rglob("*")]
    return {path.relative_to(repository.path).as_posix() for path in paths if path.is_file()}


def test_nothing_to_do(four: Repository) -> None:
    before = everything(four)
    assert not gc(four).anything
    assert everything(four) == before
    assert not (four.path / "quarantine").exists()


def test_what_was_removed_goes_after_the_grace(four: Repository) -> None:
    size = usage.size_of_packs(four.database)
    freed = remove.remove(four, ["net@1", "net@2"], AUTHOR).reclaimable
    within = gc(four, datetime.timedelta(days=1))
    assert [hidden.version.label for hidden in within.waiting] == ["net@2", "net@1"]
    assert not within.moved
    assert labels(four, "removed") == {"net@1", "net@2"}
    done = gc(four)
    assert sum(size for _, size in done.due) == freed
    assert labels(four, "live", "removed", "undone") == {"net@3", "net@4"}
    assert done.moved["manifests"][0] == 2
    assert done.rewritten[0]  # what later versions share with the first lay in its pack
    assert usage.size_of_packs(four.database) < 0.8 * size
    assert rebuilt(four)
    assert labels(four, "live", "removed", "undone") == {"net@3", "net@4"}


def test_numbers_are_not_used_again(four: Repository, commit_model: Make) -> None:
    undo.undo(four, AUTHOR)
    assert [hidden.version.label for hidden, _ in gc(four).due] == ["net@4"]
    commit_model(four, "net", weights(9))
    assert labels(four) == {"net@1", "net@2", "net@3", "net@5"}
    assert rebuilt(four)


def test_snapshots(four: Repository, commit_model: Make, archived: Any) -> None:
    remove.remove(four, ["net@4", "net@2"], AUTHOR, steps="100")
    done = gc(four)
    assert [(h.version.label, h.steps) for h, _ in done.due] == [("net@4", [100]), ("net@2", [100])]
    assert all(size for _, size in done.due)
    assert rebuilt(four)
    assert not gc(four).due
    remove.remove(four, ["net@1"], AUTHOR, steps="100")
    with pytest.raises(UnsafeInput, match="cannot be undone"):
        undo.undo(four, AUTHOR, operation=5)
    # A child takes over what is left of its parent's checkpoints.
    (four.root / "train.py").write_text("5\n")
    child = commit_model(four, "net", {}, files={"train.py": "5\n"})
    assert [row.step for row in four.manifest(child).snapshots] == [200]
    archived(four)
    assert sound(four)
    assert [h.version.label for h, _ in gc(four).due] == ["net@1"]


def test_bases_of_what_stays_are_kept(four: Repository, archived: Any) -> None:
    archived(four)
    stored = usage.stored_matrices(four.database)
    assert any(matrix.delta is not None for matrix in stored)
    remove.remove(four, ["net@2", "net@3"], AUTHOR, force=True)
    gc(four)
    assert labels(four, "live", "removed") == {"net@1", "net@4"}
    archived(four)
    gc(four)
    assert rebuilt(four)


def test_head_stays_whatever_its_state(four: Repository) -> None:
    remove.remove(four, ["net@4"], AUTHOR)
    assert not gc(four).due
    assert labels(four, "removed") == {"net@4"}


def test_quarantine_and_back(four: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    remove.remove(four, ["net@2"], AUTHOR)
    remove.remove(four, ["net@3"], AUTHOR, steps="100")
    names = everything(four)
    aged(four, datetime.timedelta(days=20), monkeypatch)
    done = gc(four, datetime.timedelta(days=14))
    assert labels(four, "live", "removed") == {"net@1", "net@3", "net@4"}
    assert done.freed == 0
    places = quarantine.places(four)
    assert places == done.kept
    taken = [row["version"] for place in places for row in place.versions]
    assert sorted(taken) == ["net@2", "net@3"]
    held = {path for place in places for path, _ in place.objects}
    assert names <= everything(four) | held
    for place in reversed(places):
        restoring.restore(four, place.id, AUTHOR)
    assert labels(four, "removed") == {"net@2"}
    assert sound(four)
    assert rebuilt(four)
    undo.undo(four, AUTHOR, operation=5)
    undo.undo(four, AUTHOR, operation=6)
    assert labels(four) == {"net@1", "net@2", "net@3", "net@4"}
    assert sound(four)
    assert quarantine.places(four) == []
    assert restoring.restore(four, places[0].id, AUTHOR).before
    with pytest.raises(NotFound):
        restoring.restore(four, "20260101T000000-abcdef", AUTHOR)


def aged(repository: Repository, by: datetime.timedelta, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on it is later."""
    moment = datetime.datetime.now(datetime.UTC) + by
    import dlv.canonical as canonical

    monkeypatch.setattr(canonical, "_fixed_clock", [moment])


def test_what_lay_in_quarantine_is_deleted(
    four: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove.remove(four, ["net@2"], AUTHOR)
    grace = datetime.timedelta(days=14)
    aged(four, datetime.timedelta(days=15), monkeypatch)
    assert gc(four, grace).kept
    aged(four, datetime.timedelta(days=28), monkeypatch)
    assert gc(four, grace).freed == 0
    aged(four, datetime.timedelta(days=30), monkeypatch)
    assert gc(four, grace).freed > 0
    assert list((four.path / "quarantine").iterdir()) == []


def test_undo_says_that_it_is_too_late(four: Repository) -> None:
    remove.remove(four, ["net@2"], AUTHOR)
    gc(four)
    with pytest.raises(UnsafeInput, match="gc net@2"):
        undo.undo(four, AUTHOR)
    with pytest.raises(UnsafeInput) as caught:
        undo.undo(four, AUTHOR, operation=5)
    assert "gc deleted" in str(caught.value.why)


def test_leftovers_of_a_commit_that_never_was(four: Repository) -> None:
    manifest = four.manifest(four.head or "")
    path = durable.path_of(four.manifests, four.write_manifest(_other(manifest)), ".json")
    stray = next(four.packs.glob("*/*.pack"))
    (four.packs / "0a").mkdir(exist_ok=True)
    (four.packs / "0a" / ("0a" * 32 + ".pack")).write_bytes(stray.read_bytes())
    fact = durable.write_once(four.tmp, four.facts, b"{}", ".json")
    done = collect.collect(four, Request(NOW), progress=silent)
    assert not path.exists()
    assert not durable.path_of(four.facts, fact, ".json").exists()
    assert {kind: many for kind, (many, _) in done.moved.items()} == {
        "packs": 1,
        "manifests": 1,
        "facts": 1,
    }
    assert sound(four)
    assert not facts_changed(four)


def _other(manifest: Any) -> Any:
    import dataclasses

    return dataclasses.replace(manifest, message="never committed")


def facts_changed(repository: Repository) -> bool:
    committed = dump.committed_facts(repository.database)
    return {path.stem for path in repository.facts.glob("*/*.json")} != committed


def test_nothing_is_taken_where_something_cannot_be_read(four: Repository) -> None:
    remove.remove(four, ["net@2"], AUTHOR)
    path = durable.path_of(four.manifests, four.head or "", ".json")
    path.write_bytes(b"{}")
    four._decoded.clear()
    before = everything(four)
    with pytest.raises(Damaged):
        collect.collect(four, Request(NOW), progress=silent)
    assert everything(four) == before
    assert labels(four, "removed") == {"net@2"}


def test_others_at_work_are_waited_for(four: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "SECONDS", 0.1)
    with Repository.find(four.root) as other, other.writing(), pytest.raises(Conflict):
        collect.collect(four, Request(NOW), progress=silent)
    # One that takes packs away, as an archive does, holds off the plan as well.
    with Repository.find(four.root) as other, other.alone("gc.lock"), pytest.raises(Conflict):
        collect.plan(four, Request(NOW))
    gc(four)


class TestPolicy:
    def test_last(self, four: Repository, commit_model: Make) -> None:
        commit_model(four, "wide", weights(8))
        revisions.set_tag(four, "good", "net@1", AUTHOR)
        done = gc(four, datetime.timedelta(days=1), last=1)
        said = {choice.version.label: choice.why for choice in done.choices}
        assert said == {"net@1": "tagged good", "net@2": None, "net@3": None}
        assert labels(four) == {"net@1", "net@4", "wide@1"}
        undo.undo(four, AUTHOR)
        assert labels(four) == {"net@1", "net@2", "net@3", "net@4", "wide@1"}

    def test_best(self, four: Repository, commit_model: Make) -> None:
        """The curves of later versions end lower; a name without the metric is left alone."""
        commit_model(four, "wide", weights(8), root=True)
        done = gc(four, datetime.timedelta(days=1), best=(Best("loss", 2, "min"),))
        assert labels(four) == {"net@3", "net@4", "wide@1"}
        assert all(choice.why is None for choice in done.choices)
        undo.undo(four, AUTHOR)
        gc(four, datetime.timedelta(days=1), best=(Best("loss", 1, "max"),), last=1)
        assert labels(four) == {"net@1", "net@4", "wide@1"}

    def test_a_metric_that_nothing_has(self, four: Repository) -> None:
        with pytest.raises(NotFound):
            gc(four, best=(Best("lost", 2, "min"),))
        assert len(labels(four)) == 4

    def test_bases_are_spared(self, four: Repository, archived: Any) -> None:
        archived(four)
        done = gc(four, datetime.timedelta(days=1), last=1)
        whys = {choice.why for choice in done.choices}
        assert any(why and why.startswith("base of net@") for why in whys)

    def test_head_is_spared(self, four: Repository) -> None:
        with four.change("checkout") as change:
            first = versions.by_number(four.database, "net", 1)
            assert first is not None
            change.set_head(first.id)
        gc(four, last=2)
        assert labels(four) == {"net@1", "net@3", "net@4"}


def test_a_plan_changes_nothing(four: Repository) -> None:
    before = everything(four), dump.content(four.database), len(undo.operations(four))
    planned = collect.plan(four, Request(NOW, Policy(last=1), AUTHOR))
    assert [hidden.version.label for hidden, _ in planned.due] == ["net@3", "net@2", "net@1"]
    assert planned.freed > 0
    assert (everything(four), dump.content(four.database), len(undo.operations(four))) == before


def test_a_list_is_durable_before_anything_moves(
    four: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove.remove(four, ["net@2"], AUTHOR)
    seen = []
    move = durable.move_all

    def moved(pairs: Any) -> None:
        pairs = list(pairs)
        for _, target in pairs:
            place = four.path / "quarantine" / target.relative_to(four.path / "quarantine").parts[0]
            listed = json.loads((place / "origins.json").read_bytes())["objects"]
            seen.append(target.relative_to(place).as_posix() in [row["path"] for row in listed])
        move(pairs)

    monkeypatch.setattr(durable, "move_all", moved)
    gc(four)
    assert seen
    assert all(seen)


def test_a_full_disk_leaves_all_as_it_was(
    four: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove.remove(four, ["net@2"], AUTHOR)
    before = dump.content(four.database), everything(four)

    def full(*_: Any, **__: Any) -> None:
        raise StorageError("cannot write", why="the disk is full")

    monkeypatch.setattr(durable, "replace", full)
    with pytest.raises(StorageError):
        collect.collect(four, Request(NOW), progress=silent)
    monkeypatch.undo()
    assert (dump.content(four.database), everything(four)) == before
    gc(four)


def test_packs_are_those_of_the_catalogue(four: Repository) -> None:
    remove.remove(four, ["net@1", "net@3"], AUTHOR)
    gc(four)
    known = {name for name, _ in matrices.packs(four.database)}
    assert {path.stem for path in four.packs.glob("*/*.pack")} == known
