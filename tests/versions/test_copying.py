"""Edited copies: the network that was asked for, weights as planned, and a version of both."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import dlv.versions.add as adding
import dlv.versions.commit as committing
import dlv.versions.copying as copying
import dlv.weights.snapshots as snapshots
from dlv.adapters import network_json
from dlv.adapters.checkpoint import Checkpoint
from dlv.errors import Conflict, NotFound, StorageError, UsageError
from dlv.metadata import facts, versions
from dlv.network.edits.instructions import Instructions
from dlv.objects.manifest import Parent
from dlv.repository.handle import Repository
from dlv.versions.copying import Copied, Request
from dlv.weights.store import MatrixStore
from dlv.weights.store import stored_network as stored_network

CommitModel = Callable[..., str]
WIDER = Instructions(set=["conv.out=6"])


def _nodes(conv: str = "conv") -> list[dict[str, Any]]:
    def weights(name: str) -> dict[str, str]:
        return {slot: f"{name}.{slot}" for slot in ("weight", "bias")}

    return [
        {"name": conv, "op": "CONV", "attrs": {"out": 4, "kernel": [3, 3]}, "inputs": ["x"]}
        | {"params": weights(conv)},
        {"name": "relu", "op": "RELU", "inputs": [conv]},
        {"name": "flat", "op": "RESHAPE", "attrs": {"kind": "flatten"}, "inputs": ["relu"]},
        {"name": "fc", "op": "FULL", "attrs": {"out": 10}, "inputs": ["flat"]}
        | {"params": weights("fc")},
    ]


def _weights(seed: int) -> dict[str, Any]:
    source = np.random.default_rng(seed)
    shapes = {"conv.weight": (4, 1, 3, 3), "conv.bias": (4,), "fc.weight": (10, 144)}
    shapes |= {"fc.bias": (10,)}
    return {name: source.normal(size=shape).astype("f4") for name, shape in shapes.items()}


@pytest.fixture
def repository(tmp_path: Path, commit_model: CommitModel) -> Repository:
    """net@1 with two snapshots, a log, a script; bare@1 has no network, empty@1 no weights."""
    made, _ = Repository.init(tmp_path / "project")
    log = "step,loss\n1,2.0\n2,1.0\n"
    files = {"train.py": "print(1)\n", "log.csv": log, "config.json": "{}"}
    commit_model(made, "net", {100: _weights(1), 200: _weights(2)}, _nodes(), files=files)
    commit_model(made, "bare", _weights(3), root=True)
    commit_model(made, "empty", {}, _nodes(), root=True)
    return made


def _branches() -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """5 + 3 channels joined, and a FULL that reads them."""
    nodes: list[dict[str, Any]] = []
    tensors: dict[str, Any] = {}
    source = np.random.default_rng(0)
    for name, out in (("a", 5), ("b", 3)):
        params = {"weight": f"c{name}.weight"}
        nodes += [
            {"name": f"c{name}", "op": "CONV", "attrs": {"out": out, "kernel": [3, 3]}}
            | {"inputs": ["x"], "params": params},
            {"name": f"r{name}", "op": "RELU", "inputs": [f"c{name}"]},
        ]
        tensors[f"c{name}.weight"] = source.normal(size=(out, 1, 3, 3)).astype("f4")
    nodes += [
        {"name": "cat", "op": "CONCAT", "attrs": {"axis": 1}, "inputs": ["ra", "rb"]},
        {"name": "flat", "op": "RESHAPE", "attrs": {"kind": "flatten"}, "inputs": ["cat"]},
        {"name": "fc", "op": "FULL", "attrs": {"out": 4}, "inputs": ["flat"]}
        | {"params": {"weight": "fc.weight"}},
    ]
    tensors["fc.weight"] = source.normal(size=(4, 8 * 36)).astype("f4")
    return nodes, tensors


def opened(format_: str, path: Path) -> Checkpoint:
    return adding.open_weights(path, format_)


def copy(repository: Repository, reference: str, given: Any, **rest: Any) -> Copied:
    here = rest.pop("here", repository.root)
    rest.setdefault("name", "wide")
    rest.setdefault("to", Path("out"))
    return copying.copy(repository, Request(reference, "Ada", here, opened, **rest), given)


def files(made: Copied) -> list[str]:
    return sorted(str(p.relative_to(made.folder)) for p in made.folder.rglob("*") if p.is_file())


def test_what_is_written(repository: Repository) -> None:
    made = copy(repository, "net@1", WIDER)
    assert files(made) == ["config.json", "network.json", "train.py", "wide.safetensors"]
    assert made.made == ["network.json", "wide.safetensors"]
    assert made.notes == ["skipped log.csv: logs of the training of net@1"]
    network, warnings = network_json.parse((made.folder / "network.json").read_bytes())
    assert made.network is not None
    assert (network.id, warnings) == (made.network.id, [])
    assert network.node("conv").attrs["out"] == 6


def test_weights_as_planned(repository: Repository) -> None:
    made = copy(repository, "net@1", WIDER)
    old, new = _weights(2), load_file(made.folder / "wide.safetensors")
    assert {name: array.shape for name, array in new.items()} == {
        "conv.weight": (6, 1, 3, 3),
        "conv.bias": (6,),
        "fc.weight": (10, 216),
        "fc.bias": (10,),
    }
    assert new["fc.bias"].tobytes() == old["fc.bias"].tobytes()
    assert np.array_equal(new["conv.weight"][:4], old["conv.weight"])
    assert np.array_equal(new["fc.weight"][:, :144], old["fc.weight"])
    assert not new["conv.bias"][4:].any()
    assert abs(new["conv.weight"][4:]).max() <= 1 / 3
    assert new["conv.weight"][4:].any()
    assert made.plan is not None
    assert made.plan.count("overlap") == 3


def test_a_snapshot_gives_its_own_weights(repository: Repository) -> None:
    made = copy(repository, "net@1/100", Instructions(delete=["relu"]))
    new = load_file(made.folder / "wide.safetensors")
    assert all(np.array_equal(new[name], array) for name, array in _weights(1).items())


def test_the_seed_decides(repository: Repository) -> None:
    def written(seed: int, folder: str) -> bytes:
        given = Instructions(set=["conv.out=6"], seed=seed)
        made = copy(repository, "net@1", given, to=Path(folder))
        return (made.folder / "wide.safetensors").read_bytes()

    assert written(1, "a") == written(1, "b")
    assert written(1, "c") != written(2, "d")


def test_parent_and_version(repository: Repository) -> None:
    made = copy(repository, "net@1", WIDER, to=None)
    first = versions.by_number(repository.database, "net", 1)
    assert first is not None
    assert repository.head == first.id
    assert repository.next == ("wide", "copy")
    adding.add(repository, repository.root, list(made.made), adding.Request())
    done = committing.commit(repository, committing.Request("wider", "Ada"))
    manifest = repository.manifest(done.id)
    assert (manifest.name, manifest.parents) == ("wide", (Parent(first.id, "copy"),))
    assert made.network is not None
    assert manifest.network is not None
    assert manifest.network.id == made.network.id
    assert [c.path for s in manifest.snapshots for c in s.containers] == ["wide.safetensors"]
    assert not done.warnings
    store = MatrixStore.of(repository)
    assert stored_network(store, manifest.network.id).node("conv").attrs["out"] == 6


def test_here_nothing_is_lost(repository: Repository) -> None:
    (repository.root / "network.json").write_text("mine")
    with pytest.raises(Conflict, match=r"network\.json"):
        copy(repository, "net@1", WIDER, to=None)
    assert not (repository.root / "wide.safetensors").exists()
    assert repository.next is None
    copy(repository, "net@1", WIDER, to=None, force=True)
    made = (repository.root / "wide.safetensors").read_bytes()
    (repository.root / "wide.safetensors").write_bytes(made + b"mine")
    with pytest.raises(Conflict, match=r"wide\.safetensors"):
        copy(repository, "net@1", WIDER, to=None)
    assert (repository.root / "wide.safetensors").read_bytes() == made + b"mine"


def test_again_is_what_it_was(repository: Repository) -> None:
    """As after a copy that was killed: its own files are not in its way."""
    made = copy(repository, "net@1", WIDER, to=None)
    before = {path: path.read_bytes() for path in repository.root.iterdir() if path.is_file()}
    again = copy(repository, "net@1", WIDER, to=None)
    assert {written.path for written in made.written} <= set(again.unchanged)
    assert again.written == []
    assert again.network == made.network
    after = {path: path.read_bytes() for path in repository.root.iterdir() if path.is_file()}
    assert after == before


def test_what_cannot_be_finished_is_taken_back(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last write fails: nothing of it is in the way of the same command."""

    def files() -> dict[str, bytes]:
        return {
            path.name: path.read_bytes() for path in repository.root.iterdir() if path.is_file()
        }

    def full(*_: Any, **more: Any) -> None:
        assert (repository.root / "wide.safetensors").exists()
        raise StorageError("cannot write dlv.db", why="the disk is full")

    before = files()
    with monkeypatch.context() as patched:
        patched.setattr(facts, "log_operation", full)
        with pytest.raises(StorageError, match="cannot write") as caught:
            copy(repository, "net@1", WIDER, to=None)
    assert "changed" in str(caught.value.why)
    assert files() == before
    assert repository.next is None
    copy(repository, "net@1", WIDER, to=None)
    assert repository.next == ("wide", "copy")


