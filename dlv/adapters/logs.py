"""Metric series from the logs that trainers write as text: JSON lines, CSV, trainer_state.json.

A row becomes a point of every column that is a number there. Empty cells are no points (loggers
leave them where a metric was not measured). A last line that is cut was being written: it is
left out and noted; any other broken line is damage.

Lines are taken by the block, and its columns by the block too, as long as the rows are alike;
where they are not, row by row.
"""

from __future__ import annotations

import csv
import datetime
import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from operator import itemgetter
from pathlib import PurePath
from typing import Any, NamedTuple

from dlv.adapters.detect import detect
from dlv.adapters.source import Source
from dlv.dataclass import dataclass
from dlv.errors import Damaged, UnsafeInput, UsageError, nearest

# A coarser column is an ordinary metric beside a finer one.
STEP_COLUMNS = ("step", "global_step", "_step", "iteration", "iter", "epoch")
TIME_COLUMNS = ("wall_time", "timestamp", "_timestamp", "time")

MOST_COLUMNS = 10_000
MOST_POINTS = 4_000_000

_NUMBER = re.compile(r"\s*[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?\s*")
_NON_FINITE = re.compile(r"\s*(?:nan|[+-]?inf(?:inity)?)\s*", re.IGNORECASE)
_NOTHING = {"", "-", "none", "null", "na", "n/a"}
# Of these alone float and int make what the patterns above say, and nothing else.
_OF_NUMBERS, _OF_INTEGERS = b"0123456789+-.eE \t\r\n", b"0123456789+- \t\r\n"


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


class Rows:
    """Turns rows into points."""

    def __init__(self, label: str, step: str | None, time: str | None) -> None:
        self.label = label
        self.log = MetricLog()
        self.asked = {name for name in (step, time) if name is not None}
        self.step, self.time = step, time
        self.unfit: set[str] = set()
        self.seen: dict[str, None] = {}
        self.texts: dict[str, int] = {}  # column -> line of its first value that is not a number
        self.count = self.points = self.carried = 0
        self.last_step: int | None = None

    def add(self, row: Mapping[str, Any], line: int) -> None:
        for name in row:
            self.seen.setdefault(name)
        if len(self.seen) > MOST_COLUMNS:
            raise UnsafeInput(f"{self.label}, line {line}, has too many columns")
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
                raise UnsafeInput(f"{self.label} contains more than {MOST_POINTS} points")
            column = self.log.columns.setdefault(name, Column())
            column.steps.append(step)
            column.walls.append(wall)
            column.values.append(value)
        self.count += 1

    def add_table(self, names: Sequence[str], columns: Sequence[Sequence[Any]], line: int) -> bool:
        """`add` for many rows of the same columns in one go, the first in `line`.

        False, and nothing is done, where only one row after the other tells what to make of it.
        """
        count = len(columns[0])
        self._choose({name: column[0] for name, column in zip(names, columns, strict=True)})
        folded = {name.lower() for name in set(names) - self.unfit}
        if self.step is None and folded.intersection(STEP_COLUMNS):
            return False
        if self.time is None and folded.intersection(TIME_COLUMNS):
            return False
        steps: Sequence[int] | None = range(self.count, self.count + count)
        walls: Sequence[float] | None = [0.0] * count
        made: list[_Piece] = []
        for name, column in zip(names, columns, strict=True):
            if name == self.step:
                steps = _integers(column)
            elif name == self.time:
                walls = _numbers(column)
            else:
                made.append(_piece(name, column))
        if steps is None or walls is None or not (self.step is None or self.step in names):
            return False
        new = [piece for piece in made if piece.values and piece.name not in self.log.columns]
        # Columns stand in the order of their first numbers.
        if any(p.mixed for p in made) or (len(new) > 1 and any(p.places for p in new)):
            return False
        for name in names:
            self.seen.setdefault(name)
        if len(self.seen) > MOST_COLUMNS:
            raise UnsafeInput(f"{self.label}, line {line}, has too many columns")
        for piece in made:
            if piece.text is not None:
                self.texts.setdefault(piece.name, line + piece.text)
            if piece.values:
                self._extend(piece, steps, walls)
        if self.step is not None:
            self.last_step = steps[-1]
        self.count += count
        return True

    def _extend(self, piece: _Piece, steps: Sequence[int], walls: Sequence[float]) -> None:
        self.points += len(piece.values)
        if self.points > MOST_POINTS:
            raise UnsafeInput(f"{self.label} contains more than {MOST_POINTS} points")
        column = self.log.columns.setdefault(piece.name, Column())
        if piece.places is None:
            column.steps.extend(steps)
            column.walls.extend(walls)
        else:
            column.steps.extend([steps[at] for at in piece.places])
            column.walls.extend([walls[at] for at in piece.places])
        column.values.extend(piece.values)

    def finish(self) -> MetricLog:
        missing = sorted(name for name in self.asked if name not in self.seen)
        if missing and self.count:
            raise UsageError(
                f"{self.label} has no column {missing[0]}",
                did_you_mean=nearest(missing[0], self.seen),
            )
        for name, line in self.texts.items():
            if self.log.columns.pop(name, None) is not None:
                self.log.notes.append(f"{name} is skipped: line {line} has no number")
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
                f"{self.label}, line {line}: the step is not an integer",
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
                f"{self.label}, line {line}: the time is not a time",
                why=f"{self.time} is {str(cell)[:100]!r}",
                hint="dlv add --log-time COL FILE names another column",
            )
        return wall


