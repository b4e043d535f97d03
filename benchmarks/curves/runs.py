"""Many short trainings: a folder of runs looked at first, and again after a few have gone on.

dlv keeps all points on disk and checks every sum; TensorBoard's data server keeps 1000 points of a
series in memory and checks none. Seconds are of processor time.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

from benchmarks.curves import logs
from benchmarks.curves.ingest import child, rustboard

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
    """A file of its own, with the begin of the one before it."""
    for path in sorted(grown.rglob(logs.NAME)):
        run = root / path.parent.name / logs.NAME
        before = run.stat()
        alone = run.with_suffix(".alone")
        shutil.copyfile(run, alone)
        alone.replace(run)
        with run.open("ab") as file:
            file.write(path.read_bytes()[before.st_size :])


def _reloaded(root: Path, grown: Path) -> dict[str, float]:
    """What the look costs the server that finds runs gone on."""
    from tensorboard.data import server_ingester

    binary = server_ingester.get_server_binary().path
    process = subprocess.Popen(
        [binary, "--logdir", str(root), "--port", "0", "--reload", "3", "--die-after-stdin", "-v"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    assert process.stdin is not None
    used = []
    for cycle in range(2):
        while "Finished load cycle" not in (line := process.stderr.readline()):
            assert line or process.poll() is None, "the data server has ended"
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        used.append((int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"))
        if not cycle:
            _go_on(root, grown)
            time.sleep(0.1)
    process.stdin.close()
    process.stderr.close()
    process.wait()
    return {"seconds": used[1] - used[0]}
