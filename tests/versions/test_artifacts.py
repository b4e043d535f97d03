"""What a run left behind: weights, plain files, and what is not kept."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

import dlv.versions.artifacts as artifacts
from dlv.versions.artifacts import Gathered, Place, gather

FIXTURES = Path(__file__).parents[1] / "fixtures" / "torch"


def arrays(seed: int, *names: str) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=(3, 2)).astype("f4") for name in names or ("w", "b")}


def save(path: Path, values: dict[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file(values, path)
    return path


def kinds(gathered: Gathered) -> dict[str, tuple[str, int | None]]:
    return {file.path: (file.role, file.step) for file in gathered.files}


def test_weights_by_step_and_files(tmp_path: Path) -> None:
    save(tmp_path / "ckpt" / "epoch-3.safetensors", arrays(1))
    save(tmp_path / "model.safetensors", arrays(2))
    np.savez(tmp_path / "test.npz", x_test=np.zeros(3), y_test=np.zeros(3))
    (tmp_path / "config.json").write_text('{"lr": 1}')
    (tmp_path / "log.csv").write_text("step,loss\n1,2\n")
    (tmp_path / "evil.pkl").write_bytes(b"\x80\x04K\x01.")
    found = gather([Place(tmp_path, "run/")])
    assert kinds(found) == {
        "run/ckpt/epoch-3.safetensors": ("snapshot", 3),
        "run/model.safetensors": ("snapshot", None),
        "run/test.npz": ("data", None),
        "run/config.json": ("file", None),
        "run/log.csv": ("file", None),
    }
    assert found.skipped == [("run/evil.pkl", "a pickle, which could execute code")]


def test_a_pickle_of_objects_in_a_torch_file(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    torch.save(torch.nn.Linear(2, 2), tmp_path / "module.pt")
    torch.save(torch.nn.Linear(2, 2).state_dict(), tmp_path / "dict.pth")
    found = gather([Place(tmp_path, "")])
    assert kinds(found) == {"dict.pth": ("snapshot", None)}
    assert found.skipped[0][0] == "module.pt"


def test_the_first_place_counts(tmp_path: Path) -> None:
    save(tmp_path / "a" / "model.safetensors", arrays(1))
    save(tmp_path / "b" / "model.safetensors", arrays(2))
    save(tmp_path / "b" / "same.safetensors", arrays(1))
    save(tmp_path / "b" / "head.safetensors", arrays(3, "head"))
    found = gather([Place(tmp_path / "a", "a/"), Place(tmp_path / "b", "b/")])
    assert [f.path for f in found.files] == [
        *("a/model.safetensors", "b/head.safetensors", "b/same.safetensors")
    ]
    assert found.skipped == [
        ("b/model.safetensors", "b without a step is already in a/model.safetensors")
    ]


def test_other_shapes_are_another_model(tmp_path: Path) -> None:
    save(tmp_path / "step-1.safetensors", {"w": np.zeros((2, 2), "f4")})
    save(tmp_path / "step-2.safetensors", {"w": np.zeros((2, 3), "f4")})
    found = gather([Place(tmp_path, "")])
    assert list(kinds(found)) == ["step-1.safetensors"]
    assert "w is float32 [2, 3] here, float32 [2, 2] in other weights" in found.skipped[0][1]


def test_the_step_of_a_place(tmp_path: Path) -> None:
    save(tmp_path / "epoch-3.safetensors", arrays(1))
    found = gather([Place(tmp_path, "", 70)])
    assert kinds(found) == {"epoch-3.safetensors": ("snapshot", 70)}


def test_links_pipes_and_bad_names(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "key").write_text("secret")
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "link").symlink_to(secret / "key")
    (folder / "folder").symlink_to(secret)
    os.mkfifo(folder / "pipe")
    (folder / "CON").write_text("x")
    (folder / ".git").mkdir()
    (folder / ".git" / "config").write_text("x")
    found = gather([Place(folder, "")])
    assert found.files == []
    reasons = dict(found.skipped)
    assert reasons["link"] == reasons["folder"] == "a link"
    assert reasons["pipe"] == "not a regular file"
    assert set(reasons) == {"link", "folder", "pipe", "CON", ".git/config"}


def test_names_that_collide(tmp_path: Path) -> None:
    save(tmp_path / "model.safetensors", arrays(1))
    for name in ("a.txt", "A.txt"):
        (tmp_path / name).write_text(name)
    found = gather([Place(tmp_path, "")])
    assert list(kinds(found)) == ["model.safetensors"]
    assert found.skipped[0][0] == "2 files"


def test_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).write_bytes(bytes(1000))
    monkeypatch.setattr(artifacts, "MOST_FILES", 2500)
    assert list(kinds(gather([Place(tmp_path, "")]))) == ["a", "b"]
    monkeypatch.setattr(artifacts, "MOST_FILE", 999)
    assert kinds(gather([Place(tmp_path, "")])) == {}
    monkeypatch.setattr(artifacts, "MOST_NAMES", 2)
    found = gather([Place(tmp_path, "")])
    assert "more than 2 files" in found.skipped[0][1]
    deep = Path(tmp_path, *["x"] * 80)
    deep.mkdir(parents=True)
    (deep / "file").write_text("")
    monkeypatch.setattr(artifacts, "MOST_NAMES", 1000)
    assert "nested too deeply" in dict(gather([Place(tmp_path, "")]).skipped).values()


def test_a_network_is_one(tmp_path: Path) -> None:
    text = '{"dlv_network": 1, "inputs": [{"name": "x", "shape": ["B", 2], "dtype": "float32"}],'
    text += '"nodes": [{"name": "relu", "op": "RELU", "attrs": {}, "inputs": ["x"]}],'
    text += '"outputs": ["relu"]}'
    for name in ("a.json", "b.json"):
        (tmp_path / name).write_text(text)
    (tmp_path / "c.json").write_text('{"dlv_network": 1}')
    found = gather([Place(tmp_path, "")])
    assert kinds(found) == {
        "a.json": ("network", None),
        "b.json": ("file", None),
        "c.json": ("file", None),
    }
