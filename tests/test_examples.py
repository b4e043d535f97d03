"""The files of examples/digits are what its README says they are."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dlv.adapters.logs as metric_logs
import dlv.adapters.network_json as network_json
import dlv.adapters.registry as registry
import dlv.versions.add as adding
import dlv.versions.commit as committing
from dlv.network.verify import verify
from dlv.repository.handle import Repository
from dlv.versions.add import Request

DIGITS = Path(__file__).resolve().parent.parent / "examples" / "digits"
RUNS = {"base": 6, "head": 2, "five": 3, "reseed": 2}


def checkpoints(run: str) -> list[Path]:
    return sorted([*(DIGITS / run).glob("*.safetensors"), *(DIGITS / run).glob("*.pt")])


def tensors(path: Path) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    format_ = "pt" if path.suffix == ".pt" else "safetensors"
    opened = registry.adapter(format_).open(str(path))
    try:
        return {t.name: (t.dtype, t.shape, bytes(t.read())) for t in opened.tensors}
    finally:
        opened.close()


def settings(run: str) -> dict[str, Any]:
    if (DIGITS / run / "config.json").exists():
        found: dict[str, Any] = json.loads((DIGITS / run / "config.json").read_text())
        return found
    return tomllib.loads((DIGITS / run / "config.toml").read_text())


def test_is_small() -> None:
    assert sum(p.stat().st_size for p in DIGITS.rglob("*") if p.is_file()) < 2_000_000


@pytest.mark.parametrize("run", RUNS)
class TestRun:
    def test_checkpoints_have_the_steps_of_the_settings(self, run: str) -> None:
        config = settings(run)
        expected = range(config["checkpoint"], config["steps"] + 1, config["checkpoint"])
        assert {p.stem for p in checkpoints(run)} == {f"step-{step}" for step in expected}
        assert len(checkpoints(run)) == RUNS[run]

    def test_network_fits_the_weights(self, run: str) -> None:
        network, warnings = network_json.open(str(DIGITS / run / "network.json"))
        assert warnings == []
        for path in checkpoints(run):
            shapes = {
                name: (dtype, shape)
                for name, (dtype, shape, _) in tensors(path).items()
                if not name.startswith("optimizer.")
            }
            assert verify(network, shapes) == []

    def test_log_covers_the_run(self, run: str) -> None:
        (path,) = (DIGITS / run).glob("log.*")
        log = metric_logs.read(str(path))
        assert set(log.columns) == {"loss", "lr", "accuracy"}
        assert log.columns["loss"].steps == list(range(10, settings(run)["steps"] + 1, 10))
        assert log.columns["accuracy"].values[-1] > 0.95
        assert log.notes == []


def test_fine_tune_of_the_last_layer_shares_the_others() -> None:
    base = tensors(DIGITS / "base" / "step-600.safetensors")
    for path in checkpoints("head"):
        changed = {name for name, tensor in tensors(path).items() if tensor != base[name]}
        assert changed == {"fc2.weight", "fc2.bias"}


def test_test_data() -> None:
    with np.load(DIGITS / "test.npz") as data:
        assert data["x"].shape == (360, 1, 8, 8)
        assert data["x"].dtype == np.float32
        assert sorted(set(data["y"].tolist())) == list(range(10))


def test_add_understands_them(tmp_path: Path) -> None:
    for path in (*(DIGITS / "base").iterdir(), DIGITS / "train.py", DIGITS / "test.npz"):
        shutil.copy(path, tmp_path)
    repository, _ = Repository.init(tmp_path)
    added = adding.add(repository, tmp_path, ["."], Request())
    repository.close()
    assert (added.skipped, added.warnings) == ([], [])
    roles = {file.path: (file.role, file.step) for file in added.files}
    assert roles == {
        **{f"step-{step}.safetensors": ("weights", step) for step in range(100, 601, 100)},
        "config.toml": ("config", None),
        "log.csv": ("log", None),
        "network.json": ("network", None),
        "test.npz": ("data", None),
        "train.py": ("file", None),
    }


@pytest.mark.parametrize("run", RUNS)
def test_commit_has_nothing_to_complain_about(tmp_path: Path, run: str) -> None:
    for path in (*(DIGITS / run).iterdir(), DIGITS / "train.py", DIGITS / "test.npz"):
        shutil.copy(path, tmp_path)
    repository, _ = Repository.init(tmp_path)
    adding.add(repository, tmp_path, ["."], Request())
    made = committing.commit(repository, committing.Request("m", "Ada", "lenet"))
    assert made.warnings == ()
    assert made.snapshots == RUNS[run]
    repository.close()


@pytest.mark.slow
def test_training_is_repeatable(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("sklearn")
    written: list[dict[str, bytes]] = []
    for name in ("first", "second"):
        folder = tmp_path / name
        shutil.copytree(DIGITS, folder, ignore=shutil.ignore_patterns("__pycache__"))
        for run in ("head", "reseed"):
            for path in (*(folder / run).glob("step-*"), *(folder / run).glob("log.*")):
                path.unlink()
            subprocess.run(
                [sys.executable, "-B", "train.py", run], cwd=folder, check=True, timeout=300
            )
        files = sorted(p for p in folder.rglob("*") if p.is_file())
        written.append({p.relative_to(folder).as_posix(): p.read_bytes() for p in files})
    assert written[0] == written[1]
    originals = {p.relative_to(DIGITS).as_posix() for p in DIGITS.rglob("*") if p.is_file()}
    assert set(written[0]) == {name for name in originals if "__pycache__" not in name}
