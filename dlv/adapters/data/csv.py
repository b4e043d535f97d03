"""Rows and labels from CSV: a heading, a row per example, numbers but for the label."""

from __future__ import annotations

import csv
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dlv.adapters.data.columns import Column, Spooled
from dlv.adapters.data.labels import MOST_CLASSES
from dlv.adapters.data.settings import Settings
from dlv.adapters.source import Source
from dlv.errors import Damaged, UnsafeInput, UsageError, nearest

LABEL_COLUMNS = ("label", "y", "target", "class")
MOST_COLUMNS = 1 << 20
MOST_LINE = 16 << 20
MOST_TEXT = 256  # letters of a label
_BLOCK = 1 << 20
_ROWS = 1024  # rows that are put together before they are kept
_NUMBER = re.compile(
    r"\s*(?:[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[+-]?(?:nan|inf))\s*\Z",
    re.IGNORECASE,
)
_WHOLE = re.compile(r"\s*[+-]?[0-9]{1,18}\s*\Z")


@dataclass(frozen=True)
class Table:
    """`labels` as numbers, or as texts that are not numbered yet."""

    rows: Column
    labels: Column | None


def read(file: Source, settings: Settings) -> Table:
    """Every cell is looked at once; numbers are kept as float64, beyond 64 MiB on disk."""
    lines = _lines(file)
    first = next(lines, (1, ""))[1]
    delimiter = max(",;\t", key=lambda mark: re.sub('"[^"]*"', "", first).count(mark))
    heading = _heading(_cells(first, delimiter, file.name, 1), file.name)
    label = _label(heading, settings, file.name)
    chosen = _columns(heading, label, settings, file.name)
    rows = Spooled(f"the rows of {file.name}", np.float64, (len(chosen),))
    labels = None if label is None else _Labels(f"the column {heading[label]} of {file.name}")
    waiting: list[list[float]] = []
    for number, line in lines:
        if not line.strip():
            continue
        cells = _cells(line, delimiter, file.name, number)
        if len(cells) != len(heading):
            raise Damaged(
                f"{file.name}, line {number}, has {len(cells)} cells",
                why=f"the heading has {len(heading)}",
            )
        for place in chosen:
            if not _NUMBER.match(cells[place]):
                raise Damaged(
                    f"{file.name}, line {number}: {cells[place][:60]!r} is no number",
                    why=f"in the column {heading[place]}",
                    hint="--set data.columns=A,B names the columns that are numbers",
                )
        waiting.append([float(cells[place]) for place in chosen])
        if labels is not None and label is not None:
            labels.add(cells[label], number, file.name)
        if len(waiting) == _ROWS:
            rows.add(np.array(waiting))
            waiting = []
    if waiting:
        rows.add(np.array(waiting))
    return Table(rows, None if labels is None else labels.finish())


