"""Files out of a version again: bit for bit, nothing lost, nothing half done."""

from __future__ import annotations

import functools
import math
import os
import stat
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import dlv.disk.durable as durable
import dlv.repository.undo as undo
import dlv.versions.add as adding
import dlv.versions.checkout as checkouts
import dlv.versions.commit as committing
import dlv.versions.copying as copying
import dlv.versions.remove as remove
import dlv.weights.snapshots as snapshots
from dlv.adapters.checkpoint import Checkpoint
from dlv.archiving.budgets import Policy
from dlv.errors import Conflict, Damaged, DlvError, NotFound, StorageError, UnsafeInput, UsageError
from dlv.metadata import facts, versions
from dlv.metadata.database import Database
from dlv.objects.manifest import Container, Manifest, Snapshot, TensorEntry
from dlv.pas.chunks import read_stored
from dlv.pas.deltas.links import chain
from dlv.pas.read import read_together
from dlv.repository.handle import Repository
from dlv.versions.checkout import CheckedOut, Request
from dlv.weights.store import MatrixStore


def opened(format_: str, path: Path) -> Checkpoint:
    return adding.open_weights(path, format_)


def arrays(seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {"fc.weight": rng.normal(size=(40, 30)).astype("f4"), "fc.bias": np.zeros(40, "f4")}


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """lenet@1 with two snapshots and files, lenet@2 with other weights in the same files."""
    root = tmp_path / "project"
    repository, _ = Repository.init(root)
    (root / "src").mkdir()
    (root / "src" / "train.py").write_text("print(1)\n")
    (root / "run.sh").write_text("#!/bin/sh\n")
    (root / "run.sh").chmod(0o755)
    for version in (1, 2):
        for step in (100, 200):
            save_file(arrays(step + version), root / f"ckpt-{step}.safetensors")
        (root / "config.json").write_text(f'{{"version": {version}}}')
        adding.add(repository, root, ["."], adding.Request())
        committing.commit(repository, committing.Request(f"v{version}", "Ada", "lenet"))
    return repository


ALL = ["ckpt-100.safetensors", "ckpt-200.safetensors", "config.json", "run.sh", "src/train.py"]


def checkout(repository: Repository, reference: str, *paths: str, **given: Any) -> CheckedOut:
    here = given.pop("here", repository.root)
    return checkouts.checkout(
        repository, Request(reference, "Ada", here, opened, paths=paths, **given)
    )


def copy(repository: Repository, reference: str, name: str, **given: Any) -> CheckedOut:
    here = given.pop("here", repository.root)
    return copying.copy(repository, Request(reference, "Ada", here, opened, name=name, **given))


def content(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and ".dlv" not in path.parts
    }


def version(repository: Repository, number: int) -> versions.Version:
    found = versions.by_number(repository.database, "lenet", number)
    assert found is not None
    return found


class TestWhole:
    def test_there_and_back(self, repository: Repository) -> None:
        second = content(repository.root)
        result = checkout(repository, "lenet@1")
        assert sorted(w.path for w in result.written) == [
            "ckpt-100.safetensors",
            "ckpt-200.safetensors",
            "config.json",
        ]
        assert sorted(result.unchanged) == ["run.sh", "src/train.py"]
        assert result.head
        assert repository.head == version(repository, 1).id
        first = content(repository.root)
        assert first["config.json"] == b'{"version": 1}'
        save_file(arrays(101), repository.root / "expected.safetensors")
        expected = (repository.root / "expected.safetensors").read_bytes()
        assert first["ckpt-100.safetensors"] == expected
        (repository.root / "expected.safetensors").unlink()
        checkout(repository, "lenet@2")
        assert content(repository.root) == second

    def test_it_is_in_the_operation_log(self, repository: Repository) -> None:
        before = repository.head
        checkout(repository, "lenet@1")
        operation = facts.operations(repository.database)[0]
        assert (operation.verb, operation.summary) == ("checkout", "lenet@1")
        assert operation.before["HEAD"] == before
        assert operation.after["HEAD"] == version(repository, 1).id

    def test_nothing_to_do_is_no_operation(self, repository: Repository) -> None:
        count = len(facts.operations(repository.database))
        result = checkout(repository, "lenet@2")
        assert (result.written, sorted(result.unchanged)) == ([], ALL)
        assert len(facts.operations(repository.database)) == count

    def test_right_files_are_left_alone(self, repository: Repository) -> None:
        before = (repository.root / "src" / "train.py").stat()
        checkout(repository, "lenet@1")
        after = (repository.root / "src" / "train.py").stat()
        assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)

    def test_modes(self, repository: Repository) -> None:
        checkout(repository, "lenet@1", to=Path("out"))
        mode = (repository.root / "out" / "run.sh").stat().st_mode
        assert mode & stat.S_IXUSR
        assert not (repository.root / "out" / "config.json").stat().st_mode & stat.S_IXUSR

    def test_a_missing_file_comes_back(self, repository: Repository) -> None:
        (repository.root / "src" / "train.py").unlink()
        (repository.root / "src").rmdir()
        assert [w.path for w in checkout(repository, "HEAD").written] == ["src/train.py"]
        assert (repository.root / "src" / "train.py").read_text() == "print(1)\n"

    def test_a_pending_copy_is_given_up(self, repository: Repository) -> None:
        copy(repository, "lenet@2", "wide")
        checkout(repository, "lenet@2")
        assert repository.next is None


