"""A target and its base as a fit sees them: block by block, as words and as numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dlv.kinds import Floats
from dlv.pas.coders.contexts import view
from dlv.pas.deltas.predictors import Predictor, values_of_words
from dlv.pas.floats import Format, Words, balanced, differences, exponents, format_of

BLOCK = 1 << 19  # elements per block of rows
LARGE = 60
GREATEST = 2.0**LARGE  # beyond this a number is no weight, and its square soon no number
SAMPLE = 1 << 17  # elements that a choice is made by


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
        return signed(self.digits(start, stop), self.form)

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
        run = max(2048, min(self.columns, 1 << 14))
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
            size = np.abs(self.signed(start, stop).astype(np.float32))
            total += float(np.log2(size + np.float32(0.3)).sum(dtype=np.float64))
            count += stop - start
        return total / max(1, count) - float(np.log2(0.3))

    def values(self, rows: slice) -> tuple[Floats, Floats]:
        """Base as predicted so far and the difference in a block of rows, 0 where not usual."""
        at = slice(rows.start * self.columns, rows.stop * self.columns)
        base = self.predicted(at.start, at.stop)
        target = self.target[at]
        usual = [exponents(words, self.form) for words in (base, target)]
        full = (1 << self.form.exponent) - 1
        if max(int(some.max(initial=0)) for some in usual) < min(full, full // 2 + LARGE):
            was, moved = values_of_words(base, self.dtype), values_of_words(target, self.dtype)
        else:
            good = (usual[0] != full) & (usual[1] != full)
            zero = self.form.words.type(0)
            was = values_of_words(np.where(good, base, zero), self.dtype)
            moved = values_of_words(np.where(good, target, zero), self.dtype)
            for values in (was, moved):
                values[np.abs(values) > GREATEST] = 0.0
        moved -= was
        grid = (rows.stop - rows.start, self.columns)
        return was.reshape(grid), moved.reshape(grid)


def signed(digits: Words, form: Format) -> NDArray[np.int64]:
    """Differences given as balanced digits."""
    eights = balanced(form)
    words = (digits ^ eights) - eights
    found: NDArray[np.int64] = words.view(f"<i{form.width}").astype(np.int64)
    return found
