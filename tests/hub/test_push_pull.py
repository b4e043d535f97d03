"""Publishing and pulling whole repositories: what comes back is what was sent, and no more."""

from __future__ import annotations

import contextlib
import datetime
import json
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dlv.hub.pull as pulling
import dlv.hub.push as pushing
import dlv.repository.undo as undo
import dlv.upkeep.check as check
import dlv.upkeep.collect as collect
import dlv.versions.remove as remove
from dlv.canonical import timestamp
from dlv.errors import Conflict, DlvError, NotFound, RemoteError, UnsafeInput
from dlv.hub.history import History, published
from dlv.hub.records import RemoteFile
from dlv.hub.remotes import Remote
from dlv.hub.stores.directory import DirectoryStore
from dlv.hub.stores.interface import Store
from dlv.hub.stores.objects import ObjectStore
from dlv.metadata import versions
from dlv.metadata.evaluations import saved_evaluations
from dlv.repository.handle import Repository
from dlv.weights.store import MatrixStore
from tests.hub.stores import MemoryStore, web_server

UUID = "ab" * 32


class Silent:
    """A progress bar that shows nothing."""

    def advance(self, count: int) -> None: ...


def remote_of(repository: Repository, store: Store) -> Remote:
    file = RemoteFile(UUID, timestamp(), {})
    cache = repository.cache / "remotes" / UUID
    return Remote("origin", store.url, store, file, History(store, cache, repository.tmp))


def publish(repository: Repository, store: Store, *refs: str, **more: Any) -> pushing.Published:
    request = pushing.Request(references=refs, author="Ada", **more)
    return pushing.publish(repository, remote_of(repository, store), request)


def pull(repository: Repository, store: Store, *names: str, **more: Any) -> pulling.Pulled:
    request = pulling.Request(names=names, author="Bob", everything=not names, **more)
    return pulling.pull(repository, remote_of(repository, store), request)


@pytest.fixture
def repository(tmp_path: Path) -> Iterator[Repository]:
    with Repository.init(tmp_path / "base")[0] as made:
        yield made


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Repository]:
    with Repository.init(tmp_path / "other")[0] as found:
        yield found


def contents(repository: Repository, version_id: str) -> dict[str, bytes]:
    """Every tensor of the checkpoints that are there, and every file."""
    from dlv.repository.git_files import FileStore

    manifest = repository.manifest(version_id)
    version = versions.by_id(repository.database, version_id)
    assert version is not None
    store = MatrixStore.of(repository)
    kept = [r.index for r in versions.snapshots(repository.database, version.key) if not r.removed]
    found = {
        digest: bytes(store.matrix(digest))
        for index in kept
        for digest in manifest.snapshots[index].hashes
        if digest is not None
    }
    files = FileStore(repository.files_git)
    return found | {entry.path: files.read(entry) for entry in manifest.files}


def labels(repository: Repository) -> list[str]:
    return sorted(v.label for v in versions.all_versions(repository.database))


def test_a_history_of_all_kinds(lived: Repository, other: Repository) -> None:
    """Removed checkpoints, curves, networks, files, deltas after an archive: all that is live."""
    store = MemoryStore()
    publish(lived, store, "lenet@4", "wide@2")
    pull(other, store)
    ids = {v.id for v in versions.all_versions(other.database)}
    assert ids == {v.id for v in versions.all_versions(lived.database)}
    for version_id in ids:
        assert contents(other, version_id) == contents(lived, version_id)
        assert other.manifest(version_id) == lived.manifest(version_id)
    assert check.check(other).faults == []
    assert check.rebuild(other).faults == []
    assert {v.id for v in versions.all_versions(other.database)} == ids


def test_checkpoints_that_were_removed_are_removed_there(
    lived: Repository, other: Repository
) -> None:
    first = versions.by_number(lived.database, "lenet", 1)
    assert first is not None
    removed = [row.step for row in versions.snapshots(lived.database, first.key) if row.removed]
    assert removed
    store = MemoryStore()
    publish(lived, store, "lenet@1")
    pull(other, store)
    copy = versions.by_id(other.database, first.id)
    assert copy is not None
    rows = versions.snapshots(other.database, copy.key)
    assert [row.step for row in rows if row.removed] == removed


