"""The verb: what it finds in a repository, against what the test put there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dlv.versions.diff as diffing
from dlv.errors import NotFound, UsageError
from dlv.repository.handle import Repository
from dlv.versions.diff import ABSENT, Diff, diff
from dlv.weights.store import MatrixStore

Json = dict[str, Any]
SHAPES = {"conv.weight": (4, 1, 3, 3), "conv.bias": (4,), "fc.weight": (10, 144), "fc.bias": (10,)}


def _nodes(*middle: str, out: int = 4) -> list[Json]:
    chain: list[Json] = [
        {"name": "conv", "op": "CONV", "attrs": {"out": out, "kernel": 3}},
        *({"name": name, "op": "RELU"} for name in middle),
        {"name": "flat", "op": "RESHAPE", "attrs": {"kind": "flatten"}},
        {"name": "fc", "op": "FULL", "attrs": {"out": 10}},
    ]
    for node, source in zip(chain, ["x", *(node["name"] for node in chain)], strict=False):
        node["inputs"] = [source]
        if node["op"] in ("CONV", "FULL"):
            node["params"] = {slot: f"{node['name']}.{slot}" for slot in ("weight", "bias")}
    return chain


def _weights(seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {name: rng.normal(0, 0.1, shape).astype(np.float32) for name, shape in SHAPES.items()}


@pytest.fixture(scope="module")
def repository(
    tmp_path_factory: pytest.TempPathFactory, commit_model: Callable[..., str]
) -> Iterator[Repository]:
    made, _ = Repository.init(tmp_path_factory.mktemp("models"))
    log = "step,loss\n1,2.0\n2,1.0\n"
    files = {"log.csv": log, "train.py": "a\nb\n"}
    commit_model(made, "m", _weights(1), _nodes("relu"), files=files, parameters={"lr": 0.1})
    files = {"log.csv": log + "3,0.5\n", "train.py": "a\nc\nd\n", "new.bin": "\0"}
    commit_model(made, "m", _weights(2), files=files, parameters={"lr": 1, "on": True})
    commit_model(made, "more", _weights(2), _nodes("relu", "relu2"), parameters={"lr": True})
    commit_model(made, "bare", {1: _weights(1), 2: _weights(2)}, root=True)
    yield made
    made.close()


def _one(found: Diff) -> Any:
    assert len(found.others) == 1
    return found.others[0]


@pytest.mark.parametrize("reference", ["m@1", "m@2", "more", "bare", "bare/1"])
def test_a_version_does_not_differ_from_itself(repository: Repository, reference: str) -> None:
    found = diff(repository, [reference, reference], everything=True)
    assert found.same
    assert not any(row.differs for row in (*found.params, *found.metrics, *found.files))
    assert all(pair.status == "unchanged" for pair in _one(found).matrices)


def test_equal_matrices_are_not_read(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: MatrixStore, matrix: str) -> bytes:
        raise AssertionError(f"{matrix} was read")

    monkeypatch.setattr(MatrixStore, "matrix", refuse)
    assert {pair.status for pair in _one(diff(repository, ["m@2", "more"])).matrices} == {
        "unchanged"
    }


def test_matrices_against_numpy(repository: Repository) -> None:
    seen: list[int] = []
    found = diff(repository, ["m@1", "m@2"], progress=seen.append)
    old, new = _weights(1), _weights(2)
    pairs = {pair.name: pair for pair in _one(found).matrices}
    assert set(pairs) == set(SHAPES)
    for name, pair in pairs.items():
        a, b = old[name].astype(np.float64).ravel(), new[name].astype(np.float64).ravel()
        assert pair.difference is not None
        assert pair.difference.l2 == pytest.approx(np.linalg.norm(a - b))
        assert pair.difference.relative_l2 == pytest.approx(
            np.linalg.norm(a - b) / np.linalg.norm(a)
        )
        assert pair.difference.max_abs == pytest.approx(np.abs(a - b).max())
        assert pair.difference.changed == np.count_nonzero(old[name] != new[name])
    assert sum(seen) == 2 * sum(array.nbytes for array in old.values())


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("way", ["there", "back"])
def test_matrices_that_lie_otherwise(
    tmp_path: Path, commit_model: Callable[..., str], way: str, dtype: str
) -> None:
    """Channels last, kernels and rows turned: compared are the elements that mean the same."""
    made, _ = Repository.init(tmp_path)
    nodes = _nodes("relu")
    old = {name: array.astype(dtype) for name, array in _weights(1).items()}
    commit_model(made, "first", old, nodes)
    nodes[0]["attrs"] |= {"kernel": [3, 3], "layout": "kernel_first", "channels": "last"}
    nodes[-1]["attrs"] |= {"layout": "in_out"}
    full = old["fc.weight"].reshape(10, 4, 6, 6).transpose(2, 3, 1, 0).reshape(144, 10)
    new = {
        "conv.weight": old["conv.weight"].transpose(2, 3, 1, 0).copy(),
        "conv.bias": old["conv.bias"],
        "fc.weight": full.copy(),
        "fc.bias": old["fc.bias"],
    }
    new["fc.weight"][0, 3] += 1
    if dtype == "float16":  # equal numbers, but not the same matrix any more
        new["conv.weight"] = new["conv.weight"].astype("float32")
    commit_model(made, "last", new, nodes, root=True, shape=[8, 8, 1])
    names = ["first", "last"] if way == "there" else ["last", "first"]
    found = _one(diff(made, names))
    pairs = {pair.name: pair for pair in found.matrices}
    assert {name: pair.status for name, pair in pairs.items()} == {
        "conv.weight": "rearranged" if dtype == "float32" else "changed",
        "conv.bias": "unchanged",
        "fc.weight": "changed",
        "fc.bias": "unchanged",
    }
    apart = pairs["fc.weight"].difference
    assert apart is not None
    assert (apart.changed, apart.elements) == (1, 1440)
    assert apart.l2 == pytest.approx(1, abs=1e-3)
    assert found.structure is not None
    assert found.structure.equal
    narrowed = _one(diff(made, names, layer="fc"))
    assert [pair.status for pair in narrowed.matrices] == ["unchanged", "changed"]
    made.close()


def test_a_square_matrix_that_is_only_turned(
    tmp_path: Path, commit_model: Callable[..., str]
) -> None:
    """Equal bytes under another layout are other weights."""
    made, _ = Repository.init(tmp_path)
    nodes = _nodes()[1:]
    nodes[0]["inputs"], nodes[1]["attrs"] = ["x"], {"out": 64}
    weights = {"fc.weight": np.eye(64, k=1, dtype="f4"), "fc.bias": np.zeros(64, "f4")}
    commit_model(made, "first", weights, nodes)
    nodes[1]["attrs"] = {"out": 64, "layout": "in_out"}
    commit_model(made, "last", weights, nodes, root=True)
    pairs = {p.name: p for p in _one(diff(made, ["first", "last"])).matrices}
    assert {name: pair.status for name, pair in pairs.items()} == {
        "fc.weight": "changed",
        "fc.bias": "unchanged",
    }
    apart = pairs["fc.weight"].difference
    assert apart is not None
    assert apart.changed == 126
    made.close()


def test_rows(repository: Repository) -> None:
    found = diff(repository, ["m@1", "m@2"])
    assert {row.name: row.values for row in found.params} == {"lr": (0.1, 1), "on": (ABSENT, True)}
    assert [(row.name, [value.last for value in row.values]) for row in found.metrics] == [
        ("loss", [1.0, 0.5])
    ]
    files = {row.name: row for row in found.files if row.differs}
    assert set(files) == {"log.csv", "train.py", "new.bin"}
    assert files["train.py"].lines == ((2, 1),)
    assert files["new.bin"].lines == (None,)
    assert files["new.bin"].values[0] is ABSENT


def test_a_number_is_no_truth_value(repository: Repository) -> None:
    rows = {row.name: row for row in diff(repository, ["m@2", "more"]).params}
    assert rows["lr"].values == (1, True)
    assert rows["lr"].differs


def test_added_and_removed_are_each_others_reverse(repository: Repository) -> None:
    there, back = (_one(diff(repository, pair)) for pair in (["m@1", "more"], ["more", "m@1"]))
    assert [layer.name for layer in there.structure.added] == ["relu2"]
    assert there.structure.added == back.structure.removed
    assert there.structure.removed == back.structure.added == ()
    assert (there.relation.kind, back.relation.kind) == ("descendant", "ancestor")
    for one, other in zip(there.matrices, back.matrices, strict=True):
        assert one.difference.l2 == pytest.approx(other.difference.l2)
        assert one.difference.changed == other.difference.changed


def test_one_side_without_a_network(repository: Repository) -> None:
    found = diff(repository, ["m@1", "bare/1"])
    assert _one(found).structure is None
    assert [side.label for side in found.without_network] == ["bare@1/1"]
    assert all(pair.status == "unchanged" for pair in _one(found).matrices)
    assert not found.same
    assert diff(repository, ["m@1", "bare/1"], sections=["matrices"]).same
    assert diff(repository, ["bare/2", "bare"]).same


def test_sections_and_layers(repository: Repository) -> None:
    found = diff(repository, ["m@1", "m@2"], sections=["params"])
    assert (found.sections, _one(found).matrices, found.files) == (("params",), [], [])
    found = diff(repository, ["m@1", "m@2"], layer="conv*")
    assert {pair.name for pair in _one(found).matrices} == {"conv.weight", "conv.bias"}
    assert [pair.old.name for pair in _one(found).structure.pairs] == ["conv"]
    found = diff(repository, ["m@1", "m@2"], layer="full1")  # an alias
    assert {pair.name for pair in _one(found).matrices} == {"fc.weight", "fc.bias"}
    found = diff(repository, ["bare/1", "bare/2"], layer="fc")  # no network: by prefix
    assert {pair.name for pair in _one(found).matrices} == {"fc.weight", "fc.bias"}
    with pytest.raises(NotFound) as caught:
        diff(repository, ["m@1", "m@2"], layer="cnov")
    assert caught.value.did_you_mean[0] == "conv"


def test_refused(repository: Repository) -> None:
    with pytest.raises(UsageError):
        diff(repository, ["m@1"])
    with pytest.raises(UsageError, match="is a file"):
        diff(repository, ["m@1:train.py", "m@2"])


def test_matrices_of_other_shape_or_dtype(
    repository: Repository, commit_model: Callable[..., str]
) -> None:
    held = _weights(1)
    held["fc.weight"] = held["fc.weight"][:, :100]
    held["conv.bias"] = held["conv.bias"].astype(np.float16)
    commit_model(repository, "cut", held, root=True)
    pairs = {pair.name: pair for pair in _one(diff(repository, ["bare/1", "cut"])).matrices}
    assert pairs["fc.weight"].status == "changed"
    assert pairs["fc.weight"].difference is None
    half = pairs["conv.bias"].difference
    assert half is not None
    exact = np.abs(_weights(1)["conv.bias"] - held["conv.bias"].astype(np.float32)).max()
    assert half.max_abs == pytest.approx(float(exact))


def test_optimizer_matrices_are_counted_only(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All are weights here, so the rule is turned round: only buffers are shown."""
    monkeypatch.setattr(diffing, "MODEL_ROLES", ("buffer",))
    other = _one(diff(repository, ["m@1", "m@2"]))
    assert (other.matrices, other.hidden) == ([], 4)
    other = _one(diff(repository, ["m@1", "m@2"], everything=True))
    assert (len(other.matrices), other.hidden) == (4, 0)
