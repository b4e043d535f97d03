"""`commit`: what becomes of staged files, what is carried on, what is refused."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load, save

import dlv
import dlv.canonical as canonical
import dlv.evaluation.imported as imported
import dlv.versions.add as adding
import dlv.versions.commit as committing
import dlv.weights.snapshots as snapshots
from dlv.adapters.onnx import network as onnx_network
from dlv.errors import Conflict, DlvError, NotFound, UsageError
from dlv.events.formats.series import Scalars
from dlv.metadata import facts, metrics, versions
from dlv.objects.manifest import Manifest
from dlv.repository.handle import Repository
from dlv.versions.add import Request as AddRequest
from dlv.versions.commit import Committed, Request
from dlv.weights.store import MatrixStore
from tests import onnx_models

HOME = str(Path(dlv.__file__).parent.parent)
Arrays = dict[str, Any]


class Project:
    """A folder with a repository, and the verbs in one word each."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.repository, _ = Repository.init(root)

    def write(self, name: str, content: str | bytes | Arrays) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, dict):
            content = save(content)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def add(self, *names: str, **request: Any) -> None:
        adding.add(self.repository, self.root, names or ["."], AddRequest(**request))

    def remove(self, *names: str) -> None:
        adding.remove(self.repository, self.root, names)

    def commit(self, message: str = "m", *, name: str | None = None, **request: Any) -> Committed:
        head = self.repository.head
        request = {"name": name or ("net" if head is None else None), **request}
        return committing.commit(self.repository, Request(message, "me", **request))

    def manifest(self, version: str | Committed) -> Manifest:
        return self.repository.manifest(version if isinstance(version, str) else version.id)

    def file(self, version: Committed, path: str) -> bytes:
        """A weight file as it would be checked out."""
        manifest = self.manifest(version)
        for snapshot in manifest.snapshots:
            for container in snapshot.containers:
                if container.path == path:
                    target = self.root / "out.tmp"
                    with target.open("wb") as out:
                        store = MatrixStore.of(self.repository)
                        snapshots.rebuild(out, manifest, snapshot, container, store)
                    return target.read_bytes()
        raise AssertionError(f"no container {path}")

    @property
    def pack_bytes(self) -> int:
        return sum(path.stat().st_size for path in self.repository.packs.rglob("*.pack"))


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    project = Project(tmp_path / "project")
    yield project
    project.repository.close()


def arrays(seed: int = 0, **shapes: tuple[int, ...]) -> Arrays:
    rng = np.random.default_rng(seed)
    shapes = shapes or {"conv.weight": (4, 3, 3, 3), "conv.bias": (4,), "fc.weight": (10, 64)}
    return {name: rng.normal(0, 0.1, shape).astype("f4") for name, shape in shapes.items()}


NETWORK = {
    "dlv_network": 1,
    "inputs": [{"name": "x", "shape": ["B", 3, 8, 8], "dtype": "float32"}],
    "nodes": [
        {
            "name": "conv",
            "op": "CONV",
            "attrs": {"out": 4, "kernel": [3, 3]},
            "inputs": ["x"],
            "params": {"weight": "conv.weight", "bias": "conv.bias"},
        }
    ],
    "outputs": ["conv"],
}


# A life


def test_a_training_folder(project: Project) -> None:
    first = arrays(1)
    project.write("ckpt-100.safetensors", first)
    project.write("ckpt-200.safetensors", arrays(2))
    project.write("train.py", "print(1)\n")
    project.write("config.json", json.dumps({"lr": 0.1, "opt": {"name": "sgd"}}))
    project.write("log.csv", "step,loss,acc\n1,2.0,.1\n2,nan,.5\n")
    project.write("network.json", json.dumps(NETWORK))
    project.write("data/notes.txt", "hello")
    project.add()
    made = project.commit("first\n\nbody", name="lenet")
    assert (made.name, made.number, made.parents, made.snapshots) == ("lenet", 1, (), 2)
    assert (made.matrices, made.new, made.base) == (6, 6, None)
    manifest = project.manifest(made)
    assert manifest.id == made.id
    assert [s.step for s in manifest.snapshots] == [100, 200]
    assert manifest.own == 1
    assert [t.name for t in manifest.tensors] == sorted(first)
    assert manifest.hyperparameters == {"lr": 0.1, "opt.name": "sgd"}
    assert [(s.run, s.tag) for s in manifest.series] == [("", "loss"), ("", "acc")]
    assert [(e.path, e.role) for e in manifest.files] == [
        ("config.json", "config"),
        ("data/notes.txt", "file"),
        ("log.csv", "log"),
        ("network.json", "network"),
        ("train.py", "file"),
    ]
    assert manifest.network is not None
    assert manifest.environment["git"] is None
    for step in (100, 200):
        path = f"ckpt-{step}.safetensors"
        assert project.file(made, path) == (project.root / path).read_bytes()
    # The catalogue says the same.
    db = project.repository.database
    row = versions.by_id(db, made.id)
    assert row is not None
    assert (row.label, row.state, row.message) == ("lenet@1", "live", "first\n\nbody")
    assert row.network == manifest.network.id
    found = {summary.name: summary for summary in metrics.of_version(db, row.key)}
    last, least = found["loss"].last, found["loss"].min
    assert (str(last), least, found["loss"].nonfinite) == ("nan", 2.0, 1)
    assert project.repository.head == made.id
    assert facts.staged_files(db) == []
    assert [(o.verb, o.summary) for o in facts.operations(db)] == [("commit", "lenet@1")]
    assert len(facts.operations(db)[0].facts) == 1


