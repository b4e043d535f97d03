from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlv.disk.durable import path_of
from dlv.errors import NotFound, UsageError
from dlv.metadata.matrices import stored_bytes
from dlv.repository.handle import Repository
from dlv.versions.describe import describe
from dlv.versions.remove import remove
from dlv.weights.store import MatrixStore
from tests.differences import chain

LOG = "step,loss,acc\n1,2.0,0.1\n2,0.5,0.2\n3,0.75,nan\n"


def _weights(seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    fixed = np.arange(8, dtype=np.int64)
    return {"fc.weight": rng.normal(0, 0.1, (10, 64)).astype(np.float32), "fixed": fixed}


@pytest.fixture(scope="module")
def repository(
    tmp_path_factory: pytest.TempPathFactory, commit_model: Callable[..., str]
) -> Iterator[Repository]:
    made, _ = Repository.init(tmp_path_factory.mktemp("models"))
    nodes = [
        {"name": "flat", "op": "RESHAPE", "attrs": {"kind": "flatten"}, "inputs": ["x"]},
        {"name": "fc", "op": "FULL", "attrs": {"out": 10}, "inputs": ["flat"]}
        | {"params": {"weight": "fc.weight"}},
    ]
    files = {"log.csv": LOG, "train.py": "pass\n"}
    held = {10: _weights(1), 20: _weights(2)}
    commit_model(made, "m", held, nodes, files=files, parameters={"lr": 0.1})
    commit_model(made, "m", {}, files={"train.py": "again\n"}, message="no new weights")
    yield made
    made.close()


def test_parts(repository: Repository) -> None:
    found = describe(repository, "m@1")
    assert (found.label, found.version.message) == ("m@1", "made")
    assert found.network is not None
    assert found.summary is not None
    assert (found.summary.parameters, found.summary.flops) == (640, 2 * 640)
    assert {m.name: (m.shape, m.nbytes) for m in found.matrices} == {
        "fc.weight": ((10, 64), 2560),
        "fixed": ((8,), 64),
    }
    assert [(line.step, line.own, line.raw) for line in found.snapshots] == [
        (10, False, 2624),
        (20, True, 2624),
    ]
    metrics = {item.name: item for item in found.metrics}
    assert (metrics["loss"].last, metrics["loss"].min, metrics["loss"].min_step) == (0.75, 0.5, 2)
    assert (str(metrics["acc"].last), metrics["acc"].nonfinite) == ("nan", 1)
    assert found.curves == {}
    assert found.statistics == {}


def test_storage(repository: Repository) -> None:
    found = describe(repository, "m@1")
    whole = stored_bytes(repository.database)
    held = {digest for s in found.manifest.snapshots for digest in s.hashes if digest}
    assert found.stored == pytest.approx({digest: whole[digest] for digest in held})
    # The integers are one matrix in two snapshots.
    assert (found.storage.raw, found.storage.matrices) == (2 * 2624, 3)
    assert found.storage.stored == round(sum(whole[digest] for digest in held))
    assert found.storage.ratio == found.storage.raw / found.storage.stored
    assert found.storage.bases == 0


def test_storage_of_differences_names_what_their_bases_take(
    tmp_path: Path, commit_model: Callable[..., str]
) -> None:
    made, _ = Repository.init(tmp_path)
    rng = np.random.default_rng(0)
    for _ in range(3):
        commit_model(made, "net", {"w": rng.normal(0, 1, 70_000).astype(np.float32)})
    db = made.database
    names = chain(db)
    sizes = stored_bytes(db)
    found = [describe(made, f"net@{number}").storage for number in (1, 2, 3)]
    assert [one.stored for one in found] == [round(sizes[name]) for name in names]
    first, second = (sizes[name] for name in names[:2])
    assert [one.bases for one in found] == [0, round(first), round(first + second)]
    made.close()


def test_storage_leaves_removed_snapshots_out(
    tmp_path: Path, commit_model: Callable[..., str]
) -> None:
    made, _ = Repository.init(tmp_path)
    commit_model(made, "net", {step: {"w": np.full(100, step, np.float32)} for step in (1, 2)})
    whole = describe(made, "net").storage
    remove(made, ["net"], "Ada", steps="1")
    left = describe(made, "net").storage
    assert (whole.raw, whole.matrices) == (800, 2)
    assert (left.raw, left.matrices) == (400, 1)
    assert 0 < left.stored < whole.stored
    made.close()


def test_parents(repository: Repository) -> None:
    (parent,) = describe(repository, "m@2").parents
    assert (parent.label, parent.kind) == ("m@1", "commit")


def test_curves(repository: Repository) -> None:
    found = describe(repository, "m@1", curves=True)
    assert list(found.curves["loss"]) == [2.0, 0.5, 0.75]


def test_a_damaged_curve_takes_nothing_else_away(repository: Repository, tmp_path: Path) -> None:
    repository.database.checkpoint()
    shutil.copytree(repository.root, tmp_path / "copy")
    with Repository.find(tmp_path / "copy") as copy:
        store = MatrixStore.of(copy)
        (loss,) = (m for m in describe(copy, "m@1").metrics if m.name == "loss")
        (piece,) = store.object_chunks("series", loss.hash)
        path = path_of(store.packs_dir, piece.pack, ".pack")
        data = bytearray(path.read_bytes())
        data[piece.offset + piece.length // 2] ^= 4
        path.chmod(0o644)
        path.write_bytes(data)
        found = describe(copy, "m@1", curves=True)
        assert "loss" not in found.curves
        assert len(found.metrics) == 2
        (note,) = [note for note in found.notes if "loss" in note]
        assert "dlv fsck" in note


def test_a_snapshot(repository: Repository) -> None:
    found = describe(repository, "m@1/10", statistics=True)
    assert found.label == "m@1/10"
    figures = found.statistics["fc.weight"]
    assert figures is not None
    array = _weights(1)["fc.weight"].astype(np.float64)
    assert figures.mean == pytest.approx(array.mean())
    assert figures.l2 == pytest.approx(np.linalg.norm(array))
    assert set(found.statistics) == {"fc.weight", "fixed"}


def test_a_file_is_not_described(repository: Repository) -> None:
    with pytest.raises(UsageError, match="is a file") as caught:
        describe(repository, "m@1:train.py")
    assert caught.value.hint == "dlv show m@1:train.py"


def test_one_matrix(repository: Repository) -> None:
    seen: list[int] = []
    found = describe(repository, "m@1", matrix="fixed", progress=seen.append)
    assert set(found.statistics) == {"fixed"}
    assert seen == [64]
    with pytest.raises(NotFound, match="is a layer of m@1"):
        describe(repository, "m@1", matrix="full1")
    with pytest.raises(NotFound) as caught:
        describe(repository, "m@1/10", matrix="fixd")
    assert caught.value.did_you_mean == ["fixed"]
    assert "m@1/10" in caught.value.message
