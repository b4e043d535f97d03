"""Metric series from the logs that trainers write as text: JSON lines, CSV, trainer_state.json.

A row becomes a point of every column that is a number there. Empty cells are no points (loggers
leave them where a metric was not measured). A last line that is cut was being written: it is
left out and noted; any other broken line is damage.
"""

from __future__ import annotations

import csv
import datetime
import itertools
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from dlv.adapters.detect import detect
from dlv.adapters.source import Source
from dlv.errors import Damaged, UnsafeInput, UsageError, nearest

# A coarser column is an ordinary metric beside a finer one.
STEP_COLUMNS = ("step", "global_step", "_step", "iteration", "iter", "epoch")
TIME_COLUMNS = ("wall_time", "timestamp", "_timestamp", "time")

MOST_LINE_BYTES = 1 << 20
MOST_STATE_BYTES = 64 << 20
MOST_COLUMNS = 10_000
MOST_POINTS = 4_000_000
_MOST_NODES = 2_000_000
_BLOCK = 1 << 20

_BY_SUFFIX = {".csv": "csv", ".tsv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl"}
_NUMBER = re.compile(r"\s*[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?\s*")
_NON_FINITE = re.compile(r"\s*(?:nan|[+-]?inf(?:inity)?)\s*", re.IGNORECASE)
_NOTHING = {"", "-", "none", "null", "na", "n/a"}
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[\[\]{},]', re.DOTALL)


@dataclass
class Column:
    """A metric: parallel lists; a wall time is 0.0 where the log has none."""

    steps: list[int] = field(default_factory=list)
    walls: list[float] = field(default_factory=list)
    values: list[float] = field(default_factory=list)


@dataclass
class MetricLog:
    """The metrics of a log by tag, columns that hold no numbers, and what a person should know."""

    columns: dict[str, Column] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def read(
    path: str,
    step_column: str | None = None,
    time_column: str | None = None,
    format_: str | None = None,
) -> MetricLog:
    """All series of a log; without a step column, rows are counted from 0."""
    kind = format_ or _BY_SUFFIX.get(PurePath(path).suffix.lower()) or detect(path)
    with Source(path) as file:
        rows = _Rows(file.name, step_column, time_column)
        if kind == "csv":
            _read_csv(file, rows)
        elif kind == "jsonl":
            _read_lines(file, rows)
        elif kind in ("trainer_state", "json"):
            _read_state(file, rows)
        else:
            raise UsageError(f"{path} is not a metric log", why=f"it is {kind}, not CSV or JSON")
    return rows.finish()


class _Rows:
    """Turns rows into points."""

    def __init__(self, what: str, step: str | None, time: str | None) -> None:
        self.what = what
        self.log = MetricLog()
        self.asked = {name for name in (step, time) if name is not None}
        self.step, self.time = step, time
        self.unfit: set[str] = set()
        self.seen: dict[str, None] = {}
        self.texts: dict[str, int] = {}  # column -> line of its first value that is no number
        self.count = self.points = self.carried = 0
        self.last_step: int | None = None

    def add(self, row: Mapping[str, Any], line: int) -> None:
        for name in row:
            self.seen.setdefault(name)
        if len(self.seen) > MOST_COLUMNS:
            raise UnsafeInput(f"{self.what}, line {line}, has too many columns")
        self._choose(row)
        step, wall = self._step_of(row, line), self._wall_of(row, line)
        for name, cell in row.items():
            if name in (self.step, self.time):
                continue
            value = _number(cell)
            if value is None:
                if not _is_nothing(cell):
                    self.texts.setdefault(name, line)
                continue
            self.points += 1
            if self.points > MOST_POINTS:
                raise UnsafeInput(f"{self.what} holds more than {MOST_POINTS} points")
            column = self.log.columns.setdefault(name, Column())
            column.steps.append(step)
            column.walls.append(wall)
            column.values.append(value)
        self.count += 1

    def finish(self) -> MetricLog:
        missing = sorted(name for name in self.asked if name not in self.seen)
        if missing and self.count:
            raise UsageError(
                f"{self.what} has no column {missing[0]}",
                did_you_mean=nearest(missing[0], self.seen),
            )
        for name, line in self.texts.items():
            if self.log.columns.pop(name, None) is not None:
                self.log.notes.append(f"{name} is left out: line {line} holds no number")
        kept = {*self.log.columns, self.step, self.time}
        self.log.skipped = [name for name in self.seen if name not in kept]
        if self.carried:
            self.log.notes.append(f"{self.carried} rows without a step took that of the row before")
        if self.step is None and self.count:
            self.log.notes.append("no step column: rows are counted from 0")
        return self.log

    def _choose(self, row: Mapping[str, Any]) -> None:
        folded = {name.lower(): name for name in reversed(list(row))}
        for candidate in STEP_COLUMNS if self.step is None else ():
            name = folded.get(candidate)
            if name is None or name in self.unfit or _is_nothing(row[name]):
                continue
            if _integer(row[name]) is not None:
                self.step = name
                break
            self.unfit.add(name)  # epochs like 0.5: whole ones later do not make it fit
        for candidate in TIME_COLUMNS if self.time is None else ():
            name = folded.get(candidate)
            if name is not None and _moment(row[name]) is not None:
                self.time = name
                break

    def _step_of(self, row: Mapping[str, Any], line: int) -> int:
        if self.step is None:
            return self.count
        cell = row.get(self.step)
        if _is_nothing(cell):
            self.carried += 1
            return self.last_step or 0
        step = _integer(cell)
        if step is None:
            raise Damaged(
                f"{self.what}, line {line}: the step is no integer",
                why=f"{self.step} is {str(cell)[:100]!r}",
                hint="dlv add --log-step COL FILE names another column",
            )
        self.last_step = step
        return step

    def _wall_of(self, row: Mapping[str, Any], line: int) -> float:
        cell = row.get(self.time) if self.time is not None else None
        if _is_nothing(cell):
            return 0.0
        wall = _moment(cell)
        if wall is None:
            raise Damaged(
                f"{self.what}, line {line}: the time is no time",
                why=f"{self.time} is {str(cell)[:100]!r}",
                hint="dlv add --log-time COL FILE names another column",
            )
        return wall