def test_nothing_to_commit(project: Project) -> None:
    with pytest.raises(UsageError, match="nothing staged"):
        project.commit()
    assert project.repository.head is None


def test_an_empty_commit(project: Project) -> None:
    project.write("w.safetensors", arrays())
    project.write("a.txt", "a")
    project.add()
    first = project.commit()
    second = project.commit("again", allow_empty=True)
    assert second.parents == (first.id,)
    before, after = project.manifest(first), project.manifest(second)
    assert (second.new, second.stored) == (0, 0)
    assert (
        dataclasses.replace(after, message=before.message, created=before.created, parents=())
        == before
    )


def test_the_first_commit_needs_a_name(project: Project) -> None:
    with pytest.raises(UsageError, match="named NAME@1,"):
        committing.commit(project.repository, Request("m", "me", allow_empty=True))


@pytest.mark.parametrize("name", ["a/b", "", "HEAD", "latest", "-x", "f" * 64])
def test_names_that_cannot_be(project: Project, name: str) -> None:
    # An empty name is none.
    with pytest.raises(UsageError, match=r"cannot be a name|requires --name"):
        committing.commit(project.repository, Request("m", "me", name, allow_empty=True))
    assert versions.all_versions(project.repository.database) == []


def test_a_tag_is_no_name(project: Project) -> None:
    made = project.commit(allow_empty=True)
    with project.repository.change("tag", "me") as change:
        change.record("tag", "paper", {"version": made.id})
    with pytest.raises(Conflict, match="`paper` is already a tag"):
        project.commit(name="paper", allow_empty=True)


@pytest.mark.parametrize("field", ["message", "author"])
def test_half_characters_are_refused(project: Project, field: str) -> None:
    texts = {"message": "m", "author": "me", field: "\ud800"}
    request = Request(texts["message"], texts["author"], "net", allow_empty=True)
    with pytest.raises(UsageError, match="valid Unicode"):
        committing.commit(project.repository, request)


# Parents


def test_parents(project: Project) -> None:
    one = project.commit(name="a", allow_empty=True)
    two = project.commit(name="b", allow_empty=True)
    both = project.commit(parents=["a", "b", "a@1"], allow_empty=True)
    assert both.parents == (one.id, two.id)
    assert both.name == "a"
    assert [p.kind for p in project.manifest(both).parents] == ["commit", "commit"]
    with pytest.raises(NotFound):
        project.commit(parents=["nothing"], allow_empty=True)


def test_what_copy_prepared(project: Project) -> None:
    one = project.commit(name="a", allow_empty=True)
    with project.repository.change("copy", "me") as change:
        change.set_next("fine", "copy")
    two = project.commit(allow_empty=True)
    assert (two.name, two.number) == ("fine", 1)
    assert [(p.id, p.kind) for p in project.manifest(two).parents] == [(one.id, "copy")]
    assert project.repository.next is None
    three = project.commit(allow_empty=True)
    assert (three.name, three.number) == ("fine", 2)
    assert project.manifest(three).parents[0].kind == "commit"


@pytest.mark.parametrize(("parent", "kind"), [("a@2", "copy"), ("a@1", "commit")])
def test_what_copy_prepared_holds_for_head_only(project: Project, parent: str, kind: str) -> None:
    project.commit(name="a", allow_empty=True)
    project.commit(allow_empty=True)
    with project.repository.change("copy", "me") as change:
        change.set_next("fine", "copy")
    made = project.manifest(project.commit(parents=[parent], allow_empty=True))
    assert [p.kind for p in made.parents] == [kind]


