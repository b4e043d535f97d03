"""A matrix as far as its first planes tell it: centre, bounds, and what was read for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dlv.errors import UsageError
from dlv.pas.level import Unusable
from dlv.weights import MatrixStore

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Approximation:
    """`low <= number <= high` for each number; `centre` lies between them.

    float64, in the matrix's shape (of complex numbers with one more axis: real, imaginary).
    `exact`: all planes were needed, or the matrix has no more; the three are the numbers then.
    `planes` is what was asked for; `whole` are the bytes that exact numbers take.
    """

    centre: Floats
    low: Floats
    high: Floats
    exact: bool
    planes: int
    bytes_read: int
    whole: int
    why: str | None = None  # why the first planes did not do

    @property
    def share(self) -> float:
        """Of the bytes that exact numbers take, the part that was read."""
        return self.bytes_read / self.whole if self.whole else 1.0


def approximate(
    store: MatrixStore, matrix: str, dtype: str, shape: Sequence[int], planes: int
) -> Approximation:
    """The first planes of a matrix, or all of it where they bound nothing."""
    if planes < 1:
        raise UsageError(f"{planes} planes tell nothing", hint="give 1 or more")
    whole = store.bytes_behind(matrix)
    found = store.level(matrix, planes)
    spent, why = 0, None
    if isinstance(found, Unusable):
        # What was read in vain counts too.
        spent, why = found.bytes_read, found.why
        found = store.level(matrix, _ALL)
    if isinstance(found, Unusable):
        raise UsageError(
            f"a matrix of {dtype} {list(shape)} has no numbers that dlv understands",
            why=found.why,
            hint="read its bytes instead",
        )
    return Approximation(
        *(found.centre, found.low, found.high, found.exact, planes),
        *(found.bytes_read + spent, whole, why),
    )


_ALL = 1 << 20