def test_twice_is_once(lived: Repository, other: Repository) -> None:
    store = MemoryStore()
    first = publish(lived, store, "lenet@4")
    assert first.sent
    before = dict(store.objects)
    store.traffic.requests = store.traffic.sent = 0
    second = publish(lived, store, "lenet@4")
    assert second.sent == []
    assert store.traffic.sent == 0
    assert store.traffic.requests <= 5
    assert store.objects == before
    pull(other, store)
    assert pull(other, store).versions == []


def test_a_fine_tune_sends_its_difference(
    repository: Repository, other: Repository, commit_model: Callable[..., str]
) -> None:
    rng = np.random.default_rng(1)
    base = {f"layer{i}": rng.normal(size=(200, 300)).astype("f4") for i in range(6)}
    commit_model(repository, "net", base)
    store = MemoryStore()
    whole = publish(repository, store)
    commit_model(repository, "net", base | {"layer5": base["layer5"] + np.float32(1e-3)})
    part = publish(repository, store)
    assert part.bytes < whole.bytes / 5
    pull(other, store)
    assert check.check(other).faults == []


def test_a_fine_tune_of_all_layers_is_sent_as_deltas(
    repository: Repository,
    other: Repository,
    commit_model: Callable[..., str],
    archived: Callable[..., Any],
) -> None:
    """Also where an archive keeps the new version whole and the old one as its difference."""
    rng = np.random.default_rng(1)
    layers = {f"layer{i}": rng.normal(size=(200, 300)).astype("f4") for i in range(4)}
    store = MemoryStore()
    sizes = []
    for turn in range(11):
        commit_model(repository, "net", layers)
        if turn == 2:
            archived(repository)
        sizes.append(publish(repository, store).bytes)
        for name, values in layers.items():
            layers[name] = values + rng.normal(0, 1e-4, values.shape).astype("f4")
    assert max(sizes[1:8]) < sizes[0] * 0.75
    # Chains that readers have to go through stay short.
    assert sizes[9] > sizes[0] * 0.9
    pull(other, store)
    assert check.check(other).faults == []
    for version in versions.all_versions(repository.database):
        assert contents(other, version.id) == contents(repository, version.id)


def test_what_another_clone_has_pulled_costs_nothing_under_another_name(
    lived: Repository, other: Repository
) -> None:
    store = MemoryStore()
    publish(lived, store, "lenet@4")
    pull(other, store)
    again = publish(other, store, "lenet", name="copy")
    assert again.sent
    assert again.bytes == 0


def test_the_other_must_pull_first(
    tmp_path: Path, lived: Repository, commit_model: Callable[..., str]
) -> None:
    store = MemoryStore()
    publish(lived, store, "lenet@2")
    shutil.copytree(lived.root, tmp_path / "copy")
    with Repository.find(tmp_path / "copy") as copy:
        commit_model(copy, "lenet", {"a": np.ones(3, "f4")})
        publish(copy, store)
        commit_model(lived, "lenet", {"a": np.zeros(3, "f4")})
        with pytest.raises(Conflict, match="not here") as caught:
            publish(lived, store)
        assert caught.value.hint == "dlv pull origin:lenet"
        pull(lived, store, "lenet")
        publish(lived, store)
        pull(copy, store, "lenet")
        assert check.check(copy).faults == []


def test_numbers_and_names(lived: Repository, other: Repository) -> None:
    store = MemoryStore()
    publish(lived, store, "lenet@4")
    done = pull(other, store, "lenet@2")
    assert [v.label for v in done.versions] == ["lenet@1"]
    assert [f"{ref.name}@{ref.number}" for ref in done.origins.values()] == ["lenet@2"]
    done = pull(other, store, "lenet@latest", name="theirs")
    assert [v.label for v in done.versions] == ["theirs@1"]
    with pytest.raises(NotFound, match="no version lenet@9"):
        pull(other, store, "lenet@9")
    with pytest.raises(NotFound, match="no version nope"):
        pull(other, store, "nope")


def test_a_dry_run_changes_nothing(lived: Repository, other: Repository) -> None:
    store = MemoryStore()
    planned = publish(lived, store, "lenet@4", dry_run=True)
    assert planned.bytes
    assert planned.sent
    assert store.objects == {}
    publish(lived, store, "lenet@4")
    planned_pull = pull(other, store, dry_run=True)
    assert planned_pull.bytes
    assert planned_pull.origins
    assert labels(other) == []


