"""Metric series from the logs that trainers write as text: JSON lines, CSV, trainer_state.json.

A row becomes a point of every column that is a number there. Empty cells are no points (loggers
leave them where a metric was not measured). A last line that is cut was being written: it is
left out and noted; any other broken line is damage.

Lines are taken by the block, and its columns by the block too, as long as the rows are alike;
where they are not, row by row.
"""

from __future__ import annotations

import csv
import itertools
import json
import re
from collections.abc import Iterator
from operator import itemgetter
from pathlib import PurePath
from typing import Any, NamedTuple

from dlv.adapters.detect import detect
from dlv.adapters.logs.rows import MOST_COLUMNS, Column, MetricLog, Rows, is_number
from dlv.adapters.source import Source
from dlv.errors import Damaged, UnsafeInput, UsageError

MOST_LINE_BYTES = 1 << 20
BLOCK = 1 << 18


class Block(NamedTuple):
    """Lines without their ends; `number` is that of the first.

    `ended` is False of the last line of a file that has no end: such a line is a block of its own.
    """

    number: int
    lines: list[str]
    ended: bool


def blocks_of_lines(file: Source) -> Iterator[Block]:
    waiting = bytearray()
    number, offset = 1, 0
    while offset < file.size or waiting:
        end = waiting.rfind(b"\n")
        if end < 0 and offset < file.size:
            if len(waiting) > MOST_LINE_BYTES:
                raise UnsafeInput(f"{file.name}, line {number}, is longer than 1 MiB")
            block = file.read(offset, min(BLOCK, file.size - offset))
            waiting += block
            offset += len(block)
            continue
        taken = bytes(waiting if end < 0 else memoryview(waiting)[:end])
        waiting = waiting[end + 1 :] if end >= 0 else bytearray()
        made = Block(number, _text(file, taken, number, ended=end >= 0), end >= 0)
        yield made
        number += len(made.lines)


def _text(file: Source, taken: bytes, number: int, *, ended: bool) -> list[str]:
    raw = taken.removeprefix(b"\xef\xbb\xbf") if number == 1 else taken
    if len(raw) > MOST_LINE_BYTES:
        for at, line in enumerate(raw.split(b"\n"), number):
            if len(line) > MOST_LINE_BYTES:
                raise UnsafeInput(f"{file.name}, line {at}, is longer than 1 MiB")
    try:
        # A character may be cut where the line is.
        text = raw.decode("utf-8", "strict" if ended else "ignore")
    except UnicodeDecodeError as error:
        at = number + raw.count(b"\n", 0, error.start)
        raise Damaged(f"{file.name}, line {at}, is not UTF-8", why=str(error)) from error
    if "\0" in text:
        at = number + text.count("\n", 0, text.index("\0"))
        raise Damaged(f"{file.name}, line {at}, holds a NUL")
    lines = text.split("\n")
    return [line.removesuffix("\r") for line in lines] if "\r" in text else lines


__all__ = ["Column", "MetricLog", "add_alike", "flat", "read"]

MOST_STATE_BYTES = 64 << 20
_MOST_NODES = 2_000_000

_BY_SUFFIX = {".csv": "csv", ".tsv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl"}
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[\[\]{},]', re.DOTALL)
# A second object in a line, and any within another.
_SECOND, _NESTED = re.compile(r"\}[ \t\r]*,[ \t\r]*\{"), re.compile(r"[:\[,][ \t\r]*\{")
_FEW = 8  # rows that are not worth a table


def read(
    path: str,
    step_column: str | None = None,
    time_column: str | None = None,
    format_: str | None = None,
) -> MetricLog:
    """All series of a log; without a step column, rows are counted from 0."""
    kind = format_ or _BY_SUFFIX.get(PurePath(path).suffix.lower()) or detect(path)
    with Source(path) as file:
        rows = Rows(file.name, step_column, time_column)
        if kind == "csv":
            _read_csv(file, rows)
        elif kind == "jsonl":
            _read_lines(file, rows)
        elif kind in ("trainer_state", "json"):
            _read_state(file, rows)
        else:
            raise UsageError(f"{path} is not a metric log", why=f"it is {kind}, not CSV or JSON")
    return rows.finish()


def _read_lines(file: Source, rows: Rows) -> None:
    for block in blocks_of_lines(file):
        values = _values(block)
        if values is None:
            for number, line in enumerate(block.lines, block.number):
                if line.strip() and (value := _value(file, rows, block, number, line)):
                    rows.add(flat(value), number)
            continue
        number = block.number
        for _, alike in itertools.groupby(values, key=tuple):
            number = add_alike(rows, list(alike), number)


def add_alike(rows: Rows, values: list[dict[str, Any]], number: int) -> int:
    """Rows with the same keys in the same order; the number of the line behind them."""
    names = list(values[0])
    if len(values) >= _FEW and names:
        pick = itemgetter(*names)
        found = list(map(pick, values))
        columns = list(zip(*found, strict=True)) if len(names) > 1 else [found]
        if rows.add_table(names, columns, number):
            return number + len(values)
    for at, value in enumerate(values, number):
        rows.add(value, at)
    return number + len(values)


