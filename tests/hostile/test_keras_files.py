"""HDF5 and Keras files of the corpus end in a typed error, quickly, in little memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("h5py")

from tests.hostile.keras_files import CORPUS, HARMLESS

pytestmark = pytest.mark.hostile

ROOT = Path(__file__).resolve().parents[2]
MOST_MEBIBYTES = 400
MOST_SECONDS = 4  # twice the goal: other tests may be running


def run(folder: Path, names: list[str]) -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.hostile.attack", *[str(folder / name) for name in names]],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(results) == len(names), done.stderr
    for result in results:
        result["text"] += done.stderr if result["kind"] == "crash" else ""
    return results


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("keras")
    every = {**CORPUS, **HARMLESS}
    for name, build in every.items():
        (folder / name).write_bytes(build())
    found = dict(zip(every, run(folder, list(every)), strict=True))
    assert {path.name for path in folder.iterdir()} == set(every)
    assert not (ROOT / "hacked").exists()
    return found


def test_there_are_enough() -> None:
    assert sum(name.endswith(".h5") for name in CORPUS) >= 40
    assert sum(name.endswith(".keras") for name in CORPUS) >= 40


@pytest.mark.parametrize("name", CORPUS)
def test_ends_well(results: dict[str, dict[str, Any]], name: str) -> None:
    result = results[name]
    assert result["kind"] in ("damage", "unsafe", "usage", "newer format"), result["text"]
    assert result["mebibytes"] < MOST_MEBIBYTES, result
    assert result["seconds"] < MOST_SECONDS, result


@pytest.mark.parametrize("name", HARMLESS)
def test_runs_nothing(results: dict[str, dict[str, Any]], name: str) -> None:
    result = results[name]
    assert result["kind"] is None, result["text"]
    assert result["mebibytes"] < 100, result
    assert result["seconds"] < 1, result