def test_an_orphan_is_a_new_model(project: Project) -> None:
    project.write("w.npz", {"w": np.ones(3, "f4")})
    project.write("train.py", "pass")
    project.add("w.npz", "train.py")
    project.commit(name="first", parameters={"lr": 0.1})
    project.write("v.npz", {"v": np.zeros(2, "f4")})
    project.add("v.npz")
    made = project.commit(name="second", orphan=True)
    manifest = project.manifest(made)
    assert made.parents == ()
    assert (made.base, made.parentage) == (None, "no parent (a new model)")
    assert [tensor.name for tensor in manifest.tensors] == ["v"]
    assert (manifest.files, manifest.hyperparameters) == ((), {})
    with pytest.raises(UsageError, match="--orphan and --parent cannot be"):
        project.commit(name="third", orphan=True, parents=["first"], allow_empty=True)
    with pytest.raises(UsageError, match="named NAME@1,"):
        project.commit(orphan=True, allow_empty=True)


LENET = {"conv1": np.ones((4, 3), "f4"), "fc": np.ones(4, "f4")}
PLAN = {
    "dlv_network": 1,
    "inputs": [{"name": "x", "shape": ["B", 3], "dtype": "float32"}],
    "nodes": [{"name": "fc", "op": "FULL", "attrs": {"out": 2}, "inputs": ["x"]}],
    "outputs": ["fc"],
}


@pytest.mark.parametrize(
    ("weights", "related"),
    [
        ({"fc": np.zeros(4, "f4"), "other": np.ones(9, "f4")}, True),
        ({"fc": np.zeros(5, "f4"), "conv1": np.ones((3, 4), "f4")}, False),
        ({"unlike": np.ones(4, "f4")}, False),
    ],
)
def test_the_parent_of_a_new_model(
    project: Project, weights: dict[str, Any], related: bool
) -> None:
    project.write("train.py", "pass")
    project.write("w.npz", LENET)
    project.add("train.py", "w.npz")
    first = project.commit(name="lenet")
    assert first.parentage == "no parent (a new model)"
    project.write("w.npz", weights)
    project.add("w.npz")
    made = project.commit(name="new")
    files = [file.path for file in project.manifest(made).files]
    if related:
        assert (made.parents, files) == ((first.id,), ["train.py"])
        assert made.parentage == "parent lenet@1; to start without one: --orphan"
    else:
        assert (made.parents, files) == ((), [])
        chosen = "to set one: dlv commit --parent lenet@1"
        assert made.parentage == f"no parent (a new model); {chosen}"
    project.write("w.npz", LENET)
    project.add("w.npz")
    again = project.commit(name="lenet")  # its own line, whatever HEAD is
    assert (again.parents, again.parentage) == ((first.id,), "parent lenet@1")


def test_a_network_relates_a_new_model_to_head(project: Project) -> None:
    project.write("net.json", json.dumps(PLAN))
    project.add("net.json")
    first = project.commit(name="plan")
    project.write("w.npz", {"elsewhere": np.ones(4, "f4")})
    project.add("w.npz")
    assert project.commit(name="weights").parents == ()
    with project.repository.change("checkout", "me") as change:
        change.set_head(first.id)
    project.add("net.json")
    assert project.commit(name="plan-b").parents == (first.id,)
    with project.repository.change("checkout", "me") as change:
        change.set_head(first.id)
    project.write("net.json", json.dumps(PLAN).replace('"out": 2', '"out": 3'))
    project.add("net.json")
    assert project.commit(name="plan-c").parents == ()


def test_without_weights_a_new_name_goes_on_from_head(project: Project) -> None:
    project.write("w.npz", LENET)
    project.add("w.npz")
    first = project.commit(name="lenet")
    made = project.commit(name="second", parameters={"lr": 1})
    assert made.parents == (first.id,)
    assert len(project.manifest(made).tensors) == 2


def test_files_of_one_step_in_two_folders_are_said(project: Project) -> None:
    for name in ("a/ckpt-5.npz", "b/ckpt-5.npz"):
        (project.root / name).parent.mkdir()
        project.write(name, {name[0]: np.ones(3, "f4")})
    project.add("a", "b")
    made = project.commit(name="m")
    assert [warning for warning in made.warnings if "a and b" in warning]


def test_explicit_parents_without_a_head(project: Project) -> None:
    one = project.commit(name="a", allow_empty=True)
    with project.repository.change("undo", "me") as change:
        change.set_head(None)
    made = project.commit(name="b", parents=["a"], allow_empty=True)
    assert made.parents == (one.id,)


