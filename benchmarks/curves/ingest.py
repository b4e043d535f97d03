"""Event files into SQLite: processor time, memory, bytes on disk; beside TensorBoard's loaders.

    python -m benchmarks.curves.ingest [FOLDER]

Each measurement is a process of its own. TensorBoard's data server keeps 1000 points of a series
in memory and sums no record unless it is told to; dlv sums all and keeps all points on disk.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.curves import logs

STEPS, TAGS = 100_000, 10
MANY = 10  # links to one file, for the figures at 10 M points
LOADED = 50_000  # events for TensorBoard's Python loader, which is slow
ROUNDS = 3


def raw(folder: Path, _: Path) -> dict[str, float]:
    for path in folder.rglob("*tfevents*"):
        path.read_bytes()
    return {}


def dlv(folder: Path, live: Path) -> dict[str, float]:
    import dlv.curves.ingest as ingest
    from dlv.curves.store import CurveStore

    begun = time.process_time()
    with CurveStore.open(live) as store:
        done = ingest.scan(store, folder)
        store.database.checkpoint()
    assert not done.remarks, done.remarks
    return {
        "seconds": time.process_time() - begun,
        "points": done.points,
        "bytes read": done.bytes,
        "bytes a point": live.stat().st_size / max(done.points, 1),
    }


def loader(folder: Path, _: Path) -> dict[str, float]:
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    (path,) = folder.rglob("*tfevents*")
    begun = time.process_time()
    for count, _event in enumerate(EventFileLoader(str(path)).Load(), 1):
        if count == LOADED:
            break
    return {"seconds": (time.process_time() - begun) / LOADED * STEPS * TAGS}


@contextmanager
def data_server(folder: Path, *flags: str) -> Iterator[Callable[[], dict[str, float]]]:
    """TensorBoard's data server on a folder; each call waits for it to end one more load cycle.

    A call returns the seconds of processor time so far, and the peak of memory.
    """
    from tensorboard.data import server_ingester

    binary = server_ingester.get_server_binary().path
    process = subprocess.Popen(
        [binary, "--logdir", str(folder), "--port", "0", "--die-after-stdin", "-v", *flags],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    assert process.stdin is not None
    lines = process.stderr

    def cycle() -> dict[str, float]:
        while "Finished load cycle" not in (line := lines.readline()):
            assert line or process.poll() is None, "the data server has ended"
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        ticks = int(fields[11]) + int(fields[12])
        seconds = ticks / os.sysconf("SC_CLK_TCK")
        return {"seconds": seconds, "peak MB": peak_mb(process.pid)}

    try:
        yield cycle
    finally:
        process.stdin.close()
        process.stderr.close()
        process.wait()


def rustboard(folder: Path, *flags: str) -> dict[str, float]:
    """The seconds of processor of its first load."""
    with data_server(folder, "--reload", "once", *flags) as cycle:
        return cycle()


def peak_mb(process: int | str) -> float:
    """Of its own memory, not of what it was before it became this program."""
    found = re.search(r"VmHWM:\s*(\d+)", Path(f"/proc/{process}/status").read_text())
    return int(found[1]) * 1024 / 1e6 if found else math.nan


WAYS: dict[str, Callable[[Path, Path], dict[str, float]]] = {
    "raw": raw,
    "dlv": dlv,
    "loader": loader,
}


def child(way: str, folder: Path, live: Path, *before: str) -> dict[str, float]:
    """What a process that does this alone has measured."""
    command = [*before, sys.executable, "-m", "benchmarks.curves.ingest", "--way", way]
    done = subprocess.run(
        [*command, str(folder), str(live)], check=True, capture_output=True, text=True
    )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def best(measure: Callable[[], dict[str, float]]) -> dict[str, float]:
    """The round that took least time."""
    return min((measure() for _ in range(ROUNDS)), key=lambda found: found["seconds"])


def event_bytes_read(folder: Path, live: Path, work: Path) -> tuple[int, int]:
    """(stat, open) calls for event files when unchanged logs are looked at again."""
    if shutil.which("strace") is None:
        return -1, -1
    trace = work / "trace"
    child("dlv", folder, live, "strace", "-f", "-e", "trace=%file,read,pread64", "-o", str(trace))
    lines = [line for line in trace.read_text().splitlines() if logs.NAME in line]
    opened = sum("open" in line.partition("(")[0] for line in lines)
    return len(lines) - opened, opened


def measure(work: Path) -> dict[str, Any]:
    log = logs.scalars(work / "one" / logs.NAME, STEPS, TAGS)
    one, live = log.parent, work / "live.db"
    many = logs.linked(work / "many", log, MANY)

    def fresh(folder: Path) -> dict[str, float]:
        for path in work.glob("live.db*"):
            path.unlink()
        return child("dlv", folder, live)

    found: dict[str, Any] = {"raw read": best(lambda: child("raw", one, live))}
    found["dlv"] = best(lambda: fresh(one))
    found["rustboard"] = best(lambda: rustboard(one))
    found["rustboard --checksum"] = best(lambda: rustboard(one, "--checksum"))
    found["EventFileLoader"] = child("loader", one, live)
    found["dlv, 10 M points"] = fresh(many)
    found["calls again"] = event_bytes_read(many, live, work)
    found["dlv, again"] = child("dlv", many, live)
    found["rustboard, 10 M points"] = rustboard(many)
    return found


def shown(found: dict[str, Any]) -> None:
    ours, theirs = found["dlv"]["seconds"], found["rustboard"]["seconds"]
    for name, row in found.items():
        if isinstance(row, dict):
            figures = ", ".join(f"{key} {value:,.2f}" for key, value in row.items() if value)
            print(f"{name:24} {figures}")
    stats, opened = found["calls again"]
    rows = [
        ("x rustboard's processor time", ours / theirs, 1.1),
        ("x a raw read", ours / found["raw read"]["seconds"], 15),
        ("EventFileLoader x dlv", found["EventFileLoader"]["seconds"] / ours, 100),
        ("peak MB at 10 M points", found["dlv, 10 M points"]["peak MB"], 200),
        ("bytes a point", found["dlv"]["bytes a point"], 10),
        ("event files opened again", opened, 0),
    ]
    print(f"\nagain: {stats} calls stat event files, {opened} open one")
    for name, value, goal in rows:
        print(f"{name:32} {value:10.2f}   goal {goal}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("live", nargs="?", type=Path)
    parser.add_argument("--way", choices=WAYS)
    given = parser.parse_args()
    if given.way is not None:
        begun = time.process_time()
        found = {"seconds": 0.0, **WAYS[given.way](given.folder, given.live)}
        found["seconds"] = found["seconds"] or time.process_time() - begun
        found["peak MB"] = peak_mb("self")
        print(json.dumps(found))
        return
    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        shown(measure(Path(name)))


if __name__ == "__main__":
    main()
