"""ONNX models that reach for other files end in a typed error; odd ones are read, quickly."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hostile.harness import MOST_MEBIBYTES, MOST_SECONDS, run
from tests.hostile.onnx_files import FOLDERS, GOOD, HOSTILE, ODD

pytestmark = pytest.mark.hostile


def test_folders(tmp_path: Path) -> None:
    names = []
    for name, build in FOLDERS.items():
        (tmp_path / name).mkdir()
        build(tmp_path / name)
        names.append(f"{name}/model.onnx")
    for name, result in zip(names, run(tmp_path, names), strict=True):
        assert result["kind"] in ("damage", "unsafe", "not found"), (name, result["text"])
        assert result["mebibytes"] < MOST_MEBIBYTES, (name, result)
        assert result["seconds"] < MOST_SECONDS, (name, result)


def test_odd_files_are_read(tmp_path: Path) -> None:
    for name, data in {"good": GOOD, **ODD}.items():
        (tmp_path / f"{name}.onnx").write_bytes(data)
    names = sorted(path.name for path in tmp_path.iterdir())
    for name, result in zip(names, run(tmp_path, names), strict=True):
        assert result["kind"] is None, (name, result["text"])
        assert result["seconds"] < 1, (name, result)


def test_there_are_enough() -> None:
    assert len(HOSTILE) + len(FOLDERS) >= 100