def test_a_removed_head_still_is_a_parent(project: Project) -> None:
    one = project.commit(allow_empty=True)
    with project.repository.change("rm", "me") as change:
        change.record("removal", one.id, {"steps": None})
    two = project.commit(allow_empty=True)
    assert (two.number, two.parents) == (2, (one.id,))


# What is carried on


def everything(project: Project) -> Committed:
    project.write("ckpt-100.safetensors", arrays(1))
    project.write("ckpt-200.safetensors", arrays(2))
    project.write("log.csv", "step,loss\n1,2.0\n")
    project.write("config.json", '{"lr": 0.1}')
    project.write("network.json", json.dumps(NETWORK))
    project.write("a.txt", "a")
    project.write("sub/b.txt", "b")
    project.add()
    return project.commit()


def test_without_new_weights_all_of_them_stay(project: Project) -> None:
    before = project.manifest(everything(project))
    project.write("a.txt", "new")
    project.add("a.txt")
    after = project.manifest(project.commit())
    for field in ("tensors", "snapshots", "own", "network", "hyperparameters", "series"):
        assert getattr(after, field) == getattr(before, field)
    assert {e.path: e.blake3 for e in before.files} != {e.path: e.blake3 for e in after.files}
    assert [e.path for e in after.files] == [e.path for e in before.files]


def test_new_weights_take_the_place_of_the_old_and_their_curves(project: Project) -> None:
    before = project.manifest(everything(project))
    project.write("ckpt-300.safetensors", arrays(3))
    project.add("ckpt-300.safetensors")
    after = project.manifest(project.commit())
    assert [s.step for s in after.snapshots] == [300]
    assert after.series == ()
    assert after.network == before.network
    assert after.hyperparameters == before.hyperparameters
    assert after.files == before.files


def test_a_network_that_no_longer_fits_is_left_out_with_a_word(project: Project) -> None:
    everything(project)
    project.write("ckpt-300.safetensors", arrays(3, **{"conv.weight": (8, 3, 3, 3)}))
    project.add("ckpt-300.safetensors")
    made = project.commit()
    assert project.manifest(made).network is None
    assert "does not fit these weights" in made.warnings[0]


def test_a_new_config_replaces_the_old_one(project: Project) -> None:
    everything(project)
    project.write("config.json", '{"epochs": 3}')
    project.add("config.json")
    assert project.manifest(project.commit()).hyperparameters == {"epochs": 3}
    made = project.commit(parameters={"lr": 0.5, "opt": {"name": "adam"}})
    assert project.manifest(made).hyperparameters == {"epochs": 3, "lr": 0.5, "opt.name": "adam"}


def test_newer_series_replace_those_of_their_name(project: Project) -> None:
    everything(project)
    made = project.commit(series=[Scalars("", "acc", [1], [0.0], [0.5])])
    assert [s.tag for s in project.manifest(made).series] == ["loss", "acc"]
    newer = Scalars("", "loss", [1, 2], [0.0, 0.0], [2.0, 1.0])
    after = project.manifest(project.commit(series=[newer]))
    assert sorted(s.tag for s in after.series) == ["acc", "loss"]
    row = versions.by_id(project.repository.database, after.id)
    assert row is not None
    found = {s.tag: s.last for s in metrics.of_version(project.repository.database, row.key)}
    assert found == {"acc": 0.5, "loss": 1.0}


def test_removed_files_leave(project: Project) -> None:
    before = project.manifest(everything(project))
    project.remove("sub", "ckpt-100.safetensors")
    after = project.manifest(project.commit())
    assert [e.path for e in after.files] == ["a.txt", "config.json", "log.csv", "network.json"]
    assert after.tree != before.tree
    assert [s.step for s in after.snapshots] == [200]
    assert after.own == 0
    assert after.series == before.series
    assert (project.root / "sub/b.txt").exists()
    project.remove("network.json")
    assert project.manifest(project.commit()).network is None
    project.remove("ckpt-200.safetensors", "a.txt", "config.json", "log.csv")
    last = project.manifest(project.commit())
    assert (last.tensors, last.snapshots, last.own) == ((), (), None)
    assert (last.files, last.tree) == ((), None)


def test_the_own_weights_removed(project: Project) -> None:
    everything(project)
    project.remove("ckpt-200.safetensors")
    after = project.manifest(project.commit())
    assert [s.step for s in after.snapshots] == [100]
    assert after.own == 0


