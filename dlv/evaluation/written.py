"""Labels and activations as files: CSV, and numpy's archives."""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

import numpy as np

import dlv.disk.user_files as user_files
from dlv.adapters.data.columns import Column, Held
from dlv.adapters.numpy import npy
from dlv.errors import Conflict, UsageError
from dlv.evaluation.answers import OPEN, Evaluation
from dlv.evaluation.rows import Rows
from dlv.kinds import Array

Until = ExitStack | None  # as `user_files.replacing` has it
_ROWS = 1 << 14


def check_output(path: Path, suffixes: Sequence[str], *, force: bool) -> None:
    """Before anything is computed: whether a file of that name may be written."""
    if path.suffix.lower() not in suffixes:
        raise UsageError(
            f"{path} would be of no format that is written here",
            why=f"its name must end with {' or '.join(suffixes)}",
        )
    if path.exists() and not force:
        raise Conflict(f"{path} is there already", hint="--force writes over it")
    if not path.parent.is_dir():
        raise UsageError(f"there is no folder {path.parent}")


def write_labels(path: Path, found: Sequence[Evaluation], rows: Rows, until: Until = None) -> None:
    """A row for each example: its number, its own label, the label that each version gave."""
    if not all(each.class_count for each in found):
        raise UsageError("there are no labels to write", why="the network predicts values")
    if path.suffix.lower() == ".csv":
        with user_files.replacing(path, until=until) as out:
            _csv(out, found, rows)
    else:
        with user_files.replacing(path, until=until) as out:
            write_npz(out, _label_columns(found, rows))


def write_activations(path: Path, columns: Mapping[str, Column], until: Until = None) -> None:
    """An array for each node, a row for each example."""
    with user_files.replacing(path, until=until) as out:
        write_npz(out, columns)


def _csv(out: BinaryIO, found: Sequence[Evaluation], rows: Rows) -> None:
    text = io.TextIOWrapper(out, encoding="utf-8", newline="")
    writer = csv.writer(text, lineterminator="\n")
    classes = rows.data.classes
    titles = ["label"] if len(found) == 1 else [each.version for each in found]
    writer.writerow(["row", *(["true"] if rows.has_labels else []), *titles])

    def name(label: int) -> str:
        if label == OPEN:
            return ""
        return str(label) if classes is None or label >= len(classes) else classes[label]

    truths = rows.labels() if rows.has_labels else ((s, None) for s in range(0, rows.count, _ROWS))
    for start, truth in truths:
        count = min(_ROWS, rows.count - start) if truth is None else len(truth)
        for at in range(count):
            told = [name(int(each.labels[start + at])) for each in found]
            true = [] if truth is None else [name(int(truth[at]))]
            writer.writerow([start + at, *true, *told])
    text.flush()
    text.detach()


def _label_columns(found: Sequence[Evaluation], rows: Rows) -> dict[str, Column]:
    columns: dict[str, Column] = {}
    if rows.data.labels is not None:
        columns["true"] = _Cut(rows.data.labels, rows.count)
    if len(found) == 1:
        columns["labels"] = Held("labels", found[0].labels)
        if found[0].sets is not None:
            columns["sets"] = Held("sets", found[0].sets)
        if found[0].proved is not None:
            columns["guaranteed"] = Held("guaranteed", found[0].proved)
    else:
        columns["labels"] = Held("labels", np.stack([each.labels for each in found], axis=1))
    return columns


class _Cut:
    """The first rows of a column."""

    def __init__(self, column: Column, count: int) -> None:
        self.name, self.dtype, self.shape = column.name, column.dtype, column.shape
        self.count = count
        self._column = column

    def read(self, start: int, stop: int) -> Array:
        return self._column.read(start, stop)


def write_npz(out: BinaryIO, columns: Mapping[str, Column]) -> None:
    """What `numpy.savez` would write, some rows at a time."""
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as target:
        for name, column in columns.items():
            header = npy.make(column.dtype.name, (column.count, *column.shape))
            if header is None:
                raise UsageError(f"npz cannot hold {column.dtype}", why=f"of {column.name}")
            info = zipfile.ZipInfo(f"{name}.npy", (1980, 1, 1, 0, 0, 0))
            info.external_attr = 0o644 << 16
            with target.open(info, "w", force_zip64=True) as member:
                member.write(header)
                for start in range(0, column.count, _ROWS):
                    rows = column.read(start, min(start + _ROWS, column.count))
                    little = rows.astype(rows.dtype.newbyteorder("<"), copy=False)
                    member.write(little.tobytes())
