"""Text logs of a training that goes on, JSON lines or CSV: their whole lines become points, once.

What `dlv.adapters.logs` reads of a file that is finished, here from where the last reading
stopped. A line that is no row is left out and told of; a line without an end is left for later.
"""

from __future__ import annotations

import csv
import itertools
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any, Literal

import numpy as np

from dlv.adapters.logs import STEP_COLUMNS, Rows, add_alike, flat, is_number
from dlv.adapters.source import Source
from dlv.errors import DlvError
from dlv.events.logs.points import SCALAR, Fault, Metadata, ScalarPoints, Window

WINDOW = 4 << 20
HEAD = 64 << 10  # bytes in which a log must have told of a step
_FIRST = 20  # lines of them that are looked at
_KINDS = {".csv": "csv", ".tsv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl"}
# What a log is called that is alone in the folder of its run.
_PLAIN = {"metrics", "metric", "log", "logs", "history", "progress", "results", "scalars"}

Row = dict[str, Any]


def is_text_log(name: str) -> bool:
    """Whether it may be one, by its name."""
    return PurePath(name).suffix.lower() in _KINDS


def run_names(folder: str, name: str) -> Iterator[str]:
    """What the run of a log may be called, best first: `a/metrics.csv` is `a`, `a/x.csv` `a/x`."""
    stem = PurePath(name).stem
    if stem.lower() in _PLAIN:
        yield folder
    for each in (stem, name):
        yield each if folder == "." else f"{folder}/{each}"


def tells_steps(path: Path) -> bool:
    """Whether a log: a heading, or one of the first lines, has a step and something besides."""
    try:
        with Source(os.fspath(path)) as file:
            data = bytes(file.read(0, min(file.size, HEAD)))
    except DlvError:
        return False
    lines = _lines(data[: data.rfind(b"\n") + 1])[:_FIRST]
    if _KINDS[path.suffix.lower()] == "csv":
        heading = lines[0] if lines else ""
        names = _cells(heading, _delimiter(heading))
        return len(names) > 1 and "\0" not in heading and _step_in(names)
    for line in lines:
        row = _object(line)
        numbers = [] if row is None else [name for name, cell in row.items() if is_number(cell)]
        if len(numbers) > 1 and _step_in(numbers):
            return True
    return False