def _values(block: Block) -> list[dict[str, Any]] | None:
    """The rows of a block, read in one go; None where a line is not just one flat object."""
    if not block.ended or not all(line[:1] == "{" and line[-1:] == "}" for line in block.lines):
        return None
    text = ",\n".join(block.lines)  # which no text in quotes may hold
    try:
        values: list[dict[str, Any]] = json.loads(f"[{text}]")
    except (ValueError, RecursionError):
        return None
    if len(values) != len(block.lines):
        return None
    if _NESTED.search(text):
        return None if _SECOND.search(text) else list(map(flat, values))
    return values


def _value(file: Source, rows: Rows, block: Block, number: int, line: str) -> dict[str, Any] | None:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        if not block.ended:
            rows.log.notes.append(f"line {number} is cut and left out")
            return None
        raise Damaged(f"{file.name}, line {number}, is not JSON", why=str(error)) from error
    if not isinstance(value, dict):
        raise Damaged(f"{file.name}, line {number}, is not a JSON object")
    return value


def flat(value: dict[str, Any]) -> dict[str, Any]:
    """`{"train": {"loss": 1}}` -> `{"train.loss": 1}`, for as deep as anyone nests metrics."""
    made: dict[str, Any] = {}
    waiting: list[tuple[str, Any, int]] = [(key, item, 0) for key, item in value.items()]
    for key, item, depth in waiting:
        if isinstance(item, dict) and depth < 4:
            waiting += [(f"{key}.{name}", below, depth + 1) for name, below in item.items()]
        else:
            made[key] = item
    return made


def _read_state(file: Source, rows: Rows) -> None:
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
        rows.add(flat(row), number)


def _read_csv(file: Source, rows: Rows) -> None:
    lines = _CsvLines(blocks_of_lines(file))
    first = next(lines, "")
    delimiter = max(",;\t", key=lambda mark: re.sub('"[^"]*"', "", first).count(mark))
    reader = csv.reader(lines.again(first), delimiter=delimiter, strict=True)
    heading: list[str] | None = None
    alone = 0  # up to this line row by row
    while True:
        if heading is not None and lines.number >= alone and (block := lines.whole()):
            if _add_table(rows, heading, block, delimiter):
                lines.skip(len(block.lines))
                continue
            alone = block.number + len(block.lines)
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


def _add_table(rows: Rows, heading: list[str], block: Block, delimiter: str) -> bool:
    """Whether the lines are rows that are all alike; else they are looked at one by one."""
    if len(block.lines) < _FEW or any('"' in line for line in block.lines):
        return False
    try:
        found = list(csv.reader(block.lines, delimiter=delimiter, strict=True))
    except csv.Error:
        return False
    if set(map(len, found)) != {len(heading)} or len(found) != len(block.lines):
        return False
    return rows.add_table(heading, list(zip(*found, strict=True)), block.number)


def _heading(cells: list[str], name: str, line: int) -> list[str]:
    heading = [cell.strip() for cell in cells]
    if len(heading) > MOST_COLUMNS:
        raise UnsafeInput(f"{name}, line {line}, has too many columns", why=str(len(heading)))
    ordered = sorted(heading)
    for cell, following in itertools.pairwise(ordered):
        if cell == following:
            raise Damaged(f"{name}, line {line}: the column {cell[:100]!r} is there twice")
    if all(is_number(cell) for cell in heading):
        raise Damaged(f"{name}, line {line}, is not a heading", why="the first line holds numbers")
    return heading


class _CsvLines:
    """Lines for the csv module, remembering where it is and whether the last line was cut."""

    def __init__(self, blocks: Iterator[Block]) -> None:
        self._blocks = blocks
        self._block = Block(1, [], True)
        self._at = 0  # the line of the block that comes next
        self._again: list[str] = []
        self.number = 0
        self.cut = False

    def again(self, line: str) -> _CsvLines:
        self._again.append(line)
        return self

    def whole(self) -> Block | None:
        """The lines that can be had at once, if each has an end."""
        if self._at == len(self._block.lines) and not self._next():
            return None
        if self._again or not self._block.ended:
            return None
        return Block(self.number + 1, self._block.lines[self._at :], True)

    def skip(self, count: int) -> None:
        self._at += count
        self.number += count

    def _next(self) -> bool:
        found = next(self._blocks, None)
        if found is None:
            return False
        self._block, self._at = found, 0
        return True

    def __iter__(self) -> _CsvLines:
        return self

    def __next__(self) -> str:
        if self._again:
            return self._again.pop()
        if self._at == len(self._block.lines) and not self._next():
            raise StopIteration
        text = self._block.lines[self._at]
        self._at += 1
        self.number += 1
        self.cut = not self._block.ended
        return text + "\n"
