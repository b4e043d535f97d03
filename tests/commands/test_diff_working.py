"""`dlv diff` with the working directory: what is changed, staged, missing, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

Dlv = Callable[..., Any]


def differing(document: dict[str, Any]) -> dict[str, list[str]]:
    """What differs, by section: names of files and hyperparameters, names of tensors."""
    return {
        "files": [row["path"] for row in document["files"]],
        "params": [row["key"] for row in document["params"]],
        "tensors": [row["old"]["name"] for row in document["tensors"]],
    }


@pytest.fixture
def trained(dlv: Dlv, workspace: Path) -> Path:
    dlv("init")
    save_file(
        {"a": np.arange(6, dtype=np.float32), "b": np.ones(3, np.float32)},
        workspace / "w.safetensors",
    )
    (workspace / "config.json").write_text(json.dumps({"lr": 0.1, "seed": 1}))
    (workspace / "train.py").write_text("print(1)\n")
    dlv("add", ".")
    dlv("commit", "-m", "First", "--name", "net")
    return workspace


def test_nothing(dlv: Dlv, trained: Path) -> None:
    found = dlv("diff", "--exit-code", json=True)
    assert (found.code, found.document["same"]) == (0, True)
    assert found.document["versions"][1]["id"] is None


def test_files_and_hyperparameters(dlv: Dlv, trained: Path) -> None:
    (trained / "config.json").write_text(json.dumps({"lr": 0.2, "seed": 1}))
    (trained / "train.py").unlink()
    (trained / "notes.txt").write_text("not tracked\n")
    found = dlv("diff", "--exit-code", json=True)
    assert found.code == 1
    names = differing(found.document)
    assert names == {"files": ["config.json", "train.py"], "params": ["lr"], "tensors": []}
    assert "the working directory against net@1" in dlv("diff").stdout


def test_changed_weights(dlv: Dlv, trained: Path) -> None:
    save_file(
        {"a": np.arange(6, dtype=np.float32) + 1, "b": np.ones(3, np.float32)},
        trained / "w.safetensors",
    )
    (row,) = dlv("diff", "HEAD", json=True).document["tensors"]
    assert (row["old"]["name"], row["status"], row["changed"]) == ("a", "changed", 6)
    assert row["max_abs"] == 1.0


def test_staged_weights_take_the_place_of_all(dlv: Dlv, trained: Path) -> None:
    save_file({"a": np.zeros(6, np.float32)}, trained / "step-5.safetensors")
    dlv("add", "step-5.safetensors")
    rows = dlv("diff", json=True).document["tensors"]
    assert {row["status"] for row in rows} == {"changed", "removed"}


def test_against_another_version(dlv: Dlv, trained: Path) -> None:
    (trained / "train.py").write_text("print(2)\n")
    dlv("commit", "-a", "-m", "Second")
    assert dlv("diff", "--exit-code").code == 0
    assert differing(dlv("diff", "net@1", json=True).document)["files"] == ["train.py"]


@pytest.mark.parametrize(("words", "code"), [(["--planes", "2"], 2), (["nope"], 4)])
def test_refused(dlv: Dlv, trained: Path, words: list[str], code: int) -> None:
    assert dlv("diff", *words).code == code


def test_before_the_first_commit(dlv: Dlv, workspace: Path) -> None:
    dlv("init")
    assert dlv("diff").code == 4