@dataclass
class _Piece:
    """The numbers of a column in some rows; `places` None: in all of them.

    `text` is the first row whose value is not a number; `mixed` says that other rows hold numbers.
    """

    name: str
    values: Sequence[float]
    places: Sequence[int] | None = None
    text: int | None = None
    mixed: bool = False


def _piece(name: str, column: Sequence[Any]) -> _Piece:
    values = _numbers(column)
    if values is not None:
        return _Piece(name, values)
    places = [at for at, cell in enumerate(column) if not _is_nothing(cell)]
    held = [column[at] for at in places]
    values = _numbers(held) if held else []
    if values is not None:
        return _Piece(name, values, places)
    if all(_number(cell) is None for cell in held):
        return _Piece(name, [], text=places[0])
    return _Piece(name, [], mixed=True)


def _numbers(column: Sequence[Any]) -> Sequence[float] | None:
    """As `_number` of each; None where one is none, or is found to be one only by looking."""
    kinds = set(map(type, column))
    try:
        if kinds == {float}:
            return column
        if kinds == {str} and not _others(column, _OF_NUMBERS):
            return list(map(float, column))
        if kinds <= {int, float}:
            return list(map(float, column))
    except (ValueError, OverflowError):
        pass
    return None


def _integers(column: Sequence[Any]) -> Sequence[int] | None:
    """As `_integer` of each; None where one is none, or is found to be one only by looking."""
    kinds = set(map(type, column))
    if kinds == {int}:
        return column if min(column) >= -(2**63) and max(column) < 2**63 else None
    if kinds != {str} or max(map(len, column)) > 18 or _others(column, _OF_INTEGERS):
        return None
    try:
        return list(map(int, column))
    except ValueError:
        return None


def _others(column: Iterable[str], known: bytes) -> bool:
    """Whether there are other characters than these."""
    try:
        return bool("\n".join(column).encode("ascii").translate(None, known))
    except UnicodeEncodeError:
        return True


def _number(cell: Any) -> float | None:
    if isinstance(cell, str):
        return float(cell) if _NUMBER.fullmatch(cell) or _NON_FINITE.fullmatch(cell) else None
    if isinstance(cell, (int, float)) and not isinstance(cell, bool):
        try:
            return float(cell)
        except OverflowError:
            return None
    return None


def is_number(cell: Any) -> bool:
    return _number(cell) is not None


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


def _text(file: Source, block: bytes, number: int, *, ended: bool) -> list[str]:
    raw = block.removeprefix(b"\xef\xbb\xbf") if number == 1 else block
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
        raise Damaged(f"{file.name}, line {at}, contains a NUL")
    lines = text.split("\n")
    return [line.removesuffix("\r") for line in lines] if "\r" in text else lines


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
            rows.log.notes.append(f"line {number} is cut and skipped")
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
                raise UnsafeInput(f"{file.name}, line {line}, is too large or too deep JSON")
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
    delimiter = delimiter_of(first)
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
                rows.log.notes.append(f"line {lines.number} is cut and skipped")
                break
            raise Damaged(
                f"{file.name}, line {lines.number}, is not CSV", why=str(error)
            ) from error
        if not cells or cells == [""]:
            continue
        if heading is None:
            where = f"{file.name}, line {lines.number}"
            heading = heading_of(cells, MOST_COLUMNS, where, ",")
            if all(is_number(cell) for cell in heading):
                raise Damaged(f"{where}, is not a header", why="the first line contains numbers")
            continue
        if len(cells) != len(heading):
            if lines.cut and len(cells) < len(heading):
                rows.log.notes.append(f"line {lines.number} is cut and skipped")
                break
            raise Damaged(
                f"{file.name}, line {lines.number}, has {len(cells)} cells",
                why=f"the header has {len(heading)}",
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


def delimiter_of(line: str) -> str:
    """What stands between the cells of CSV, by its first line."""
    return max(",;\t", key=lambda mark: re.sub('"[^"]*"', "", line).count(mark))


def heading_of(cells: list[str], most: int, where: str, mark: str) -> list[str]:
    """The names of the columns of CSV, each there once; `where` and `mark` begin a complaint."""
    heading = [cell.strip() for cell in cells]
    if len(heading) > most:
        raise UnsafeInput(f"{where}{mark} has too many columns", why=str(len(heading)))
    for cell, following in itertools.pairwise(sorted(heading)):
        if cell == following:
            raise Damaged(f"{where}: the column {cell[:100]!r} is there twice")
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
