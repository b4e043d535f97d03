"""Peak memory of commands on a model of many tensors: two of them and 300 MB, whatever it has."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.sizes.data import stacked, write_large

ROOT = Path(__file__).parents[2]
SHAPE = (4096, 4096)
TENSOR = 4 * SHAPE[0] * SHAPE[1]  # 64 MiB
COUNT = 8
LIMIT = 2 * TENSOR + (300 << 20)
RESERVED = 150 << 20  # addresses that Python and numpy take and never touch
# A process begins with the peak of its own, not with that of the one that started it.
PEAK = """
import sys
from dlv.cli import run
code = run(sys.argv[1:])
with open("/proc/self/status") as file:
    peak = next(int(line.split()[1]) << 10 for line in file if line.startswith("VmHWM"))
print(code, peak, file=sys.stderr)
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no /proc"),
]


def peak(folder: Path, *arguments: str, limit: int | None = None) -> int:
    def limited() -> None:
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

    done = subprocess.run(
        [sys.executable, "-c", PEAK, *arguments],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "HOME": str(folder),
            "OPENBLAS_NUM_THREADS": "1",
        },
        capture_output=True,
        text=True,
        check=True,
        preexec_fn=limited,
    )
    code, size = map(int, done.stderr.splitlines()[-1].split())
    assert code in (0, 1), done.stderr
    return size


def test_two_tensors_and_some(tmp_path: Path) -> None:
    assert TENSOR * COUNT > LIMIT, "or all of the model could be held"
    peak(tmp_path, "init")
    (tmp_path / "network.json").write_text(json.dumps(stacked(COUNT, SHAPE[0])))
    for version in (1, 2):
        write_large(tmp_path / "model.safetensors", SHAPE, COUNT, version)
        for line in ("add model.safetensors network.json", f"commit -m {version} --name model"):
            assert peak(tmp_path, *line.split()) <= LIMIT, line
    for line in (
        "archive --effort fast",
        "archive",
        "diff model@1 model@2",
        "checkout model@1 --to back",
        "fsck",
    ):
        assert peak(tmp_path, "-j", "2", *line.split()) <= LIMIT, line
    # What is free decides which weights are kept for the next batch.
    np.savez(tmp_path / "x.npz", x=np.ones((3, SHAPE[1]), np.float32))
    line = "eval model@1 x.npz --batch 2"
    assert peak(tmp_path, *line.split(), limit=LIMIT + RESERVED) <= LIMIT, line
    before = np.memmap(tmp_path / "back" / "model.safetensors", np.uint8, "r")
    write_large(tmp_path / "again", SHAPE, COUNT, 1)
    assert np.array_equal(before, np.memmap(tmp_path / "again", np.uint8, "r"))
