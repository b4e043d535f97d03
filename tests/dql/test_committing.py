"""`into`: versions of derived networks, all or none, with the weights of `dlv copy`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import dlv.repository.undo as undo
import dlv.upkeep.check as check
import dlv.versions.add as adding
import dlv.versions.checkout as checkouts
import dlv.versions.commit as storing
import dlv.versions.copying as copying
import dlv.versions.quantize as lossy
from dlv.dql import committing, deriving
from dlv.dql.bind.bound import Delete, Derivation, Set
from dlv.dql.outcome import Networks
from dlv.errors import Conflict, DlvError, UsageError
from dlv.metadata import facts, versions
from dlv.metadata.versions import Version
from dlv.network.edits.instructions import Instructions
from dlv.objects.manifest import Parent
from dlv.repository.handle import Repository
from dlv.weights.store import MatrixStore, insert_version, stored_network
from tests.dql import work
from tests.dql.work import construct, insert, making, nodes

CommitModel = Callable[..., str]
QUERY = 'construct d from m mutate m["conv"].out = 6 into "wide"'


def _nodes() -> list[dict[str, Any]]:
    return [
        work.node("conv", "CONV", ["x"], out=4, kernel=[3, 3]),
        work.node("relu", "RELU", ["conv"]),
        work.node("flat", "RESHAPE", ["relu"], kind="flatten"),
        work.node("fc", "FULL", ["flat"], out=10),
    ]


def _weights(seed: int) -> dict[str, Any]:
    lot = np.random.default_rng(seed)
    shapes = {"conv.weight": (4, 1, 3, 3), "conv.bias": (4,), "fc.weight": (10, 144)}
    shapes |= {"fc.bias": (10,)}
    return {name: lot.normal(size=shape).astype("f4") for name, shape in shapes.items()}


@pytest.fixture
def repository(tmp_path: Path, commit_model: CommitModel) -> Repository:
    """net@1 with two snapshots, a log, a script and a setting; empty@1 without weights."""
    made, _ = Repository.init(tmp_path / "project")
    log = "step,loss\n1,2.0\n2,1.0\n"
    files = {"train.py": "print(1)\n", "log.csv": log, "config.json": '{"lr": 0.5}'}
    commit_model(made, "net", {100: _weights(1), 200: _weights(2)}, _nodes(), files=files)
    commit_model(made, "empty", {}, _nodes(), root=True)
    return made


def version(repository: Repository, label: str) -> Version:
    name, _, number = label.partition("@")
    found = {v.number: v for v in versions.of_name(repository.database, name)}
    return found[int(number)]


def derive(repository: Repository, label: str, asked: Derivation) -> Networks:
    store = MatrixStore.of(repository)
    found = deriving.of_version(repository, store, version(repository, label))
    assert found is not None
    return deriving.derive(asked, [found], strict=True)


def into(repository: Repository, label: str, asked: Derivation, **given: Any) -> Networks:
    return committing.commit_networks(
        repository, derive(repository, label, asked), QUERY, author="Ada", **given
    )


def checkout(repository: Repository, label: str, to: Path) -> dict[str, Any]:
    """All files; those of weights as arrays."""
    opened = lambda format_, path: adding.open_weights(path, format_)  # noqa: E731
    checkouts.checkout(repository, checkouts.Request(label, "Ada", repository.root, opened, to=to))
    found: dict[str, Any] = {}
    for path in sorted(p for p in to.rglob("*") if p.is_file()):
        name = str(path.relative_to(to))
        found[name] = load_file(path) if path.suffix == ".safetensors" else path.read_text()
    return found


WIDER = construct(Set(nodes("conv"), "out", (6,)), into="wide")


class TestVersion:
    def test_what_it_is(self, repository: Repository) -> None:
        head = repository.head
        source = version(repository, "net@1")
        made = into(repository, "net@1", WIDER)
        (model,) = made.models
        assert model.committed == "wide@1"
        found = version(repository, "wide@1")
        manifest = repository.manifest(found.id)
        assert manifest.parents == (Parent(source.id, "construct"),)
        assert manifest.network is not None
        assert manifest.network.id == model.network.id
        assert manifest.author == "Ada"
        assert manifest.message == "construct of net@1: conv.out = 6"
        assert manifest.hyperparameters == {"lr": 0.5}
        assert manifest.series == ()
        assert [entry.path for entry in manifest.files] == ["config.json", "train.py"]
        assert repository.head == head
        network = stored_network(MatrixStore.of(repository), manifest.network.id)
        assert network == model.network

    def test_how_it_was_made_stands_in_it(self, repository: Repository) -> None:
        into(repository, "net@1", WIDER, parameters={"n": 6})
        found = repository.manifest(version(repository, "wide@1").id).derivation
        assert found is not None
        assert (found["query"], found["parameters"], found["trial"]) == (QUERY, {"n": 6}, None)
        assert found["changes"][0] == {"action": "set", "node": "conv", "text": "out 4 -> 6"}
        actions = {each["name"]: each["action"] for each in found["reuse"]["tensors"]}
        assert actions["conv.weight"] == "overlap"
        assert actions["fc.bias"] == "copy"
        assert found["reuse"]["seed"] == 0
        assert 0.5 < found["reuse"]["share"] < 1

    def test_its_weights_are_those_of_an_edited_copy(
        self, repository: Repository, tmp_path: Path
    ) -> None:
        into(repository, "net@1", WIDER)
        made = checkout(repository, "wide@1", tmp_path / "out")
        assert sorted(made) == ["config.json", "train.py", "wide.safetensors"]
        request = copying.Request(
            *("net@1", "Ada", repository.root, lambda f, p: adding.open_weights(p, f)),
            name="other",
            to=tmp_path / "copy",
        )
        copying.copy(repository, request, Instructions(set=["conv.out=6"]))
        other = load_file(tmp_path / "copy" / "other.safetensors")
        assert {k: v.tobytes() for k, v in made["wide.safetensors"].items()} == {
            k: v.tobytes() for k, v in other.items()
        }

    def test_of_another_seed(self, repository: Repository, tmp_path: Path) -> None:
        found = []
        for seed in (0, 1):
            into(repository, "net@1", WIDER, seed=seed)
            label = f"wide@{seed + 1}"
            made = checkout(repository, label, tmp_path / str(seed))["wide.safetensors"]
            found.append(made["conv.weight"])
        assert np.array_equal(found[0][:4], found[1][:4])
        assert not np.array_equal(found[0][4:], found[1][4:])

    def test_a_slice(self, repository: Repository, tmp_path: Path) -> None:
        into(repository, "net@1", work.sliced("conv", "relu", into="part"))
        manifest = repository.manifest(version(repository, "part@1").id)
        assert manifest.parents[0].kind == "slice"
        assert [tensor.name for tensor in manifest.tensors] == ["conv.bias", "conv.weight"]
        made = checkout(repository, "part@1", tmp_path / "out")["part.safetensors"]
        assert np.array_equal(made["conv.weight"], _weights(2)["conv.weight"])

    def test_without_weights(self, repository: Repository) -> None:
        into(repository, "empty@1", construct(Delete(nodes("relu")), into="wide"))
        manifest = repository.manifest(version(repository, "wide@1").id)
        assert (manifest.tensors, manifest.snapshots, manifest.own) == ((), (), None)
        assert manifest.derivation is not None
        assert manifest.derivation["reuse"] is None
        assert (manifest.tree, manifest.files) == (None, ())

    def test_what_was_copied_is_not_stored_again(self, repository: Repository) -> None:
        into(repository, "net@1", construct(insert("conv", making("RELU")), into="wide"))
        source = repository.manifest(version(repository, "net@1").id)
        made = repository.manifest(version(repository, "wide@1").id)
        assert set(made.snapshots[0].hashes) == set(source.snapshots[1].hashes)

    def test_of_a_network_derived_twice(self, repository: Repository, tmp_path: Path) -> None:
        """The weights are the stored ones, not those that fitted in between."""
        store = MatrixStore.of(repository)
        first = deriving.of_version(repository, store, version(repository, "net@1"))
        assert first is not None
        smaller = deriving.derive(construct(Set(nodes("conv"), "out", (2,))), [first], strict=True)
        between = deriving.onward(smaller, smaller.models[0], first)
        again = construct(Set(nodes("conv"), "out", (4,)), into="same")
        made = deriving.derive(again, [between], strict=True)
        committing.commit_networks(repository, made, QUERY, author="Ada")
        found = checkout(repository, "same@1", tmp_path / "out")["same.safetensors"]
        assert np.array_equal(found["fc.weight"], _weights(2)["fc.weight"])


SEVERAL = construct(Set(nodes("conv"), "out", (5, 6, 7)), into="wide")


class TestSeveral:
    def test_one_version_each_in_order(self, repository: Repository) -> None:
        made = into(repository, "net@1", SEVERAL)
        assert [model.committed for model in made.models] == ["wide@1", "wide@2", "wide@3"]
        for model in made.models:
            assert model.committed is not None
            manifest = repository.manifest(version(repository, model.committed).id)
            assert manifest.network is not None
            assert manifest.network.id == model.id
        again = into(repository, "net@1", WIDER)
        assert again.models[0].committed == "wide@4"

    def test_one_undo_takes_them_all_back(self, repository: Repository) -> None:
        into(repository, "net@1", SEVERAL)
        newest = facts.operations(repository.database)[0]
        assert (newest.verb, newest.summary) == ("construct", "wide@1 to wide@3")
        undo.undo(repository, "Ada")
        states = [v.state for v in versions.of_name(repository.database, "wide")]
        assert "live" not in states

    def test_all_or_none(self, repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
        real, calls = insert_version, []

        def failing(*args: Any, **given: Any) -> int:
            calls.append(args)
            if len(calls) == 2:
                raise DlvError("no more")
            return real(*args, **given)

        monkeypatch.setattr("dlv.versions.commit.insert_version", failing)
        with pytest.raises(DlvError, match="no more"):
            into(repository, "net@1", SEVERAL)
        monkeypatch.undo()
        assert versions.of_name(repository.database, "wide") == []
        assert not check.check(repository).faults
        made = into(repository, "net@1", SEVERAL)
        assert [model.committed for model in made.models] == ["wide@1", "wide@2", "wide@3"]

    def test_fsck_and_rebuild(self, repository: Repository) -> None:
        into(repository, "net@1", SEVERAL)
        assert not check.check(repository).faults
        before = versions.of_name(repository.database, "wide")
        repository.database_file.unlink()
        repository.close()
        again = Repository.find(repository.root)
        assert not check.rebuild(again).faults
        after = versions.of_name(Repository.find(repository.root).database, "wide")
        assert [(v.label, v.id, v.parents) for v in after] == [
            (v.label, v.id, v.parents) for v in before
        ]


class TestRefused:
    def test_a_name_that_cannot_be(self, repository: Repository) -> None:
        with pytest.raises(UsageError, match="cannot be a name"):
            into(repository, "net@1", construct(Delete(nodes("relu")), into="two words"))

    def test_a_tag(self, repository: Repository) -> None:
        with repository.change("test") as change:
            net = version(repository, "net@1")
            change.record("tag", "good", {"version": net.id})
        with pytest.raises(Conflict, match="`good` is already a tag"):
            into(repository, "net@1", construct(Delete(nodes("relu")), into="good"))

    def test_nothing_to_commit(self, repository: Repository) -> None:
        nothing = Networks("construct", "d", (), into="wide")
        assert committing.commit_networks(repository, nothing, QUERY, author="Ada") is nothing
        made = derive(repository, "net@1", construct(Delete(nodes("relu"))))
        assert committing.commit_networks(repository, made, QUERY, author="Ada") is made
        assert versions.of_name(repository.database, "wide") == []


def test_weights_of_a_lossy_version_are_told_of(repository: Repository) -> None:
    lossy.quantize(repository, "net@1", "uniform:8", author="Ada", name="net")
    made = into(repository, "net@2", WIDER)
    assert made.warnings == ("net@2 is quantized to uniform:8; the exact weights are in net@1",)
    assert repository.manifest(version(repository, "wide@1").id).scheme is None


def test_constants_come_along(tmp_path: Path) -> None:
    torch: Any = pytest.importorskip("torch", reason="torch makes the network: dlv[torch]")
    traced: Any = pytest.importorskip("tests.zoo.traced")

    class Shifted(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.fc = torch.nn.Linear(4, 4)

        def forward(self, x: Any) -> Any:
            return torch.relu(self.fc(x) + torch.tensor([1.0, 2.0, 3.0, 4.0]))

    repository, _ = Repository.init(tmp_path)
    module = Shifted()
    checkpoint = traced.trace(module, (torch.zeros(2, 4),)).checkpoint
    save_file({k: v.numpy() for k, v in module.state_dict().items()}, tmp_path / "m.safetensors")
    adding.add(repository, tmp_path, ["m.safetensors"], adding.Request())
    storing.commit(repository, storing.Request("made", "Ada", "net", network=checkpoint))
    asked = construct(insert(nodes(work.fitting("FULL")), making("RELU", "r")), into="more")
    into(repository, "net@1", asked)
    manifest = repository.manifest(version(repository, "more@1").id)
    assert manifest.network is not None
    assert len(manifest.network.constants) == 1
    assert manifest.framework == "torch"
    assert not check.check(repository).faults


def test_documents_are_plain_json(repository: Repository) -> None:
    into(repository, "net@1", SEVERAL)
    for number in (1, 2, 3):
        manifest = repository.manifest(version(repository, f"wide@{number}").id)
        assert json.loads(manifest.encode())["derivation"]["query"] == QUERY