class Reading:
    """The windows of a log from `offset` on, as `dlv.events.logs.batches.Reading` has them."""

    def __init__(self, path: Path, offset: int, state: Mapping[str, Any] | None) -> None:
        self.path = path
        self.offset = offset
        self.status: Literal["open", "damaged"] = "open"
        self.error: str | None = None
        state = state or {}
        self.wall: float | None = state.get("wall")
        self._heading: list[str] | None = state.get("heading")
        self._delimiter = str(state.get("delimiter", ","))
        self._line = int(state.get("line", 1))  # that comes next
        self._told = bool(state.get("told", False))
        self._faults: list[Fault] = []
        rows = self._rows = Rows(path.name, state.get("step"), state.get("time"))
        rows.count = int(state.get("count", 0))
        rows.last_step = state.get("last_step")
        rows.unfit = set(state.get("unfit", ()))
        rows.seen = dict.fromkeys(state.get("seen", ()))

    @property
    def state(self) -> dict[str, Any]:
        """What reading on needs to know: JSON."""
        rows = self._rows
        return {
            "wall": self.wall,
            "heading": self._heading,
            "delimiter": self._delimiter,
            "line": self._line,
            "told": self._told,
            "step": rows.step,
            "time": rows.time,
            "count": rows.count,
            "last_step": rows.last_step,
            "unfit": sorted(rows.unfit),
            "seen": list(rows.seen),
        }

    def __iter__(self) -> Iterator[Window]:
        with Source(os.fspath(self.path)) as file:
            while data := self._next(file):
                moment = os.stat(self.path).st_mtime
                lines = _lines(data)
                if _KINDS[self.path.suffix.lower()] == "csv":
                    self._csv(lines)
                else:
                    self._jsonl(lines)
                self._line += len(lines)
                self.offset += len(data)
                yield self._window(moment)

    def _next(self, file: Source) -> bytes:
        """The whole lines that follow, or nothing."""
        data = bytes(file.read(self.offset, min(WINDOW, file.size - self.offset)))
        end = data.rfind(b"\n") + 1
        if not end and len(data) == WINDOW:
            self.status, self.error = "damaged", f"line {self._line} is longer than 4 MiB"
        return data[:end]

    def _window(self, moment: float) -> Window:
        """A point without a time is from when its file was last written."""
        items: list[ScalarPoints] = []
        for name, column in self._rows.log.columns.items():
            tag = name.encode("utf-8", "backslashreplace").decode()  # JSON has halves of characters
            walls = np.asarray(column.walls, np.float64)
            walls[walls == 0.0] = moment
            steps = np.asarray(column.steps, np.int64)
            items.append(ScalarPoints(tag, steps, walls, np.asarray(column.values, np.float64)))
            known = [float(walls[np.isfinite(walls)].min(initial=np.inf)), self.wall]
            self.wall = min((wall for wall in known if wall not in (None, np.inf)), default=None)
        metadata = [Metadata(item.tag, "scalars", SCALAR, b"", item.tag, "") for item in items]
        faults, self._faults = self._faults, []
        self._rows.log.columns.clear()
        self._rows.points = 0
        return Window(items, metadata, faults, self.offset)

    def _jsonl(self, lines: Sequence[str]) -> None:
        found: list[tuple[int, Row]] = []
        for number, line in enumerate(lines, self._line):
            row = _object(line)
            if row is not None:
                found.append((number, row))
            elif line.strip():
                self._fault(number, "it is not a JSON object")
        self._add(found)

    def _csv(self, lines: Sequence[str]) -> None:
        """Another heading begins another table."""
        found: list[tuple[int, Row]] = []
        for number, line in enumerate(lines, self._line):
            if not line.strip():
                continue
            if self._heading is None:
                self._delimiter = _delimiter(line)
                self._heading = _cells(line, self._delimiter)
                continue
            cells = _cells(line, self._delimiter)
            if _step_in(cells) and not any(map(is_number, cells)):
                self._heading = cells
            elif len(cells) == len(self._heading):
                found.append((number, dict(zip(self._heading, cells, strict=True))))
            else:
                why = f"it has {len(cells)} cells, the header {len(self._heading)}"
                self._fault(number, why)
        self._add(found)

    def _add(self, rows: Iterable[tuple[int, Row]]) -> None:
        for _, alike in itertools.groupby(rows, key=lambda pair: tuple(pair[1])):
            group = list(alike)
            before = self._rows.count
            try:
                add_alike(self._rows, [row for _, row in group], group[0][0])
                continue
            except DlvError:
                added = self._rows.count - before
            for number, row in group[added:]:
                try:
                    self._rows.add(row, number)
                except DlvError as error:
                    self._fault(number, error.why or error.message)

    def _fault(self, line: int, why: str) -> None:
        """Of the first one."""
        if not self._told:
            self._told = True
            text = f"lines that are not rows are skipped, the first is line {line}: {why}"
            self._faults.append(Fault(None, text))


def _lines(data: bytes) -> list[str]:
    """Of whole lines, without their ends."""
    text = data.decode("utf-8", "replace").removeprefix("\ufeff")
    return [line.removesuffix("\r") for line in text.split("\n")[:-1]]


def _delimiter(line: str) -> str:
    bare = re.sub('"[^"]*"', "", line)
    return max(",;\t", key=bare.count)


def _cells(line: str, delimiter: str) -> list[str]:
    try:
        return [cell.strip() for cell in next(csv.reader([line], delimiter=delimiter), [])]
    except csv.Error:
        return []


def _object(line: str) -> Row | None:
    try:
        value = json.loads(line) if line.lstrip()[:1] == "{" else None
    except (ValueError, RecursionError):
        return None
    return flat(value) if isinstance(value, dict) else None


def _step_in(names: Iterable[str]) -> bool:
    return any(name.lower() in STEP_COLUMNS for name in names)
