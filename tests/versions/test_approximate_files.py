"""Approximate weight files: near, within what the planes allow, and told apart from exact ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

import dlv.upkeep.check as check
import dlv.versions.add as adding
import dlv.versions.checkout as checkouts
import dlv.versions.commit as committing
from dlv.adapters import npz, safetensors
from dlv.adapters.checkpoint import Checkpoint
from dlv.errors import Conflict, UsageError
from dlv.repository.handle import Repository
from dlv.versions.checkout import CheckedOut, Request

rng = np.random.default_rng(5)
VALUES: dict[str, Any] = {
    "w": rng.normal(0, 1, (30, 40)).astype("f4"),
    "half": rng.normal(0, 1, (7, 5)).astype("f2"),
    "double": rng.normal(0, 1e-200, (7, 5)),
    "ints": rng.integers(-9, 9, (7, 5)),
    "odd": np.array([1.5, np.nan, -np.inf], "f4"),
    "none": np.zeros((0, 4), "f4"),
}


def opened(format_: str, path: Path) -> Checkpoint:
    return adding.open_weights(path, format_)


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    repository, _ = Repository.init(tmp_path)
    save_file(VALUES, tmp_path / "w.safetensors", {"made": "by hand"})
    np.savez(tmp_path / "sub.npz", **VALUES)
    (tmp_path / "notes.md").write_text("notes")
    adding.add(repository, tmp_path, ["."], adding.Request())
    committing.commit(repository, committing.Request("m", "Ada", "net"))
    return repository


def checkout(repository: Repository, planes: int, **options: Any) -> CheckedOut:
    options.setdefault("to", Path("out"))
    request = Request("net", "Ada", repository.root, opened, planes=planes, **options)
    return checkouts.checkout(repository, request)


def near(found: dict[str, Any], planes: int) -> None:
    for name in ("ints", "odd", "none"):
        assert found[name].tobytes() == VALUES[name].tobytes()
    digits = {1: (1.0, 1.0, 2.0**16), 2: (2.0**-7, 0, 2.0**-4), 3: (2.0**-15, 0, 2.0**-12)}[planes]
    for name, part in zip(("w", "half", "double"), digits, strict=True):
        assert found[name].dtype == VALUES[name].dtype
        assert (np.abs(found[name] - VALUES[name]) <= part * np.abs(VALUES[name])).all()
        assert (found[name] != VALUES[name]).any() == (part > 0)


@pytest.mark.parametrize("planes", [1, 2, 3])
def test_near_and_named_so(repository: Repository, planes: int) -> None:
    result = checkout(repository, planes)
    folder = repository.root / "out"
    word = f"{planes}-plane{'s' if planes > 1 else ''}"
    assert sorted(p.name for p in folder.iterdir()) == [
        "notes.md",
        f"sub.{word}.npz",
        f"w.{word}.safetensors",
    ]
    assert not result.head
    assert result.reading is not None
    assert not result.reading.exact
    assert result.reading.bytes_read < result.reading.bytes_whole
    near(load_file(folder / f"w.{word}.safetensors"), planes)
    near(dict(np.load(folder / f"sub.{word}.npz")), planes)
    with safe_open(folder / f"w.{word}.safetensors", "np") as file:
        told = file.metadata()
    assert told["approximate"] == f"from the first {planes} byte planes"
    assert told["dlv"] == result.version.id
    assert "made" not in told


def test_all_planes_are_exact(repository: Repository) -> None:
    result = checkout(repository, 8, format="npz")
    assert result.reading is not None
    assert result.reading.exact
    found = dict(np.load(repository.root / "out" / "w.8-planes.npz"))
    for name, values in VALUES.items():
        assert found[name].tobytes() == values.tobytes()


def test_added_it_is_another_matrix(repository: Repository) -> None:
    checkout(repository, 2)
    before = {h for s in repository.manifest(repository.head or "").snapshots for h in s.hashes}
    (repository.root / "out" / "w.2-planes.safetensors").rename(repository.root / "w.safetensors")
    adding.add(repository, repository.root, ["w.safetensors"], adding.Request())
    made = committing.commit(repository, committing.Request("rough", "Ada", "net"))
    manifest = repository.manifest(made.id)
    names = {t.name: i for i, t in enumerate(manifest.tensors)}
    for name, known in (("w", False), ("double", False), ("ints", True), ("odd", True)):
        assert any((s.hashes[names[name]] in before) == known for s in manifest.snapshots)
    assert not check.check(repository).faults


def test_refused(repository: Repository) -> None:
    for options in ({"to": None}, {"to": Path(".")}, {"weights": False}):
        with pytest.raises(UsageError):
            checkout(repository, 2, **options)
    assert not (repository.root / "w.2-planes.safetensors").exists()
    checkout(repository, 2)
    checkout(repository, 2)  # it is there already
    (repository.root / "out" / "w.2-planes.safetensors").write_bytes(b"of the user")
    with pytest.raises(Conflict, match="would overwrite"):
        checkout(repository, 2)
    checkout(repository, 2, force=True)


def test_only_named_files(repository: Repository) -> None:
    checkout(repository, 2, paths=["w.safetensors"])
    assert [p.name for p in (repository.root / "out").iterdir()] == ["w.2-planes.safetensors"]


def test_the_exact_file_does_not_change(repository: Repository) -> None:
    exact = (repository.root / "w.safetensors").read_bytes()
    checkout(repository, 2, to=Path("out"))
    request = Request("net", "Ada", repository.root, opened, to=Path("out"))
    checkouts.checkout(repository, request)
    assert (repository.root / "out" / "w.safetensors").read_bytes() == exact
    assert safetensors.open(str(repository.root / "out" / "w.safetensors")).tensors
    assert npz.open(str(repository.root / "out" / "sub.npz")).tensors
