"""The parts of staging that `commit` and others use by themselves."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file

import dlv.versions.add as adding
from dlv.canonical import dumps
from dlv.errors import DlvError, NotFound, UnsafeInput, UsageError
from dlv.metadata.facts import StagedFile
from dlv.versions.add import Request


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


# Paths in the version


@pytest.mark.parametrize(
    ("path", "above", "wanted"),
    [
        ("root/a.txt", "root", "a.txt"),
        ("root/sub/a.txt", "root/sub", "sub/a.txt"),
        ("root/sub/../a.txt", "root", "a.txt"),
        ("root/.dlv/runs/2026-x/checkpoints/s.safetensors", "root", "checkpoints/s.safetensors"),
        ("root/.dlv/runs/2026-x/metrics.jsonl", "root", "metrics.jsonl"),
        ("root/.dlv/other/x", "root", ".dlv/other/x"),
        ("away/run/a.txt", "away", "run/a.txt"),
        ("away/run/a.txt", "away/run", "a.txt"),
        ("rooted/a.txt", "rooted", "a.txt"),
    ],
)
def test_relative(tmp_path: Path, path: str, above: str, wanted: str) -> None:
    for folder in ("root/sub", "root/.dlv/runs/2026-x/checkpoints", "away/run", "rooted"):
        (tmp_path / folder).mkdir(parents=True)
    found = adding.relative(tmp_path / "root", tmp_path / path, tmp_path / above)
    assert found == wanted


def test_relative_through_links(tmp_path: Path) -> None:
    (tmp_path / "root/real").mkdir(parents=True)
    (tmp_path / "root/link").symlink_to("real")
    (tmp_path / "root/file").symlink_to("real/x")
    (tmp_path / "away").mkdir()
    (tmp_path / "root/out").symlink_to("../away")
    root = tmp_path / "root"
    # Folders are named as they are, files as they are called.
    assert adding.relative(root, root / "link/x", root) == "real/x"
    assert adding.relative(root, root / "file", root) == "file"
    assert adding.relative(root, root / "out/x", root) == "out/x"


# Marks


def test_removals() -> None:
    entries = ["a", "a.txt", "a/b", "a/c/d", "ab"]
    assert [m.path for m in adding.removals(entries, ["a"])] == ["a", "a/b", "a/c/d"]
    assert [m.path for m in adding.removals(entries, ["a/"])] == ["a", "a/b", "a/c/d"]
    assert [m.path for m in adding.removals(entries, ["ab", "a/c"])] == ["ab", "a/c/d"]
    for mark in adding.removals(entries, ["ab"]):
        assert mark == StagedFile("ab", "", "removed", "")
    with pytest.raises(NotFound) as found:
        list(adding.removals(entries, ["a.tx"]))
    assert "a.txt" in found.value.did_you_mean


def test_changed(root: Path) -> None:
    path = root / "x"
    path.write_bytes(b"12345")
    status = path.stat()
    known = StagedFile("x", str(path), "file", "text", None, 5, status.st_mtime_ns, "h")
    assert adding.changed(known) is None
    path.write_bytes(b"123456")
    os.utime(path, ns=(status.st_mtime_ns, status.st_mtime_ns))
    assert adding.changed(known) == "it was changed"
    path.write_bytes(b"12345")
    os.utime(path, ns=(1, status.st_mtime_ns + 1))
    assert adding.changed(known) == "it was changed"
    os.utime(path, ns=(1, status.st_mtime_ns))
    assert adding.changed(known) is None
    path.unlink()
    assert adding.changed(known) == "it is missing"


# Opening


def test_open_weights(root: Path) -> None:
    save_file({"w": np.ones(2, "f4")}, root / "w.safetensors")
    opened = adding.open_weights(root / "w.safetensors", "safetensors")
    assert [t.name for t in opened.tensors] == ["w"]
    opened.close()
    with pytest.raises(DlvError):
        adding.open_weights(root / "w.safetensors", "pt")
    with pytest.raises(DlvError):
        adding.open_weights(root / "w.safetensors", "hdf5")


def test_unsafe_weights_have_a_way_out(root: Path) -> None:
    (root / "m.pt").write_bytes(b"\x80\x02cos\nsystem\nq\x00X\x02\x00\x00\x00idq\x01\x85q\x02R.")
    with pytest.raises(UnsafeInput) as found:
        adding.examine(root, root, ["m.pt"], Request(role="weights"))
    assert found.value.hint


def test_the_step_of_a_file(root: Path) -> None:
    """Asked for, else in the name, else in the file."""
    from_file = {"step": "77"}
    for name, metadata, asked, wanted in (
        ("a.safetensors", {}, None, None),
        ("a-step5.safetensors", {}, None, 5),
        ("a-step5.safetensors", from_file, None, 5),
        ("b.safetensors", from_file, None, 77),
        ("b.safetensors", from_file, 3, 3),
        ("b.safetensors", from_file, 0, 0),
    ):
        save_file({"w": np.ones(1, "f4")}, root / name, metadata)
        [file] = adding.examine(root, root, [name], Request(step=asked)).files
        assert file.step == wanted, (name, metadata, asked)


def test_progress_is_told(root: Path) -> None:
    (root / "a.txt").write_bytes(b"x" * 1000)
    seen: list[int] = []
    adding.examine(root, root, ["a.txt"], Request(progress=seen.append))
    assert sum(seen) == 1000


def test_what_a_folder_holds_is_judged_one_by_one(root: Path) -> None:
    (root / "good.json").write_text('{"a": 1}')
    (root / "config.json").write_text('{"a": 1,,}')
    (root / "log.csv").write_text("step,loss\nx,y\n")
    added = adding.examine(root, root, ["."], Request())
    assert "good.json" in [file.path for file in added.files]
    passed_over = dict(added.skipped)
    assert all(reason for reason in passed_over.values())
    # Nothing of a folder is lost without a word.
    assert {file.path for file in added.files} | set(passed_over) == {
        "good.json",
        "config.json",
        "log.csv",
    }


@pytest.mark.parametrize(
    ("stem", "config"),
    [
        ("config", True),
        ("train_config", True),
        ("hparams", True),
        ("my-params", True),
        ("training.args", True),
        ("settings", True),
        ("hyper_parameters", True),
        ("package", False),
        ("reconfigure", False),
        ("vocab", False),
        ("argsort", False),
    ],
)
def test_which_json_is_a_config(root: Path, stem: str, config: bool) -> None:
    (root / f"{stem}.json").write_text('{"lr": 0.1}')
    [file] = adding.examine(root, root, ["."], Request()).files
    assert file.role == ("config" if config else "file")
    # Whoever names it means it.
    [file] = adding.examine(root, root, [f"{stem}.json"], Request()).files
    assert file.role == "config"


# Hyperparameters and metrics

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=4), VALUES, max_size=4))
def test_parameters_are_flat_and_canonical_or_refused(values: dict[str, Any]) -> None:
    try:
        found = adding.parameters(values)
    except UsageError:
        return
    assert dumps(found)
    for value in found.values():
        assert value is None or isinstance(value, (bool, int, float, str))


def test_parameters() -> None:
    assert adding.parameters({"a": {"b": {"c": 1}}, "d": []}) == {"a.b.c": 1, "d": "[]"}
    assert adding.parameters({}) == {}
    for bad in ({"a": 2**64}, {"a": "\ud800"}, {"a": [object()]}, {"a": {1}}, {1: 2, "1": 3}):
        with pytest.raises(UsageError) as found:
            adding.parameters(bad)  # type: ignore[arg-type]
        assert found.value.exit_code == 2
    with pytest.raises(UsageError, match="there twice"):
        adding.parameters({"a.b": 1, "a": {"b": 2}})


def test_deep_parameters_are_refused() -> None:
    deep: Any = []
    for _ in range(40):
        deep = [deep]
    with pytest.raises(UsageError):
        adding.parameters({"a": deep})
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(UsageError):
        adding.parameters({"a": deep})


def test_single_values_keep_their_kind(root: Path) -> None:
    (root / "m.yaml").write_text("acc: 1\nval: {loss: .inf, nan: .nan}\nflag: true\nlist: [1]\n")
    series, skipped = adding.read_metrics(root / "m.yaml")
    found = {s.tag: s.values[0] for s in series}
    assert found["acc"] == 1.0
    assert found["val.loss"] == float("inf")
    assert found["val.nan"] != found["val.nan"]
    assert skipped == ["flag", "list"]
    assert all((list(s.steps), list(s.walls)) == ([0], [0.0]) for s in series)