def test_undo_takes_a_pull_back_but_not_what_was_seen(lived: Repository, other: Repository) -> None:
    store = MemoryStore()
    publish(lived, store, "lenet@4")
    pull(other, store)
    undo.undo(other, author="Bob")
    assert labels(other) == []
    assert remote_of(other, store).remembered(other, "lenet") is not None
    again = pull(other, store)
    assert again.versions == []
    assert len(again.hidden) == again.known


def test_what_gc_took_comes_back(repository: Repository, commit_model: Callable[..., str]) -> None:
    first = commit_model(repository, "net", {"a": np.zeros(3000, "f4")}, files={"f.txt": "x"})
    second = commit_model(repository, "net", {"a": np.ones(3000, "f4")})
    store = MemoryStore()
    publish(repository, store)
    with repository.change("checkout") as change:
        change.set_head(first)
    remove.remove(repository, ["net@2"], "Ada")
    request = collect.Request(grace=datetime.timedelta())
    collect.collect(repository, request, progress=lambda *_: contextlib.nullcontext(Silent()))
    assert versions.by_id(repository.database, second) is None
    done = pull(repository, store, "net")
    assert [version.id for version in done.versions] == [second]
    assert labels(repository) == ["net@1", done.versions[0].label]
    assert check.rebuild(repository).faults == []
    assert len(labels(repository)) == 2


def test_evaluations_travel(lived: Repository, other: Repository) -> None:
    version = versions.by_number(lived.database, "lenet", 4)
    assert version is not None
    data: dict[str, object] = {
        "step": None,
        "data": {"name": "test.npz", "fingerprint": "1"},
        "metrics": {"loss": 0.5},
    }
    with lived.change("eval", "Ada") as change:
        change.record("evaluation", version.id, data)
    store = MemoryStore()
    publish(lived, store, "lenet@4")
    pull(other, store)
    (found,) = saved_evaluations(other.database, version.id)
    assert found.data["metrics"] == {"loss": 0.5}


def test_rewriting_history_is_noticed(lived: Repository, other: Repository) -> None:
    """Entries that vanish, that change, or that do not follow from the ones before."""
    store = MemoryStore()
    publish(lived, store, "lenet@4")
    pull(other, store)
    refs = sorted(key for key in store.objects if key.endswith(".json") and "refs/" in key)
    last = refs[-1]
    whole = dict(store.objects)
    del store.objects[last]
    shutil.rmtree(other.cache / "remotes")
    with pytest.raises(UnsafeInput, match="was changed"):
        pull(other, store)
    store.objects.update(whole)
    record = json.loads(store.objects[last])
    record["author"] = "Mallory"
    store.objects[last] = json.dumps(
        record, sort_keys=True, separators=(",", ":"), ensure_ascii=False
    ).encode()
    with pytest.raises(UnsafeInput, match="was changed"):
        pull(other, store)
    record["prev"] = "00" * 32
    store.objects[last] = json.dumps(record, sort_keys=True, separators=(",", ":")).encode()
    with pytest.raises(UnsafeInput, match="is broken"):
        pull(other, store)


@pytest.mark.parametrize("kind", ["manifests", "locators", "packs"])
def test_flipped_bytes_never_become_visible(
    lived: Repository, other: Repository, kind: str
) -> None:
    store = MemoryStore()
    publish(lived, store, "lenet@4")
    for key in [key for key in store.objects if key.startswith(f"{kind}/")]:
        data = store.objects[key]
        place = 16 if kind == "packs" else len(data) // 3  # a chunk, not the footer
        shutil.rmtree(other.cache / "remotes", ignore_errors=True)
        store.objects[key] = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
        with pytest.raises(DlvError):
            pull(other, store)
        assert labels(other) == []
        store.objects[key] = data
    pull(other, store)
    assert check.check(other).faults == []


@pytest.mark.parametrize("way", ["push", "pull"])
@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.slow)])
def test_a_cut_at_any_request_is_made_up_for(
    lived: Repository, tmp_path: Path, way: str, step: int
) -> None:
    """The first try is cut at its n-th request; the next finishes, and both ends are whole."""
    whole = MemoryStore()
    if way == "pull":
        publish(lived, whole, "lenet@4")
    cuts = 0
    for at in range(1, 200, step):
        store = MemoryStore(dict(whole.objects))
        store.fail_at = at
        shutil.copytree(lived.root, tmp_path / f"here{at}")
        Repository.init(tmp_path / f"there{at}")
        with (
            Repository.find(tmp_path / f"here{at}") as here,
            Repository.find(tmp_path / f"there{at}") as there,
        ):
            try:
                if way == "push":
                    publish(here, store, "lenet@4")
                else:
                    pull(there, store)
            except DlvError:
                cuts += 1
            if store.calls < at:
                break
            store.fail_at = None
            publish(here, store, "lenet@4")
            pull(there, store)
            assert len(labels(there)) == 4
            assert check.check(there).faults == []
            assert check.check(here).faults == []
    assert cuts > 10 / step


