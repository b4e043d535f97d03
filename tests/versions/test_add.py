"""`add` and the staging behind it: what a file is taken for, and what is refused or passed over."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save

import dlv.metadata.facts as facts
import dlv.versions.add as adding
from dlv.canonical import hash_bytes
from dlv.errors import Conflict, Damaged, NotFound, UnsafeInput, UsageError
from dlv.repository.handle import Repository
from dlv.versions.add import Added, Removed, Request
from dlv.versions.commit import Request as CommitRequest
from dlv.versions.commit import commit


class Desk:
    """A project that files are put on, and added from."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.repository, _ = Repository.init(root)

    def write(self, name: str, content: str | bytes | int = "x") -> Path:
        """An int is the seed of a weight file."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, int):
            content = save({"w": np.full((2, 2), content, "f4")})
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def add(self, *names: str | Path, here: Path | None = None, **request: Any) -> Added:
        given = [str(name) for name in names] or ["."]
        return adding.add(self.repository, here or self.root, given, Request(**request))

    def remove(self, *names: str, here: Path | None = None) -> Removed:
        return adding.remove(self.repository, here or self.root, names)

    @property
    def staged(self) -> dict[str, tuple[str, str, int | None]]:
        found = facts.staged_files(self.repository.database)
        return {file.path: (file.role, file.format, file.step) for file in found}

    def commit(self) -> None:
        commit(self.repository, CommitRequest("m", "me", "net"))


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(tmp_path / "project")
    yield desk
    desk.repository.close()


def test_roles_in_a_training_folder(desk: Desk) -> None:
    weights = ["best.safetensors", "checkpoint-500/model.safetensors", "epoch=3.safetensors"]
    weights += [f"model-0000{n}-of-00002.safetensors" for n in (1, 2)]
    for seed, name in enumerate(weights):
        desk.write(name, seed)
    desk.write("train.py", "import torch\n")
    desk.write("README.md", "# Hi\n")
    desk.write("config.json", '{"lr": 0.1}')
    desk.write("hparams.yaml", "lr: 0.1\n")
    desk.write("package.json", '{"name": "x"}')
    desk.write("model.index.json", json.dumps({"weight_map": {}}))
    desk.write("log.csv", "step,loss\n1,2\n")
    desk.write("trainer_state.json", '{"log_history": [{"step": 1, "loss": 2.0}]}')
    desk.write("arch.json", '{"dlv_network": 1, "inputs": [], "nodes": [], "outputs": []}')
    desk.write("legacy.pt", b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.")
    desk.write("__pycache__/train.pyc", b"x")
    desk.write(".git/config", "x")
    desk.write(".dlvignore", "README.md\n")
    added = desk.add()
    assert desk.staged == {
        ".dlvignore": ("file", "text", None),
        "arch.json": ("network", "network_json", None),
        "best.safetensors": ("weights", "safetensors", None),
        "checkpoint-500/model.safetensors": ("weights", "safetensors", 500),
        "config.json": ("config", "json", None),
        "epoch=3.safetensors": ("weights", "safetensors", 3),
        "hparams.yaml": ("config", "yaml", None),
        "log.csv": ("log", "csv", None),
        "model-00001-of-00002.safetensors": ("weights", "safetensors", None),
        "model-00002-of-00002.safetensors": ("weights", "safetensors", None),
        "model.index.json": ("file", "json", None),
        "package.json": ("file", "json", None),
        "train.py": ("file", "text", None),
        "trainer_state.json": ("log", "trainer_state", None),
    }
    assert [name for name, _ in added.skipped] == ["legacy.pt"]


BROKEN = {
    "cut.safetensors": b"\x10\x00\x00\x00\x00\x00\x00\x00{",
    "text.safetensors": b"<html>not found</html>",
    "empty.safetensors": b"",
    "empty.npz": b"",
    "text.onnx": b"version https://git-lfs.github.com/spec/v1\n",
    "cut.pt": b"PK\x03\x04broken",
    "cut.npz": b"PK\x03\x04broken",
    "text.h5": b"x",
    "empty.gguf": b"",
}


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.parametrize("given", [True, False])
def test_broken_weights_are_no_plain_files(desk: Desk, name: str, given: bool) -> None:
    """An error is better than a version that silently lacks its weights."""
    desk.write("train.py", "import torch\n")
    desk.write(name, BROKEN[name])
    with pytest.raises(Damaged, match=re.escape(name)):
        desk.add(*([name] if given else []))
    assert desk.staged == {}
    if name.startswith(("text", "empty")):
        with pytest.raises(Damaged, match="is not a valid") as caught:
            desk.add(name)
        assert f"dlv add {name} --as file" in (caught.value.hint or "")
    desk.add(name, role="file")
    assert desk.staged[name][0] == "file"


def test_what_is_recorded(desk: Desk) -> None:
    path = desk.write("a/w-step100.safetensors", 1)
    desk.add("a/w-step100.safetensors")
    [file] = facts.staged_files(desk.repository.database)
    status = path.stat()
    assert (file.path, file.source) == ("a/w-step100.safetensors", str(path))
    assert (file.bytes, file.mtime_ns) == (status.st_size, status.st_mtime_ns)
    assert file.hash == hash_bytes(path.read_bytes())
    assert (file.step, file.options) == (100, {"optimizer": "keep", "own": False})
    assert adding.changed(file) is None
    os.utime(path, ns=(1, 1))
    assert adding.changed(file) == "it was changed"
    path.unlink()
    assert adding.changed(file) == "it is missing"


def test_nothing_is_staged_if_one_of_the_named_is_refused(desk: Desk) -> None:
    desk.write("a.txt")
    desk.write("bad.safetensors", b"\x10\x00\x00\x00\x00\x00\x00\x00{")
    for name, kind in (("none", NotFound), ("bad.safetensors", Exception)):
        with pytest.raises(kind):
            desk.add("a.txt", name)
    assert desk.staged == {}


def test_names_that_are_not_there(desk: Desk) -> None:
    desk.write("train.py")
    with pytest.raises(NotFound) as found:
        desk.add("trian.py")
    assert found.value.did_you_mean == ["train.py"]
    with pytest.raises(NotFound):
        desk.add("gone/trian.py")
    with pytest.raises(UsageError, match="no format"):
        desk.add("train.py", format="safetensor")


def test_pipes_and_folders_do_not_hang(desk: Desk) -> None:
    os.mkfifo(desk.root / "pipe")
    desk.write("a.txt")
    with pytest.raises(UsageError, match="not a regular file"):
        desk.add("pipe")
    desk.add()
    assert list(desk.staged) == ["a.txt"]


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"role": "file"}, ("file", "safetensors", None)),
        ({"role": "weights"}, ("weights", "safetensors", 7)),
        ({"role": "snapshot"}, ("snapshot", "safetensors", 7)),
        ({"role": "data"}, ("data", "safetensors", None)),
        ({"step": 9}, ("weights", "safetensors", 9)),
        ({"step": 0}, ("weights", "safetensors", 0)),
    ],
)
def test_options(desk: Desk, options: dict[str, Any], wanted: tuple[Any, ...]) -> None:
    desk.write("ckpt-7.safetensors", 1)
    desk.add("ckpt-7.safetensors", **options)
    assert desk.staged == {"ckpt-7.safetensors": wanted}


def test_a_step_is_of_one_snapshot(desk: Desk) -> None:
    desk.write("a/w.safetensors", 1)
    desk.write("b/w.safetensors", 2)
    with pytest.raises(UsageError, match="one checkpoint"):
        desk.add("a", "b", step=5)
    desk.add("a", step=5)
    assert desk.staged["a/w.safetensors"][2] == 5


def test_files_without_tensors(desk: Desk) -> None:
    (desk.root / "empty.npz").write_bytes(b"PK\x05\x06" + bytes(18))
    (desk.root / "none.safetensors").write_bytes(save({}))
    with pytest.raises(UsageError, match="has no tensors"):
        desk.add("none.safetensors")


def test_pickles_are_refused_with_the_way_out(desk: Desk) -> None:
    desk.write("legacy.pt", b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.")
    with pytest.raises(UnsafeInput) as found:
        desk.add("legacy.pt")
    assert found.value.exit_code == 9
    desk.add("legacy.pt", role="file")
    assert desk.staged["legacy.pt"][0] == "file"


# Places


def test_from_a_folder_below(desk: Desk) -> None:
    desk.write("sub/a.txt")
    desk.write("b.txt")
    sub = desk.root / "sub"
    desk.add("a.txt", "../b.txt", here=sub)
    assert sorted(desk.staged) == ["b.txt", "sub/a.txt"]


def test_from_outside_the_project(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "elsewhere/run1").mkdir(parents=True)
    (tmp_path / "elsewhere/run1/a.txt").write_text("x")
    desk.write("here.txt", "x")
    (desk.root / "link.txt").symlink_to(tmp_path / "elsewhere/run1/a.txt")
    (desk.root / "inside.txt").symlink_to("here.txt")
    for given in (tmp_path / "elsewhere/run1/a.txt", desk.root / "link.txt"):
        with pytest.raises(UnsafeInput, match="is outside the project") as caught:
            desk.add(given)
    assert caught.value.why == f"it is a link to {tmp_path / 'elsewhere/run1/a.txt'}"
    assert desk.staged == {}
    added = desk.add()
    assert [name for name, _ in added.skipped] == ["link.txt"]
    assert sorted(desk.staged) == ["here.txt", "inside.txt"]
    assert len(desk.add(tmp_path / "elsewhere").skipped) == 1


def test_two_files_that_would_have_one_path(desk: Desk, tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "w.txt").write_text(folder)
    with pytest.raises(Conflict, match=r"would both be stored as `w\.txt`"):
        desk.add(tmp_path / "a/w.txt", tmp_path / "b/w.txt", outside=True)
    twice = (tmp_path / "a/w.txt", tmp_path / "a/w.txt", tmp_path / "a/../a/w.txt")
    desk.add(*twice, outside=True)


def test_a_project_behind_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    desk = Desk(tmp_path / "link")
    desk.write("sub/a.txt")
    desk.add("sub/a.txt")
    desk.add("sub/a.txt", here=tmp_path / "real")
    desk.add("a.txt", here=tmp_path / "link/sub")
    assert list(desk.staged) == ["sub/a.txt"]
    desk.repository.close()


def test_links_to_files_are_added_under_their_own_name(desk: Desk, tmp_path: Path) -> None:
    desk.write("blobs/cache", "content")
    (desk.root / "model.txt").symlink_to("blobs/cache")
    desk.add("model.txt")
    [file] = facts.staged_files(desk.repository.database)
    assert (file.path, file.hash) == ("model.txt", hash_bytes(b"content"))


@pytest.mark.parametrize("name", [".dlv/config.toml", ".git/config", "a\nb", "nul.txt"])
def test_paths_that_no_checkout_could_write(desk: Desk, name: str) -> None:
    desk.write(name)
    with pytest.raises(UnsafeInput):
        desk.add(name)


def test_names_that_collide(desk: Desk) -> None:
    desk.write("a.txt")
    desk.write("A.txt")
    with pytest.raises(UnsafeInput, match="collide"):
        desk.add()


def test_large_files_of_no_format(desk: Desk) -> None:
    with (desk.root / "big.bin").open("wb") as out:
        out.truncate(adding.LARGE_FILE + 1)
    added = desk.add()
    assert desk.staged == {}
    assert "is large" in added.skipped[0][1]


def test_a_log_with_its_columns(desk: Desk) -> None:
    desk.write("log.csv", "it,when,loss\n1,100,2\n2,200,1\n")
    desk.add("log.csv", step_column="it", time_column="when")
    [file] = facts.staged_files(desk.repository.database)
    assert file.options == {"step": "it", "time": "when"}
    [series] = adding.read_log(Path(file.source), "run", file.options)
    assert (series.run, series.tag) == ("run", "loss")
    assert (list(series.steps), list(series.walls)) == ([1, 2], [100.0, 200.0])
    with pytest.raises(UsageError):
        desk.add("log.csv", step_column="epoch")


def test_single_values(desk: Desk) -> None:
    path = desk.write("m.json", '{"acc": 0.5, "n": 3, "ok": true, "name": "x", "l": "NaN"}')
    series, skipped = adding.read_metrics(path)
    assert {s.tag: list(s.values) for s in series}["acc"] == [0.5]
    assert [s.tag for s in series] == ["acc", "n", "l"]
    assert skipped == ["ok", "name"]
    with pytest.raises(UsageError, match="has no metrics"):
        adding.read_metrics(desk.write("n.json", '{"name": "x"}'))


# Taking back


def test_removing(desk: Desk) -> None:
    for name in ("a.txt", "sub/b.txt", "sub/c.txt"):
        desk.write(name)
    desk.write("w.safetensors", 1)
    desk.add()
    desk.commit()
    assert adding.tracked_paths(desk.repository) == [
        "a.txt",
        "sub/b.txt",
        "sub/c.txt",
        "w.safetensors",
    ]
    removed = desk.remove("sub", "w.safetensors")
    assert [mark.path for mark in removed.marks] == ["sub/b.txt", "sub/c.txt", "w.safetensors"]
    assert removed.back == []
    assert {role for role, _, _ in desk.staged.values()} == {"removed"}
    # Adding it again takes the mark back.
    desk.add("sub/b.txt")
    assert desk.staged["sub/b.txt"][0] == "file"
    with pytest.raises(NotFound) as found:
        desk.remove("a.tx")
    assert found.value.did_you_mean == ["a.txt"]


def test_taking_back_what_was_only_staged(desk: Desk) -> None:
    desk.write("a.txt")
    desk.write("sub/b.txt")
    desk.write("subway.txt")
    desk.add()
    assert desk.remove("sub").back == ["sub/b.txt"]
    assert sorted(desk.staged) == ["a.txt", "subway.txt"]
    assert desk.remove(".").back == ["a.txt", "subway.txt"]
    assert desk.staged == {}
    with pytest.raises(NotFound):
        desk.remove("a.txt")


def test_removing_from_a_folder_below(desk: Desk) -> None:
    desk.write("sub/b.txt")
    desk.write("b.txt")
    desk.add()
    assert desk.remove("b.txt", here=desk.root / "sub").back == ["sub/b.txt"]
    assert list(desk.staged) == ["b.txt"]


def test_without_a_head_nothing_is_tracked(desk: Desk) -> None:
    assert adding.tracked_paths(desk.repository) == []
    with desk.repository.change("checkout", "me") as change:
        change.set_head("0" * 64)
    assert adding.tracked_paths(desk.repository) == []


MODEL = """
import os, sys
import torch

def model(): return torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU())
def leaves(): os._exit(0)
"""


def test_a_network_from_code_leaves_no_trace_of_the_code(desk: Desk) -> None:
    pytest.importorskip("torch", reason="the models are torch modules: dlv[torch]")
    desk.write("train.py", MODEL)
    added = desk.add("train.py", network="train.py:model", input_shapes=["1x3"])
    assert [file.path for file in added.files] == ["train.py", "train.py:model"]
    assert desk.staged["train.py:model"] == ("network", "exported", None)
    with pytest.raises(UsageError, match=r"leaves in train\.py ended its process"):
        desk.add("train.py", network="train.py:leaves", input_shapes=["1,3"])
    assert list(desk.repository.tmp.iterdir()) == []
    desk.commit()
    network = desk.repository.manifest(str(desk.repository.head)).network
    assert network is not None
    assert network.origin["importer"] == "torch.export"
