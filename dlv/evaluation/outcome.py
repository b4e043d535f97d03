"""What an evaluation found: labels, figures, and what was read for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dlv.evaluation.answers import OPEN, Level


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
