"""Many short trainings: the first look at a folder of runs, and another after a few went on.

dlv is measured from its library, without the start of a command: the scan with which
`dlv tensorboard` and `dlv commit --tb` begin. It keeps all points on disk and verifies every
checksum; TensorBoard's data server keeps 1000 points of a series in memory and verifies none.
Seconds are of processor time.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from benchmarks.curves import logs
from benchmarks.curves.ingest import child, data_server, rustboard

RUNS, TAGS = 1000, 50
SIZES = (10, 1000)  # steps of a run; of the longer ones there are fewer files, linked many times
FILES = {10: RUNS, 1000: 50}
CHANGED = 10  # runs

Found = dict[str, dict[str, float]]


def measure(work: Path) -> dict[str, Found]:
    return {
        f"{RUNS} runs x {TAGS} x {steps}": _measure(work / str(steps), steps) for steps in SIZES
    }


def _measure(work: Path, steps: int) -> Found:
    root, grown = work / "runs", work / "grown"
    for number in range(FILES[steps]):
        made = logs.scalars(work / "files" / f"{number}" / logs.NAME, steps, TAGS, seed=number)
        for run in range(number, RUNS, FILES[steps]):
            folder = root / f"run-{run:04}"
            folder.mkdir(parents=True, exist_ok=True)
            os.link(made, folder / logs.NAME)
    for number in range(CHANGED):
        logs.scalars(grown / f"run-{number:04}" / logs.NAME, 2 * steps, TAGS, seed=number)
    live = work / "live.db"
    found: Found = {
        "raw read": child("raw", root, live),
        "dlv": child("dlv", root, live),
        "data server": rustboard(root),
        "data server, with sums": rustboard(root, "--checksum"),
        "dlv, nothing new": child("dlv", root, live),
    }
    found[f"data server, {CHANGED} went on"] = _reloaded(root, grown)
    found[f"dlv, {CHANGED} went on"] = child("dlv", root, live)
    return found


def _go_on(root: Path, grown: Path) -> None:
    """Append what the grown logs have more; each log becomes a file of its own before."""
    for path in sorted(grown.rglob(logs.NAME)):
        run = root / path.parent.name / logs.NAME
        before = run.stat()
        alone = run.with_suffix(".alone")
        shutil.copyfile(run, alone)
        alone.replace(run)
        with run.open("ab") as file:
            file.write(path.read_bytes()[before.st_size :])


def _reloaded(root: Path, grown: Path) -> dict[str, float]:
    """What it costs a running server to find the runs that went on."""
    with data_server(root, "--reload", "3") as cycle:
        before = cycle()
        _go_on(root, grown)
        return {"seconds": cycle()["seconds"] - before["seconds"]}
