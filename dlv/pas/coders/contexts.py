"""Contexts: how large the difference at each element is likely to be, known to the reader too.

A row, a column and the exponent of the base say on what scale an element moves. They give a
number q per element, in half octaves; with the digit of the plane above it makes the context
in which a digit is coded.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dlv.dataclass import dataclass
from dlv.errors import Damaged
from dlv.kinds import Bytes, Raw
from dlv.pas.coders import compiled
from dlv.pas.floats import Format, Words, signed_words

SEGMENT = 1 << 20  # elements; planes of large matrices are cut at its multiples
CONTEXTS = 128
Q_MAX = 127
STEPS = 32  # contexts per class of the digit above
_BLOCK = 1 << 17  # bytes handled at a time: they stay in the cache

# Most of a 16-bit matrix does not move at all: there a scale far below one unit still counts,
# so its scales are raised by eight octaves.
RAISED = 32
MAX_SCALE = 20000


def view(shape: Sequence[int]) -> tuple[int, int]:
    """Rows and columns of a matrix of any rank; 1-D and 0-d are one row."""
    if len(shape) < 2:
        return 1, math.prod(shape)
    return shape[0], math.prod(shape[1:])


@dataclass(frozen=True)
class Span:
    """A block of whole-width rows, or a part of one row, within a run of elements."""

    row: int
    rows: int
    column: int
    columns: int
    offset: int  # where in the run it begins

    @property
    def count(self) -> int:
        return self.rows * self.columns


def spans(start: int, count: int, columns: int) -> Iterator[Span]:
    """The run start .. start+count of a matrix in C order, as at most three spans."""
    stop, at = start + count, start
    if not count:
        return
    if at % columns:
        size = min(columns - at % columns, count)
        yield Span(at // columns, 1, at % columns, size, 0)
        at += size
    if whole := (stop - at) // columns:
        yield Span(at // columns, whole, 0, columns, at - start)
        at += whole * columns
    if at < stop:
        yield Span(at // columns, 1, 0, stop - at, at - start)


@dataclass(frozen=True)
class Scales:
    """Logarithms of how far rows and columns move, in quarter octaves."""

    rows: NDArray[np.int16]
    columns: NDArray[np.int16]

    @staticmethod
    def nbytes(shape: Sequence[int]) -> int:
        """Length of the side data."""
        return 2 * sum(view(shape))

    @classmethod
    def parse(cls, side: Raw, shape: Sequence[int]) -> Scales:
        """Scales from side data."""
        rows, columns = view(shape)
        if len(side) != 2 * (rows + columns):
            raise Damaged(
                "the scales of rows and columns have the wrong length",
                why=f"{len(side)} bytes for {rows} rows and {columns} columns",
            )
        both = np.frombuffer(side, "<i2").astype(np.int16)
        return cls(both[:rows], both[rows:])

    def tobytes(self) -> bytes:
        return self.rows.astype("<i2").tobytes() + self.columns.astype("<i2").tobytes()

    def q(self, exponents: NDArray[np.uint8] | NDArray[np.uint16], start: int) -> Bytes:
        """Expected size of the difference, half octaves, of elements start .. start+len.

        (row + column - 4 * exponent) >> 1 in 16-bit two's complement, then within 0 .. 127.
        """
        out = np.empty(len(exponents), np.uint8)
        loops = compiled.loops(len(exponents))
        if loops is not None and len(self.columns):
            wide = exponents.astype(np.uint16, copy=False)
            loops.sizes(self.rows, self.columns, wide, start, np.int16(Q_MAX), out)
            return out
        fours = np.left_shift(exponents.astype(np.int16), 2)
        for span in spans(start, len(exponents), len(self.columns)):
            columns = self.columns[span.column : span.column + span.columns]
            # Few rows at a time, so that what lies between stays in the cache.
            step = max(1, (1 << 15) // max(1, span.columns))
            for first in range(0, span.rows, step):
                some = min(step, span.rows - first)
                rows = self.rows[span.row + first : span.row + first + some]
                at = slice(
                    span.offset + first * span.columns, span.offset + (first + some) * span.columns
                )
                sums = np.add.outer(rows, columns)
                sums -= fours[at].reshape(sums.shape)
                np.right_shift(sums, 1, out=sums)
                np.clip(sums, 0, Q_MAX, out=sums)
                out[at].reshape(sums.shape)[...] = sums
        return out


class Measure:
    """Finds the scales of a matrix, run by run.

    `log` takes the mean of the logarithms, `linear` the logarithm of the mean: better where
    most differences are zero.
    """

    def __init__(self, shape: Sequence[int], form: Format) -> None:
        self._form = form
        self._rule: Literal["log", "linear"] = "linear" if form.width <= 2 else "log"
        rows, columns = view(shape)
        self._rows = np.zeros(rows, np.float64)
        self._columns = np.zeros(columns, np.float64)
        self._flat = rows == 1 and columns > 1

    def add(self, digits: Words, exponents: NDArray[np.uint16], start: int) -> None:
        """Take in the differences of elements start .. start+len, as balanced digits."""
        for span in spans(start, len(digits), len(self._columns)):
            step = max(1, (1 << 17) // max(1, span.columns))
            for first in range(0, span.rows, step):
                some = min(step, span.rows - first)
                at = slice(
                    span.offset + first * span.columns, span.offset + (first + some) * span.columns
                )
                sizes = self._sizes(digits[at], exponents[at]).reshape(some, span.columns)
                row = span.row + first
                self._rows[row : row + some] += sizes.sum(1, dtype=np.float64)
                if not self._flat:
                    stop = span.column + span.columns
                    self._columns[span.column : stop] += sizes.sum(0, dtype=np.float64)

    def finish(self) -> Scales:
        rows, columns = len(self._rows), len(self._columns)
        across, down = self._rows / max(1, columns), self._columns / max(1, rows)
        if self._rule == "linear":
            least = 2.0**-30
            mean = max(float(across.mean()), least) if rows else least
            across = np.log2(np.maximum(across, least))
            down = np.log2(np.maximum(down, least * mean) / mean)
            offset = RAISED + 4 * self._bias
        else:
            mean = float(across.mean()) if rows else 0.0
            down = down - mean
            offset = 0
        if self._flat:
            down = np.zeros(columns)
        return Scales(_quarters(across, offset), _quarters(down, 0))

    @property
    def _bias(self) -> int:
        """Mean exponent that keeps linear sums within range."""
        return 1 << max(0, self._form.exponent - 1)

    def _sizes(self, digits: Words, exponents: NDArray[np.uint16]) -> NDArray[np.float32]:
        size = magnitudes(digits, self._form)
        if self._rule == "linear":
            powers = exponents.astype(np.int32)
            powers -= self._bias
            np.clip(powers, -110, 110, out=powers)  # what lies beyond is no weight
            return np.ldexp(size, powers)
        size += np.float32(0.3)
        np.log2(size, out=size)
        size += exponents
        return size


def magnitudes(digits: Words, form: Format) -> NDArray[np.float32]:
    """|d| of differences given as balanced digits."""
    size: NDArray[np.float32] = signed_words(digits, form).astype(np.float32)
    np.abs(size, out=size)
    return size


def _quarters(logs: NDArray[np.float64], offset: int) -> NDArray[np.int16]:
    whole = np.rint(4 * logs) + offset
    quarters: NDArray[np.int16] = np.clip(whole, -MAX_SCALE, MAX_SCALE).astype(np.int16)
    return quarters


def classes(digits: Bytes) -> Bytes:
    """0 .. 3 for the digits -1, 0, +1 and all others."""
    found = digits + np.uint8(1)
    # Several times as fast as the minimum with a scalar.
    return np.clip(found, np.uint8(0), np.uint8(3), out=found)


@cache
def _constant(value: int) -> Bytes:
    """A block of it: numpy finds the greater of two arrays ten times as fast as with a scalar."""
    return np.full(_BLOCK, value, np.uint8)


def numbers(q: Bytes, above: Bytes | None, lo: int) -> Bytes:
    """The context of each digit: by the digit of the plane above, and by q beyond `lo`.

    Without a plane above all its digits count as 0.
    """
    least = np.uint8(min(lo, Q_MAX))
    under, over, others = _constant(int(least)), _constant(STEPS - 1), _constant(3)
    found = np.empty(len(q), np.uint8)
    loops = compiled.loops(0)
    if loops is not None and above is not None:
        given = compiled.frozen(q), compiled.frozen(above)
        loops.numbers(*given, least, np.uint8(STEPS - 1), found)
        return found
    spare = np.zeros(min(-(-len(q) // 8) * 8, _BLOCK), np.uint8)
    for start in range(0, len(q), _BLOCK):
        out = found[start : start + _BLOCK]
        np.maximum(q[start : start + _BLOCK], under[: len(out)], out=out)
        out -= least
        np.minimum(out, over[: len(out)], out=out)
        if above is None:
            out += np.uint8(STEPS)
            continue
        shifted = spare[: len(out)]
        np.add(above[start : start + _BLOCK], np.uint8(1), out=shifted)  # as in `classes`
        np.minimum(shifted, others[: len(out)], out=shifted)
        # Eight at a time: no bit of them comes into the next byte.
        np.left_shift(spare.view(np.uint64), np.uint64(5), out=spare.view(np.uint64))
        out |= shifted
    return found


def default_lo(plane: int, form: Format) -> int:
    """Where the contexts of a plane begin: 16 half octaves per plane below it, less 8."""
    below = form.width - 1 - plane
    if form.width <= 2:
        return 16 * below
    return max(0, min(16 * below - 8, Q_MAX - STEPS + 1))
