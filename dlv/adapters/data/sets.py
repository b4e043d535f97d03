"""Data sets for testing and training: rows and labels from arrays, CSV, images, or code."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import dlv.adapters.data.code as data_code
import dlv.adapters.data.csv as data_csv
import dlv.adapters.data.images as data_images
import dlv.adapters.numpy.npz as npz
from dlv.adapters import archive
from dlv.adapters.data import columns
from dlv.adapters.data.columns import Column
from dlv.adapters.data.labels import coded
from dlv.adapters.data.settings import INPUT_KEYS, LABEL_KEYS, Settings
from dlv.adapters.numpy import npy
from dlv.adapters.source import Source
from dlv.canonical import hash_of, hasher
from dlv.errors import NotFound, UsageError, nearest
from dlv.kinds import Array


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

    def _factors(self, given: tuple[float, ...] | None) -> Array | None:
        """One number for all, or one for each channel: the axis that has so many."""
        if given is None or len(given) == 1:
            return None if given is None else np.array(given[0])
        for axis in (0, len(self.shape) - 1):
            if self.shape and self.shape[axis] == len(given):
                sides = [len(given) if place == axis else 1 for place in range(len(self.shape))]
                return np.array(given).reshape(sides)
        raise UsageError(
            f"{len(given)} numbers of data.mean or data.std do not fit rows of {_text(self.shape)}",
            why="one is wanted, or one for each channel",
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


_BLOCK = 1 << 20


@dataclass(frozen=True)
class Wanted:
    """An input of a network: its shape without the axis of the batch, None where not known."""

    name: str
    shape: tuple[int | None, ...] | None = None


@dataclass
class Data:
    """Rows of one or several inputs, with labels or without.

    `classes`: names of the labels 0, 1, ..; `told` if the settings gave them, and did not follow
    from what the data happens to hold. `fingerprint` is of the content, None where that is code.
    """

    name: str
    inputs: dict[str, Column]
    labels: Column | None
    count: int
    fingerprint: str | None
    classes: tuple[str, ...] | None = None
    told: bool = False
    notes: list[str] = field(default_factory=list)


def open_data(
    where: str, settings: Settings, wanted: Sequence[Wanted], directory: Path = Path()
) -> Data:
    """The rows of a file, a folder, or `python:module:function`, as `wanted` names the inputs.

    Names are relative to `directory`. Nothing large is read before it is asked for.
    """
    if where.startswith(data_code.PREFIX):
        called = data_code.call(where, directory)
        return _chosen(where, called.columns, called.fingerprint, settings, wanted)
    path = directory / where
    named = arrays_of(path, settings, directory)
    if named is not None:
        return chosen(named, fingerprint(path), settings, wanted)
    return of_table(where, path, fingerprint(path), settings, wanted)


@dataclass(frozen=True)
class Named:
    """Arrays of a file or a folder by name; `alone`: the one that is the input, if it is known."""

    name: str
    members: Mapping[str, Column]
    alone: str | None = None


def arrays_of(path: Path, settings: Settings, directory: Path = Path()) -> Named | None:
    """What `.npz`, `.npy` and folders of these hold; None for images, CSV and all else."""
    if path.is_dir():
        arrays = sorted(path.glob("*.npy"))
        return Named(path.name, {file.stem: _npy(file) for file in arrays}) if arrays else None
    file = Source(str(path))
    head = bytes(file.read(0, min(6, file.size)))
    if head[:4] in (b"PK\x03\x04", b"PK\x05\x06"):
        return Named(file.name, _members(file))
    if head == npy.MAGIC:
        beside = _beside(path, settings, directory)
        members = {path.stem: columns.of_file(file.name, file), **beside}
        return Named(file.name, members, path.stem)
    return None


def chosen(named: Named, digest: str | None, settings: Settings, wanted: Sequence[Wanted]) -> Data:
    """The inputs and the labels among named arrays."""
    return _chosen(named.name, named.members, digest, settings, wanted, alone=named.alone)


def of_table(
    where: str, path: Path, digest: str | None, settings: Settings, wanted: Sequence[Wanted]
) -> Data:
    """A folder of images, or CSV; UsageError for what is none."""
    if path.is_dir():
        images = data_images.read(path, settings, [each.shape for each in wanted])
        found = Data(path.name, {_only(wanted, where): images.pixels}, images.labels, 0, None)
        found.classes, found.told = images.classes, settings.classes is not None
        return _finished(found, settings, digest)
    if path.suffix.lower() in (".csv", ".tsv", ".txt"):
        file = Source(str(path))
        table = data_csv.read(file, settings)
        found = Data(file.name, {_only(wanted, where): table.rows}, table.labels, 0, None)
        return _finished(found, settings, digest)
    raise UsageError(
        f"{where} is no data that dlv reads",
        why="it reads .npz, .npy, .csv, a folder of images or of .npy, python:module:function",
    )


def of_arrays(name: str, given: Any, settings: Settings, wanted: Sequence[Wanted]) -> Data:
    """The rows of what Python holds: x, (x, y), a dict of arrays, an iterator over batches."""
    return _chosen(name, data_code.columns_of(given, name), None, settings, wanted)


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
                found[name] = columns.of_entry(f"{name} in {file.name}", file, entry, header)
    return found


def _npy(path: Path) -> Column:
    return columns.of_file(path.name, Source(str(path)))


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
            f"{where} holds one array of rows, and the network takes {len(wanted)} inputs",
            why=", ".join(each.name for each in wanted),
            hint="an .npz with an array for each",
        )
    return wanted[0].name


def _chosen(
    name: str,
    members: Mapping[str, Column],
    digest: str | None,
    settings: Settings,
    wanted: Sequence[Wanted],
    *,
    alone: str | None = None,
) -> Data:
    """The inputs and the labels among named arrays."""
    labels = None
    if settings.labels is not False:
        labels = _key(name, members, settings.labels or None, LABEL_KEYS, "labels", needed=False)
    rest = {key: column for key, column in members.items() if key != labels}
    inputs: dict[str, Column] = {}
    for each in wanted:
        told = settings.inputs.get(each.name)
        usual = (each.name, *(INPUT_KEYS if len(wanted) == 1 else ()))
        if len(wanted) == 1:
            told = told or settings.inputs.get("") or alone
        key = _key(name, rest, told, usual, f"the input `{each.name}`", needed=len(rest) != 1)
        inputs[each.name] = rest[key or next(iter(rest))]
    found = Data(name, inputs, None if labels is None else members[labels], 0, digest)
    return _finished(found, settings, digest)


def _key(
    name: str,
    members: Mapping[str, Column],
    told: str | None,
    usual: Sequence[str],
    what: str,
    *,
    needed: bool,
) -> str | None:
    if told is not None:
        if told not in members:
            raise UsageError(
                f"{name} has no array `{told}`",
                why=f"it has {', '.join(members) or 'none'}",
                did_you_mean=nearest(told, members),
            )
        return told
    found = next((key for key in usual if key in members), None)
    if found is None and needed:
        setting = "data.labels=KEY" if what == "labels" else "data.inputs=KEY"
        raise UsageError(
            f"which array of {name} is {what}?",
            why=f"it has {', '.join(members) or 'none'}; looked for {', '.join(usual[:6])}",
            hint=f"--set {setting}",
        )
    return found


def _finished(found: Data, settings: Settings, digest: str | None) -> Data:
    """Counts compared, rows cut and prepared as the settings say, labels as numbers."""
    every = [*found.inputs.values(), *([found.labels] if found.labels is not None else [])]
    counts = {column.count for column in every}
    if len(counts) > 1:
        raise UsageError(
            f"the arrays of {found.name} have different numbers of rows",
            why=", ".join(f"{column.name}: {column.count}" for column in every),
        )
    found.fingerprint = digest
    found.count = min(counts.pop(), settings.rows or 1 << 62)
    if not found.count:
        raise UsageError(f"{found.name} has no rows")
    for name, column in found.inputs.items():
        if not math.prod(column.shape):
            raise UsageError(f"the rows of {column.name} are empty", why=f"{column.shape}")
        if column.dtype.kind not in "biuf":
            raise UsageError(f"{column.name} holds no numbers", why=f"its dtype is {column.dtype}")
        found.inputs[name] = prepare_columns(column, settings)
    if found.labels is not None:
        had = settings.classes or found.classes
        labels, classes = coded(found.labels, found.count, had)
        found.labels, found.classes = labels, classes
        found.told = settings.classes is not None
    return found
