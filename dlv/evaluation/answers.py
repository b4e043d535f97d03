"""What an evaluation found: labels, figures, and what was read for them level by level."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dlv.kinds import Array

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
class Watched:
    """How far an evaluation is, for a progress bar; `examined` of `before` rows of this level."""

    level: int
    levels: int
    examined: int
    before: int
    determined: int
    rows: int
    bytes_read: int


@dataclass(frozen=True)
class Settings:
    """How rows are told. `batch`: the size of the batches of a plain evaluation of the same."""

    reference: str = "f64"
    top_k: int = 1
    max_bytes: int | None = None
    tighten: bool = False
    batch: int = BATCH
    seed: int = 0
    watch: Callable[[Watched], None] | None = None


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
        return int((self.told == OPEN).sum()) - self.not_finite

    @property
    def told(self) -> Labels:
        """What counts for a row to be determined; -1 where it is not."""
        return self.labels if self.sets is None else self.sets[:, 0]


@dataclass(frozen=True)
class Told:
    """Of a batch: labels and sets, and for which rows they hold."""

    labels: Labels
    sure: NDArray[np.bool_]
    sets: Labels | None = None
    sure_sets: NDArray[np.bool_] | None = None


def first_labels(scores: Array) -> Labels:
    """The label of each row: the first of the classes with the highest score."""
    found: Labels = scores.argmax(axis=1).astype(np.int64)
    return found


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


@dataclass
class Evaluation:
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
