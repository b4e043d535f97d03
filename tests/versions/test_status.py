"""What `status` finds in a working folder."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

import dlv.upkeep.collect as collect
import dlv.versions.add as adding
import dlv.versions.checkout as checkouts
import dlv.versions.commit as committing
import dlv.versions.status as status
from dlv.adapters import detect
from dlv.adapters.checkpoint import Beside, Checkpoint, Tensor
from dlv.adapters.onnx.writer import save_network
from dlv.disk.paths import Folder
from dlv.disk.user_files import Batch
from dlv.errors import Conflict
from dlv.network.graph import Input, Network, Node
from dlv.repository.handle import Repository
from dlv.versions.status import Status

FULL = {"out": 400, "bias": False, "layout": "out_in"}


def opened(format_: str, path: Path) -> Checkpoint:
    return adding.open_weights(path, format_)


def weights(path: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    save_file({"w": rng.normal(size=(4, 3)).astype("f4")}, path)


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository.init(tmp_path)[0]


def add(repository: Repository, *names: str) -> None:
    adding.add(repository, repository.root, names, adding.Request())


def commit(repository: Repository, name: str | None = None) -> None:
    committing.commit(repository, committing.Request("m", "Ada", name))


def look(repository: Repository) -> Status:
    return status.status(repository, opened, detect.is_data_set)


def untracked(repository: Repository) -> list[str]:
    return [item.path for item in look(repository).untracked]


def modified(repository: Repository) -> dict[str, str]:
    return {change.item.path: change.why for change in look(repository).modified}


def test_before_anything(repository: Repository) -> None:
    found = look(repository)
    assert found.head is None
    assert found.clean


def test_the_way_of_a_file(repository: Repository) -> None:
    root = repository.root
    weights(root / "w.safetensors", 1)
    (root / "train.py").write_text("pass")
    assert untracked(repository) == ["w.safetensors"]
    add(repository, ".")
    assert [c.file.path for c in look(repository).staged] == ["train.py", "w.safetensors"]
    assert untracked(repository) == []
    commit(repository, "m")
    assert look(repository).clean
    (root / "train.py").write_text("other")
    assert modified(repository) == {"train.py": "changed"}
    (root / "w.safetensors").unlink()
    assert modified(repository) == {"train.py": "changed", "w.safetensors": "missing"}


def test_the_same_bytes_written_again_are_no_change(repository: Repository) -> None:
    root = repository.root
    weights(root / "w.safetensors", 1)
    add(repository, ".")
    commit(repository, "m")
    weights(root / "w.safetensors", 1)
    os.utime(root / "w.safetensors", ns=(5, 5))
    assert look(repository).clean
    weights(root / "w.safetensors", 2)
    assert modified(repository) == {"w.safetensors": "changed"}


def test_a_staged_file_that_changed_is_named(repository: Repository) -> None:
    root = repository.root
    weights(root / "w.safetensors", 1)
    (root / "train.py").write_text("pass")
    add(repository, ".")
    os.utime(root / "train.py", ns=(5, 5))
    (root / "w.safetensors").unlink()
    problems = {c.file.path: c.problem for c in look(repository).staged}
    assert problems == {
        "train.py": "changed since it was staged",
        "w.safetensors": "missing since it was staged",
    }


def test_a_removal_is_staged_and_not_modified(repository: Repository) -> None:
    (repository.root / "train.py").write_text("pass")
    weights(repository.root / "w.safetensors", 1)
    add(repository, ".")
    commit(repository, "m")
    removed = adding.remove(repository, repository.root, ["train.py"])
    assert [mark.path for mark in removed.marks] == ["train.py"]
    (repository.root / "train.py").unlink()
    found = look(repository)
    assert [(c.file.path, c.file.role) for c in found.staged] == [("train.py", "removed")]
    assert found.modified == []


def test_taking_back_what_was_only_staged(repository: Repository) -> None:
    (repository.root / "train.py").write_text("pass")
    add(repository, ".")
    removed = adding.remove(repository, repository.root, ["train.py"])
    assert (removed.marks, removed.back) == ([], ["train.py"])
    assert look(repository).clean


def test_earlier_checkpoints_stay_known_while_they_are_the_same(repository: Repository) -> None:
    root = repository.root
    for step in (1, 2, 3):
        weights(root / f"ckpt-{step}.safetensors", step)
        add(repository, f"ckpt-{step}.safetensors")
        commit(repository, "m")
    assert look(repository).clean
    weights(root / "ckpt-1.safetensors", 9)
    for _ in range(2):  # also when what was found out is remembered
        assert untracked(repository) == ["ckpt-1.safetensors"]


def test_compressed_arrays_count_by_content(repository: Repository) -> None:
    path = repository.root / "w.npz"
    np.savez_compressed(path, a=np.zeros(500, "f4"))
    add(repository, "w.npz")
    commit(repository, "m")
    assert look(repository).clean
    np.savez(path, a=np.zeros(500, "f4"))
    assert look(repository).clean
    np.savez(path, a=np.ones(500, "f4"))
    assert modified(repository) == {"w.npz": "changed"}


def test_what_counts_as_weights(repository: Repository) -> None:
    root = repository.root
    (root / "runs").mkdir()
    weights(root / "runs" / "a.safetensors", 1)
    np.save(root / "b.npy", np.zeros(3))
    (root / "c.bin").write_bytes(b"anything")
    (root / "d.pt").write_bytes(b"\x80\x02.")
    (root / "e.pt").write_bytes(b"PK\x03\x04 and so on")
    (root / "f.npz").mkdir()
    (root / "g.txt").write_text("text")
    np.savez(root / "digits.npz", x=np.zeros(3), y=np.zeros(3))
    assert untracked(repository) == ["b.npy", "e.pt", "runs/a.safetensors"]
    (root / ".dlvignore").write_text("runs/\n*.npy\n")
    assert untracked(repository) == ["e.pt"]


def test_undone_by_hand(repository: Repository) -> None:
    """HEAD may stand elsewhere than the files: they are compared with HEAD."""
    root = repository.root
    for seed in (1, 2):
        weights(root / "w.safetensors", seed)
        add(repository, ".")
        commit(repository, "m")
    first = repository.manifest(repository.head or "").parents[0].id
    with repository.change("test") as change:
        change.set_head(first)
    assert modified(repository) == {"w.safetensors": "changed"}
    asked = checkouts.Request("HEAD", "Ada", root, opened)
    checkouts.checkout(repository, asked)  # the content is in a version: nothing is lost
    assert look(repository).clean


def test_nothing_is_written_where_nothing_can_be(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights(repository.root / "w.safetensors", 1)
    add(repository, ".")
    commit(repository, "m")
    os.utime(repository.root / "w.safetensors", ns=(5, 5))
    repository.database.execute("PRAGMA query_only = ON")
    assert look(repository).clean


def test_staged_weights_replace_all_others(repository: Repository) -> None:
    root = repository.root
    for step in (1, 2):
        weights(root / f"step-{step}.safetensors", step)
    (root / "train.py").write_text("pass")
    add(repository, ".")
    commit(repository, "m")
    for name in ("step-1.safetensors", "step-2.safetensors", "train.py"):
        (root / name).unlink()
    assert len(modified(repository)) == 3
    weights(root / "step-3.safetensors", 3)
    add(repository, "step-3.safetensors")
    assert modified(repository) == {"train.py": "missing"}
    weights(root / "step-2.safetensors", 4)  # changed, not added: worth saying
    assert modified(repository) == {"train.py": "missing", "step-2.safetensors": "changed"}


def test_weights_in_files_of_their_own_are_watched(repository: Repository) -> None:
    """An ONNX model whose tensors lie beside it: it is changed when these are."""
    array = np.ones((400, 4), "<f4")
    node = Node("fc", "FULL", attrs=FULL, inputs=(("x", 0),), params={"weight": "fc.weight"})
    network = Network((Input("x", ("B", 4)),), (node,), (("fc", 0),))
    tensor = Tensor("fc.weight", "float32", (400, 4), array.nbytes, array.tobytes)
    model, data = repository.root / "m.onnx", repository.root / "m.data"
    with model.open("wb") as out, data.open("wb") as second:
        save_network(out, network, [tensor], [], beside=Beside("m.data", lambda: second), most=900)
    add(repository, "m.onnx")
    assert look(repository).staged[0].problem is None
    array[3, 3] = 2
    data.write_bytes(array.tobytes())
    assert look(repository).staged[0].problem == "m.data changed since it was staged"
    with pytest.raises(Conflict) as caught:
        commit(repository, "net")
    assert caught.value.why == "m.data was changed"
    add(repository, "m.onnx")
    commit(repository, "net")
    for _ in range(2):  # the second time it is known by size and time
        assert modified(repository) == {}
    array[3, 3] = 1
    data.write_bytes(array.tobytes())
    for _ in range(2):
        assert modified(repository) == {"m.data": "changed"}
    # As a file it would be another one than the weights that are stored.
    add(repository, "m.data")
    with pytest.raises(Conflict, match=r"m\.data holds weights") as conflict:
        commit(repository, "net")
    assert conflict.value.hint == "add the model again: dlv add m.onnx"
    add(repository, "m.onnx")
    commit(repository, "net")
    assert modified(repository) == {}
    data.unlink()
    assert modified(repository) == {"m.data": "missing"}


def test_each_part_of_weights_in_several_files_is_watched(repository: Repository) -> None:
    """As in a Hugging Face folder."""
    folder = repository.root / "model"
    folder.mkdir()
    names = [f"model-0000{number}-of-00002.safetensors" for number in (1, 2)]
    for number, name in enumerate(names):
        save_file({f"w{number}": np.full((4, 3), number, "f4")}, folder / name)
    index = {"metadata": {}, "weight_map": {f"w{i}": name for i, name in enumerate(names)}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "config.json").write_text('{"model_type": "bert", "architectures": ["Bert"]}')
    add(repository, "model")
    commit(repository, "bert")
    assert look(repository).clean
    save_file({"w1": np.full((4, 3), 7, "f4")}, folder / names[1])
    assert modified(repository) == {f"model/{names[1]}": "changed"}


def test_what_a_killed_command_has_left(repository: Repository) -> None:
    """Named, but nothing to commit; gone with a gc, whoever lives keeps what is its own."""
    part = ".w.pt.0123456789abcdef.dlv-part"
    dead = [part, f".hidden/{part}", f"deep/{part}"]

    @contextmanager
    def silent(*_: object) -> Iterator[Any]:
        yield SimpleNamespace(advance=lambda _: None)

    with Batch(Folder(repository.root)) as batch:
        with batch.new("alive") as out:
            out.write(b"x")
        for name in (*dead, f".dlv/runs/{part}"):
            (repository.root / name).parent.mkdir(exist_ok=True)
            (repository.root / name).write_bytes(b"half")
        found = look(repository)
        assert {item.path: item.bytes for item in found.parts} == dict.fromkeys(dead, 4)
        assert found.clean
        plan = collect.plan(repository, collect.Request())
        done = collect.collect(repository, collect.Request(), progress=silent)
        assert plan.parts == done.parts
        assert plan.anything
        assert done.freed == sum(size for _, size in done.parts) == 16
        assert look(repository).parts == []
        batch.put()
    assert (repository.root / "alive").read_bytes() == b"x"