class TestParts:
    def test_one_snapshot(self, repository: Repository) -> None:
        result = checkout(repository, "lenet@1/100", to=Path("out"))
        assert [w.path for w in result.written] == ["ckpt-100.safetensors"]
        assert not result.head
        assert repository.head == version(repository, 2).id

    @pytest.mark.parametrize(
        ("reference", "given"),
        [("lenet@1/100", {}), ("lenet@1", {"weights": False}), ("lenet@1", {"format": "npz"})],
    )
    def test_head_stays_when_a_part_is_written_here(
        self, repository: Repository, reference: str, given: dict[str, Any]
    ) -> None:
        assert not checkout(repository, reference, **given).head
        assert repository.head == version(repository, 2).id

    @pytest.mark.parametrize(
        ("name", "expected"),
        [
            ("config.json", ["config.json"]),
            ("./config.json", ["config.json"]),
            ("src", ["src/train.py"]),
            ("src/", ["src/train.py"]),
            (".", ALL),
        ],
    )
    def test_paths(self, repository: Repository, name: str, expected: list[str]) -> None:
        result = checkout(repository, "lenet@1", name, to=Path("out"))
        assert sorted(w.path for w in result.written) == expected
        assert not result.head

    def test_a_path_from_a_folder_below(self, repository: Repository) -> None:
        here = repository.root / "src"
        (here / "train.py").unlink()
        result = checkout(repository, "lenet@1", "train.py", here=here)
        assert [w.path for w in result.written] == ["src/train.py"]

    def test_a_file_in_the_reference(self, repository: Repository) -> None:
        result = checkout(repository, "lenet@1:config.json", to=Path("out"))
        assert [w.path for w in result.written] == ["config.json"]

    def test_no_weights(self, repository: Repository) -> None:
        result = checkout(repository, "lenet@1", to=Path("out"), weights=False)
        assert sorted(w.path for w in result.written) == ALL[2:]

    def test_unknown_path(self, repository: Repository) -> None:
        with pytest.raises(NotFound) as caught:
            checkout(repository, "lenet@1", "confg.json")
        assert caught.value.did_you_mean == ["config.json"]

    def test_removed_snapshots_stay_away(self, repository: Repository) -> None:
        with repository.change("rm") as change:
            change.record("removal", version(repository, 1).id, {"steps": [100]})
        result = checkout(repository, "lenet@1", to=Path("out"))
        assert "ckpt-100.safetensors" not in [w.path for w in result.written]
        assert any("100" in note for note in result.notes)

    def test_a_removed_version_can_still_be_had(self, repository: Repository) -> None:
        with repository.change("rm") as change:
            change.record("removal", version(repository, 1).id, {"steps": None})
        result = checkout(repository, "lenet@1", to=Path("out"))
        assert len(result.written) == 5
        assert any("removed" in note for note in result.notes)


