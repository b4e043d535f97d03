"""Every file of the corpus ends in a typed error, quickly, in little memory, writing nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.hostile import caffe_files, gguf_files, onnx_files
from tests.hostile.corpus import CORPUS, GOOD, STORED
from tests.hostile.harness import ROOT, attacked, ends_well, run

pytestmark = pytest.mark.hostile

ALL = {**CORPUS, **gguf_files.HOSTILE, **caffe_files.HOSTILE, **onnx_files.HOSTILE}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    return attacked(tmp_path_factory.mktemp("corpus"), ALL)


@pytest.mark.parametrize("name", ALL)
def test_ends_well(results: dict[str, dict[str, Any]], name: str) -> None:
    ends_well(results[name])


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