def test_what_was_written_is_known(repository: Repository) -> None:
    """The marks in the index are those of the files, so that status need not read them."""
    made = copy(repository, "net@1", WIDER, to=None)
    rows = repository.database.rows("SELECT path, hash FROM seen")
    known: dict[str, str] = dict(rows)
    for written in made.written:
        assert known[written.path] == written.hash


def test_without_weights(repository: Repository) -> None:
    made = copy(repository, "net@1", WIDER, weights=False)
    assert files(made) == ["config.json", "network.json", "train.py"]
    assert made.plan is None


def test_a_version_without_weights(repository: Repository) -> None:
    made = copy(repository, "empty@1", WIDER)
    assert files(made) == ["network.json"]
    assert made.notes == ["empty@1 has no weights"]


def test_a_version_without_a_network(repository: Repository) -> None:
    with pytest.raises(NotFound, match="bare@1 has no network"):
        copy(repository, "bare@1", WIDER)


def test_a_network_that_came_without_a_file(repository: Repository) -> None:
    """Some networks stand in the manifest alone: those of torch modules."""
    (repository.root / "net.json").write_text((repository.root / "network.json").read_text())
    repository.root.joinpath("network.json").unlink()
    save_file(_weights(4), repository.root / "m.safetensors")
    adding.add(repository, repository.root, ["net.json", "m.safetensors"], adding.Request())
    committing.commit(repository, committing.Request("x", "Ada", "other", orphan=True))
    made = copy(repository, "other@1", WIDER)
    assert made.made == ["net.json", "wide.safetensors"]