class TestFormats:
    @pytest.mark.parametrize(("format_", "suffix"), [("npz", ".npz"), ("pt", ".pt")])
    def test_another_format(self, repository: Repository, format_: str, suffix: str) -> None:
        result = checkout(repository, "lenet@1/100", to=Path("out"), format=format_)
        path = repository.root / "out" / f"ckpt-100{suffix}"
        assert [w.path for w in result.written] == [path.name]
        found = opened(format_, path)
        expected = arrays(101)
        assert {t.name: bytes(t.read()) for t in found.tensors} == {
            name: value.tobytes() for name, value in expected.items()
        }
        found.close()

    def test_again_is_right_already(self, repository: Repository) -> None:
        for _ in range(2):
            result = checkout(repository, "lenet@1/100", to=Path("out"), format="npz")
        assert result.unchanged == ["ckpt-100.npz"]

    def test_compressed_arrays_are_written_anew(self, repository: Repository) -> None:
        root = repository.root
        np.savez_compressed(root / "w.npz", **arrays(7))
        adding.add(repository, root, ["w.npz"], adding.Request())
        committing.commit(repository, committing.Request("npz", "Ada"))
        (root / "w.npz").unlink()
        checkout(repository, "HEAD")
        with np.load(root / "w.npz") as found:
            assert all(np.array_equal(found[k], v) for k, v in arrays(7).items())
        assert checkout(repository, "HEAD").written == []

    def test_weights_that_never_had_a_file(self, repository: Repository) -> None:
        """What dlv makes itself has tensors but no containers."""
        base = repository.manifest(version(repository, 1).id)
        bare = Snapshot(5, base.snapshots[0].hashes)
        made = Manifest(
            name="made",
            message="",
            author="Ada",
            created=base.created,
            tensors=base.tensors,
            snapshots=(bare,),
            own=0,
        )
        identity = repository.write_manifest(made)
        with repository.change("test") as change:
            versions.insert(change.db, made, number=1, net_id=None, summaries=[])
            change.record("number", identity, {"name": "made", "number": 1})
        result = checkout(repository, "made", to=Path("out"))
        assert [w.path for w in result.written] == ["made-5.safetensors"]
        found = load_file(repository.root / "out" / "made-5.safetensors")
        assert np.array_equal(found["fc.weight"], arrays(101)["fc.weight"])