def _number(cell: Any) -> float | None:
    if isinstance(cell, str):
        return float(cell) if _NUMBER.fullmatch(cell) or _NON_FINITE.fullmatch(cell) else None
    if isinstance(cell, (int, float)) and not isinstance(cell, bool):
        try:
            return float(cell)
        except OverflowError:
            return None
    return None


def _integer(cell: Any) -> int | None:
    if isinstance(cell, int) and not isinstance(cell, bool):
        return cell if -(2**63) <= cell < 2**63 else None
    if isinstance(cell, str) and re.fullmatch(r"\s*[+-]?[0-9]{1,18}\s*", cell):
        return int(cell)
    value = _number(cell)
    # Beyond 2^53 a float no longer tells one step from the next.
    whole = value is not None and abs(value) <= 2**53 and value == int(value)
    return int(value) if value is not None and whole else None


def _moment(cell: Any) -> float | None:
    """Seconds, or an ISO date (UTC unless it says otherwise)."""
    value = _number(cell)
    if value is not None or not isinstance(cell, str):
        return value
    try:
        moment = datetime.datetime.fromisoformat(cell.strip())
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=datetime.UTC)
        return moment.timestamp()
    except (ValueError, OverflowError):
        return None


def _is_nothing(cell: Any) -> bool:
    return cell is None or (isinstance(cell, str) and cell.strip().lower() in _NOTHING)


def _lines(file: Source) -> Iterator[tuple[int, str, bool]]:
    """(number, text without its end, whether it has an end), a bounded piece at a time."""
    waiting = bytearray()
    number = offset = 0
    while offset < file.size or waiting:
        end = waiting.find(b"\n")
        if end < 0 and offset < file.size:
            if len(waiting) > MOST_LINE_BYTES:
                raise UnsafeInput(f"{file.name}, line {number + 1}, is longer than 1 MiB")
            block = file.read(offset, min(_BLOCK, file.size - offset))
            waiting += block
            offset += len(block)
            continue
        ended = end >= 0
        pieces = waiting.split(b"\n")
        waiting = pieces.pop() if ended else bytearray()
        for piece in pieces:
            number += 1
            if len(piece) > MOST_LINE_BYTES:
                raise UnsafeInput(f"{file.name}, line {number}, is longer than 1 MiB")
            yield number, _decode(file, piece, number, ended=ended), ended


def _decode(file: Source, line: bytearray, number: int, *, ended: bool) -> str:
    raw = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
    try:
        # A character may be cut where the line is.
        text = raw.decode("utf-8", "strict" if ended else "ignore")
    except UnicodeDecodeError as error:
        raise Damaged(f"{file.name}, line {number}, is not UTF-8", why=str(error)) from error
    if "\0" in text:
        raise Damaged(f"{file.name}, line {number}, holds a NUL")
    return text.removesuffix("\r")


def _read_lines(file: Source, rows: _Rows) -> None:
    for number, line, ended in _lines(file):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            if not ended:
                rows.log.notes.append(f"line {number} is cut and left out")
                break
            raise Damaged(f"{file.name}, line {number}, is not JSON", why=str(error)) from error
        if not isinstance(value, dict):
            raise Damaged(f"{file.name}, line {number}, is not a JSON object")
        rows.add(_flat(value), number)