def test_what_is_not_sound_writes_nothing(repository: Repository) -> None:
    with pytest.raises(UsageError, match="`conv`"):
        copy(repository, "net@1", Instructions(set=["conv.kernel=9"]))
    assert not (repository.root / "out").exists()
    assert repository.next is None


def test_a_part_without_an_edit(repository: Repository) -> None:
    with pytest.raises(UsageError, match="is a checkpoint or file"):
        copy(repository, "net@1/100", None)
    with pytest.raises(UsageError, match="is a checkpoint or file"):
        copy(repository, "net@1:train.py", WIDER)


def test_tensors_are_made_one_at_a_time(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is read before its place in the file has come."""
    order: list[str] = []
    real = MatrixStore.matrix

    def matrix(store: MatrixStore, name: str) -> Any:
        order.append(name)
        return real(store, name)

    def save(out: Any, format_: str, tensors: Any, metadata: Any) -> tuple[int, str]:
        assert order == []
        return saved(out, format_, tensors, metadata)

    saved = snapshots.save
    monkeypatch.setattr(MatrixStore, "matrix", matrix)
    monkeypatch.setattr(snapshots, "save", save)
    copy(repository, "net@1", WIDER)
    assert len(order) == 4


def test_ties_that_only_the_weights_file_knows(tmp_path: Path) -> None:
    """Two names over one storage in a .pt: both are resized."""
    torch = pytest.importorskip("torch")
    made, _ = Repository.init(tmp_path / "tied")
    nodes = [
        {"name": "embed", "op": "EMBED", "attrs": {"out": 4, "rows": 7}, "inputs": ["x"]}
        | {"params": {"weight": "embed.weight"}},
        {"name": "head", "op": "FULL", "attrs": {"out": 7}, "inputs": ["embed"]}
        | {"params": {"weight": "head.weight"}},
    ]
    image = {"name": "x", "shape": ["B", 3], "dtype": "int64"}
    form = {"dlv_network": 1, "inputs": [image], "nodes": nodes, "outputs": ["head"]}
    (made.root / "network.json").write_text(json.dumps(form))
    weight = torch.randn(7, 4)
    torch.save({"embed.weight": weight, "head.weight": weight}, made.root / "m.pt")
    adding.add(made, made.root, ["."], adding.Request())
    committing.commit(made, committing.Request("x", "Ada", "lm"))
    result = copy(made, "lm@1", Instructions(set=["embed.rows=9"]))
    new = load_file(result.folder / "wide.safetensors")
    assert new["embed.weight"].shape == (9, 4)
    assert np.array_equal(new["embed.weight"], new["head.weight"])
    assert np.array_equal(new["embed.weight"][:7], weight.numpy())


@pytest.mark.parametrize(
    "edit",
    [
        {"rename": ["ra=ra9"]},
        {"delete": ["ra"]},
        {"insert": ['ra=DROPOUT("d")']},
        {"replace": ['ra=RELU("other")']},
        {"delete": ["rb"], "rename": ["ca=first", "ra=second"]},
        {"slice": "cat..fc"},
    ],
    ids=lambda edit: "-".join(edit),
)
def test_behind_a_concat_all_is_carried_over(
    tmp_path: Path, commit_model: CommitModel, edit: dict[str, Any]
) -> None:
    made, _ = Repository.init(tmp_path / "joined")
    nodes, tensors = _branches()
    commit_model(made, "two", tensors, nodes)
    target = tmp_path / "new"
    request = Request("two", "Ada", made.root, opened, to=target, name="new")
    copied = copying.copy(made, request, Instructions(**edit))
    assert copied.plan is not None
    assert copied.plan.share == 1
    found = load_file(target / "new.safetensors")
    np.testing.assert_array_equal(found["fc.weight"], tensors["fc.weight"])
