"""Rows of a log become points: of every column that is a number, at the row's step."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

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
            raise UnsafeInput(f"{self.what}, line {line}, has too many columns")
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
            raise UnsafeInput(f"{self.what} holds more than {MOST_POINTS} points")
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


@dataclass
class _Piece:
    """The numbers of a column in some rows; `places` None: in all of them.

    `text` is the first row with something that is no number; `mixed`: there are numbers, too.
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