def test_a_path_has_one_role(project: Project) -> None:
    """Weights that were a plain file before, and the other way round."""
    project.write("model.safetensors", arrays())
    project.write("a.txt", "a")
    project.add("a.txt")
    project.add("model.safetensors", role="file")
    one = project.manifest(project.commit())
    assert [e.path for e in one.files] == ["a.txt", "model.safetensors"]
    project.add("model.safetensors")
    two = project.manifest(project.commit())
    assert [e.path for e in two.files] == ["a.txt"]
    assert two.snapshots[0].containers[0].path == "model.safetensors"
    project.add("model.safetensors", role="file")
    three = project.manifest(project.commit())
    assert [e.path for e in three.files] == ["a.txt", "model.safetensors"]
    assert three.snapshots == ()


# What is refused


def test_a_file_that_changed_since_it_was_added(project: Project) -> None:
    path = project.write("a.txt", "aaaa")
    project.add()
    path.write_text("bbbbb")
    with pytest.raises(Conflict, match=r"a\.txt changed") as found:
        project.commit()
    assert found.value.exit_code == 5
    path.unlink()
    with pytest.raises(Conflict) as found:
        project.commit()
    assert found.value.why == "it is missing"
    assert project.repository.head is None


@pytest.mark.parametrize("name", ["a.txt", "w.safetensors", "w.npz", "config.json", "log.csv"])
def test_the_same_size_and_time_hide_nothing(project: Project, name: str) -> None:
    contents: dict[str, tuple[bytes, bytes]] = {
        "a.txt": (b"aaaa", b"bbbb"),
        "w.safetensors": (save(arrays(1)), save(arrays(2))),
        "w.npz": (npz(arrays(1)), npz(arrays(2))),
        "config.json": (b'{"lr": 1}', b'{"lr": 2}'),
        "log.csv": (b"step,loss\n1,2\n", b"step,loss\n1,3\n"),
    }
    old, new = contents[name]
    assert len(old) == len(new)
    path = project.write(name, old)
    status = path.stat()
    project.add()
    path.write_bytes(new)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(Conflict, match="changed after it was staged"):
        project.commit()
    assert versions.all_versions(project.repository.database) == []
    assert len(facts.staged_files(project.repository.database)) == 1


def npz(values: Arrays) -> bytes:
    path = Path(os.environ.get("TMPDIR", "/tmp")) / f"commit-{os.getpid()}.npz"
    np.savez(path, **values)
    data = path.read_bytes()
    path.unlink()
    return data


@pytest.mark.parametrize(
    "value",
    [object(), np.float32(1.0), {1, 2}, 2**64, "\ud800", [object()], {"a": {"b": b"bytes"}}],
    ids=lambda value: type(value).__name__,
)
def test_hyperparameters_that_cannot_be_kept(project: Project, value: Any) -> None:
    with pytest.raises(UsageError, match="hyperparameter"):
        project.commit(parameters={"x": value})


def test_hyperparameters_of_every_kind(project: Project) -> None:
    given = {"a": 1, "b": float("nan"), "c": [1, float("inf")], "d": None, "e": {"f": True}}
    made = project.commit(parameters=given)
    assert project.manifest(made).hyperparameters == {
        "a": 1,
        "b": "NaN",
        "c": '[1,"Infinity"]',
        "d": None,
        "e.f": True,
    }


def test_two_networks(project: Project) -> None:
    project.write("a.json", json.dumps(NETWORK))
    project.write("b.json", json.dumps(NETWORK))
    project.add("a.json", "b.json")
    with pytest.raises(Conflict, match="more than one network"):
        project.commit()


def test_a_series_from_two_logs(project: Project) -> None:
    project.write("a/log.csv", "step,loss\n1,2\n")
    project.write("b/log.csv", "step,loss\n1,2\n")
    project.add()
    with pytest.raises(Conflict, match="`loss` is in two logs") as caught:
        project.commit()
    assert caught.value.why == "both are named `log`"
    project.add("b/log.csv", role="file")
    project.commit()


@pytest.mark.parametrize("name", ["curves.out", "curves"])
def test_a_type_that_was_given_counts_at_the_commit_too(project: Project, name: str) -> None:
    # By itself it is a text: `l$oss` is no heading that anyone would take for one.
    project.write(name, "step,l$oss\n1,2\n")
    project.write("hyper.txt", "lr = 0.1\n")
    project.add(name, role="log", format="csv")
    project.add("hyper.txt", role="config", format="toml")
    made = project.manifest(project.commit())
    assert [s.tag for s in made.series] == ["l$oss"]
    assert made.hyperparameters == {"lr": 0.1}


