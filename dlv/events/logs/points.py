"""What reading a log brings: points, which of them a restart hides, metadata, what is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

UNKNOWN, SCALAR, TENSOR, BLOBS = range(4)  # data classes


@dataclass(frozen=True)
class Metadata:
    """What the first value of a tag says about all of them."""

    tag: str
    plugin: str
    data_class: int
    content: bytes
    display_name: str
    description: str


@dataclass(frozen=True)
class ScalarPoints:
    """Points of one tag in the order in which they were written."""

    tag: str
    steps: NDArray[np.int64]
    walls: NDArray[np.float64]
    values: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True)
class TensorPoint:
    """`data`: elements, little-endian in C order; strings as u32 length and bytes each.

    `legacy` keeps an old histogram, of which the tensor leaves something out: little-endian
    float64 min, max, num, sum, sum of squares, then the limits and then the counts of its buckets
    (old_summaries.OldHistogram reads it).
    """

    tag: str
    step: int
    wall: float
    dtype: str
    shape: tuple[int, ...]
    data: bytes
    legacy: bytes = b""


@dataclass(frozen=True)
class BlobPoint:
    tag: str
    step: int
    wall: float
    blobs: tuple[bytes, ...]


@dataclass(frozen=True)
class Hide:
    """Points before this item, of the tag (None: of the whole run), from `step` on are hidden."""

    tag: str | None
    step: int
    policy: Literal["marked"] = "marked"


Item = ScalarPoints | TensorPoint | BlobPoint | Hide


@dataclass(frozen=True)
class Fault:
    """Values of a tag (None: of the log) that were left out; with `warning`, nothing was."""

    tag: str | None
    message: str
    warning: bool = False


@dataclass(frozen=True)
class Window:
    """A piece of a log: items in the order written; the log is good up to `offset`.

    A ScalarPoints gathers points of its tag that had points of others between them, but never
    a Hide.
    """

    items: Sequence[Item]
    metadata: Sequence[Metadata]
    faults: Sequence[Fault]
    offset: int
