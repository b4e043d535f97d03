"""What trainers learn from, and what they are tested on; and what readers of files hand in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np

from dlv.dataclass import dataclass
from dlv.kinds import Array

# An input of a network, and its shape without the batch; None: of unknown length.
Wanted = tuple[str, tuple[int | None, ...] | None]


class Column(Protocol):
    """Rows of an array that lie somewhere; `shape` is that of one of them."""

    @property
    def name(self) -> str: ...
    @property
    def dtype(self) -> np.dtype[Any]: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def count(self) -> int: ...
    def read(self, start: int, stop: int) -> Array: ...


class Part(Protocol):
    """One set of rows, opened."""

    @property
    def name(self) -> str: ...
    @property
    def inputs(self) -> Mapping[str, Column]: ...
    @property
    def labels(self) -> Column | None: ...
    @property
    def count(self) -> int: ...
    @property
    def classes(self) -> tuple[str, ...] | None: ...


class Source(Protocol):
    """What a reader gives: rows to train on, rows to validate on, or batches that code makes."""

    @property
    def name(self) -> str: ...
    @property
    def train(self) -> Part | None: ...
    @property
    def validation(self) -> Part | None: ...
    @property
    def batches(self) -> Callable[[int, int], Any] | None: ...
    @property
    def fingerprint(self) -> str | None: ...


@dataclass(frozen=True)
class Rows:
    """Arrays by the names of the network's inputs; labels as the data has them."""

    inputs: Mapping[str, Array]
    labels: Array | None
    count: int

    def take(self, places: Array | slice) -> Rows:
        """Some of them, as a copy."""
        inputs = {name: array[places] for name, array in self.inputs.items()}
        labels = None if self.labels is None else self.labels[places]
        return Rows(inputs, labels, len(next(iter(inputs.values()))))


@dataclass(frozen=True)
class Data:
    """`batches(seed, step)` instead of `train` where code makes every batch anew."""

    name: str
    train: Rows | None
    validation: Rows | None
    classes: tuple[str, ...] | None = None
    batches: Callable[[int, int], Rows] | None = None
