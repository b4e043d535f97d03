"""The results of an evaluation: labels, metrics, bytes read level by level; and their files."""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

import dlv.disk.user_files as user_files
from dlv.adapters import npz
from dlv.adapters.data.columns import Column, Held
from dlv.dataclass import dataclass
from dlv.errors import Conflict, UsageError
from dlv.evaluation.data import Rows
from dlv.kinds import Array
from dlv.shown import Shown, frame

Labels = NDArray[np.int64]

OPEN = -1  # the label of a row that was not determined
BATCH = 64


class NoBounds(Exception):
    """Labels cannot be told before all of the weights are read; nothing of them was read yet."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


@dataclass(frozen=True)
class Level:
    """After a level: bits read of each number of every matrix, bytes fetched and rows told so far.

    `share`: of the bits of all numbers, biases and the like included.
    """

    bits: Mapping[str, int]
    bytes_read: int
    raw_read: int
    share: float
    determined: int
    open: int


@dataclass(frozen=True)
class Progress:
    """How far the evaluation of a version is: `done` of its rows have a label."""

    rows: int
    done: int
    bytes_read: int
    version: str = ""


@dataclass(frozen=True)
class Settings:
    """How labels are determined; `batch`: the batch size of a full evaluation of the same rows."""

    reference: str = "f64"
    top_k: int = 1
    max_bytes: int | None = None
    tighten: bool = False
    batch: int = BATCH
    seed: int = 0
    watch: Callable[[Progress], None] = lambda _: None


@dataclass
class Answers:
    """Labels, and with `top_k` > 1 the sets of the first classes, both -1 where not determined.

    A set may be told of a row whose first label is not. `proved`: the rows whose label, or set,
    bounds prove; the others have what the full evaluation, or completions, said. `fallback`: why
    rows were left to the full evaluation. `confidence`: of the calibrated mode, which promises
    nothing.
    """

    labels: Labels
    sets: Labels | None
    mode: str = "progressive"
    reference: str = "f64"
    levels: list[Level] = field(default_factory=list)
    fallback: str | None = None
    confidence: Mapping[str, float] | None = None
    bytes_read: int = 0
    raw_read: int = 0
    not_finite: int = 0  # rows that were computed, and have a NaN among their scores: no label
    evaluated: int = 0  # rows that nothing but the full evaluation decided
    proved: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, bool))

    def __post_init__(self) -> None:
        if not len(self.proved):
            self.proved = np.zeros(len(self.labels), bool)

    @property
    def open(self) -> int:
        """Rows that were not determined."""
        return int((self.determined == OPEN).sum()) - self.not_finite

    @property
    def determined(self) -> Labels:
        """The labels, or the first of each set, that make a row determined; -1 where it is not."""
        return self.labels if self.sets is None else self.sets[:, 0]


@dataclass(frozen=True)
class Verdicts:
    """Labels and sets of a batch, and for which of its rows they hold."""

    labels: Labels
    sure: NDArray[np.bool_]
    sets: Labels | None = None
    sure_sets: NDArray[np.bool_] | None = None


def first_labels(scores: Array) -> Labels:
    """The label of each row: the first of the classes with the highest score."""
    labels: Labels = scores.argmax(axis=1).astype(np.int64)
    return labels


def first_sets(scores: Array, top_k: int) -> Labels:
    """The classes with the highest scores, of equal ones the first; NaN comes last."""
    with np.errstate(all="ignore"):
        order = np.argsort(-np.asarray(scores, np.float64), axis=1, kind="stable")
    found: Labels = order[:, :top_k].astype(np.int64)
    return found


@dataclass(frozen=True)
class Confusion:
    """How many rows of each class (rows) got each label (columns); `open`: those without one."""

    counts: NDArray[np.int64]
    open: NDArray[np.int64]


@dataclass(frozen=True)
class Mistake:
    """One example. `image`: gray [height, width] or colors [height, width, 3], of bytes."""

    example: int
    label: str
    prediction: str
    image: Array | None


@dataclass
class Evaluation(Shown):
    """One snapshot tested on one data set.

    `labels` holds -1 for rows without one. `mode`: full, progressive or calibrated. `reference`:
    what the labels are those of, f64, strict or float32. `metrics` that cannot be known are not
    in it; `between` has the least and the greatest value that they can have.
    """

    version: str
    id: str
    step: int | None
    rows: int
    labels: NDArray[np.int64]
    top_k: int = 1
    sets: NDArray[np.int64] | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    between: dict[str, tuple[float, float]] = field(default_factory=dict)
    mode: str = "full"
    reference: str = "f64"
    engine: str = "numpy"
    engine_why: str | None = None  # it is not the one that was expected
    bounds_verified: bool = True
    confidence: Mapping[str, float] | None = None
    fallback: str | None = None
    levels: Sequence[Level] = ()
    bytes_read: int = 0
    bytes_whole: int = 0
    raw_read: int = 0
    raw_whole: int = 0
    seconds: float = 0.0
    class_count: int | None = None  # None: the network predicts values
    confusion: Confusion | None = None
    classes: tuple[str, ...] | None = None
    evaluated: int = 0  # rows that nothing but the full evaluation decided
    not_finite: int = 0  # rows among whose scores is a NaN
    proved: NDArray[np.bool_] | None = None  # rows whose label, or set, bounds prove; None: none
    notes: list[str] = field(default_factory=list)
    mistakes: Sequence[Mistake] = ()

    def __repr__(self) -> str:
        at = "" if self.step is None else f"/{self.step}"
        values = "".join(f", {name} {value:.4g}" for name, value in self.metrics.items())
        return f"<dlv evaluation of {self.version}{at}: {self.rows} examples{values}>"

    def to_pandas(self) -> Any:
        """A DataFrame with a row for each example: prediction, and whether it is guaranteed."""
        proved = [None] * self.rows if self.proved is None else self.proved.tolist()
        names = self.classes
        told = [
            None
            if label == OPEN
            else label
            if names is None or label >= len(names)
            else names[label]
            for label in self.labels.tolist()
        ]
        return frame(
            zip(range(self.rows), told, proved, strict=True),
            ["example", "prediction", "guaranteed"],
        )

    @property
    def accuracy(self) -> float | None:
        return self.metrics.get("accuracy")

    @property
    def guaranteed(self) -> int:
        """Rows whose label, or set of labels, is proved to be that of every reference."""
        return 0 if self.proved is None else int(self.proved.sum())

    @property
    def open(self) -> int:
        """Rows that were not determined; with `top_k` > 1, whose set was not."""
        told = self.labels if self.sets is None else self.sets[:, 0]
        return int((told == OPEN).sum()) - self.not_finite


Until = ExitStack | None  # as `user_files.replacing` has it
_ROWS = 1 << 14


def check_output(path: Path, suffixes: Sequence[str], *, force: bool) -> None:
    """Before anything is computed: whether a file of that name may be written."""
    if path.suffix.lower() not in suffixes:
        raise UsageError(
            f"cannot write {path}: unknown format",
            why=f"its name must end with {' or '.join(suffixes)}",
        )
    if path.exists() and not force:
        raise Conflict(f"{path} already exists", hint="to overwrite it: dlv eval -f ...")
    if not path.parent.is_dir():
        raise UsageError(f"no such directory: {path.parent}")


def write_labels(
    path: Path, results: Sequence[Evaluation], rows: Rows, until: Until = None
) -> None:
    """A row for each example: its number, its own label, the label that each version gave."""
    if not all(each.class_count for each in results):
        raise UsageError("no labels to write", why="the network predicts values")
    if path.suffix.lower() == ".csv":
        with user_files.replacing(path, until=until) as out:
            _csv(out, results, rows)
    else:
        with user_files.replacing(path, until=until) as out:
            write_npz(out, _label_columns(results, rows))


def write_activations(path: Path, columns: Mapping[str, Column], until: Until = None) -> None:
    """An array for each node, a row for each example."""
    with user_files.replacing(path, until=until) as out:
        write_npz(out, columns)


def _csv(out: BinaryIO, results: Sequence[Evaluation], rows: Rows) -> None:
    text = io.TextIOWrapper(out, encoding="utf-8", newline="")
    writer = csv.writer(text, lineterminator="\n")
    classes = rows.data.classes
    titles = ["label"] if len(results) == 1 else [each.version for each in results]
    writer.writerow(["row", *(["true"] if rows.has_labels else []), *titles])

    def name(label: int) -> str:
        if label == OPEN:
            return ""
        return str(label) if classes is None or label >= len(classes) else classes[label]

    truths = rows.labels() if rows.has_labels else ((s, None) for s in range(0, rows.count, _ROWS))
    for start, truth in truths:
        count = min(_ROWS, rows.count - start) if truth is None else len(truth)
        for at in range(count):
            told = [name(int(each.labels[start + at])) for each in results]
            true = [] if truth is None else [name(int(truth[at]))]
            writer.writerow([start + at, *true, *told])
    text.flush()
    text.detach()


def _label_columns(results: Sequence[Evaluation], rows: Rows) -> dict[str, Column]:
    columns: dict[str, Column] = {}
    if rows.data.labels is not None:
        columns["true"] = _Cut(rows.data.labels, rows.count)
    if len(results) == 1:
        columns["labels"] = Held("labels", results[0].labels)
        if results[0].sets is not None:
            columns["sets"] = Held("sets", results[0].sets)
        if results[0].proved is not None:
            columns["guaranteed"] = Held("guaranteed", results[0].proved)
    else:
        columns["labels"] = Held("labels", np.stack([each.labels for each in results], axis=1))
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
            header = npz.make(column.dtype.name, (column.count, *column.shape))
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
