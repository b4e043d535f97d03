"""Metric logs as text, read by dlv; beside the plain loop that only keeps (step, value) pairs."""

from __future__ import annotations

import csv
import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from dlv.adapters import logs as metric_logs

LINES = 200_000
TAGS = ("loss", "accuracy", "lr")
ROUNDS = 3


def measure(work: Path, *, lines: int = LINES) -> dict[str, dict[str, float]]:
    """By format: points a second of processor time, in this process, which reads by turns."""
    values = np.random.default_rng(0).random((lines, len(TAGS))).tolist()
    jsonl, table = work / "log.jsonl", work / "log.csv"
    with jsonl.open("w") as file:
        for step, row in enumerate(values):
            file.write(json.dumps({"step": step, **dict(zip(TAGS, row, strict=True))}) + "\n")
    with table.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("step", *TAGS))
        writer.writerows([step, *row] for step, row in enumerate(values))
    del values
    return {"JSON lines": _beside(jsonl, bare_jsonl, lines), "CSV": _beside(table, bare_csv, lines)}


def bare_jsonl(path: Path) -> int:
    columns: dict[str, list[tuple[int, float]]] = {}
    with path.open("rb") as file:
        for line in file:
            row = json.loads(line)
            step = row["step"]
            for name, value in row.items():
                if name != "step":
                    columns.setdefault(name, []).append((step, value))
    return sum(map(len, columns.values()))


def bare_csv(path: Path) -> int:
    with path.open(newline="") as file:
        rows = csv.reader(file)
        columns: list[list[tuple[int, float]]] = [[] for _ in next(rows)[1:]]
        for row in rows:
            step = int(row[0])
            for column, cell in zip(columns, row[1:], strict=True):
                column.append((step, float(cell)))
    return sum(map(len, columns))


def ours(path: Path) -> int:
    return sum(len(column.values) for column in metric_logs.read(str(path)).columns.values())


def _beside(path: Path, bare: Callable[[Path], int], lines: int) -> dict[str, float]:
    times: dict[str, float] = {}
    for _ in range(ROUNDS):
        for name, read in (("dlv", ours), ("bare parser", bare)):
            begun = time.process_time()
            points = read(path)
            spent = time.process_time() - begun
            assert points == lines * len(TAGS), (name, points)
            times[name] = min(times.get(name, spent), spent)
    return {name: lines * len(TAGS) / spent for name, spent in times.items()}