def test_logs_of_other_names_are_runs(project: Project) -> None:
    project.write("train.csv", "step,loss\n1,2\n")
    project.write("val.csv", "step,loss\n1,2\n")
    project.add()
    made = project.manifest(project.commit())
    assert [(s.run, s.tag) for s in made.series] == [("train", "loss"), ("val", "loss")]


def test_an_error_leaves_the_repository_as_it_was(project: Project) -> None:
    everything(project)
    project.write("ckpt-300.safetensors", arrays(9))
    project.write("x.json", json.dumps(NETWORK))
    project.write("y.json", json.dumps(NETWORK))
    project.add("ckpt-300.safetensors", "x.json", "y.json")
    before = (project.pack_bytes, project.repository.head)
    rows = [project.repository.database.table(t) for t in ("version", "chunk", "fact", "staged")]
    with pytest.raises(Conflict, match="more than one network"):
        project.commit()
    assert (project.pack_bytes, project.repository.head) == before
    assert rows == [
        project.repository.database.table(t) for t in ("version", "chunk", "fact", "staged")
    ]
    assert list(project.repository.tmp.iterdir()) == []


# What is stored


def test_unchanged_weights_cost_nothing(project: Project) -> None:
    everything(project)
    size = project.pack_bytes
    for name in ("ckpt-100.safetensors", "ckpt-200.safetensors"):
        os.utime(project.root / name, ns=(1, 1))
    project.add()
    made = project.commit("the same again")
    assert (made.new, made.stored, project.pack_bytes) == (0, 0, size)
    assert made.number == 2


def test_frozen_layers_are_stored_once(project: Project) -> None:
    frozen = arrays(1, backbone=(256, 256))
    project.write("ckpt-1.safetensors", {**frozen, **arrays(2, head=(4, 4))})
    project.write("ckpt-2.safetensors", {**frozen, **arrays(3, head=(4, 4))})
    project.add()
    made = project.commit()
    assert (made.matrices, made.new, made.snapshots) == (3, 3, 2)
    assert made.stored < frozen["backbone"].nbytes * 1.1
    project.write("ckpt-2.safetensors", {**frozen, **arrays(4, head=(4, 4))})
    project.add("ckpt-2.safetensors")
    made = project.commit()
    assert (made.matrices, made.new) == (2, 1)
    assert made.stored < 2000


def test_two_formats_share_matrices(project: Project) -> None:
    values = arrays(1)
    project.write("w.safetensors", values)
    project.add()
    project.commit()
    np.savez(project.root / "w.npz", **values)
    project.add("w.npz")
    made = project.commit()
    assert (made.matrices, made.new) == (3, 0)
    assert project.file(made, "w.npz") == (project.root / "w.npz").read_bytes()


def test_several_threads_store_the_same(project: Project, tmp_path: Path) -> None:
    other = Project(tmp_path / "other")
    for one in (project, other):
        one.write("w.safetensors", arrays(1, a=(300, 300), b=(7,), c=(500, 100)))
        one.add()
    project.commit(jobs=1)
    other.commit(jobs=4)
    names = [
        sorted(p.name for p in one.repository.packs.rglob("*.pack")) for one in (project, other)
    ]
    assert names[0] == names[1]
    other.repository.close()


# Several at once


def test_concurrent_commits_get_their_own_numbers(project: Project) -> None:
    project.commit(allow_empty=True)
    code = """
import sys, numpy as np
from pathlib import Path
import dlv
with dlv.open(sys.argv[1]) as repo:
    for turn in range(4):
        rng = np.random.default_rng(int(sys.argv[2]) * 10 + turn)
        weights = {"shared": np.ones((50, 50), "f4"), "w": rng.normal(size=(20, 20))}
        repo.commit("m", name="net", weights=weights)
"""
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(project.root), str(number)],
            env=dict(os.environ, PYTHONPATH=HOME, DLV_USER_NAME="x"),
            stderr=subprocess.PIPE,
        )
        for number in range(3)
    ]
    for writer in writers:
        _, err = writer.communicate(timeout=120)
        assert (writer.returncode, err) == (0, b"")
    found = versions.all_versions(project.repository.database)
    assert sorted(v.number or 0 for v in found) == list(range(1, 14))
    store = MatrixStore.of(project.repository)
    for version in found:
        for snapshot in project.manifest(version.id).snapshots:
            for digest in snapshot.hashes:
                assert digest is not None
                store.matrix(digest)


