"""Data sets for testing and training: rows and labels from arrays, CSV, images, or code.

`open_data` reads one set, `open_parts` those of a training and its validation.
"""

from __future__ import annotations

import contextlib
import csv
import inspect
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any

import numpy as np

import dlv.adapters.npz as npz
from dlv.adapters import archive
from dlv.adapters.data import columns
from dlv.adapters.data.columns import MOST_CLASSES, Column, Spooled, coded, of_entry, of_file
from dlv.adapters.data.settings import INPUT_KEYS, LABEL_KEYS, Settings, read_images
from dlv.adapters.logs import delimiter_of, heading_of
from dlv.adapters.source import Source
from dlv.canonical import hash_of, hasher
from dlv.dataclass import dataclass
from dlv.errors import Damaged, NotFound, UnsafeInput, UsageError, nearest
from dlv.kinds import Array

_BLOCK = 1 << 20


LABEL_COLUMNS = ("label", "y", "target", "class")
MOST_COLUMNS = 1 << 20
MOST_LINE = 16 << 20
MOST_TEXT = 256  # letters of a label
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


def read_table(file: Source, settings: Settings) -> Table:
    """Every cell is looked at once; numbers are kept as float64, beyond 64 MiB on disk."""
    lines = _lines(file)
    first = next(lines, (1, ""))[1]
    delimiter = delimiter_of(first)
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
                why=f"the header has {len(heading)}",
            )
        for place in chosen:
            if not _NUMBER.match(cells[place]):
                raise Damaged(
                    f"{file.name}, line {number}: {cells[place][:60]!r} is not a number",
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
            raise UnsafeInput(f"{self._name} has too many different labels")
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
    heading = heading_of(cells, MOST_COLUMNS, name, "")
    if not heading or all(_NUMBER.match(cell) for cell in heading):
        raise Damaged(f"{name} has no header", why="the first line must name the columns")
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


def prepare_columns(column: Column, settings: Settings) -> Column:
    """The column with what the settings ask for; untouched where they ask for nothing."""
    asked = (settings.shape, settings.transpose, settings.scale, settings.mean, settings.std)
    return column if asked == (None,) * len(asked) else Prepared(column, settings)


class Prepared:
    """(x * scale - mean) / std in float64, after the new shape and order of axes."""

    def __init__(self, column: Column, settings: Settings) -> None:
        self.name, self.count = column.name, column.count
        self._column = column
        self._settings = settings
        shape = column.shape
        if settings.shape is not None:
            if math.prod(settings.shape) != math.prod(shape):
                raise UsageError(
                    f"data.shape={_text(settings.shape)} does not fit the rows of {column.name}",
                    why=f"they are {_text(shape) or 'single numbers'}",
                )
            shape = settings.shape
        if settings.transpose is not None:
            if sorted(settings.transpose) != list(range(len(shape))):
                raise UsageError(
                    f"data.transpose={_text(settings.transpose)} does not fit {column.name}",
                    why=f"its rows have {len(shape)} axes, {_text(shape)}",
                )
            shape = tuple(shape[axis] for axis in settings.transpose)
        self.shape = shape
        changed = (settings.scale, settings.mean, settings.std) != (None, None, None)
        self.dtype: np.dtype[Any] = np.dtype(np.float64) if changed else column.dtype
        self._mean = self._factors(settings.mean)
        self._std = self._factors(settings.std)

    def _factors(self, factors: tuple[float, ...] | None) -> Array | None:
        """One number for all, or one for each channel: the axis that has so many."""
        if factors is None or len(factors) == 1:
            return None if factors is None else np.array(factors[0])
        for axis in (0, len(self.shape) - 1):
            if self.shape and self.shape[axis] == len(factors):
                sides = [len(factors) if place == axis else 1 for place in range(len(self.shape))]
                return np.array(factors).reshape(sides)
        raise UsageError(
            f"{len(factors)} numbers of data.mean or data.std do not fit rows of"
            f" {_text(self.shape)}",
            why="one value, or one for each channel, is required",
        )

    def read(self, start: int, stop: int) -> Array:
        rows = self._column.read(start, stop)
        if self._settings.shape is not None:
            rows = rows.reshape((stop - start, *self._settings.shape))
        if self._settings.transpose is not None:
            rows = rows.transpose(0, *(axis + 1 for axis in self._settings.transpose))
        rows = rows.astype(self.dtype, copy=False)
        if self._settings.scale is not None:
            rows = rows * self._settings.scale
        if self._mean is not None:
            rows = rows - self._mean
        return rows if self._std is None else rows / self._std


def _text(sides: tuple[int, ...]) -> str:
    return ",".join(str(side) for side in sides)


@dataclass(frozen=True)
class Wanted:
    """An input of a network: its shape without the axis of the batch, None where not known."""

    name: str
    shape: tuple[int | None, ...] | None = None


@dataclass
class Data:
    """Rows of one or several inputs, with labels or without.

    `classes`: names of the labels 0, 1, ... `fingerprint` is of the content, None where that is
    code.
    """

    name: str
    inputs: dict[str, Column]
    labels: Column | None
    count: int
    fingerprint: str | None
    classes: tuple[str, ...] | None = None
    notes: list[str] = field(default_factory=list)


def open_data(
    where: str, settings: Settings, wanted: Sequence[Wanted], directory: Path = Path()
) -> Data:
    """The rows of a file, a folder, or `python:module:function`, as `wanted` names the inputs.

    Names are relative to `directory`. Nothing large is read before it is asked for.
    """
    if where.startswith(columns.PREFIX):
        function = columns.load(where, directory)
        named = Named(where, columns.called(function, where))
        return chosen(named, columns.stated_fingerprint(function), settings, wanted)
    path = directory / where
    arrays = arrays_of(path, settings, directory)
    if arrays is not None:
        return chosen(arrays, fingerprint(path), settings, wanted)
    return of_table(where, path, fingerprint(path), settings, wanted)


@dataclass(frozen=True)
class Named:
    """Arrays of a file or a folder by name; `alone`: the one that is the input, if it is known."""

    name: str
    members: Mapping[str, Column]
    alone: str | None = None


def arrays_of(path: Path, settings: Settings, directory: Path = Path()) -> Named | None:
    """The arrays of an `.npz`, an `.npy` or a folder of these; None for anything else."""
    if path.is_dir():
        arrays = sorted(path.glob("*.npy"))
        return Named(path.name, {file.stem: _npy(file) for file in arrays}) if arrays else None
    file = Source(str(path))
    head = bytes(file.read(0, min(6, file.size)))
    if head[:4] in (b"PK\x03\x04", b"PK\x05\x06"):
        return Named(file.name, _members(file))
    if head == npz.MAGIC:
        beside = _beside(path, settings, directory)
        members = {path.stem: of_file(file.name, file), **beside}
        return Named(file.name, members, path.stem)
    return None


def of_table(
    where: str, path: Path, digest: str | None, settings: Settings, wanted: Sequence[Wanted]
) -> Data:
    """A folder of images, or CSV; UsageError for what is none."""
    if path.is_dir():
        images = read_images(path, settings, [each.shape for each in wanted])
        found = Data(path.name, {_only(wanted, where): images.pixels}, images.labels, 0, None)
        found.classes = images.classes
        return _finished(found, settings, digest)
    if path.suffix.lower() in (".csv", ".tsv", ".txt"):
        file = Source(str(path))
        table = read_table(file, settings)
        found = Data(file.name, {_only(wanted, where): table.rows}, table.labels, 0, None)
        return _finished(found, settings, digest)
    raise UsageError(
        f"{where} is not data that dlv can read",
        why="it reads .npz, .npy, .csv, a folder of images or of .npy, python:module:function",
    )


def of_arrays(name: str, arrays: Any, settings: Settings, wanted: Sequence[Wanted]) -> Data:
    """The rows of what Python holds: x, (x, y), a dict of arrays, an iterator over batches."""
    return chosen(Named(name, columns.columns_of(arrays, name)), None, settings, wanted)


def fingerprint(path: Path) -> str:
    """Hash of a file's content, or of a folder's files with their names."""
    if path.is_dir():
        names = sorted(p.relative_to(path).as_posix() for p in path.rglob("*") if p.is_file())
        return hash_of([[os.fsencode(name).hex(), fingerprint(path / name)] for name in names])
    digest = hasher()
    with Source(str(path)) as file:
        for at in range(0, file.size, _BLOCK):
            digest.update(file.read(at, min(_BLOCK, file.size - at)))
    return digest.hexdigest()


def _members(file: Source) -> dict[str, Column]:
    found: dict[str, Column] = {}
    for entry in archive.read_directory(file):
        if entry.name.endswith(".npy"):
            header = npz.read_header(file, entry)
            name = entry.name.removesuffix(".npy")
            if header.shape:  # what is a single number belongs to no row
                found[name] = of_entry(f"{name} in {file.name}", file, entry, header)
    return found


def _npy(path: Path) -> Column:
    return of_file(path.name, Source(str(path)))


def _beside(path: Path, settings: Settings, directory: Path) -> dict[str, Column]:
    """The labels of a single `.npy` file: named in the settings, or y.npy beside x.npy."""
    if settings.labels:
        with contextlib.suppress(NotFound):
            return {settings.labels: _npy(directory / settings.labels)}
        return {settings.labels: _npy(path.parent / settings.labels)}
    if path.stem in INPUT_KEYS and settings.labels is None:
        for key in LABEL_KEYS:
            if (path.parent / f"{key}.npy").is_file():
                return {key: _npy(path.parent / f"{key}.npy")}
    return {}


def _only(wanted: Sequence[Wanted], where: str) -> str:
    if len(wanted) != 1:
        raise UsageError(
            f"{where} contains one array of rows, and the network takes {len(wanted)} inputs",
            why=", ".join(each.name for each in wanted),
            hint="an .npz with an array for each",
        )
    return wanted[0].name


def chosen(named: Named, digest: str | None, settings: Settings, wanted: Sequence[Wanted]) -> Data:
    """The inputs and the labels among named arrays."""
    name, members, labels = named.name, named.members, None
    if settings.labels is not False:
        labels = _key(name, members, settings.labels or None, LABEL_KEYS, "labels", needed=False)
    rest = {key: column for key, column in members.items() if key != labels}
    inputs: dict[str, Column] = {}
    for each in wanted:
        told = settings.inputs.get(each.name)
        usual = (each.name, *(INPUT_KEYS if len(wanted) == 1 else ()))
        if len(wanted) == 1:
            told = told or settings.inputs.get("") or named.alone
        key = _key(name, rest, told, usual, f"the input `{each.name}`", needed=len(rest) != 1)
        inputs[each.name] = rest[key or next(iter(rest))]
    found = Data(name, inputs, None if labels is None else members[labels], 0, digest)
    return _finished(found, settings, digest)


def _key(
    name: str,
    members: Mapping[str, Column],
    named: str | None,
    usual: Sequence[str],
    role: str,
    *,
    needed: bool,
) -> str | None:
    if named is not None:
        if named not in members:
            raise UsageError(
                f"{name} has no array `{named}`",
                why=f"it has {', '.join(members) or 'none'}",
                did_you_mean=nearest(named, members),
            )
        return named
    found = next((key for key in usual if key in members), None)
    if found is None and needed:
        setting = "data.labels=KEY" if role == "labels" else "data.inputs=KEY"
        raise UsageError(
            f"cannot tell which array of {name} is {role}",
            why=f"it has {', '.join(members) or 'none'}; looked for {', '.join(usual[:6])}",
            hint=f"--set {setting}",
        )
    return found


def _finished(data: Data, settings: Settings, digest: str | None) -> Data:
    """Counts compared, rows cut and prepared as the settings say, labels as numbers."""
    every = [*data.inputs.values(), *([data.labels] if data.labels is not None else [])]
    counts = {column.count for column in every}
    if len(counts) > 1:
        raise UsageError(
            f"the arrays of {data.name} have different numbers of rows",
            why=", ".join(f"{column.name}: {column.count}" for column in every),
        )
    data.fingerprint = digest
    data.count = min(counts.pop(), settings.rows or 1 << 62)
    if not data.count:
        raise UsageError(f"{data.name} has no rows")
    for name, column in data.inputs.items():
        if not math.prod(column.shape):
            raise UsageError(f"the rows of {column.name} are empty", why=f"{column.shape}")
        if column.dtype.kind not in "biuf":
            raise UsageError(f"{column.name} has no numbers", why=f"its dtype is {column.dtype}")
        data.inputs[name] = prepare_columns(column, settings)
    if data.labels is not None:
        had = settings.classes or data.classes
        labels, classes = coded(data.labels, data.count, had)
        data.labels, data.classes = labels, classes
    return data


Digest = Callable[[Path], str]
UNVERIFIED = "unverified:"

_SUFFIXED = re.compile(r"(.+)_(train|val|valid|validation|test)\Z", re.IGNORECASE)
_PREFIXED = re.compile(r"(train|val|valid|validation|test)_(.+)\Z", re.IGNORECASE)
_VALIDATION = ("val", "valid", "validation")


@dataclass(frozen=True)
class Parts:
    """`batches(seed, step)` instead of `train` where a function makes every batch anew."""

    name: str
    train: Data | None
    validation: Data | None = None
    batches: Callable[[int, int], Any] | None = None
    fingerprint: str | None = None


def open_parts(
    where: str,
    config: Mapping[str, Any],
    wanted: Sequence[tuple[str, tuple[int | None, ...] | None]],
    directory: Path = Path(),
    *,
    digest: Digest = fingerprint,
) -> Parts:
    """The data that `config.input_data` names, read as `config.data` says when it is used."""
    settings = Settings.from_table(config)
    inputs = [Wanted(name, shape) for name, shape in wanted]
    if where.startswith(columns.PREFIX):
        return _of_code(where, settings, inputs, directory)
    path = directory / where
    print_ = digest(path)
    named = arrays_of(path, settings, directory)
    if named is not None:
        return _of_arrays(named, print_, settings, inputs)
    first, second = (
        path / "train",
        next((path / w for w in _VALIDATION if (path / w).is_dir()), None),
    )
    if not first.is_dir():
        return Parts(path.name, of_table(where, path, print_, settings, inputs), fingerprint=print_)
    train = of_table(where, first, print_, settings, inputs)
    found = Parts(path.name, train, fingerprint=print_)
    if second is None:
        return found
    same = replace(settings, classes=settings.classes or train.classes)
    return replace(found, validation=of_table(where, second, print_, same, inputs))


def fingerprint_of(where: str, directory: Path = Path(), *, digest: Digest = fingerprint) -> str:
    """A hash of the data, or what its code states; else `unverified:` and the code's name."""
    if not where.startswith(columns.PREFIX):
        return digest(directory / where)
    return columns.stated_fingerprint(columns.load(where, directory)) or f"{UNVERIFIED}{where}"


def _of_arrays(
    named: Named, print_: str | None, settings: Settings, wanted: Sequence[Wanted]
) -> Parts:
    train, validation = _parted(named.members)
    found = chosen(replace(named, members=train), print_, settings, wanted)
    parts = Parts(named.name, found, fingerprint=print_)
    if not validation:
        return parts
    same = replace(settings, classes=settings.classes or found.classes)
    return replace(parts, validation=chosen(Named(named.name, validation), print_, same, wanted))


def _parted(members: Mapping[str, Column]) -> tuple[Mapping[str, Column], Mapping[str, Column]]:
    """Both parts under names that say nothing of the part; what is for tests is in neither."""
    plain: dict[str, Column] = {}
    parts: dict[str, dict[str, Column]] = {"train": {}, "val": {}, "test": {}}
    for name, column in members.items():
        found, turned = _SUFFIXED.match(name), _PREFIXED.match(name)
        if found:
            base, part = found[1], found[2].lower()
        elif turned:
            part, base = turned[1].lower(), turned[2]
        else:
            plain[name] = column
            continue
        parts["val" if part in _VALIDATION else part][base] = column
    train = {**plain, **parts["train"]}
    # With nothing else than arrays called so, these are all there is.
    return (train, parts["val"]) if train else (members, {})


def _of_code(where: str, settings: Settings, wanted: Sequence[Wanted], directory: Path) -> Parts:
    function = columns.load(where, directory)
    print_ = columns.stated_fingerprint(function)
    if not _takes_step(function):
        named = Named(where, columns.called(function, where))
        return _of_arrays(named, print_, settings, wanted)
    if settings != Settings():
        raise UsageError(
            f"config.data says how rows are read, and {where} makes batches",
            why="what it makes is taken as it is",
        )
    other = getattr(function, "validation", None)
    validation = None
    if other is not None:
        named = Named(where, columns.called(other, f"{where}.validation"))
        validation = chosen(named, print_, settings, wanted)
    return Parts(where, None, validation, function, print_)


def _takes_step(function: Any) -> bool:
    """Whether it must be given a seed and a step, and makes a batch, not all rows at once."""
    try:
        given = inspect.signature(function)
        needed = [each for each in given.parameters.values() if each.default is each.empty]
        given.bind(0, 1)
    except (TypeError, ValueError):
        return False
    return any(each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD) for each in needed)
