"""A matrix beside its base: the difference between them as integers and as numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field

import numpy as np
from numpy.typing import NDArray

from dlv.dataclass import dataclass
from dlv.pas.coders.contexts import magnitudes, view
from dlv.pas.deltas.predictors import Predictor
from dlv.pas.floats import (
    Format,
    Words,
    differences,
    exponents,
    format_of,
    signed_words,
    values_of_words,
)

Singles = NDArray[np.float32]

BLOCK = 1 << 18  # elements per block of rows: what is computed with a block stays in the cache
GREATEST = 2.0**60  # larger numbers are not weights, and their squares may overflow
SAMPLE = 1 << 15  # elements that a choice is made by
SAMPLE_RUN = 1 << 12  # at most so many of them in a row


@dataclass
class Pair:
    """Words of a target and of its base, and the predictors between them."""

    target: Words
    base: Words
    dtype: str
    shape: tuple[int, ...]
    predictors: Sequence[Predictor] = field(default=())

    def __post_init__(self) -> None:
        self.form = format_of(self.dtype)
        self.rows, self.columns = view(self.shape)

    def with_predictors(self, predictors: Sequence[Predictor]) -> Pair:
        return Pair(self.target, self.base, self.dtype, self.shape, predictors)

    def predicted(self, start: int, stop: int) -> Words:
        words: Words = self.base[start:stop]
        for predictor in self.predictors:
            words = predictor.apply(words, start)
        return words

    def digits(self, start: int, stop: int) -> Words:
        """Differences to the prediction, as balanced digits."""
        return differences(self.target[start:stop], self.predicted(start, stop), self.form)

    def signed(self, start: int, stop: int) -> NDArray[np.int64]:
        """Differences to the prediction."""
        return signed_words(self.digits(start, stop), self.form).astype(np.int64)

    def blocks(self) -> Iterator[slice]:
        """Blocks of whole rows."""
        step = max(1, BLOCK // max(1, self.columns))
        for first in range(0, self.rows, step):
            yield slice(first, min(first + step, self.rows))

    def sample(self) -> Iterator[tuple[int, int]]:
        """Runs of elements from all over the matrix, short rows whole."""
        size = len(self.target)
        if size <= SAMPLE:
            yield 0, size
            return
        run = max(2048, min(self.columns, SAMPLE_RUN))
        count = max(1, SAMPLE // run)
        for index in range(count):
            start = (size - run) * index // max(1, count - 1)
            if run == self.columns:
                start -= start % run
            yield start, start + run

    def cost(self) -> float:
        """Bits per element of the difference, near enough to choose by."""
        total, count = 0.0, 0
        for start, stop in self.sample():
            total += float(
                magnitude_bits(self.digits(start, stop), self.form).sum(dtype=np.float64)
            )
            count += stop - start
        return total / max(1, count) - float(np.log2(0.3))

    def moved(self, rows: slice) -> tuple[Singles, Singles]:
        """The base as predicted so far and the difference in a block of rows, 0 where not usual."""
        at = slice(rows.start * self.columns, rows.stop * self.columns)
        grid = (rows.stop - rows.start, self.columns)
        base = self.predicted(at.start, at.stop)
        target = self.target[at]
        with np.errstate(invalid="ignore", over="ignore", under="ignore"):
            if self.form.width == 8:
                wide = base.view("<f8")
                was = wide.astype(np.float32)
                moved = (target.view("<f8") - wide).astype(np.float32)
            else:
                was = _singles(base, self.dtype)
                moved = _singles(target, self.dtype) - was
            if not (_greatest(was) < GREATEST > _greatest(moved)):
                usual = (np.abs(was) < GREATEST) & (np.abs(moved) < GREATEST)
                was, moved = (np.where(usual, part, np.float32(0)) for part in (was, moved))
        return was.reshape(grid), moved.reshape(grid)

    def exact(self, rows: slice) -> NDArray[np.float64]:
        """The difference in a block of rows to the last bit that float64 has, 0 where not usual."""
        at = slice(rows.start * self.columns, rows.stop * self.columns)
        words = self.predicted(at.start, at.stop), self.target[at]
        full = (1 << self.form.exponent) - 1
        good = np.logical_and(*(exponents(some, self.form) != full for some in words))
        zero = self.form.words.type(0)
        was, moved = (values_of_words(np.where(good, some, zero), self.dtype) for some in words)
        for values in (was, moved):
            values[np.abs(values) > GREATEST] = 0.0
        moved -= was
        return moved.reshape(rows.stop - rows.start, self.columns)


def _greatest(values: Singles) -> float:
    """The greatest magnitude; NaN if there is one."""
    return float(max(values.max(initial=0), -values.min(initial=0)))


def _singles(words: Words, dtype: str) -> Singles:
    if dtype == "bfloat16":
        wide: Singles = (words.astype("<u4") << np.uint32(16)).view("<f4")
        return wide
    narrow: Singles = words.view(f"<f{words.dtype.itemsize}").astype(np.float32, copy=False)
    return narrow


def magnitude_bits(digits: Words, form: Format) -> Singles:
    """The bits that each element's difference takes, but for a constant."""
    size: Singles = magnitudes(digits, form)
    size += np.float32(0.3)
    np.log2(size, out=size)
    return size