def test_of_two_commits_at_once_one_has_what_is_staged(project: Project) -> None:
    project.write("w.safetensors", arrays())
    project.add()
    turns: list[int] = []

    def meanwhile(_: int) -> None:
        turns.append(0)
        if len(turns) == 1:
            with Repository.find(project.root) as other:
                committing.commit(other, Request("first", "x", name="net"))

    with pytest.raises(Conflict, match=r"w\.safetensors is no longer staged") as caught:
        project.commit(progress=meanwhile)
    assert caught.value.hint == "dlv status"
    (only,) = versions.all_versions(project.repository.database)
    assert (only.message, only.number) == ("first", 1)


def test_what_is_added_meanwhile_stays_staged(project: Project) -> None:
    """A file that is added anew while a commit runs is not swallowed by that commit."""
    path = project.write("a.txt", "old")
    project.write("w.safetensors", arrays())
    project.add()

    def meanwhile(_: int) -> None:
        other = Repository.find(project.root)
        thread_done = threading.Event()

        def add_again() -> None:
            with Repository.find(project.root) as fresh:
                old = path.stat()
                path.write_text("new")
                adding.add(fresh, project.root, ["a.txt"], AddRequest())
                path.write_text("old")
                os.utime(path, ns=(old.st_atime_ns, old.st_mtime_ns))
            thread_done.set()

        worker = threading.Thread(target=add_again)
        worker.start()
        worker.join()
        assert thread_done.is_set()
        other.close()

    project.commit(progress=meanwhile)
    left = facts.staged_files(project.repository.database)
    assert [(f.path, f.hash) for f in left] == [("a.txt", canonical.hash_bytes(b"new"))]


def test_one_staged_path_twice(project: Project) -> None:
    project.write("w.safetensors", arrays())
    project.add()
    waiting = facts.staged_files(project.repository.database)
    with pytest.raises(Conflict, match="twice"):
        project.commit(staged=[*waiting, *waiting])


# torch


def test_torch_checkpoints_come_back(project: Project) -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
    model[1].weight = model[0].weight  # tied
    optimizer = torch.optim.Adam(model.parameters(), lr=0.25)
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 7}
    torch.save(state, project.root / "ckpt.pt")
    original = (project.root / "ckpt.pt").read_bytes()
    project.add()
    made = project.commit()
    manifest = project.manifest(made)
    assert project.file(made, "ckpt.pt") == original
    assert manifest.snapshots[0].step == 7
    roles = {t.name: t.role for t in manifest.tensors}
    assert "optimizer" in roles.values()
    ties = {t.name: t.tied for t in manifest.tensors if t.tied}
    assert len(ties) >= 1
    project.add(optimizer="drop")
    dropped = project.manifest(project.commit())
    assert "optimizer" not in {t.role for t in dropped.tensors}
    assert made.matrices > len(set(dropped.snapshots[0].hashes))


def test_ties_of_one_snapshot_do_not_bind_another(project: Project) -> None:
    """Tied at step 1, apart at step 2: a fresh file of step 2 holds both."""
    torch = pytest.importorskip("torch")
    one = torch.arange(4.0)
    torch.save({"a": one, "b": one}, project.root / "ckpt-1.pt")
    torch.save({"a": one, "b": one + 1}, project.root / "ckpt-2.pt")
    project.add()
    made = project.commit()
    manifest = project.manifest(made)
    assert [t.tied for t in manifest.tensors] == [None, "a"]
    store = MatrixStore.of(project.repository)
    for snapshot, b in zip(manifest.snapshots, (one, one + 1), strict=True):
        for format_ in ("pt", "safetensors"):
            target = project.root / f"fresh.{format_}"
            tensors = snapshots.tensors_of(manifest, snapshot, range(2), store.matrix)
            with target.open("wb") as out:
                snapshots.save(out, format_, tensors, {})
            if format_ == "pt":
                found = torch.load(target, weights_only=True)
            else:
                found = {
                    k: torch.from_numpy(v.copy()) for k, v in load(target.read_bytes()).items()
                }
            assert torch.equal(found["b"], b), (format_, snapshot.step)
    # With the kept tensor gone, nothing is tied to it any more.
    torch.save({"b": one}, project.root / "ckpt-3.pt")
    torch.save({"a": one, "b": one}, project.root / "ckpt-1.pt")
    project.add("ckpt-1.pt", "ckpt-3.pt")
    project.commit()
    project.remove("ckpt-1.pt")
    last = project.manifest(project.commit())
    assert [(t.name, t.tied) for t in last.tensors] == [("b", None)]


