"""Curves: reading logs, keeping them, answering; beside TensorBoard, all in one run.

    python -m benchmarks.curves [--json FILE] [--only PART..]

`reading`: event files alone. `ingest`: into SQLite, with memory, disk and what another look costs.
`runs`: a thousand short ones. `texts`: JSON lines and CSV. `reads`: answers out of 10 M points.
Prints the figures of each part, each goal with whether it was met, and, as its last line, a JSON
document. The oracle, TensorBoard's own tests and the checklist are tests: tests/events.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.curves import ingest, irregular, logs, reading, reads, runs, texts
from benchmarks.dql.goals import Verdict, at_least, at_most
from benchmarks.storage.corpora import default_cache

LARGE = 1_000_000  # steps of the one large file, 10 values each


def part_reading(work: Path, _: Path) -> tuple[Any, list[Verdict]]:
    periodic = logs.scalars(work / "periodic" / logs.NAME, reading.STEPS, reading.TAGS)
    mixed = irregular.write(work / "irregular" / logs.NAME, reading.IRREGULAR)
    found = {
        "periodic": reading.one(periodic, reading.STEPS * reading.TAGS),
        "irregular": reading.one(mixed, reading.IRREGULAR),
    }
    goals = reading.verdicts(found)
    reading.show(found, [])
    return found, goals


def part_ingest(work: Path, _: Path) -> tuple[Any, list[Verdict]]:
    found = ingest.measure(work)
    large = logs.scalars(work / "large" / logs.NAME, LARGE, ingest.TAGS)
    found["dlv, 1 file of 10 M"] = ingest.child("dlv", large.parent, work / "large.db")
    ingest.shown(found)
    ours, many, again = found["dlv"], found["dlv, 10 M points"], found["calls again"]
    seconds = ours["seconds"]
    goals = [
        at_most("1 M to SQLite: rustboard", seconds / found["rustboard"]["seconds"], 1.1, "x"),
        at_most("1 M to SQLite: a raw read", seconds / found["raw read"]["seconds"], 15, "x"),
        at_least("1 M to SQLite: loader", found["EventFileLoader"]["seconds"] / seconds, 100),
        at_most("memory at 10 M events, 10 files", many["peak MB"], 200, " MB"),
        at_most(
            "memory at 10 M events, 1 file", found["dlv, 1 file of 10 M"]["peak MB"], 200, " MB"
        ),
        at_most("disk per point", ours["bytes a point"], 10, " B"),
        Verdict(
            "unchanged logs: opened again 0",
            "no strace" if again[1] < 0 else str(again[1]),
            not again[1],
        ),
    ]
    return found, goals


def part_texts(work: Path, _: Path) -> tuple[Any, list[Verdict]]:
    found = texts.measure(work)
    for name, row in found.items():
        told = ", ".join(f"{who} {value / 1000:,.0f}k" for who, value in row.items())
        print(f"{name:24} points a second: {told}")
    return found, [
        at_least(f"{name}: the bare parser's speed", row["dlv"] / row["bare parser"], 0.65)
        for name, row in found.items()
    ]


def part_reads(work: Path, cache: Path) -> tuple[Any, list[Verdict]]:
    found = reads.measure(cache, work)
    for name, value in found.items():
        print(f"{name:44} {value:9.2f}" + ("" if "seconds" in name else " ms"))
    return found, reads.verdicts(found)


def part_runs(work: Path, _: Path) -> tuple[Any, list[Verdict]]:
    found = runs.measure(work)
    goals = []
    for name, rows in found.items():
        for who, row in rows.items():
            print(f"{name:24} {who:28} {row['seconds']:8.3f} s")
        first = rows["dlv"]["seconds"] / rows["data server"]["seconds"]
        goals.append(at_most(f"{name}: data server", first, 1.5, "x"))
        after = f"{runs.CHANGED} went on"
        again = rows[f"dlv, {after}"]["seconds"] / rows[f"data server, {after}"]["seconds"]
        goals.append(at_most(f"{name}, {after}: data server", again, 1.5, "x"))
    return found, goals


PARTS: dict[str, Callable[[Path, Path], tuple[Any, list[Verdict]]]] = {
    "reading": part_reading,
    "ingest": part_ingest,
    "runs": part_runs,
    "texts": part_texts,
    "reads": part_reads,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cache", type=Path, default=default_cache())
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", choices=PARTS, nargs="+", default=list(PARTS))
    given = parser.parse_args()
    given.cache.mkdir(parents=True, exist_ok=True)
    document: dict[str, Any] = {"benchmark": "curves"}
    goals: list[Verdict] = []
    for name in given.only:
        print(f"\n{name}", flush=True)
        # On the disk of the cache, as runs share its files.
        with tempfile.TemporaryDirectory(dir=given.cache) as folder:
            document[name], found = PARTS[name](Path(folder), given.cache)
        goals += found
    print("\ngoals")
    for goal in goals:
        print(f"  {'met' if goal.met else 'NOT MET':9}{goal.goal:52}{goal.found:>12}")
    document["goals"] = [goal.as_json() for goal in goals]
    text = json.dumps(document)
    if given.json is not None:
        given.json.write_text(text + "\n")
    print(text)
    sys.stdout.flush()


if __name__ == "__main__":
    main()