def _flat(value: dict[str, Any]) -> dict[str, Any]:
    """`{"train": {"loss": 1}}` -> `{"train.loss": 1}`, for as deep as anyone nests metrics."""
    flat: dict[str, Any] = {}
    waiting: list[tuple[str, Any, int]] = [(key, item, 0) for key, item in value.items()]
    for key, item, depth in waiting:
        if isinstance(item, dict) and depth < 4:
            waiting += [(f"{key}.{name}", below, depth + 1) for name, below in item.items()]
        else:
            flat[key] = item
    return flat


def _read_state(file: Source, rows: _Rows) -> None:
    """A list of rows in one JSON document: Hugging Face's trainer_state.json, or a bare list."""
    if file.size > MOST_STATE_BYTES:
        raise UnsafeInput(f"{file.name} is too large", why=f"{file.size} bytes")
    data = bytes(file.read(0, file.size)).removeprefix(b"\xef\xbb\xbf")
    depth = nodes = 0
    for token in _TOKEN.finditer(data):
        if len(token[0]) == 1:
            nodes += 1
            depth += (token[0] in b"[{") - (token[0] in b"]}")
            if depth > 16 or nodes > _MOST_NODES:
                line = data.count(b"\n", 0, token.start()) + 1
                raise UnsafeInput(f"{file.name}, line {line}, holds too much or too deep JSON")
    try:
        value = json.loads(data.decode("utf-8"))
    except json.JSONDecodeError as error:
        raise Damaged(f"{file.name}, line {error.lineno}, is not JSON", why=str(error)) from error
    except ValueError as error:
        raise Damaged(f"{file.name} is not JSON", why=str(error)) from error
    history = value.get("log_history") if isinstance(value, dict) else value
    if not isinstance(history, list) or not all(isinstance(row, dict) for row in history):
        raise Damaged(f"{file.name} has no list of rows", why="`log_history` is looked for")
    for number, row in enumerate(history, 1):
        rows.add(_flat(row), number)


def _read_csv(file: Source, rows: _Rows) -> None:
    lines = _CsvLines(_lines(file))
    first = next(lines, "")
    delimiter = max(",;\t", key=lambda mark: re.sub('"[^"]*"', "", first).count(mark))
    reader = csv.reader(lines.again(first), delimiter=delimiter, strict=True)
    heading: list[str] | None = None
    while True:
        try:
            cells = next(reader)
        except StopIteration:
            break
        except csv.Error as error:
            if lines.cut:
                rows.log.notes.append(f"line {lines.number} is cut and left out")
                break
            raise Damaged(
                f"{file.name}, line {lines.number}, is not CSV", why=str(error)
            ) from error
        if not cells or cells == [""]:
            continue
        if heading is None:
            heading = _heading(cells, file.name, lines.number)
            continue
        if len(cells) != len(heading):
            if lines.cut and len(cells) < len(heading):
                rows.log.notes.append(f"line {lines.number} is cut and left out")
                break
            raise Damaged(
                f"{file.name}, line {lines.number}, has {len(cells)} cells",
                why=f"the heading has {len(heading)}",
            )
        if lines.cut:
            rows.log.notes.append(f"line {lines.number} has no end: its last number may be cut")
        rows.add(dict(zip(heading, cells, strict=True)), lines.number)


def _heading(cells: list[str], name: str, line: int) -> list[str]:
    heading = [cell.strip() for cell in cells]
    if len(heading) > MOST_COLUMNS:
        raise UnsafeInput(f"{name}, line {line}, has too many columns", why=str(len(heading)))
    ordered = sorted(heading)
    for cell, following in itertools.pairwise(ordered):
        if cell == following:
            raise Damaged(f"{name}, line {line}: the column {cell[:100]!r} is there twice")
    if all(_number(cell) is not None for cell in heading):
        raise Damaged(f"{name}, line {line}, is not a heading", why="the first line holds numbers")
    return heading


class _CsvLines:
    """Lines for the csv module, remembering where it is and whether the last line was cut."""

    def __init__(self, lines: Iterator[tuple[int, str, bool]]) -> None:
        self._lines = lines
        self._again: list[str] = []
        self.number = 0
        self.cut = False

    def again(self, line: str) -> _CsvLines:
        self._again.append(line)
        return self

    def __iter__(self) -> _CsvLines:
        return self

    def __next__(self) -> str:
        if self._again:
            return self._again.pop()
        self.number, text, ended = next(self._lines)
        self.cut = not ended
        return text + "\n"
