"""Which network a version gets, and that its constants are stored, reached and checked."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dlv.upkeep.check as check
import dlv.versions.add as adding
import dlv.versions.commit as committing
import dlv.versions.draft as draft
from dlv.adapters import exported, safetensors
from dlv.adapters.checkpoint import Checkpoint, Tensor
from dlv.canonical import matrix_hash
from dlv.errors import Conflict, Damaged, UsageError
from dlv.network.graph import Input, Network, Node
from dlv.network.verify import Problem
from dlv.network.vocabulary import complete
from dlv.objects.manifest import Manifest
from dlv.repository.handle import Repository
from dlv.weights.store import MatrixStore, stored_network

WEIGHT = np.arange(12, dtype="f4").reshape(3, 4)
BIAS = np.ones(3, "f4")
CONSTANT = np.array([1.5, -2.0, 3.0], "f4").tobytes()
DIGEST = matrix_hash("float32", (3,), CONSTANT)


def network(*, out: int = 3, constant: str = DIGEST) -> Network:
    params = {"weight": "fc.weight", "bias": "fc.bias"}
    return Network(
        inputs=(Input("x", ("B", 4)),),
        nodes=(
            Node(
                *("fc", "FULL", None),
                complete("FULL", None, {"out": out}, params=params),
                (("x", 0),),
                params,
            ),
            Node("add", "ADD", None, complete("ADD", None, {}), (("fc", 0), ("shift", 0))),
        ),
        outputs=(("add", 0),),
        constants={"shift": constant},
        origin={"importer": "a test"},
    )


def described(raw: bytes = CONSTANT, **changes: Any) -> Checkpoint:
    tensor = Tensor("shift", "float32", (3,), 12, lambda: raw)
    return Checkpoint("test", [], network=network(**changes), constants=[tensor])


def save(path: Path, **arrays: Any) -> None:
    def tensor(name: str, array: Any) -> Tensor:
        raw = array.tobytes()
        return Tensor(name, "float32", array.shape, len(raw), lambda: raw)

    with path.open("wb") as out:
        safetensors.save(out, [tensor(name, array) for name, array in arrays.items()], {})


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    made, _ = Repository.init(tmp_path / "project")
    save(made.root / "w.safetensors", **{"fc.weight": WEIGHT, "fc.bias": BIAS})
    return made


def commit(repository: Repository, *files: str, **request: Any) -> committing.Committed:
    if files:
        adding.add(repository, repository.root, files, adding.Request())
    return committing.commit(repository, committing.Request("m", "Ada", "net", **request))


def stored(repository: Repository) -> Manifest:
    assert repository.head is not None
    return repository.manifest(repository.head)


def test_a_given_network_with_its_constants(repository: Repository) -> None:
    made = commit(repository, "w.safetensors", network=described())
    assert made.warnings == ()
    reference = stored(repository).network
    assert reference is not None
    assert reference.id == network().id
    assert reference.origin == {"importer": "a test"}
    assert reference.constants == [
        {"name": "shift", "dtype": "float32", "shape": [3], "hash": DIGEST}
    ]
    store = MatrixStore.of(repository)
    assert stored_network(store, reference.id) == replace(network(), origin=None)
    assert bytes(store.matrix(DIGEST)) == CONSTANT


def test_fsck_reads_constants_and_names_the_version(repository: Repository) -> None:
    commit(repository, "w.safetensors", network=described())
    assert check.check(repository).faults == []
    lost = [p for p in repository.packs.rglob("*") if p.is_file()]
    assert len(lost) == 1
    lost[0].unlink()
    found = check.check(repository).faults
    assert DIGEST in {fault.object for fault in found if "net@1" in fault.versions}


def test_a_constant_that_is_another(repository: Repository) -> None:
    with pytest.raises(Conflict, match="constant `shift`"):
        commit(repository, "w.safetensors", network=described(b"\0" * 12))
    assert repository.head is None


def test_a_plain_network_that_needs_a_constant(repository: Repository) -> None:
    """Its bytes may be stored already; else it cannot be taken in."""
    path = repository.root / "network.json"
    path.write_text(json.dumps(network().canonical()))
    with pytest.raises(UsageError, match="needs the constant `shift`,"):
        commit(repository, "w.safetensors", "network.json")
    adding.remove(repository, repository.root, ["."])
    save(repository.root / "c.safetensors", shift=np.frombuffer(CONSTANT, "f4"))
    commit(repository, "c.safetensors")
    commit(repository, "w.safetensors", "network.json")
    reference = stored(repository).network
    assert reference is not None
    assert reference.constants[0]["hash"] == DIGEST


def test_the_network_is_carried_while_it_fits(repository: Repository) -> None:
    commit(repository, "w.safetensors", network=described())
    save(repository.root / "w.safetensors", **{"fc.weight": WEIGHT * 2, "fc.bias": BIAS})
    commit(repository, "w.safetensors")
    carried = stored(repository).network
    assert carried is not None
    assert carried.constants
    wide = np.zeros((7, 4), "f4")
    save(repository.root / "w.safetensors", **{"fc.weight": wide, "fc.bias": np.zeros(7, "f4")})
    made = commit(repository, "w.safetensors")
    assert stored(repository).network is None
    assert "does not fit" in made.warnings[0]


def test_the_staged_file_counts_more_than_what_weights_say() -> None:
    class Writer:
        def add(self, dtype: str, shape: Any, raw: Any) -> str:
            return matrix_hash(dtype, shape, raw)

        def add_object(self, kind: str, data: Any) -> str:
            assert kind == "network"
            kept.append(data)
            return ""

    kept: list[bytes] = []
    writer: Any = Writer()
    store: Any = None
    first = draft.take_network("a.onnx", described(), writer, store)
    other = draft.take_network("b.onnx", described(out=4), writer, store)
    assert first is not None
    assert other is not None
    made = draft.choose_network([first, first, other], {}, writer)
    assert made.network == network()
    assert len(kept) == 1
    assert made.warnings == ["the network is that of a.onnx; b.onnx describes another one"]
    assert draft.take_network("c", Checkpoint("c", []), writer, store) is None


def test_warnings_are_few() -> None:
    problems = [Problem(f"n{i}", None, "shape", "wrong") for i in range(30)]
    problems += [
        Problem(None, None, "extra", "unused", "warning", seen=name)
        for name in ("bn.num_batches_tracked", "a", "b", "c", "d")
    ]
    problems.insert(0, Problem("x", None, "dead", "unneeded", "warning"))
    lines = draft.network_warnings(problems)
    assert lines[0] == "network: n0: wrong"
    assert lines[-2:] == [
        "network: and 23 more",
        "network: no layer uses the tensors a, b, c and 1 more",
    ]
    assert len(lines) == draft.MOST_WARNINGS + 2


def test_what_add_exported_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "x.network"
    with path.open("wb") as out:
        exported.write(out, replace(described(), notes=["batch: static"]))
    opened = exported.open(str(path))
    assert opened.network == network()
    assert opened.notes == ["batch: static"]
    assert [(t.name, bytes(t.read())) for t in opened.constants] == [("shift", CONSTANT)]
    opened.close()


def test_what_is_no_exported_network(tmp_path: Path) -> None:
    save(tmp_path / "w", a=BIAS)
    with pytest.raises(Damaged, match="has no network"):
        exported.open(str(tmp_path / "w"))
