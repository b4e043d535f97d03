"""Every file of the corpus ends in a typed error, quickly, in little memory, writing nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.hostile import caffe_files, gguf_files, onnx_files
from tests.hostile.corpus import CORPUS, GOOD, STORED

pytestmark = pytest.mark.hostile

ALL = {**CORPUS, **gguf_files.HOSTILE, **caffe_files.HOSTILE, **onnx_files.HOSTILE}
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
    folder = tmp_path_factory.mktemp("corpus")
    for name, build in ALL.items():
        (folder / name).write_bytes(build())
    found = dict(zip(ALL, run(folder, list(ALL)), strict=True))
    assert {path.name for path in folder.iterdir()} == set(ALL)
    assert not (ROOT / "hacked").exists()
    return found


@pytest.mark.parametrize("name", ALL)
def test_ends_well(results: dict[str, dict[str, Any]], name: str) -> None:
    result = results[name]
    assert result["kind"] in ("damage", "unsafe", "usage", "newer format"), result["text"]
    assert result["mebibytes"] < MOST_MEBIBYTES, result
    assert result["seconds"] < MOST_SECONDS, result


@pytest.mark.parametrize("name", [*gguf_files.HOSTILE, *caffe_files.HOSTILE, *onnx_files.HOSTILE])
def test_is_seen_for_what_it_is(results: dict[str, dict[str, Any]], name: str) -> None:
    """Otherwise another reader would have refused it."""
    assert results[name]["format"] in ("gguf", "caffemodel", "prototxt", "caffe_solver", "onnx")


def test_the_harness_sees_good_and_bad(tmp_path: Path) -> None:
    """Good files give no error, and the hook ends a process that writes or runs something."""
    (tmp_path / "a.safetensors").write_bytes(GOOD)
    (tmp_path / "a.npz").write_bytes(STORED)
    (tmp_path / "a.gguf").write_bytes(gguf_files.GOOD)
    (tmp_path / "a.caffemodel").write_bytes(caffe_files.GOOD)
    (tmp_path / "a.prototxt").write_text(caffe_files.HEAD)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert [r["kind"] for r in run(tmp_path, names)] == [None] * 5
    for action in ("open('hacked', 'w')", "__import__('os').system('true')"):
        code = "import sys; from tests.hostile import attack; sys.addaudithook(attack.watch)"
        done = subprocess.run(
            [sys.executable, "-c", f"{code}; {action}"], cwd=ROOT, capture_output=True
        )
        assert done.returncode == 66
    assert not (ROOT / "hacked").exists()