class TestNothingIsLost:
    def test_changed_files_stop_it(self, repository: Repository) -> None:
        root = repository.root
        (root / "config.json").write_text("mine")
        (root / "ckpt-100.safetensors").write_bytes(b"mine too")
        before = content(root)
        with pytest.raises(Conflict) as caught:
            checkout(repository, "lenet@1")
        assert "config.json" in caught.value.message
        assert "ckpt-100.safetensors" in caught.value.message
        assert "ckpt-200" not in caught.value.message
        assert content(root) == before
        assert repository.head == version(repository, 2).id

    def test_force(self, repository: Repository) -> None:
        (repository.root / "config.json").write_text("mine")
        checkout(repository, "lenet@1", force=True)
        assert (repository.root / "config.json").read_text() == '{"version": 1}'

    def test_content_of_any_version_may_go(self, repository: Repository) -> None:
        checkout(repository, "lenet@1")
        with repository.change("test") as change:
            change.set_head(version(repository, 2).id)
        (repository.root / "config.json").write_text('{"version": 1}')
        assert len(checkout(repository, "lenet@2").written) == 3

    def test_in_another_folder_too(self, repository: Repository) -> None:
        out = repository.root / "out"
        out.mkdir()
        (out / "config.json").write_text("mine")
        with pytest.raises(Conflict):
            checkout(repository, "lenet@1", to=Path("out"))
        assert content(out) == {"config.json": b"mine"}

    @pytest.mark.parametrize("force", [False, True])
    def test_a_folder_in_the_way(self, repository: Repository, force: bool) -> None:
        (repository.root / "config.json").unlink()
        (repository.root / "config.json").mkdir()
        with pytest.raises(Conflict, match="config"):
            checkout(repository, "lenet@1", force=force)

    def test_a_file_where_a_folder_is_needed(self, repository: Repository) -> None:
        (repository.root / "src" / "train.py").unlink()
        (repository.root / "src").rmdir()
        (repository.root / "src").write_text("mine")
        before = content(repository.root)
        with pytest.raises(Conflict):
            checkout(repository, "lenet@1", force=True)
        assert content(repository.root) == before

    def test_a_link_out_of_the_folder_is_not_followed(
        self, repository: Repository, tmp_path: Path
    ) -> None:
        outside = tmp_path / "outside"
        outside.mkdir()
        (repository.root / "src" / "train.py").unlink()
        (repository.root / "src").rmdir()
        (repository.root / "src").symlink_to(outside)
        with pytest.raises(Conflict):
            checkout(repository, "lenet@1", force=True)
        assert list(outside.iterdir()) == []

    def test_a_link_is_replaced_not_written_through(
        self, repository: Repository, tmp_path: Path
    ) -> None:
        (tmp_path / "outside").write_text("mine")
        (repository.root / "config.json").unlink()
        (repository.root / "config.json").symlink_to(tmp_path / "outside")
        checkout(repository, "lenet@1", force=True)
        assert (tmp_path / "outside").read_text() == "mine"
        assert not (repository.root / "config.json").is_symlink()

    def test_a_disk_that_fills_up_changes_nothing(
        self, repository: Repository, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        before = content(repository.root)
        calls = 0
        real = snapshots.rebuild

        def rebuild(*given: Any) -> tuple[int, str]:
            nonlocal calls
            calls += 1
            if calls == 2:
                raise durable.storage_error("write", "x", OSError(28, "No space left on device"))
            return real(*given)

        monkeypatch.setattr(snapshots, "rebuild", rebuild)
        with pytest.raises(DlvError, match="cannot write"):
            checkout(repository, "lenet@1")
        assert content(repository.root) == before
        assert repository.head == version(repository, 2).id

    def test_not_into_the_repository_itself(self, repository: Repository) -> None:
        with pytest.raises(UsageError):
            checkout(repository, "lenet@1", to=Path(".dlv/packs"))

    def test_a_hostile_name_writes_nothing(self, repository: Repository) -> None:
        base = repository.manifest(version(repository, 1).id)
        (container,) = base.snapshots[0].containers
        evil = Container("../evil.safetensors", *list(vars(container).values())[1:])
        made = Manifest(
            name="evil",
            message="",
            author="Ada",
            created=base.created,
            tensors=base.tensors,
            snapshots=(Snapshot(1, base.snapshots[0].hashes, (evil,)),),
            own=0,
        )
        identity = repository.write_manifest(made)
        with repository.change("test") as change:
            versions.insert(change.db, made, number=1, net_id=None, summaries=[])
            change.record("number", identity, {"name": "evil", "number": 1})
        with pytest.raises(UnsafeInput):
            checkout(repository, "evil", to=Path("out"))
        assert not (repository.root / "evil.safetensors").exists()
        assert not (repository.root / "out").exists()


class TestDamage:
    def test_a_wrong_matrix(self, repository: Repository) -> None:
        packs = sorted(repository.packs.rglob("*.pack"))
        for pack in packs:
            data = bytearray(pack.read_bytes())
            for at in range(8, len(data) // 2, 50):
                data[at] ^= 1
            pack.chmod(0o644)
            pack.write_bytes(data)
        with pytest.raises(Damaged):
            checkout(repository, "lenet@1", to=Path("out"))
        assert content(repository.root / "out") == {}

    def test_a_hash_that_does_not_fit(self, repository: Repository) -> None:
        """Right matrices under a wrong promise: found before the file takes its place."""
        base = repository.manifest(version(repository, 1).id)
        (container,) = base.snapshots[0].containers
        fields = {**vars(container), "blake3": "0" * 64}
        store = MatrixStore.of(repository)
        out = repository.root / "x"
        with out.open("wb") as file, pytest.raises(Damaged, match="ckpt-100"):
            snapshots.rebuild(file, base, base.snapshots[0], Container(**fields), store)

    def test_a_matrix_that_is_not_in_the_index(self, repository: Repository) -> None:
        base = repository.manifest(version(repository, 1).id)
        bare = Snapshot(1, ("0" * 64,))
        made = Manifest(
            name="bare",
            message="",
            author="Ada",
            created=base.created,
            tensors=(TensorEntry("w", "float32", (1,)),),
            snapshots=(bare,),
            own=0,
        )
        identity = repository.write_manifest(made)
        with repository.change("test") as change:
            versions.insert(change.db, made, number=1, net_id=None, summaries=[])
            change.record("number", identity, {"name": "bare", "number": 1})
        with pytest.raises(Damaged):
            checkout(repository, "bare", to=Path("out"))
        assert not (repository.root / "out").exists()


class TestCopy:
    def test_parent_and_name_of_the_next_commit(self, repository: Repository) -> None:
        copy(repository, "lenet@1", "wide")
        assert repository.head == version(repository, 1).id
        assert repository.next == ("wide", "copy")
        (repository.root / "config.json").write_text('{"version": 3}')
        adding.add(repository, repository.root, ["config.json"], adding.Request())
        made = committing.commit(repository, committing.Request("wider", "Ada"))
        manifest = repository.manifest(made.id)
        assert (made.name, made.number) == ("wide", 1)
        assert [(p.id, p.kind) for p in manifest.parents] == [(version(repository, 1).id, "copy")]
        assert len(manifest.snapshots) == 2

    def test_into_another_folder(self, repository: Repository) -> None:
        before = content(repository.root)
        result = copy(repository, "lenet@1", "wide", to=Path("wide"), weights=False)
        assert sorted(w.path for w in result.written) == ALL[2:]
        assert content(repository.root / "wide")["config.json"] == b'{"version": 1}'
        assert {k: v for k, v in content(repository.root).items() if k in before} == before

    @pytest.mark.parametrize("name", ["lenet", "a/b", "HEAD", ""])
    def test_names(self, repository: Repository, name: str) -> None:
        with pytest.raises(Conflict if name == "lenet" else UsageError):
            copy(repository, "lenet@1", name)
        assert repository.next is None

    def test_a_taken_name_with_force(self, repository: Repository) -> None:
        copy(repository, "lenet@1", "lenet", force=True)
        assert repository.next == ("lenet", "copy")

    def test_a_part_cannot_be_copied(self, repository: Repository) -> None:
        with pytest.raises(UsageError):
            copy(repository, "lenet@1/100", "wide")

    def test_changed_files_stop_it(self, repository: Repository) -> None:
        (repository.root / "config.json").write_text("mine")
        with pytest.raises(Conflict):
            copy(repository, "lenet@1", "wide")
        assert repository.next is None


@pytest.mark.parametrize("format_", [None, "npz", "pt"])
def test_one_matrix_at_a_time(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, format_: str | None
) -> None:
    """Never are two matrices that `checkout` read alive together."""
    alive: list[Callable[[], object]] = []
    most = 0
    real = read_together

    class Held(bytearray):
        """Can be referred to weakly, unlike bytes."""

    def together(*arguments: Any) -> Iterator[tuple[str, bytearray]]:
        nonlocal most
        for name, raw in real(*arguments):
            data = Held(raw)
            most = max(most, 1 + sum(one() is not None for one in alive))
            alive.append(weakref.ref(data))
            yield name, data
            del data

    monkeypatch.setattr("dlv.pas.read.read_together", together)
    checkout(repository, "lenet@1", to=Path("out"), format=format_)
    assert len(alive) == 3  # one is the same in both snapshots
    assert most == 1


def test_names_in_the_file_are_given_back(tmp_path: Path) -> None:
    """Two files of one snapshot use the same names for other tensors."""
    repository, _ = Repository.init(tmp_path)
    np.savez_compressed(tmp_path / "gen.npz", a=np.zeros(4), b=np.ones(2))
    np.savez_compressed(tmp_path / "dis.npz", a=np.ones(4), c=np.ones(3))
    adding.add(repository, tmp_path, ["."], adding.Request())
    committing.commit(repository, committing.Request("gan", "Ada", "gan"))
    checkout(repository, "gan", to=Path("out"))
    for name in ("gen", "dis"):
        with np.load(tmp_path / f"{name}.npz") as old, np.load(tmp_path / f"out/{name}.npz") as new:
            assert sorted(old) == sorted(new)
            assert all(np.array_equal(old[key], new[key]) for key in old)
    assert os.listdir(tmp_path / "out")


@pytest.mark.parametrize("jobs", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_a_chain_of_snapshots_is_read_once(
    tmp_path: Path, archived: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, jobs: int
) -> None:
    """Twelve files out of one chain of deltas: as many chunks are decoded as there are."""
    repository, _ = Repository.init(tmp_path)
    rng = np.random.default_rng(0)
    weights = {name: rng.normal(0, 0.1, (150, 200)).astype("f4") for name in ("a", "b")}
    for step in range(12):
        save_file(weights, tmp_path / f"ckpt-{step}.safetensors")
        weights = {n: (w + rng.normal(0, 1e-5, w.shape)).astype("f4") for n, w in weights.items()}
    adding.add(repository, tmp_path, ["."], adding.Request())
    committing.commit(repository, committing.Request("chain", "Ada", "net"))
    archived(repository, Policy(math.inf, math.inf, math.inf))
    store = MatrixStore.of(repository)
    [version] = versions.all_versions(repository.database)
    manifest = repository.manifest(version.id)
    digests = [digest for s in manifest.snapshots for digest in s.hashes if digest is not None]
    depths = [len(chain(digest, store.encoding)) for digest in digests]
    assert max(depths) > 5
    chunks = {(p.pack, p.offset) for digest in digests for p in store.pieces_behind(digest)}

    seen: list[tuple[str, int]] = []
    real = read_stored

    def noted(descriptor: int, size: int, row: Any, what: str) -> bytes:
        if row.kind in ("plane", "side"):
            seen.append((what.removeprefix("pack "), row.offset))
        return real(descriptor, size, row, what)

    monkeypatch.setattr("dlv.weights.store.read_stored", noted)
    monkeypatch.setattr("dlv.pas.chunks.read_stored", noted)
    checkout(repository, "net", to=Path("out"), jobs=jobs)
    for step in range(12):
        path = f"ckpt-{step}.safetensors"
        assert (tmp_path / "out" / path).read_bytes() == (tmp_path / path).read_bytes()
    assert set(seen) == chunks
    assert len(seen) < 1.5 * len(chunks)  # a shared chunk may be decoded again
    assert len(seen) < sum(depths) * len(chunks) / len(digests) / 2


# When the last write fails


def whole(root: Path) -> dict[str, bytes]:
    found = (path for path in root.rglob("*") if path.is_file() and ".dlv" not in path.parts)
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in found}


@pytest.mark.parametrize("where", ["log_operation", "set_state"])
def test_the_catalogue_cannot_be_written(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """Then the files are what they were, and the same command works later."""
    before, head = whole(repository.root), repository.head

    def full(*_: Any, **more: Any) -> None:
        if where == "log_operation":  # all files have their names by then
            assert whole(repository.root) != before
        raise StorageError("cannot write dlv.db", why="the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(facts, where, full)
        with pytest.raises(StorageError) as caught:
            checkout(repository, "lenet@1")
    assert f"nothing changed in {repository.root}" in str(caught.value.why)
    assert whole(repository.root) == before
    assert repository.head == head
    assert checkout(repository, "lenet@1").head
    assert repository.head != head


def test_the_commit_of_the_catalogue_fails(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, execute = whole(repository.root), Database.execute

    def refused(self: Database, sql: str, *rest: Any) -> Any:
        if sql == "COMMIT":
            raise StorageError("cannot write dlv.db", why="the disk is full")
        return execute(self, sql, *rest)

    with monkeypatch.context() as patched:
        patched.setattr(Database, "execute", refused)
        with pytest.raises(StorageError) as caught:
            checkout(repository, "lenet@1")
    assert "whether it was done, dlv log shows" in str(caught.value.hint)
    assert whole(repository.root) == before
    assert checkout(repository, "lenet@1").head


def test_what_was_seen_is_only_a_help(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise StorageError("cannot write dlv.db", why="the disk is full")

    monkeypatch.setattr(facts, "record_looks", full)
    assert checkout(repository, "lenet@1").head


def test_parts_that_a_killed_checkout_left(repository: Repository) -> None:
    """Also where all files are right already, so that nothing is written."""
    checkout(repository, "lenet@1")
    names = (".0123abcd.dlv-part", "src/.train.py.0123abcd0123abcd0.dlv-part")
    for name in names:
        (repository.root / name).write_text("half")
    assert not checkout(repository, "lenet@1").written
    assert not any((repository.root / name).exists() for name in names)


@pytest.fixture
def other(repository: Repository) -> Repository:
    """lenet@2 is left for other@1, which has none of its files but config.json."""
    root = repository.root
    for path in ("ckpt-100.safetensors", "ckpt-200.safetensors", "run.sh", "src/train.py"):
        (root / path).unlink()
    (root / "src").rmdir()
    save_file(arrays(9), root / "other.safetensors")
    (root / "deep" / "er").mkdir(parents=True)
    (root / "deep" / "er" / "notes.txt").write_text("of other\n")
    adding.add(repository, root, ["."], adding.Request())
    request = committing.Request("another training", "Ada", "other", orphan=True)
    committing.commit(repository, request)
    return repository


class TestFilesOfTheVersionBefore:
    """Left where they are, they would get into the next version by `dlv add .`."""

    def test_they_are_removed(self, other: Repository) -> None:
        found = checkout(other, "lenet@2")
        assert sorted(content(other.root)) == ALL
        assert sorted(found.removed) == ["deep/er/notes.txt", "other.safetensors"]
        assert not (other.root / "deep").exists()
        assert sorted(checkout(other, "other@1").removed) == [p for p in ALL if p != "config.json"]
        assert sorted(content(other.root)) == [
            "config.json",
            "deep/er/notes.txt",
            "other.safetensors",
        ]

    def test_what_was_changed_stays(self, other: Repository) -> None:
        (other.root / "deep" / "er" / "notes.txt").write_text("changed\n")
        (other.root / "mine.txt").write_text("of no version\n")
        found = checkout(other, "lenet@2", force=True)
        assert (found.removed, found.kept) == (["other.safetensors"], ["deep/er/notes.txt"])
        assert {"mine.txt", "deep/er/notes.txt"} <= content(other.root).keys()

    def test_what_may_be_gone_soon_stays(self, other: Repository) -> None:
        remove.remove(other, ["other@1"], "Ada")
        found = checkout(other, "lenet@2")
        assert found.removed == []
        assert sorted(found.kept) == ["deep/er/notes.txt", "other.safetensors"]

    def test_only_with_head(self, other: Repository, tmp_path: Path) -> None:
        before = content(other.root)
        checkout(other, "lenet@2", to=tmp_path / "there")
        assert content(other.root) == before
        checkout(other, "lenet@2", "run.sh")
        assert content(other.root) == {**before, "run.sh": b"#!/bin/sh\n"}

    def test_an_error_brings_them_back(
        self, other: Repository, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        before = content(other.root)

        def refuse(*_: object) -> None:
            raise StorageError("no")

        monkeypatch.setattr(facts, "log_operation", refuse)
        with pytest.raises(StorageError):
            checkout(other, "lenet@2")
        assert content(other.root) == before

    def test_a_copy_does_so_too(self, other: Repository) -> None:
        found = copy(other, "lenet@2", "wide")
        assert sorted(found.removed) == ["deep/er/notes.txt", "other.safetensors"]
        assert sorted(content(other.root)) == ALL


class TestStagedFiles:
    """Committed behind another HEAD they would mix two trainings."""

    @pytest.fixture
    def waiting(self, other: Repository) -> Repository:
        (other.root / "more.txt").write_text("more\n")
        adding.add(other, other.root, ["more.txt"], adding.Request())
        return other

    @pytest.mark.parametrize("verb", [checkout, functools.partial(copy, name="wide")])
    def test_refused(self, waiting: Repository, verb: Callable[..., object]) -> None:
        before = content(waiting.root)
        with pytest.raises(Conflict, match=r"1 staged file .* lenet@2: more.txt") as caught:
            verb(waiting, "lenet@2")
        assert "dlv reset" in (caught.value.hint or "")
        assert content(waiting.root) == before
        checkout(waiting, "HEAD")  # nothing is mixed
        assert [file.path for file in facts.staged_files(waiting.database)] == ["more.txt"]

    def test_unstaged_by_force_and_back_by_undo(self, waiting: Repository) -> None:
        checkout(waiting, "lenet@2", force=True)
        assert facts.staged_files(waiting.database) == []
        undo.undo(waiting, "Ada")
        assert [file.path for file in facts.staged_files(waiting.database)] == ["more.txt"]
        assert waiting.head == versions.by_number(waiting.database, "other", 1).id  # type: ignore[union-attr]

    def test_reset(self, waiting: Repository) -> None:
        with pytest.raises(NotFound, match=r"`mor\.txt` is not staged") as caught:
            adding.unstage(waiting, waiting.root, ["mor.txt"])
        assert caught.value.did_you_mean == ["more.txt"]
        (waiting.root / "src").mkdir()
        (waiting.root / "src" / "a.py").write_text("a\n")
        adding.add(waiting, waiting.root, ["src"], adding.Request())
        assert [f.path for f in adding.unstage(waiting, waiting.root / "src", ["."])] == [
            "src/a.py"
        ]
        assert [f.path for f in adding.unstage(waiting, waiting.root, [])] == ["more.txt"]
        assert adding.unstage(waiting, waiting.root, []) == []
