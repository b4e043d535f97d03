"""What `dlv add` and `dlv commit` of a 90 MB model cost, against copying, hashing and syncing it.

Everything runs in turn, round after round, in fresh folders on one disk; medians count. `dvc add`
joins in if a dvc program is named with --dvc or found on the PATH. Prints a table and, as its
last line, a JSON document. Absolute times say little about another machine; ratios more.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
DLV = [sys.executable, "-m", "dlv"]
# Like a small BERT: one embedding holds half of the weights.
WIDTH, LAYERS, WORDS = 384, 6, 30522
SHAPES: dict[str, tuple[int, ...]] = {"embedding": (WORDS, WIDTH)}
for _layer in range(LAYERS):
    for _name in ("query", "key", "value", "out"):
        SHAPES[f"layer{_layer}.{_name}"] = (WIDTH, WIDTH)
    SHAPES[f"layer{_layer}.up"] = (4 * WIDTH, WIDTH)
    SHAPES[f"layer{_layer}.down"] = (WIDTH, 4 * WIDTH)
    SHAPES[f"layer{_layer}.bias"] = (WIDTH,)
SHAPES["classifier"] = (WIDTH, WIDTH)

Weights = dict[str, Any]


@dataclass
class Ran:
    seconds: float
    peak: int  # bytes


# Started from this process, with all weights in its memory, every program would seem as large.
LAUNCHER = """
import json, os, subprocess, sys, time
begun = time.perf_counter()
process = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL)
_, status, usage = os.wait4(process.pid, 0)
print(json.dumps([time.perf_counter() - begun, usage.ru_maxrss * 1024, status]))
"""


def run(folder: Path, *lines: Sequence[str]) -> Ran:
    """Run programs one after the other; their time together, the largest memory of any."""
    # PYTHON...: with bytecode caches off, every start would compile dlv anew.
    kept = ("DLV_", "GIT_", "PYTHON")
    environ = {k: v for k, v in os.environ.items() if not k.startswith(kept)}
    environ |= {"PYTHONPATH": str(ROOT), "HOME": str(folder), "DVC_NO_ANALYTICS": "1"}
    total = Ran(0.0, 0)
    for line in lines:
        launched = subprocess.run(
            [sys.executable, "-c", LAUNCHER, *line],
            cwd=folder,
            env=environ,
            capture_output=True,
            text=True,
            check=True,
        )
        seconds, peak, status = json.loads(launched.stdout)
        if status:
            raise SystemExit(f"{list(line)} failed:\n{launched.stderr}")
        total = Ran(total.seconds + seconds, max(total.peak, peak))
    return total


def make_weights() -> Weights:
    rng = np.random.default_rng(0)
    return {name: rng.normal(0, 0.02, shape).astype(np.float32) for name, shape in SHAPES.items()}


def write(path: Path, weights: Weights) -> None:
    header, at = {}, 0
    for name, array in weights.items():
        places = [at, at + array.nbytes]
        header[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": places}
        at = places[1]
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for array in weights.values():
            file.write(array.tobytes())


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def with_copy(model: Path, folder: Path) -> Ran:
    target = str(folder / "copy")
    return run(folder, ["cp", str(model), target], ["sha256sum", target], ["sync", target])


def with_dlv(model: Path, folder: Path) -> Ran:
    shutil.copy(model, folder)
    run(folder, [*DLV, "init"])
    os.sync()
    commit = [*DLV, "commit", "-m", "first", "--name", "bert"]
    return run(folder, [*DLV, "add", model.name], commit)


def with_commit(model: Path, folder: Path) -> Ran:
    """The commit alone, of what was added before."""
    shutil.copy(model, folder)
    run(folder, [*DLV, "init"])
    run(folder, [*DLV, "add", model.name])
    os.sync()
    return run(folder, [*DLV, "commit", "-m", "first", "--name", "bert"])


def with_dvc(program: str, model: Path, folder: Path) -> Ran:
    shutil.copy(model, folder)
    run(folder, [program, "init", "--no-scm"])
    os.sync()
    return run(folder, [program, "add", model.name])


def further_commits(folder: Path, weights: Weights) -> dict[str, int]:
    """Bytes that are new in the packs when a fine-tune is committed on top."""
    packs = folder / ".dlv" / "packs"
    rng = np.random.default_rng(1)
    new = {}
    last = {**weights, "classifier": weights["classifier"] + np.float32(0.001)}
    moved = {
        name: array + rng.normal(0, 1e-4, array.shape).astype(np.float32)
        for name, array in last.items()
    }
    for what, changed in (("last layer", last), ("every weight", moved)):
        before = size_of(packs)
        write(folder / "model.safetensors", changed)
        run(folder, [*DLV, "add", "model.safetensors"], [*DLV, "commit", "-m", what])
        new[what] = size_of(packs) - before
    return new


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dvc", default=shutil.which("dvc"))
    options = parser.parse_args()
    weights = make_weights()
    ways = {
        "cp + sha256sum + sync": with_copy,
        "dlv commit": with_commit,
        "dlv add + commit": with_dlv,
    }
    if options.dvc:
        ways["dvc add"] = lambda model, folder: with_dvc(options.dvc, model, folder)
    ran: dict[str, list[Ran]] = {name: [] for name in ways}
    with tempfile.TemporaryDirectory() as base:
        model = Path(base) / "model.safetensors"
        write(model, weights)
        for turn in range(options.rounds):
            for name, way in ways.items():
                os.sync()
                folder = Path(base) / f"{turn}-{name.replace(' ', '')}"
                folder.mkdir()
                ran[name].append(way(model, folder))
                if name == "dlv add + commit" and turn == options.rounds - 1:
                    stored = size_of(folder / ".dlv" / "packs")
                    later = further_commits(folder, weights)
                shutil.rmtree(folder)
        size = model.stat().st_size
    largest = max(array.nbytes for array in weights.values())
    median = {n: statistics.median(r.seconds for r in runs) for n, runs in ran.items()}
    peak = {name: max(r.peak for r in runs) for name, runs in ran.items()}
    yardstick = median["cp + sha256sum + sync"]
    print(
        f"model of {size / 1e6:.1f} MB, {len(weights)} tensors, the largest {largest / 1e6:.1f} MB"
    )
    print(f"{'':<24}{'median s':>10}{'ratio':>8}{'peak MB':>9}")
    for name in ways:
        ratio = median[name] / yardstick
        print(f"{name:<24}{median[name]:>10.3f}{ratio:>8.2f}{peak[name] / 1e6:>9.1f}")
    print(f"stored by dlv: {stored / size:.3f} of the file")
    for what, count in later.items():
        print(f"new bytes when {what} changed: {count / size:.4f} of the file")
    document = {
        "benchmark": "commit",
        "rounds": options.rounds,
        "bytes": size,
        "largest_matrix": largest,
        "seconds": {name: [round(r.seconds, 4) for r in runs] for name, runs in ran.items()},
        "ratio": {name: round(value / yardstick, 3) for name, value in median.items()},
        "peak": peak,
        "stored": stored,
        "new_bytes": later,
    }
    print(json.dumps(document))


if __name__ == "__main__":
    main()