def test_what_had_arrived_is_not_sent_again(
    repository: Repository, commit_model: Callable[..., str]
) -> None:
    rng = np.random.default_rng(1)
    tensors = {f"layer{i}": rng.normal(size=(1000, 1500)).astype("f4") for i in range(8)}
    commit_model(repository, "net", tensors)
    store = MemoryStore()
    store.fail_at = 12
    with pytest.raises(RemoteError):
        publish(repository, store)
    packs = sum(len(data) for key, data in store.objects.items() if key.startswith("packs/"))
    assert packs
    store.fail_at = None
    done = publish(repository, store)
    assert done.resumed == packs


def test_chunks_that_had_come_are_not_fetched_again(
    repository: Repository, other: Repository, commit_model: Callable[..., str]
) -> None:
    rng = np.random.default_rng(1)
    tensors = {f"layer{i}": rng.normal(size=(1000, 1500)).astype("f4") for i in range(12)}
    commit_model(repository, "net", tensors)
    store = MemoryStore()
    publish(repository, store)
    store.calls, store.fail_at = 0, 10
    with pytest.raises(RemoteError):
        pull(other, store)
    store.fail_at = None
    whole = pull(other, MemoryStore(store.objects), dry_run=True)
    rest = pull(other, store)
    assert rest.bytes == whole.bytes < sum(map(len, store.objects.values()))
    assert check.check(other).faults == []


@pytest.mark.parametrize(
    "writers_and_rounds", [(4, 3), pytest.param((16, 12), marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("backend", ["memory", "directory", "s3"])
def test_writers_at_once(
    tmp_path: Path,
    commit_model: Callable[..., str],
    backend: str,
    writers_and_rounds: tuple[int, int],
    request: pytest.FixtureRequest,
) -> None:
    """Each publishes under one name until it is there: nothing is lost, and the chain is one."""
    memory = MemoryStore()
    place = ""
    if backend == "s3":
        environ = request.getfixturevalue("s3_environ")
        place = request.getfixturevalue("bucket")()

    def store() -> Store:
        if backend == "memory":
            return memory
        if backend == "directory":
            return DirectoryStore(tmp_path / "remote")
        return ObjectStore(f"s3://{place}", environ)

    writers, rounds = writers_and_rounds

    def write(number: int) -> None:
        with Repository.init(tmp_path / f"w{number}")[0] as repository:
            for turn in range(rounds):
                values = {"a": np.array([number, turn], "f4")}
                commit_model(repository, "net", values, root=turn == 0)
                while True:
                    try:
                        publish(repository, store())
                    except Conflict:
                        pull(repository, store(), "net")
                    else:
                        break

    with ThreadPoolExecutor(writers) as pool:
        list(pool.map(write, range(writers)))
    with Repository.init(tmp_path / "reader")[0] as reader:
        done = pull(reader, store())
        chain = remote_of(reader, store()).history.chain("net", None)
        assert len(chain) == len(published(chain)) == writers * rounds
        assert [ref.number for ref in chain] == list(range(1, writers * rounds + 1))
        assert len(done.versions) == writers * rounds


def test_a_web_server_is_enough_to_pull_from(
    lived: Repository, other: Repository, tmp_path: Path
) -> None:
    publish(lived, DirectoryStore(tmp_path / "site"), "lenet@4", "wide@2")
    with web_server(tmp_path / "site") as address:
        store = ObjectStore(address, {})
        pull(other, store)
        assert {v.id for v in versions.all_versions(other.database)} == {
            v.id for v in versions.all_versions(lived.database)
        }
        assert check.check(other).faults == []
        with pytest.raises(RemoteError, match="is read-only"):
            publish(lived, store)


def test_an_object_store_as_a_whole(
    lived: Repository, other: Repository, s3_environ: dict[str, str], bucket: Callable[[], str]
) -> None:
    store = ObjectStore(f"s3://{bucket()}/team", s3_environ)
    publish(lived, store, "lenet@4")
    pull(other, store)
    assert check.check(other).faults == []
    assert len(labels(other)) == 4
