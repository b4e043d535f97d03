"""Event files read, nothing else: dlv beside TensorBoard's loaders and its data server.

    python -m benchmarks.curves.reading [FOLDER] [--json FILE]

Two files: a million scalars that repeat a period, and events of which no two need be alike. Each
measurement is a process of its own; seconds are of processor time. dlv and the Python loaders
check every sum; the data server does with --checksum, and keeps 1000 points of a series.
Prints a table, each goal with whether it was met, and, as its last line, a JSON document.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path
from typing import Any

import dlv.events.logs.batches as batches
from benchmarks.curves import irregular, logs
from benchmarks.curves.ingest import peak_mb, rustboard
from benchmarks.dql.goals import Verdict, at_least, at_most
from dlv.events.logs.points import ScalarPoints

STEPS, TAGS = 100_000, 10
IRREGULAR = 200_000
LOADED = 40_000  # events for the Python loaders, which are slow
ROUNDS = 3

Found = dict[str, float]


def raw(path: Path) -> int:
    """The bytes in one go: what no reader can beat."""
    return len(path.read_bytes())


def dlv(path: Path) -> int:
    points = 0
    for window in batches.read(path):
        for item in window.items:
            points += len(item) if isinstance(item, ScalarPoints) else 1
    return points


def event_file_loader(path: Path) -> int:
    from tensorboard.backend.event_processing import event_file_loader

    return _count(event_file_loader.EventFileLoader(str(path)).Load())


def raw_event_file_loader(path: Path) -> int:
    from tensorboard.backend.event_processing import event_file_loader

    return _count(event_file_loader.RawEventFileLoader(str(path)).Load())


def _count(events: Iterable[Any]) -> int:
    return sum(1 for _ in islice(events, LOADED))


WAYS: dict[str, Callable[[Path], int]] = {
    "raw read": raw,
    "dlv": dlv,
    "EventFileLoader": event_file_loader,
    "RawEventFileLoader": raw_event_file_loader,
}


def child(way: str, path: Path) -> Found:
    """What a process that does this alone has measured; the best of a few."""
    command = [sys.executable, "-m", "benchmarks.curves.reading", "--way", way, str(path)]
    rounds = []
    for _ in range(1 if "Loader" in way else ROUNDS):
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        rounds.append(json.loads(done.stdout.splitlines()[-1]))
    best: Found = min(rounds, key=lambda found: found["seconds"])
    return best


def measured(way: str, path: Path) -> Found:
    """In the process that does nothing else."""
    begun = time.process_time()
    number = WAYS[way](path)
    return {"seconds": time.process_time() - begun, "number": number, "peak MB": peak_mb("self")}


def one(path: Path, events: int) -> dict[str, Found]:
    """All ways over one file; the loaders' seconds are raised to all of its events."""
    found = {way: child(way, path) for way in WAYS}
    for way, row in found.items():
        if "Loader" in way:
            row["seconds"] *= events / row["number"]
    for name, flags in (("rustboard", ()), ("rustboard --checksum", ("--checksum",))):
        served = [rustboard(path.parent, *flags) for _ in range(ROUNDS)]
        found[name] = min(served, key=lambda row: row["seconds"])
    for row in found.values():
        row["x raw read"] = row["seconds"] / found["raw read"]["seconds"]
        row["k events/s"] = events / row["seconds"] / 1000
    return found


def verdicts(document: dict[str, dict[str, Found]]) -> list[Verdict]:
    def ratio(log: str, way: str) -> float:
        return document[log][way]["seconds"] / document[log]["dlv"]["seconds"]

    repeated = document["periodic"]["dlv"]
    return [
        at_most("periodic: a raw read", repeated["x raw read"], 15, "x"),
        at_most("periodic: rustboard, no sums", 1 / ratio("periodic", "rustboard"), 1.1, "x"),
        at_least("periodic: EventFileLoader", ratio("periodic", "EventFileLoader"), 100),
        at_least("periodic: RawEventFileLoader", ratio("periodic", "RawEventFileLoader"), 30),
        at_least("irregular: EventFileLoader", ratio("irregular", "EventFileLoader"), 10),
    ]


def show(document: dict[str, dict[str, Found]], found: list[Verdict]) -> None:
    for log, rows in document.items():
        print(f"\n{log:22} {'k events/s':>12} {'x raw read':>12} {'seconds':>10} {'peak MB':>9}")
        for way, row in rows.items():
            print(
                f"{way:22} {row['k events/s']:12,.0f} {row['x raw read']:12,.1f}"
                f" {row['seconds']:10.3f} {row['peak MB']:9.0f}"
            )
    print()
    for verdict in found:
        print(f"{'met' if verdict.met else 'MISSED':7} {verdict.goal}: {verdict.found}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--way", choices=WAYS)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    if given.way is not None:
        print(json.dumps(measured(given.way, given.folder)))
        return
    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        work = Path(name)
        periodic = logs.scalars(work / "periodic" / logs.NAME, STEPS, TAGS)
        mixed = irregular.write(work / "irregular" / logs.NAME, IRREGULAR)
        document = {"periodic": one(periodic, STEPS * TAGS), "irregular": one(mixed, IRREGULAR)}
    found = verdicts(document)
    show(document, found)
    goals = [verdict.as_json() for verdict in found]
    text = json.dumps({"benchmark": "curves, reading", "logs": document, "goals": goals})
    if given.json is not None:
        given.json.write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
