"""`make demo` runs to its end, and what it shows is true."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import dlv.api as api

ROOT = Path(__file__).resolve().parent.parent


def test_make_demo(tmp_path: Path) -> None:
    folder = tmp_path / "made"
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("DLV_", "XDG_"))}
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / "demo.py", folder],
        env={**kept, "PYTHONPATH": str(ROOT), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    digits = os.path.relpath(ROOT / "examples" / "digits", folder)
    text = done.stdout.replace(digits, "../examples/digits").replace(str(folder), "made")
    lines = text.splitlines()
    assert [line for line in lines if "warning" in line or line.startswith("error")] == []
    # The last one names the folder.
    assert [line for line in lines[:-1] if len(line) > 100] == []
    assert sum(line.endswith(": OK") for line in lines) == 8
    assert lines[-3].startswith("ok  checked")
    with api.open(folder) as repo:
        labels = sorted(version.row.label for version in repo)
        assert labels[:2] == ["alexnet-avgv1@1", "alexnet-origin@1"]
        assert labels[2:] == ["lenet-adam@1", "lenet-five@1", "lenet@1", "lenet@2"]
        first = repo["baseline"]
        assert first.steps == [100, 200, 300, 400, 500, 600]
        assert repo["lenet-five"].parents == [first.id]
        # The optimizer's state was committed, and is told apart from the weights.
        adam = repo["lenet-adam"]
        assert adam.state_dict().keys() == first.state_dict().keys()
        assert len(adam.tensors) > len(first.tensors)


def test_an_existing_folder_is_left_alone(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / "demo.py", tmp_path],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "already exists" in done.stderr
    assert list(tmp_path.iterdir()) == []