def test_progress_and_totals(project: Project) -> None:
    everything(project)
    project.write("ckpt-300.safetensors", arrays(5))
    project.write("ckpt-400.safetensors", arrays(6))
    project.add("ckpt-300.safetensors", "ckpt-400.safetensors")
    totals: list[int] = []
    steps: list[int] = []
    project.commit(total=totals.append, progress=steps.append)
    assert totals == [sum(steps)]
    assert len(steps) == 2


def test_a_damaged_base_is_named(project: Project) -> None:
    made = everything(project)
    path = project.repository.manifests / made.id[:2] / f"{made.id}.json"
    path.chmod(0o644)
    path.write_bytes(path.read_bytes() + b" ")
    project.repository._decoded.clear()
    with pytest.raises(DlvError) as found:
        project.commit(allow_empty=True)
    assert found.value.exit_code == 6
    assert made.id[:12] in found.value.message


@pytest.mark.parametrize("role", [None, "network"])
def test_an_onnx_file_that_is_read_wrongly(
    project: Project, monkeypatch: pytest.MonkeyPatch, role: str | None
) -> None:
    """Each network is held against its file, once; what differs is kept as it is in the file."""
    made = onnx_models.model(
        [onnx_models.op("Gemm", "x w", "h"), onnx_models.op("Relu", "h")],
        {"x": ["B", 6]},
        {"w": onnx_models.array(6, 4)},
    )

    def wrong(call: Any) -> None:
        call.emit("RELU", {"slope": 0.5}, (call.port(0),))

    monkeypatch.setitem(onnx_network.READERS, "Relu", wrong)
    monkeypatch.setattr(
        imported, "keep_agreeing_apart", imported.keep_agreeing
    )  # another process has right rules
    project.write("m.onnx", made.SerializeToString())
    project.add("m.onnx", role=role)
    found = project.commit()
    [warning] = [each for each in found.warnings if "computes something different" in each]
    assert warning.startswith("m.onnx: Relu is stored as it is in the file")
    with dlv.open(project.root) as repo:
        network = repo["net"].network
    assert network is not None
    assert [node.op for node in network.nodes] == ["FULL", "OP"]


def test_what_became_of_files_is_told(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.write("w.safetensors", {"w": np.ones(3, "f4")})
    project.write("a.txt", "a")
    project.write("b.txt", "b")
    project.add()
    assert str(project.commit().files) == "+3 ~0 -0 files"
    project.write("b.txt", "other")
    project.write("c.txt", "c")
    project.add()
    project.remove("a.txt", "w.safetensors")
    second = project.commit()
    assert str(second.files) == "+1 ~1 -2 files"
    assert second.warnings == (
        "this version has no weights, unlike net@1; to take it back: dlv undo",
    )
    project.write("d.txt", "d")
    project.add("d.txt")
    assert project.commit().warnings == ()


def test_a_lost_network_is_told(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.write("net.json", '{"dlv_network": 1, "inputs": [], "nodes": [], "outputs": []}')
    project.add()
    project.commit()
    project.remove("net.json")
    assert project.commit().warnings == (
        "this version has no network, unlike net@1; to take it back: dlv undo",
    )


def stage_tracked(project: Project) -> None:
    committing.stage_tracked(
        *(project.repository, lambda kind, path: adding.open_weights(path, kind)),
        lambda path: path.endswith("test.npz"),
        optimizer="keep",
    )


def test_stage_what_is_tracked(project: Project) -> None:
    for step in (1, 2):
        project.write(f"ckpt-{step}.safetensors", {"w": np.full(3, step, "f4")})
    project.write("package.json", '{"a": 1}')
    project.write("config.json", '{"lr": 1}')
    project.write("gone.txt", "gone")
    project.add()
    first = project.commit()
    stage_tracked(project)
    assert facts.staged_files(project.repository.database) == []
    project.write("ckpt-2.safetensors", {"w": np.full(3, 7, "f4")})
    project.write("package.json", '{"a": 2}')
    project.write("config.json", '{"lr": 2}')
    project.write("new.txt", "not tracked")
    (project.root / "gone.txt").unlink()
    stage_tracked(project)
    second = project.commit()
    assert str(second.files) == "+0 ~3 -1 files"
    manifest = project.manifest(second)
    assert [snapshot.step for snapshot in manifest.snapshots] == [1, 2]
    roles = {entry.path: entry.role for entry in manifest.files}
    assert roles == {"config.json": "config", "package.json": "file"}
    assert project.manifest(first).snapshots[0].hashes == manifest.snapshots[0].hashes