class _Labels:
    """A column of which it shows only at the end whether it holds numbers or texts."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._codes: dict[str, int] = {}
        self._kind = "whole"
        self._numbers = Spooled(name, np.float64, ())
        self._coded = Spooled(name, np.int64, ())
        self._waiting: list[tuple[float, int]] = []

    def add(self, cell: str, line: int, file: str) -> None:
        text = cell.strip()
        if not text:
            raise Damaged(f"{file}, line {line}, has no label", why=f"in {self._name}")
        if len(text) > MOST_TEXT:
            raise UnsafeInput(f"{file}, line {line}: the label is too long", why=f"{len(text)}")
        if self._kind == "whole" and not _WHOLE.match(text):
            self._kind = "number"
        if self._kind == "number" and not _NUMBER.match(text):
            self._kind = "text"
        number = float(text) if self._kind != "text" else 0.0
        few = len(self._codes) < MOST_CLASSES
        code = self._codes.setdefault(text, len(self._codes)) if few else -1
        self._waiting.append((number, code))
        if len(self._waiting) == _ROWS:
            self._flush()

    def _flush(self) -> None:
        if self._waiting:
            numbers, codes = zip(*self._waiting, strict=True)
            self._numbers.add(np.array(numbers))
            self._coded.add(np.array(codes))
            self._waiting = []

    def finish(self) -> Column:
        self._flush()
        if self._kind == "number":
            return self._numbers
        if len(self._codes) >= MOST_CLASSES:
            raise UnsafeInput(f"{self._name} holds too many different labels")
        texts = list(self._codes)
        if self._kind == "whole":
            return _Looked(self._coded, np.array([int(text) for text in texts], np.int64))
        return _Looked(self._coded, np.array(texts))


class _Looked:
    """Codes as what they stand for."""

    def __init__(self, codes: Spooled, values: np.ndarray[tuple[int], np.dtype[np.generic]]):
        self.name, self.count = codes.name, codes.count
        self.shape: tuple[int, ...] = ()
        self.dtype = values.dtype
        self._codes, self._values = codes, values

    def read(self, start: int, stop: int) -> np.ndarray[tuple[int], np.dtype[np.generic]]:
        return self._values[self._codes.read(start, stop)]


def _lines(file: Source) -> Iterator[tuple[int, str]]:
    waiting, number, offset = bytearray(), 0, 0
    while offset < file.size or waiting:
        if offset < file.size:
            block = file.read(offset, min(_BLOCK, file.size - offset))
            waiting += block
            offset += len(block)
        whole = waiting.split(b"\n")
        rest = whole.pop() if offset < file.size else bytearray()
        waiting = rest
        if len(waiting) > MOST_LINE:
            raise UnsafeInput(f"{file.name}, line {number + 1}, is too long")
        for piece in whole:
            number += 1
            raw = piece.removeprefix(b"\xef\xbb\xbf") if number == 1 else piece
            try:
                yield number, raw.decode("utf-8").removesuffix("\r")
            except UnicodeDecodeError as error:
                raise Damaged(
                    f"{file.name}, line {number}, is not UTF-8", why=str(error)
                ) from error


def _cells(line: str, delimiter: str, name: str, number: int) -> list[str]:
    try:
        return next(csv.reader([line], delimiter=delimiter, strict=True), [])
    except csv.Error as error:
        raise Damaged(f"{name}, line {number}, is not CSV", why=str(error)) from error


def _heading(cells: list[str], name: str) -> list[str]:
    heading = [cell.strip() for cell in cells]
    if len(heading) > MOST_COLUMNS:
        raise UnsafeInput(f"{name} has too many columns", why=str(len(heading)))
    ordered = sorted(heading)
    for cell, following in itertools.pairwise(ordered):
        if cell == following:
            raise Damaged(f"{name}: the column {cell[:60]!r} is there twice")
    if not heading or all(_NUMBER.match(cell) for cell in heading):
        raise Damaged(f"{name} has no heading", why="the first line must name the columns")
    return heading


def _label(heading: list[str], settings: Settings, name: str) -> int | None:
    if settings.labels is False:
        return None
    if isinstance(settings.labels, str):
        if settings.labels not in heading:
            raise UsageError(
                f"{name} has no column `{settings.labels}`",
                why=f"it has {', '.join(heading[:8])}",
                did_you_mean=nearest(settings.labels, heading),
            )
        return heading.index(settings.labels)
    folded = [column.lower() for column in heading]
    found = [folded.index(usual) for usual in LABEL_COLUMNS if usual in folded]
    return found[0] if found else len(heading) - 1


def _columns(heading: list[str], label: int | None, settings: Settings, name: str) -> list[int]:
    for column in settings.columns or ():
        if column not in heading:
            raise UsageError(
                f"{name} has no column `{column}`",
                why=f"it has {', '.join(heading[:8])}",
                did_you_mean=nearest(column, heading),
            )
    wanted = settings.columns or [column for at, column in enumerate(heading) if at != label]
    found = [heading.index(column) for column in wanted]
    if not found:
        raise UsageError(f"{name} has a label and nothing else", hint="--set data.labels=false")
    return found
