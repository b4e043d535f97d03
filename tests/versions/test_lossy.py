"""Lossy children of versions: what they hold, what stays, and that everything still works."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import dlv.pas.layouts.schemes as schemes
import dlv.repository.undo as undo
import dlv.upkeep.check as check
import dlv.versions.add as adding
import dlv.versions.checkout as checkouts
import dlv.versions.commit as committing
import dlv.versions.diff as diffing
import dlv.versions.quantize as lossy
import dlv.versions.remove as remove
import dlv.versions.show as show
import dlv.versions.status as status
import dlv.versions.transfer as transfer
from dlv.canonical import matrix_hash
from dlv.errors import Conflict, UsageError
from dlv.metadata import versions
from dlv.objects.manifest import Manifest
from dlv.repository.handle import Repository
from dlv.versions.quantize import Quantized
from dlv.weights.store import MatrixStore

SCHEMES = ("fp16", "bf16", "fixed:8", "uniform:8", "random:8", "lloyd:8", "uniform:4")


def weights(seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {
        "conv.weight": rng.normal(size=(20, 1, 5, 5)).astype("f4"),
        "conv.bias": rng.normal(size=20).astype("f4"),
        "fc.weight": rng.laplace(size=(300, 200)).astype("f4"),
        "norm.running_mean": rng.normal(size=20).astype("f4"),
        "steps": np.arange(12).reshape(3, 4),
    }


EXACT = ("conv.bias", "norm.running_mean", "steps")


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """lenet@1: two checkpoints of the same names, a file, a metric."""
    root = tmp_path / "project"
    repository, _ = Repository.init(root)
    for step in (100, 200):
        save_file(weights(step), root / f"ckpt-{step}.safetensors")
    (root / "train.py").write_text("print(1)\n")
    (root / "metrics.json").write_text('{"accuracy": 0.9}')
    adding.add(repository, root, ["."], adding.Request())
    commit(repository, "first", metrics=[root / "metrics.json"])
    return repository


def commit(repository: Repository, message: str, **given: Any) -> committing.Committed:
    return committing.commit(repository, committing.Request(message, "Ada", "lenet", **given))


def child(repository: Repository, text: str, reference: str = "lenet@1") -> Quantized:
    return lossy.quantize(repository, reference, text, author="Ada", name="lenet")


def manifest(repository: Repository, number: int) -> Manifest:
    found = versions.by_number(repository.database, "lenet", number)
    assert found is not None
    return repository.manifest(found.id)


def status_of(repository: Repository) -> status.Status:
    return status.status(repository, lambda f, p: adding.open_weights(p, f), lambda _: False)


def checkout(repository: Repository, reference: str, to: Path, **given: Any) -> Any:
    request = checkouts.Request(
        reference, "Ada", repository.root, lambda f, p: adding.open_weights(p, f), to=to, **given
    )
    return checkouts.checkout(repository, request)


class TestChild:
    @pytest.mark.parametrize("text", SCHEMES)
    def test_rounded_as_the_scheme_says(
        self, repository: Repository, tmp_path: Path, text: str
    ) -> None:
        made = child(repository, text)
        assert (made.version.label, made.source.label, made.scheme) == ("lenet@2", "lenet@1", text)
        assert made.made
        checkout(repository, "lenet@2", tmp_path / "out")
        for step in (100, 200):
            found = load_file(tmp_path / "out" / f"ckpt-{step}.safetensors")
            for name, before in weights(step).items():
                raw = before.tobytes()
                if name not in EXACT:
                    fit = schemes.fit(schemes.parse(text), "float32", before.shape, [raw])
                    assert fit.rounding is not None
                    assert found[name].tobytes() == bytes(fit.rounding.apply(raw)) != raw
                else:
                    assert found[name].tobytes() == raw
                assert (found[name].dtype, found[name].shape) == (before.dtype, before.shape)

    @pytest.mark.parametrize(("text", "most"), [("uniform:8", 0.3), ("uniform:4", 0.15)])
    def test_it_is_smaller(self, repository: Repository, text: str, most: float) -> None:
        made = child(repository, text)
        assert made.before > 0.7 * made.raw
        assert made.after < most * made.raw
        assert (made.matrices, made.rounded) == (9, 4)  # `steps` is the same twice

    def test_the_manifest(self, repository: Repository) -> None:
        made = child(repository, "uniform:8")
        one, two = manifest(repository, 1), manifest(repository, 2)
        assert two.scheme == {"id": "uniform", "bits": 8}
        assert two.lossy == made.version.scheme == "uniform:8"
        assert [(p.id, p.kind) for p in two.parents] == [(one.id, "scheme")]
        assert [s.sources for s in two.snapshots] == [s.hashes for s in one.snapshots]
        assert (two.tensors, two.files, two.own) == (one.tensors, one.files, one.own)
        assert two.environment == one.environment
        for old, new in zip(one.snapshots, two.snapshots, strict=True):
            for entry, before, after in zip(one.tensors, old.hashes, new.hashes, strict=True):
                assert (before == after) == (entry.name in EXACT)
            assert all(container.blake3 is None for container in new.containers)
        # The metrics were measured with the exact weights.
        assert one.series
        assert two.series == ()

    def test_the_source_and_head_stay(self, repository: Repository, tmp_path: Path) -> None:
        before, head = manifest(repository, 1), repository.head
        child(repository, "fixed:8")
        assert repository.head == head
        assert manifest(repository, 1) == before
        checkout(repository, "lenet@1", tmp_path / "out")
        for step in (100, 200):
            name = f"ckpt-{step}.safetensors"
            assert (tmp_path / "out" / name).read_bytes() == (repository.root / name).read_bytes()

    def test_not_made_twice(self, repository: Repository) -> None:
        first, again = child(repository, "uniform:8"), child(repository, "uniform:8")
        assert not again.made
        assert again.version.id == first.version.id
        assert (again.before, again.after) == (first.before, first.after)
        assert child(repository, "uniform:7").version.label == "lenet@3"
        undo.undo(repository, "Ada", count=2)
        assert child(repository, "uniform:8").version.label == "lenet@4"

    def test_a_child_of_a_child(self, repository: Repository) -> None:
        child(repository, "fp16")
        made = child(repository, "uniform:4", "lenet@2")
        assert made.source.label == "lenet@2"
        two, three = manifest(repository, 2), manifest(repository, 3)
        assert three.snapshots[0].sources == two.snapshots[0].hashes

    def test_what_a_removed_snapshot_held_is_left_out(self, repository: Repository) -> None:
        remove.remove(repository, ["lenet@1"], "Ada", steps="100")
        child(repository, "uniform:8")
        two = manifest(repository, 2)
        assert [snapshot.step for snapshot in two.snapshots] == [200]
        assert two.own == 0

    def test_codes_are_tables(self, repository: Repository) -> None:
        child(repository, "uniform:8")
        store = MatrixStore.of(repository)
        snapshot = manifest(repository, 2).snapshots[0]
        layouts = {}
        for entry, digest in zip(manifest(repository, 2).tensors, snapshot.hashes, strict=True):
            assert digest is not None
            encoding = store.encoding(digest)
            assert encoding is not None
            layouts[entry.name] = encoding.layout["id"]
        assert layouts["fc.weight"] == "table"
        assert layouts["conv.bias"] == "ieee"
        store.close()


class TestEverythingElseWorks:
    def test_fsck_and_rebuild(self, repository: Repository) -> None:
        for text in SCHEMES:
            child(repository, text)
        assert not check.check(repository).faults
        before = [version.scheme for version in versions.of_name(repository.database, "lenet")]
        assert before == [None, *SCHEMES]
        repository.database_file.unlink()
        repository.close()
        report = check.rebuild(Repository.find(repository.root))
        assert not report.faults
        again = Repository.find(repository.root)
        assert [v.scheme for v in versions.of_name(again.database, "lenet")] == before

    def test_status_add_commit_after_a_checkout(self, repository: Repository) -> None:
        child(repository, "uniform:8")
        checkout(repository, "lenet@2", repository.root, force=True)
        found = status_of(repository)
        assert not found.modified
        adding.add(repository, repository.root, ["."], adding.Request())
        made = commit(repository, "again")
        assert made.new == 0
        three = manifest(repository, 3)
        assert three.scheme is None  # exactly what was given
        assert three.snapshots[0].hashes == manifest(repository, 2).snapshots[0].hashes

    def test_diff(self, repository: Repository) -> None:
        child(repository, "uniform:8")
        found = diffing.diff(repository, ["lenet@1", "lenet@2"])
        changed = {p.name: p for p in found.others[0].matrices if p.status == "changed"}
        assert set(changed) == {"conv.weight", "fc.weight"}
        difference = changed["fc.weight"].difference
        assert difference is not None
        spread = np.ptp(weights(200)["fc.weight"])
        assert 0 < (difference.max_abs or 0) <= spread / 255 / 2 * 1.001

    def test_checkout_and_export_say_so_once(self, repository: Repository, tmp_path: Path) -> None:
        child(repository, "uniform:8")
        wanted = "lenet@2 is quantized to uniform:8; the exact weights are in lenet@1"
        assert checkout(repository, "lenet@2", tmp_path / "a").notes == [wanted]
        assert checkout(repository, "lenet@2", tmp_path / "b", weights=False).notes == []
        assert checkout(repository, "lenet@1", tmp_path / "c").notes == []
        request = transfer.Request("lenet@2", tmp_path / "w.npz")
        made = transfer.export(repository, request)
        assert made.notes == (wanted,)
        assert not made.original
        with np.load(tmp_path / "w.npz") as arrays:
            assert len(np.unique(arrays["fc.weight"])) <= 256

    def test_show(self, repository: Repository) -> None:
        child(repository, "uniform:8")
        shown = show.show(repository, show.find(repository, "lenet@2"))
        assert shown.version.scheme == "uniform:8"
        assert [(parent.label, parent.kind) for parent in shown.parents] == [
            ("lenet@1", "quantize")
        ]

    def test_undo_and_redo(self, repository: Repository) -> None:
        child(repository, "uniform:8")
        undo.undo(repository, "Ada")
        assert [v.label for v in versions.of_name(repository.database, "lenet")] == ["lenet@1"]
        assert not check.check(repository).faults


class TestRefused:
    def test_a_part(self, repository: Repository) -> None:
        with pytest.raises(UsageError, match="a part of a version"):
            child(repository, "uniform:8", "lenet@1/100")

    def test_no_such_scheme(self, repository: Repository) -> None:
        with pytest.raises(UsageError, match="unknown quantization") as caught:
            child(repository, "unifrm:8")
        assert "uniform:8" in caught.value.did_you_mean

    def test_no_weights(self, repository: Repository) -> None:
        (repository.root / "a.txt").write_text("a")
        adding.add(repository, repository.root, ["a.txt"], adding.Request())
        commit(repository, "no weights", orphan=True)
        with pytest.raises(UsageError, match="has no weights"):
            child(repository, "uniform:8", "lenet@2")

    def test_nothing_to_round(self, repository: Repository) -> None:
        save_file({"b": np.ones(9, "f4")}, repository.root / "b.safetensors")
        adding.add(repository, repository.root, ["b.safetensors"], adding.Request())
        commit(repository, "vector", orphan=True)
        with pytest.raises(UsageError, match="changes nothing in lenet@2"):
            child(repository, "uniform:8", "lenet@2")
        assert versions.by_number(repository.database, "lenet", 3) is None
        assert not list(repository.tmp.iterdir())

    def test_too_large_numbers_are_named(self, repository: Repository) -> None:
        save_file(
            {"a": np.full((3, 3), 1e6, "f4"), "c": np.full((3, 3), 0.1, "f4")},
            repository.root / "b.safetensors",
        )
        adding.add(repository, repository.root, ["b.safetensors"], adding.Request())
        commit(repository, "large", orphan=True)
        made = child(repository, "fp16", "lenet@2")
        assert made.rounded == 1
        assert made.notes == ("a stays exact: 1e+06 is too large for it",)


def saved_npz(values: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    np.savez(out, **values)
    return out.getvalue()


def saved_pt(values: dict[str, Any]) -> bytes:
    torch = pytest.importorskip("torch")
    out = io.BytesIO()
    tensors = {name: torch.from_numpy(value) for name, value in values.items()}
    torch.save({"model": tensors, "epoch": 3}, out)
    return out.getvalue()


def loaded_npz(path: Path) -> dict[str, Any]:
    with np.load(path) as arrays:
        return {name: arrays[name] for name in arrays.files}


def loaded_pt(path: Path) -> dict[str, Any]:
    torch = pytest.importorskip("torch")
    found = torch.load(path)
    assert found["epoch"] == 3
    return {name: tensor.numpy() for name, tensor in found["model"].items()}


FORMATS: list[tuple[str, Callable[..., bytes], Callable[..., dict[str, Any]]]] = [
    ("w.npz", saved_npz, loaded_npz),
    ("w.pt", saved_pt, loaded_pt),
]


class TestFiles:
    """Files with checksums in them must be whole for every other program."""

    @pytest.mark.parametrize(("name", "save", "load"), FORMATS)
    @pytest.mark.parametrize("at_commit", [False, True])
    def test_archives_are_valid(
        self,
        tmp_path: Path,
        name: str,
        save: Callable[..., bytes],
        load: Callable[..., dict[str, Any]],
        at_commit: bool,
    ) -> None:
        root = tmp_path / "project"
        repository, _ = Repository.init(root)
        values = weights(1)
        (root / name).write_bytes(save(values))
        adding.add(repository, root, [name], adding.Request())
        commit(repository, "first", scheme="uniform:8" if at_commit else None)
        if not at_commit:
            child(repository, "uniform:8")
        number = 1 if at_commit else 2
        container = manifest(repository, number).snapshots[0].containers[0]
        assert container.skeleton is not None
        assert container.blake3 is None
        checkout(repository, f"lenet@{number}", tmp_path / "out")
        path = tmp_path / "out" / name
        assert path.stat().st_size == (root / name).stat().st_size
        with zipfile.ZipFile(path) as archive:
            assert archive.testzip() is None
        found = load(path)
        for key, before in values.items():
            fit = schemes.fit(
                schemes.parse("uniform:8"), "float32", before.shape, [before.tobytes()]
            )
            wanted = before.tobytes()
            if key not in EXACT and fit.rounding is not None:
                wanted = bytes(fit.rounding.apply(wanted))
            assert found[key].tobytes() == wanted
        assert not check.check(repository).faults


class TestCommit:
    def test_only_what_was_rounded_is_kept(self, repository: Repository, tmp_path: Path) -> None:
        save_file(weights(7), repository.root / "w.safetensors")
        adding.add(repository, repository.root, ["w.safetensors"], adding.Request())
        made = commit(repository, "lossy", scheme="uniform:8")
        assert (made.scheme, made.rounded) == ("uniform:8", 2)
        two = manifest(repository, 2)
        assert two.scheme == {"id": "uniform", "bits": 8}
        (snapshot,) = two.snapshots
        store = MatrixStore.of(repository)
        for entry, before, after in zip(
            two.tensors, snapshot.sources or (), snapshot.hashes, strict=True
        ):
            assert before is not None
            assert after is not None
            assert (before == after) == (entry.name in EXACT)
            assert (store.encoding(before) is None) == (before != after)
            raw = weights(7)[entry.name]
            assert before == matrix_hash(raw.dtype.name, raw.shape, raw.tobytes())
        store.close()
        checkout(repository, "lenet@2", tmp_path / "out")
        assert len(np.unique(load_file(tmp_path / "out" / "w.safetensors")["fc.weight"])) <= 256

    def test_the_same_as_a_child_of_the_exact_version(self, repository: Repository) -> None:
        save_file(weights(7), repository.root / "w.safetensors")
        adding.add(repository, repository.root, ["w.safetensors"], adding.Request())
        commit(repository, "exact")
        child(repository, "lloyd:8", "lenet@2")
        adding.add(repository, repository.root, ["w.safetensors"], adding.Request())
        commit(repository, "lossy", scheme="lloyd:8", parents=["lenet@1"])
        three, four = manifest(repository, 3), manifest(repository, 4)
        assert three.snapshots == four.snapshots

    def test_the_exact_file_in_the_way_is_not_lost(self, repository: Repository) -> None:
        save_file(weights(7), repository.root / "w.safetensors")
        adding.add(repository, repository.root, ["w.safetensors"], adding.Request())
        commit(repository, "lossy", scheme="uniform:8")
        found = status_of(repository)
        assert "w.safetensors" in str(found.modified)
        with pytest.raises(Conflict, match="would overwrite"):
            checkout(repository, "lenet@2", repository.root)

    def test_carried_weights_stay_lossy(self, repository: Repository) -> None:
        save_file(weights(7), repository.root / "w.safetensors")
        adding.add(repository, repository.root, ["w.safetensors"], adding.Request())
        commit(repository, "lossy", scheme="uniform:8")
        commit(repository, "a parameter", parameters={"lr": "0.1"}, usual_scheme="uniform:2")
        three = manifest(repository, 3)
        assert three.scheme == {"id": "uniform", "bits": 8}
        assert three.snapshots == manifest(repository, 2).snapshots
        adding.add(repository, repository.root, ["w.safetensors"], adding.Request())
        made = commit(repository, "exact again")
        assert made.scheme is None
        assert manifest(repository, 4).snapshots[0].sources is None

    def test_from_the_configuration(self, repository: Repository) -> None:
        save_file(weights(7), repository.root / "w.safetensors")
        adding.add(repository, repository.root, ["w.safetensors"], adding.Request())
        assert commit(repository, "lossy", usual_scheme="fp16").scheme == "fp16"

    def test_no_new_weights(self, repository: Repository) -> None:
        with pytest.raises(UsageError, match="no new weights"):
            commit(repository, "nothing", allow_empty=True, scheme="uniform:8")

    def test_nothing_to_round_is_an_exact_version(self, repository: Repository) -> None:
        save_file({"b": np.ones(9, "f4")}, repository.root / "b.safetensors")
        adding.add(repository, repository.root, ["b.safetensors"], adding.Request())
        made = commit(repository, "vector", scheme="uniform:8")
        assert (made.scheme, made.rounded) == (None, 0)
        assert made.warnings == (
            "quantizing to uniform:8 changes nothing; weights are stored exactly",
        )
        two = manifest(repository, 2)
        assert two.snapshots[0].sources is None
        assert two.snapshots[0].containers[0].blake3 is not None
